#!/usr/bin/env bash
# Tables of tenantd beside what administrators would use otherwise, on the Debian hosts of tier 3.
#
# Usage: compare.sh [OUT [OPTIONS OF run.sh...]]
#   OUT      the file to which rows are added, a line of JSON each; target/compare.jsonl unless given
#   options  `--only compare.steady --suite trixie`, for a part of it; else every scenario on both releases
#
# About two hours under emulation, a fifth of it with KVM. The rows of a scenario are measured one after the
# other in the same guest, and compare with each other only. A head before them says on what host that was.
# Disks are divided in a guest whose clock counts instructions, after all others: a quarter of an hour.
# `tests/vm/tables.py OUT` makes tables of it.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=${1:-target/compare.jsonl}
shift || true
options=("$@") disks=
if [[ ${#options[@]} -eq 0 ]]; then options=(--tier compare) disks=yes; fi
mkdir -p "$(dirname "$out")"

lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
before=$(cut -d' ' -f1-3 /proc/loadavg)
status=0
tests/vm/run.sh "${options[@]}" | tee "$lines" || status=$?
if [[ -n $disks ]]; then
    TENANTD_VM_ACCEL=exact SCENARIO_LIMIT=3000 tests/vm/run.sh --only 'compare.two_readers|disk.three_tenants' | tee -a "$lines" || status=$?
fi
printf '{"host": "%s", "kernel": "%s", "cpus": %s, "load_before": "%s", "load_after": "%s", "commit": "%s"}\n' \
    "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$(uname -r)" "$(nproc)" "$before" \
    "$(cut -d' ' -f1-3 /proc/loadavg)" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" >>"$out"
sed -nE 's/^# +compare\.[a-z_]+: (\{.*\})$/\1/p' "$lines" >>"$out"
echo "rows are in $out"
tests/vm/tables.py "$out"
exit "$status"
