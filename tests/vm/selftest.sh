#!/usr/bin/env bash
# The harness under test: a guest that panics, one that hangs, one that says nothing and one whose scenarios fail must
# each make boot.sh fail and say why, and a harness that is ended must take its guest with it.
# Prints lines and an exit status as run.sh does.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

work=$(mktemp -d "${TMPDIR:-/tmp}/tenantd-selftest.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
image=$("$here/image.sh" bookworm rest)
TENANTD_VM_ACCEL=${TENANTD_VM_ACCEL:-$("$here/accel.sh" "$image")}
export TENANTD_VM_ACCEL
payload=$work/payload
mkdir -p "$payload/guest"

passed=0 failed=0
# expect NAME OPTIONS... -- LINE...: boots the payload; boot.sh must fail and print each LINE.
expect() {
    local name=$1 options=() line missing=
    shift
    while [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    shift
    if "$here/boot.sh" "${options[@]}" "$image" "$payload" >"$work/out" 2>&1; then
        missing="a failure"
    fi
    for line in "$@"; do
        grep -qxF -- "$line" "$work/out" || missing=$line
    done
    verdict "$name" "${missing:+did not see: $missing}"
}
verdict() {
    if [[ -z $2 ]]; then
        echo "ok $1"
        passed=$((passed + 1))
    else
        sed 's/^/#   /' "$work/out"
        echo "FAIL $1: $2"
        failed=$((failed + 1))
    fi
}
start() {
    printf '#!/bin/sh\n%s\n' "$1" >"$payload/start"
    chmod +x "$payload/start"
}

start 'echo "ok all.is_well" >/dev/virtio-ports/results; echo c >/proc/sysrq-trigger; sleep 60'
expect selftest.panic --limit 1200 -- \
    "ok all.is_well" "FAIL flat guest: ended without its closing line"

start 'echo "1 passed, 0 failed, 0 skipped" >/dev/virtio-ports/results; sleep 1000'
expect selftest.hang --limit 30 -- "FAIL flat guest: did not finish within 30 s"

start 'sleep 1000'
expect selftest.silence --patience 3 -- \
    "# the guest has said nothing for 3 s: once more" "FAIL flat guest: said nothing for 3 s, three times"

# A disk that is full before the boot, and one that gets full: as much as a boot needs, less what another program takes.
mkdir "$work/small"
small() { mount -t tmpfs -o "size=$1" tenantd-selftest "$work/small"; }
trap 'umount -q "$work/small" || true; rm -rf "$work"' EXIT
small 64m
TMPDIR=$work/small "$here/boot.sh" "$image" "$payload" >"$work/out" 2>&1 && left="did not see a failure" || left=
grep -q '^FAIL flat guest: [0-9]* MiB are free for ' "$work/out" || left="see above"
verdict selftest.no_space "$left"
umount "$work/small"
small 1200m
TMPDIR=$work/small "$here/boot.sh" --limit 300 "$image" "$payload" >"$work/out" 2>&1 &
harness=$!
until pgrep -P "$harness" -x timeout >/dev/null || ! kill -0 "$harness" 2>/dev/null; do sleep 0.2; done
dd if=/dev/zero of="$work/small/taken" bs=1M status=none 2>/dev/null || true
wait "$harness" && left="did not see a failure" || left=
grep -q '^FAIL flat guest: left less than 64 MiB free for ' "$work/out" || left="see above"
verdict selftest.space_runs_out "$left"
umount "$work/small"

cp "$here"/guest/*.py "$payload/guest/"
rm "$payload"/guest/test_*.py
cat >"$payload/guest/test_x.py" <<'END'
from pathlib import Path
from host import Skip
def test_passes(host): pass
def test_fails(host): assert 1 == 2, "one is not two"
def test_oopses(host):
    if "scenarios.after=" not in Path("/proc/cmdline").read_text():
        Path("/dev/kmsg").write_text("<1>Oops: int3: this kernel met its own patch")
        Path("/proc/sysrq-trigger").write_text("c")
def test_skips(host): raise Skip("no such thing here")
def test_litters(host): host.delegated().path.parent.parent.joinpath("litter").mkdir()
END
# One of them ends the guest as emulation does, which is no failure: what is left is judged by a second boot.
start 'SCENARIO_PATIENCE=30 exec python3 -B /payload/guest/run.py flat any'
expect selftest.failing_scenarios --limit 1200 -- \
    "ok x.passes" "FAIL x.fails: one is not two" "ok x.oopses" "skip x.skips: no such thing here" \
    "FAIL x.litters: left behind /system.slice/litter" "1 passed, 1 failed, 1 skipped"

# Every scenario runs somewhere; what `core` and `rest` run is together what there is, each in its guest once; and
# `core` and `once` run each scenario once.
python3 -B - "$here/guest" >"$work/out" 2>&1 <<'END' && left='' || left="see above"
import importlib, pathlib, sys
sys.path.insert(0, sys.argv[1])
import marks
guests = [("flat", marks.OLDER), ("flat", marks.NEWER), ("numa", marks.NEWER)]
scenarios = sorted(pathlib.Path(sys.argv[1]).glob("test_*.py"))
for file in scenarios:
    module = importlib.import_module(file.stem)
    for name, scenario in vars(module).items():
        if name.startswith("test_") and callable(scenario) and scenario.__module__ == module.__name__:
            tiers = ("core", "rest", "once", "all", "long", "compare")
            runs = {tier: [g for g in guests if marks.runs(scenario, *g, tier)] for tier in tiers}
            ends = [tier for tier in ("all", "long", "compare") if runs[tier]]
            assert len(ends) == 1, f"{file.stem}.{name} has to run in `all`, in `long` or in `compare`: {runs}"
            assert sorted(runs["core"] + runs["rest"]) == sorted(runs["all"]), f"{file.stem}.{name}: {runs}"
            assert len(runs["core"] + runs["once"]) == bool(runs["all"]), f"{file.stem}.{name}: {runs}"
# What is shared stands in modules of its own: the runner starts whichever scenarios there are.
for file in sorted(set(pathlib.Path(sys.argv[1]).glob("*.py")) - set(scenarios)):
    for line in file.read_text().splitlines():
        assert not line.startswith(("import test_", "from test_")), f"{file.name}: {line}"
END
verdict selftest.marks "$left"

# A condition on a file that comes later is waited for, and one on a file that never comes says which one.
SCENARIO_PATIENCE=1 python3 -B - "$here/guest" "$work" >"$work/out" 2>&1 <<'END' && left='' || left="see above"
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from cgroups import Cgroup, wait_until
folder, polls = Cgroup(sys.argv[2]), []
def comes_with_the_second_poll():
    polls.append(None)
    if len(polls) > 1: (folder.path / "later").touch()
    return folder.read("later") == ""
try:
    wait_until(comes_with_the_second_poll, "the file")
    wait_until(lambda: folder.read("never") == "", "the other file")
except AssertionError as error:
    assert "the other file" in str(error) and "never" in str(error), error
else:
    raise AssertionError("a file that is not there was read")
END
verdict selftest.waiting "$left"

# What comparisons are judged by: figure 3 of the paper on DRF, max-min where there is one resource, and a table.
python3 -B - "$here" >"$work/out" 2>&1 <<'END' && left='' || left="see above"
import sys
sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/guest"]
import figures, tables
near = lambda got, want: all(abs(g - w) < 1e-9 for g, w in zip(sum(got, []), sum(want, []))) or sys.exit(f"{got}, not {want}")
near(figures.drf([1, 1], [[100, 400], [300, 100]], [9, 18]), [[3, 12], [6, 2]])
near(figures.drf([1, 2, 4], [[2], [2], [0.1]], [2]), [[1.9 / 3], [3.8 / 3], [0.1]])
near(figures.drf([1, 1], [[2, 0], [0, 5]], [2, 4]), [[2, 0], [0, 4]])
assert abs(figures.share_error([1, 3], [1, 1]) - 0.25) < 1e-9
assert figures.jain([2, 2]) == 1 and figures.jain([1, 0]) == 0.5
assert [figures.percentile(range(1, 21), p) for p in (0, 1, 5, 50)] == [1, 1, 1, 10]
row = {"way": "w", "share_error": 0.1, "share_error_worst_5s": 0.2, "jain": 1.0, "work_per_second": {"a": 2}, "oom_kills": 0,
       "writes_per_minute": 0.0, "way_cpu_percent": 0.0, "ticks_arrived": 1.0, "waits_ms": {"a": {"p50": 1, "p99": 2}}}
ways = {"w": [row, {**row, "share_error": 0.3}]}
head, _, line = tables.table({"older": ways})
assert len(head.split("|")) == len(line.split("|")) and "p00" not in head and "p99" in head, (head, line)
assert line.startswith("| w | 20.0% (10.0%–30.0%) |"), line
head, _, *lines = tables.table({"older": ways, "newer": {"w": [{**row, "share_error": 0.3}]}})
assert head.startswith("| release | way | share error |"), head
assert [line.split(" | ")[:3] for line in lines] == \
    [["| older", "w", "20.0% (10.0%–30.0%)"], ["| newer", "w", "30.0%"]], lines
END
verdict selftest.figures "$left"

# A guest that would run for long, whose harness gets a signal.
start 'sleep 1000'
"$here/boot.sh" --limit 300 "$image" "$payload" >"$work/out" 2>&1 &
harness=$!
guest=
while [[ -z $guest ]] && kill -0 "$harness" 2>/dev/null; do
    limiter=$(pgrep -P "$harness" -x timeout || true)
    guest=$(pgrep -P "${limiter:-0}" -f qemu-system || true)
done
kill -TERM "$harness"
wait "$harness" || true
left=
if [[ -z $guest ]]; then left="saw no guest"; fi
if [[ -n $guest ]] && kill -0 "$guest" 2>/dev/null; then left="the guest still runs"; fi
verdict selftest.signal "$left"

echo "$passed passed, $failed failed, 0 skipped"
[[ $failed -eq 0 ]]
