"""How well `tenantctl plan --replay` foretells another policy.

The same planned loads run twice: first under one policy, recorded, then under another one. The recording of the first is replayed
with the second policy, and compared with what came true, minute by minute of each tenant: the CPUs that it was
entitled to, and those that it used. An error is a part of the CPUs of the machine. Of minutes with use, it counts those within
the interval that was foretold. The host of a comparison is used twice, one after the other (ground.py).
"""

import json
import random
import signal
import time
from datetime import datetime

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


def play(host, side, minutes, seed):
    """Runs the planned loads under the policy of a side; returns the paths of the policy and of the recording."""
    ground, folder = host.ground, host.folder()
    tenants = {name: {"weight": weights[side], **ground.where([name])} for name, weights in WEIGHTS.items()}
    policy, recording = host.policy(tenants), folder / "history"
    daemon = ground.daemon(host, policy, "--history", str(recording))
    daemon.says("started on")
    running = {name: loads.Load(name, "spin", max(1, host.cpus * THREADS_PER_CPU.get(name, 0))) for name in WEIGHTS}
    for load in running.values():
        load.start(host, folder)
    seconds = (minutes + 1) * MINUTE + 2
    began = time.monotonic()
    for at, name, signum in plan(seed, seconds):
        time.sleep(max(0.0, began + at - time.monotonic()))
        ground.signal(running[name], signum)
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    for load in running.values():
        ground.signal(load, signal.SIGKILL)
        ground.stop(load)
    assert daemon.terminate() == 0, daemon.log()
    return policy, recording


def minutes(host, recording, policy, side, count):
    """Of each tenant and minute of a recording, after the loads have settled: CPUs entitled and used, and the interval of the
    forecast. `side` is `was` for what was recorded, `would` for what the policy would have done."""
    replay = host.ctl("plan", "--replay", recording, "--policy", policy, "--json")
    assert replay.returncode == 0, replay.stderr
    lines = [json.loads(line) for line in replay.stdout.splitlines()]
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
            nr, entitled, used = sums.get((name, minute), (0, 0.0, 0.0))
            sums[name, minute] = (nr + 1, entitled + told[side]["allocation_cores"], used + told["usage_cores"])
    came = {key: {"entitled": entitled / nr, "used": used / nr} for key, (nr, entitled, used) in sums.items()}
    if side == "would":
        for line in (line for line in lines if "minute" in line):
            minute = round((stamp(line["minute"]) - began) / MINUTE)
            for name, told in line["tenants"].items():
                if (name, minute) in came:
                    came[name, minute] |= {"used": told["usage_cores"], "interval": (told["low_cores"], told["high_cores"])}
    return came


def measure(host, count, seed):
    """Plays both sides for so many minutes, and notes the minutes and their sums as lines of JSON. Returns the sums."""
    for name in WEIGHTS:
        host.ground.group(name)
    # Those of both sides.
    sleepers = host.ground.sleepers(host, WEIGHTS)
    sleepers()
    _, recording = play(host, 0, count, seed)
    policy, truth = play(host, 1, count, seed)
    foretold = minutes(host, recording, policy, "would", count)
    came = minutes(host, truth, policy, "was", count)
    errors = {"entitled": [], "used": []}
    nr_used = nr_covered = 0
    for key in sorted(came):
        for what, all in errors.items():
            all.append(abs(foretold[key][what] - came[key][what]) / host.cpus)
        low, high = foretold[key]["interval"]
        used = came[key]["used"]
        nr_used += used > USED_MIN
        nr_covered += used > USED_MIN and low <= used <= high
        host.note(json.dumps({"tenant": key[0], "minute": key[1], "foretold": foretold[key], "came": came[key]}))
    sums = {
        "what": "foretelling",
        "seed": seed,
        "tenant_minutes": len(came),
        "within": {what: sum(error <= ERROR_MAX for error in all) / len(all) for what, all in errors.items()},
        "largest": {what: max(all) for what, all in errors.items()},
        "minutes_with_use": nr_used,
        "within_intervals": nr_covered / max(1, nr_used),
    }
    host.note(json.dumps(sums))
    return sums
