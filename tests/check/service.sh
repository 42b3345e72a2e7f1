#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mlnetd.service as it is installed: systemd understands all of it, its exposure stays below the threshold, and its user is made.
# The score is systemd's estimate of what the service could do to the host, in tenths.
set -euo pipefail
cd "$(dirname "$0")/../.."

threshold=30
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { printf 'service: %s\n' "$1" >&2; exit 1; }

DESTDIR=$folder cmake -DCMAKE_INSTALL_PREFIX=/usr -DMLNET_DAEMON_SOURCE="$PWD/userspace/daemon" -DMLNET_DAEMON_BINARY="$folder" \
  -DMLNET_SBINDIR=sbin -P userspace/daemon/install-config.cmake >/dev/null
unit=$folder/usr/lib/systemd/system/mlnetd.service
shared=$folder/usr/share/mlnet/mlnetd-shared.conf
[[ -e $unit && -e $shared && -e $folder/etc/mlnet/mlnetd.toml ]] || fail "it was not installed: $(find "$folder")"

# The program itself is not there.
said=$(systemd-analyze verify --man=no "$unit" 2>&1 | grep -v 'is not executable' || true)
[[ -z $said ]] || fail "systemd-analyze verify: $said"
mkdir "$unit.d"
cp "$shared" "$unit.d/"
said=$(systemd-analyze verify --man=no "$unit" 2>&1 | grep -v 'is not executable' || true)
[[ -z $said ]] || fail "systemd-analyze verify, with mlnetd-shared.conf: $said"
rm -r "$unit.d"

report=$(systemd-analyze security --offline=true --no-pager --threshold=$threshold "$unit") || fail "more exposed than $threshold: $report"
for forbidden in CAP_SYS_ADMIN CAP_DAC_OVERRIDE CAP_NET_RAW User=root; do
  ! grep -q "^[^#]*$forbidden" "$unit" || fail "it names $forbidden"
done

mkdir -p "$folder/etc"
systemd-sysusers --root="$folder" mlnetd.conf >/dev/null 2>&1 || fail "systemd-sysusers: $(systemd-sysusers --root="$folder" mlnetd.conf 2>&1)"
for file in passwd group; do grep -q '^mlnet:' "$folder/etc/$file" || fail "sysusers made no mlnet in /etc/$file"; done
tail -n 1 <<<"$report"
