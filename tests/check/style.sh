#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rules that a machine can check. Each prints what breaks it; the exit code is the number of broken rules.
set -u
cd "$(dirname "$0")/../.."
broken=0

rule() { # NAME OFFENDERS
  if [[ -n $2 ]]; then
    printf 'broken rule: %s\n%s\n' "$1" "$2"
    broken=$((broken + 1))
  fi
}

sources() { git ls-files -- "$@" 2>/dev/null || find "${@%%\**}" -type f; }
offending() { xargs -r grep -nE "$@" /dev/null 2>/dev/null; }

# Of the files named on stdin, those without the text in their first three lines.
lacking() {
  local all
  all=$(sort)
  comm -23 <(echo "$all") <(xargs -r awk -v want="$1" 'FNR > 3 { nextfile } index($0, want) { print FILENAME; nextfile }' <<<"$all" | sort)
}

rule "every source file has an SPDX line in its first three lines" "$(
  sources '*.c' '*.h' '*.cc' '*.py' '*.sh' '*CMakeLists.txt' '*.cmake' 'tools/check' 'tools/demo' 'tools/bench' 'tools/install-deps' |
    lacking SPDX-License-Identifier)"
rule "bpf/ is GPL-2.0-only, bpf/abi/ dual, the rest Apache-2.0" "$(
  sources 'bpf/abi/*.h' | lacking 'SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause'
  sources 'bpf/*.c' 'bpf/*.h' | lacking 'SPDX-License-Identifier: GPL-2.0-only'
  sources 'userspace/*.cc' 'userspace/*.h' 'tools/*.cc' 'tools/*.h' 'tests/*.cc' 'tests/*.h' | lacking 'SPDX-License-Identifier: Apache-2.0')"
rule "only userspace/datapath, bpf and test harnesses include libbpf" "$(
  sources 'userspace/*.cc' 'userspace/*.h' 'tools/*.cc' 'tools/*.h' |
    grep -vE '^userspace/datapath/|^tools/mlnet-lab/' | offending '#include <(bpf|xdp)/')"
rule "the worker library sees neither datapath, control nor daemon" "$(
  sources 'userspace/worker/*' | offending '#include "(datapath|control|daemon)/')"
rule "the torch backend includes only public headers" "$(
  sources 'userspace/torch/*.cc' 'userspace/torch/*.h' | offending '#include "(worker|datapath|control|daemon|rpc|base|wire)/')"
rule "nothing but tests includes tests" "$(
  sources 'userspace/*' 'tools/*.cc' 'tools/*.h' | offending '#include "(harness|tests)/')"
rule "files have at most 400 lines" "$(
  sources '*.cc' '*.h' '*.c' '*.py' | xargs -r wc -l | awk '$1 > 400 && $2 != "total" { print $2 ": " $1 }')"
rule "no sleeps in tests: wait for a condition (a process that only has to exist is 'exec sleep')" "$(
  sources 'tests/*' | grep -v '^tests/check/' |
    offending '\b(sleep_for|usleep|time\.sleep)\b|^[^#]*\bsleep [0-9]' | grep -v 'exec sleep')"
rule "no unexplained leftovers" "$(sources '*.cc' '*.h' '*.c' '*.py' | offending '\b(TODO|FIXME|XXX|HACK)\b')"
rule "top level holds only what belongs there" "$(
  git ls-files 2>/dev/null | cut -d/ -f1 | sort -u |
    grep -vE '^(\..*|CMakeLists\.txt|bpf|userspace|tools|tests|vm_testbed|README\.md|LICENSE.*)$')"

((broken == 0)) && echo "style: all rules hold"
exit $broken
