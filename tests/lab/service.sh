#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mlnetd.service under a systemd of its own, which runs as process 1 of new namespaces on a copy-on-write view of this machine: the
# daemon starts as its user from nothing, attaches, is started again when it is killed, takes over from root's and back.
#   tests/lab/service.sh MLNETD MLNETCTL
set -euo pipefail

# ---- inside, as a unit of that systemd ----
inside() {
  set -x # what the log shows where it fails
  fail() { echo "FAILED: $1"; mlnetctl status || true; journalctl --no-pager -u mlnetd | tail -n 30; exit 1; }
  status_of() { # FIELD
    sed -n "s/^$1:[[:space:]]*//p" "/proc/$(systemctl show -P MainPID mlnetd)/status"
  }
  attached() { mlnetctl status --wait 60 && grep -E '^eth0 +yes +native' <<<"$(mlnetctl iface list)"; }
  cp /out/mlnetd /usr/sbin/mlnetd
  cp /out/mlnetctl /usr/bin/mlnetctl
  source_folder=$(cat /out/source)
  cmake -DCMAKE_INSTALL_PREFIX=/usr -DMLNET_DAEMON_SOURCE="$source_folder/userspace/daemon" -DMLNET_DAEMON_BINARY=/root -DMLNET_SBINDIR=sbin \
    -P "$source_folder/userspace/daemon/install-config.cmake"
  systemd-sysusers mlnetd.conf
  ip link set lo up
  ip link add eth0 type veth peer name p0
  ip link set eth0 up
  ip link set p0 up
  ip addr add 10.5.0.1/24 dev eth0
  printf '[store]\npath = "/var/lib/mlnet/store.db"\n[[iface]]\nname = "eth0"\naggregator = true\n' >/etc/mlnet/mlnetd.toml
  drop_ins=/etc/systemd/system/mlnetd.service.d
  mkdir -p $drop_ins
  printf '[Unit]\nDefaultDependencies=no\nWants=\nAfter=\n' >$drop_ins/test.conf # no network.target here
  systemctl daemon-reload

  systemctl start mlnetd || fail "it does not start"
  attached || fail "it does not attach"
  [[ $(status_of Uid | cut -f 1) == "$(id -u mlnet)" ]] || fail "it is not mlnet's"
  for set in CapEff CapBnd; do [[ $(status_of $set) == 000000c000001000 ]] || fail "$set is $(status_of $set)"; done
  [[ $(status_of NoNewPrivs)$(status_of Seccomp) == 12 ]] || fail "no filter of system calls"
  grep -E '^bpffs +ok' <<<"$(mlnetctl probe)" || fail "it does not see its pins"
  [[ $(stat -c %U:%G:%a /run/mlnet/mlnetd.sock) == mlnet:mlnet:660 ]] || fail "the socket is $(stat -c %U:%G:%a /run/mlnet/mlnetd.sock)"
  useradd --no-create-home trains
  ! runuser -u trains mlnetctl status || fail "anybody may use the socket"
  usermod --append --groups mlnet trains
  runuser -u trains mlnetctl status || fail "its group may not use the socket"

  pid=$(systemctl show -P MainPID mlnetd)
  systemctl kill --signal=KILL mlnetd
  until [[ $(systemctl show -P NRestarts mlnetd) != 0 ]]; do :; done
  attached || fail "it does not come back"
  [[ $(systemctl show -P MainPID mlnetd) != "$pid" ]] || fail "it is still the same"

  # Root's leaves files and pins of root's.
  cp /usr/share/mlnet/mlnetd-shared.conf $drop_ins/
  systemctl daemon-reload
  systemctl restart mlnetd || fail "it does not start as root"
  attached || fail "it does not attach as root"
  [[ $(status_of Uid | cut -f 1) == 0 && $(status_of CapEff) == 000000c000201002 ]] || fail "as root it has $(status_of CapEff)"
  systemctl kill --signal=KILL mlnetd
  rm $drop_ins/mlnetd-shared.conf
  systemctl daemon-reload
  systemctl restart mlnetd || fail "it does not start after root's"
  attached || fail "it does not attach after root's"
  [[ $(status_of Uid | cut -f 1) == "$(id -u mlnet)" ]] || fail "it is not mlnet's any more"

  systemctl stop mlnetd
  [[ -z $(ls -A /sys/fs/bpf/mlnet) ]] || fail "a stop leaves pins: $(find /sys/fs/bpf/mlnet)"
  mlnetd --clean || fail "mlnetd --clean"
  systemctl start mlnetd || fail "it does not start after mlnetd --clean"
  attached || fail "it does not attach after mlnetd --clean"
  set +x
  echo "service: all hold"
}

# ---- between: process 1 of the new namespaces, until systemd takes its place ----
boot() {
  local folder=$1 root=$1/root
  mount --make-rprivate /
  mount -t tmpfs tmpfs "$folder/writes"
  mkdir "$folder/writes/upper" "$folder/writes/work"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/writes/upper,workdir=$folder/writes/work" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs sysfs "$root/sys"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
  mount -t bpf -o mode=700 bpf "$root/sys/fs/bpf" # as systemd does
  mount -t tmpfs -o mode=0755 tmpfs "$root/run"
  mount --rbind /dev "$root/dev"
  mkdir "$root/out"
  mount --bind "$folder/out" "$root/out"
  echo mlnet-test >"$root/etc/hostname"
  : >"$root/etc/machine-id"
  rm -rf "$root"/etc/systemd/system/*.wants
  printf '[Unit]\nDefaultDependencies=no\nWants=test.service systemd-journald.service\n' >"$root/etc/systemd/system/test.target"
  printf '[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/bin/bash /out/service.sh --inside\nExecStopPost=systemctl --force --force poweroff\n%s\n' \
    "StandardOutput=file:/out/log" >"$root/etc/systemd/system/test.service"
  cd "$root"
  mkdir old
  pivot_root . old
  umount -l old
  export container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin
  exec /lib/systemd/systemd --system --unit=test.target --log-target=null --show-status=no
}

case ${1:-} in
  --inside) inside 2>&1; exit ;;
  --boot) boot "$2"; exit ;;
esac
(($# == 2)) || { echo "usage: tests/lab/service.sh MLNETD MLNETCTL" >&2; exit 2; }
folder=$(mktemp -d)
mkdir "$folder"/{out,root,writes,cgroup}
cp "$1" "$folder/out/mlnetd"
cp "$2" "$folder/out/mlnetctl"
cp "$0" "$folder/out/service.sh"
realpath "$(dirname "$0")/../.." >"$folder/out/source"
mount -t cgroup2 cgroup2 "$folder/cgroup"
group=$folder/cgroup/mlnet-test-$$
mkdir "$group"
finish() {
  find "$group" -depth -type d -exec rmdir {} + || true
  umount "$folder/cgroup"
  rm -rf "$folder"
}
trap finish EXIT
# In a group of its own, below which systemd makes its own.
timeout --kill-after=5 240 bash -c 'echo $$ >"$1/cgroup.procs"; exec unshare --mount --pid --fork --uts --ipc --net --cgroup --kill-child bash "$2" --boot "$3"' \
  - "$group" "$0" "$folder" >"$folder/boot.log" 2>&1 || true
if [[ $(tail -n 1 "$folder/out/log") != "service: all hold" ]]; then
  cat "$folder/boot.log" "$folder/out/log" >&2
  exit 1
fi
tail -n 1 "$folder/out/log"
