#!/usr/bin/env python3
"""How well `tenantctl plan --replay` foretells another policy, on the kernel of this machine.

Usage: tests/foretell_here.py [--minutes N] [--seed N] [--programs target/dist]

The same planned loads run twice: first under one policy, recorded, then under another one. The recording of the first is replayed
with the second policy, and compared with what came true, minute by minute of each tenant: the CPUs that it was
entitled to, and those that it used. An error is a part of the CPUs of the machine. Of minutes with use, it counts those within
the interval that was foretold. Needs root and legacy cgroups. Exit status 1: fewer than 90 % of the errors of entitlements are
within 0.05.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import compare_here
from compare_here import Here, programs

import loads

# Weights under the policy that is recorded, and under the one that is foretold.
WEIGHTS = {"steady": (100, 300), "one": (100, 100), "bursts": (200, 50), "shifts": (100, 200)}
THREADS_PER_CPU = {"steady": 2, "bursts": 2, "shifts": 1}
MINUTE = 60
ERROR_MAX, WITHIN_MIN = 0.05, 0.9
# CPUs from which a tenant counts as using any.
USED_MIN = 0.01


def plan(seed, seconds):
    """When which load stops and goes on: of `bursts` every few seconds, of `shifts` after half a minute or more."""
    dice, changes = random.Random(seed), []
    for name, choices in (("bursts", (2, 4, 8)), ("shifts", (30, 45, 60))):
        at, is_on = 0.0, True
        while (at := at + dice.choice(choices)) < seconds:
            is_on = not is_on
            changes.append((at, name, signal.SIGCONT if is_on else signal.SIGSTOP))
    return sorted(changes)


def play(options, side, folder):
    """Runs the planned loads under the policy of a side, recorded in a folder; returns the path of the policy."""
    host = programs.Host(lambda _: None)
    host.ground = Here()
    host.cleanup.callback(host.ground.clear_all)
    with host.cleanup:
        for name in WEIGHTS:
            host.ground.group(name)
        path = host.policy({name: {"weight": weights[side]} for name, weights in WEIGHTS.items()})
        kept = folder / "policy.yaml"
        kept.write_text(path.read_text())
        daemon = host.daemon(path, Path("/") / compare_here.ROOT, "--history", str(folder / "history"))
        daemon.says("started on")
        running = {name: loads.Load(name, "spin", max(1, host.cpus * THREADS_PER_CPU.get(name, 0))) for name in WEIGHTS}
        for load in running.values():
            load.start(host, host.folder())
        seconds = (options.minutes + 1) * MINUTE + 2
        began = time.monotonic()
        for at, name, signum in plan(options.seed, seconds):
            time.sleep(max(0.0, began + at - time.monotonic()))
            os.killpg(host.ground.running[running[name].unit].pid, signum)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        for load in running.values():
            os.killpg(host.ground.running[load.unit].pid, signal.SIGKILL)
        for load in running.values():
            host.ground.stop(load)
        assert daemon.terminate() == 0, daemon.log()
    return kept


def minutes(recording, policy, side, count):
    """Of each tenant and minute of a recording, after the loads have settled: CPUs entitled and used, and the interval of the
    forecast. `side` is `was` for what was recorded, `would` for what the policy would have done."""
    command = [str(programs.TENANTCTL), "plan", "--replay", str(recording), "--policy", str(policy), "--json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ticks = [line for line in lines if "time" in line and "tenants" in line]
    stamp = lambda text: datetime.fromisoformat(text).timestamp()
    began = stamp(ticks[0]["time"])
    sums = {}
    for tick in ticks:
        minute = int((stamp(tick["time"]) - began) // MINUTE)
        # The loads settle in the first one.
        if not 0 < minute <= count:
            continue
        for name, told in tick["tenants"].items():
            entry = sums.setdefault((name, minute), [0, 0.0, 0.0])
            sums[name, minute] = [entry[0] + 1, entry[1] + told[side]["allocation_cores"], entry[2] + told["usage_cores"]]
    came = {key: {"entitled": entitled / n, "used": used / n} for key, (n, entitled, used) in sums.items()}
    if side == "would":
        for line in (line for line in lines if "minute" in line):
            minute = round((stamp(line["minute"]) - began) / MINUTE)
            for name, told in line["tenants"].items():
                if (name, minute) in came:
                    came[name, minute] |= {"used": told["usage_cores"], "interval": (told["low_cores"], told["high_cores"])}
    return came


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--minutes", type=int, default=6)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--programs", help="a folder with tenantd and tenantctl; built of the profile dist unless given")
    options = arguments.parse_args()
    compare_here.use_programs(options.programs)
    keep = programs.Host(lambda _: None)
    with keep.cleanup:
        folders = [keep.folder(), keep.folder()]
        policies = [play(options, side, folder) for side, folder in enumerate(folders)]
        foretold = minutes(folders[0] / "history", policies[1], "would", options.minutes)
        came = minutes(folders[1] / "history", policies[1], "was", options.minutes)
    cpus = len(os.sched_getaffinity(0))
    errors = {"entitled": [], "used": []}
    nr_used = nr_covered = 0
    for key in sorted(came):
        for what, all in errors.items():
            all.append(abs(foretold[key][what] - came[key][what]) / cpus)
        low, high = foretold[key]["interval"]
        used = came[key]["used"]
        nr_used += used > USED_MIN
        nr_covered += used > USED_MIN and low <= used <= high
        print(json.dumps({"tenant": key[0], "minute": key[1], "foretold": foretold[key], "came": came[key]}))
    within = {what: sum(error <= ERROR_MAX for error in all) / len(all) for what, all in errors.items()}
    largest = {what: max(all) for what, all in errors.items()}
    print(json.dumps({"what": "foretelling", "seed": options.seed, "tenant_minutes": len(came), "within": within, "largest": largest}))
    print(json.dumps({"what": "intervals", "minutes_with_use": nr_used, "within": nr_covered / max(1, nr_used)}))
    return 0 if within["entitled"] >= WITHIN_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
