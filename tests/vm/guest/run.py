#!/usr/bin/env python3
"""Runs the scenarios of this guest and says on the results port how each went.

Usage: run.py SHAPE TIER PACE [PATTERN]

A scenario is a function `test_*` in a file `test_*.py`; it takes a `host.Host`. It passes when it
returns, and is named FILE.FUNCTION without the prefixes. Its marks decide in which guests, tiers and paces
it runs (marks.py). Where the kernel was given
`scenarios.after=NAME`, another boot has judged those up to that one. The last line is
`N passed, N failed, N skipped`; without it the harness outside takes this guest for dead.
"""

import importlib
import os
import platform
import re
import signal
import sys
import time
import traceback
from pathlib import Path

from cgroups import Cgroup, MOUNT, wait_until
from ground import Slices
from host import Host, Skip, run
from marks import runs

PORT = "/dev/virtio-ports/results"
LIMIT_SECONDS = int(os.environ.get("SCENARIO_LIMIT", "600"))
LINES_SHOWN = 40


class TooLong(Exception):
    """The scenario did not come to its end."""


def main():
    shape, tier, pace = sys.argv[1:4]
    pattern = sys.argv[4] if len(sys.argv) > 4 else ""
    with open(PORT, "w", buffering=1) as port:
        tell = lambda line: print(line, file=port)
        tell(f"# {describe()}")
        counts = {"ok": 0, "FAIL": 0, "skip": 0}
        for name, scenario in left_to_judge(scenarios(shape, tier, pace, pattern)):
            verdict, why = judge(name, scenario, pace, tell)
            counts[verdict] += 1
            tell(f"{verdict} {name}" + (f": {why}" if why else ""))
        tell("{ok} passed, {FAIL} failed, {skip} skipped".format(**counts))


def scenarios(shape, tier, pace, pattern):
    """The scenarios for this guest, tier and pace in whose name `pattern` is found, file by file."""
    release = os_release()["VERSION_CODENAME"]
    found = []
    for file in sorted(Path(__file__).resolve().parent.glob("test_*.py")):
        module = importlib.import_module(file.stem)
        for key, function in vars(module).items():
            if key.startswith("test_") and callable(function):
                name = f"{file.stem[5:]}.{key[5:]}"
                is_own = function.__module__ == module.__name__
                if is_own and runs(function, shape, release, tier, pace) and re.search(pattern, name):
                    found.append((name, function))
    return found


def left_to_judge(found):
    """Those after the last one that another boot of this guest has judged."""
    arguments = Path("/proc/cmdline").read_text().split()
    judged = [argument.split("=", 1)[1] for argument in arguments if argument.startswith("scenarios.after=")]
    names = [name for name, _ in found]
    return found[names.index(judged[0]) + 1 :] if judged else found


def judge(name, scenario, pace, tell):
    """Runs one scenario and cleans up after it; a cgroup that it leaves behind is a failure too."""
    before = cgroups()
    host = Host(lambda text: tell(f"#   {name}: {text}"))
    host.ground = Slices()
    host.is_alone = pace != "beside"
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_SECONDS)
    started = time.monotonic()
    verdict, why = "ok", ""
    try:
        with host.cleanup:
            scenario(host)
    except Skip as skip:
        verdict, why = "skip", str(skip)
    except BaseException as error:
        verdict, why = "FAIL", explain(error, tell)
    finally:
        signal.alarm(0)
    if verdict == "ok":
        verdict, why = litter(before)
    tell(f"#   {name}: took {time.monotonic() - started:.1f} s")
    return verdict, why


def litter(before):
    """The verdict on what is there that was not before. Systemd removes the cgroups of what has stopped soon,
    not at once."""
    try:
        wait_until(lambda: cgroups() <= before, "an empty stage")
    except AssertionError:
        if left := sorted(cgroups() - before):
            return "FAIL", f"left behind {', '.join(left)}"
    return "ok", ""


def explain(error, tell):
    """The failure in one line; where it happened goes into lines of its own, not too many."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    if len(lines) > LINES_SHOWN:
        lines = lines[: LINES_SHOWN // 2] + ["…"] + lines[-LINES_SHOWN // 2 :]
    for line in lines:
        tell(f"#     {line}")
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


def too_long(_signum, _frame):
    raise TooLong(f"did not end within {LIMIT_SECONDS} s")


def cgroups():
    return {group.name for group in Cgroup(MOUNT).below()}


def os_release():
    lines = Path("/etc/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def describe():
    """What this guest is, so that a log can be read years later."""
    release = os_release()
    systemd = run("systemctl", "--version").split()[1]
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    up = float(Path("/proc/uptime").read_text().split()[0])
    return (
        f"{release['PRETTY_NAME']}, kernel {platform.release()}, systemd {systemd}, "
        f"{os.cpu_count()} CPUs on {nodes} node{'s'[:nodes > 1]}, up after {up:.0f} s"
    )


if __name__ == "__main__":
    main()
