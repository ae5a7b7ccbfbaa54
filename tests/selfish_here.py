#!/usr/bin/env python3
"""What a tenant gains by a strategy, on the kernel of this machine.

Usage: tests/selfish_here.py [--seed N] [--strategies N] [--seconds N] [--without-credits] [--on-off] [--programs target/dist]

A tenant with more work than the host can do has half of the weight of two others, which always work as well. It is honest when
it works all the time; a strategy is a random one of what it could do instead: rest and return by plan, spin without use while it
rests, split its work among processes, start many threads, hold memory. Each turn is judged by its useful work beside
honest turns before and after it, with credits on unless told otherwise. `--on-off` is one turn of ten minutes in which
the tenant works every other twenty seconds, judged by the shares of CPU time. Needs root and legacy cgroups.

A gain is the part of the units of all three tenants that is its useful work, over that part in honest turns: what the rest of the
machine does meanwhile takes from all of them.
"""

import argparse
import json
import os
import random
import signal
import statistics
import sys
import time
from pathlib import Path

import compare_here
from compare_here import Here, programs

import loads

WEIGHTS = {"own": 100, "b": 100, "c": 200}
# Banks fill and fade within a turn.
CREDITS = {"half_life": "30s", "cap": "10s", "keep": "10%"}
SETTLE_SECONDS = 6
ON_OFF_SECONDS = 600


class Strategy:
    """How the tenant works: `processes` of so many `threads`, for `on` of `on + off` seconds, useless ones while it rests."""

    def __init__(self, threads, processes=1, on=0.0, off=0.0, useless=0, mib=0):
        self.threads, self.processes, self.on, self.off, self.useless, self.mib = threads, processes, on, off, useless, mib

    @staticmethod
    def drawn(dice, cpus):
        period = dice.choice([0.5, 1, 2, 4, 8, 16])
        rests = dice.random() < 0.8
        on = period * dice.choice([0.25, 0.5, 0.75, 0.9])
        return Strategy(
            threads=cpus * dice.choice([1, 2, 8]),
            processes=dice.choice([1, 1, 4, 16]),
            on=on if rests else 0.0,
            off=period - on if rests else 0.0,
            useless=dice.choice([0, 0, 1]) if rests else 0,
            mib=dice.choice([0, 0, 256]),
        )

    def loads(self):
        kind = lambda threads: ("hold", self.mib // self.processes, threads) if self.mib else ("spin", threads)
        useful = [loads.Load("own", *kind(max(1, self.threads // self.processes))) for _ in range(self.processes)]
        useless = [loads.Load("own", "spin", self.useless)] if self.useless else []
        for number, load in enumerate([*useful, *useless]):
            load.unit = f"own-{number}"
        return useful, useless


class Turn:
    """One strategy beside the two that always work, under a daemon of its own."""

    def __init__(self, strategy, seconds, credits):
        self.strategy, self.seconds, self.credits = strategy, seconds, credits

    def run(self):
        """The part of all work that is its useful work, and the CPU time of each tenant."""
        host = programs.Host(lambda _: None)
        host.ground = Here()
        host.cleanup.callback(host.ground.clear_all)
        with host.cleanup:
            return self.run_on(host)

    def run_on(self, host):
        groups = {name: host.ground.group(name) for name in WEIGHTS}
        control = {"interval": "1s", **({"credits": CREDITS} if self.credits else {})}
        policy = host.policy({name: {"weight": weight} for name, weight in WEIGHTS.items()}, control=control)
        daemon = host.ground.daemon(host, policy)
        daemon.says("started on")
        folder = host.folder()
        useful, useless = self.strategy.loads()
        others = [loads.Load(name, "spin", 2 * host.cpus) for name in ("b", "c")]
        for load in [*others, *useful, *useless]:
            load.start(host, folder)
        self.send(host, useless, signal.SIGSTOP)
        self.follow(host, useful, useless, SETTLE_SECONDS)
        used = lambda: {name: group.stat("cpu.stat", "usage_usec") / 1e6 for name, group in groups.items()}
        done = lambda loads: sum(load.done() for load in loads)
        before = used(), done(useful), done([*others, *useless])
        self.follow(host, useful, useless, self.seconds)
        after = used(), done(useful), done([*others, *useless])
        # All before any is waited for: a cgroup is empty after the last.
        self.send(host, [*others, *useful, *useless], signal.SIGKILL)
        for load in [*others, *useful, *useless]:
            host.ground.stop(load)
        assert daemon.terminate() == 0, daemon.log()
        own, rest = after[1] - before[1], after[2] - before[2]
        return own / (own + rest), {name: after[0][name] - before[0][name] for name in WEIGHTS}

    def follow(self, host, useful, useless, seconds):
        """Works and rests by plan for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self.strategy.off:
                time.sleep(left)
                return
            time.sleep(min(left, self.strategy.on))
            self.send(host, useful, signal.SIGSTOP)
            self.send(host, useless, signal.SIGCONT)
            time.sleep(max(0.0, min(end - time.monotonic(), self.strategy.off)))
            self.send(host, useless, signal.SIGSTOP)
            self.send(host, useful, signal.SIGCONT)

    def send(self, host, loads, signum):
        for load in loads:
            os.killpg(host.ground.running[load.unit].pid, signum)


def on_off(cpus, credits):
    """Whether nobody had more or less than its weight says, by two parts in a hundred."""
    _, used = Turn(Strategy(2 * cpus, on=20.0, off=20.0), ON_OFF_SECONDS, credits).run()
    total = sum(used.values())
    shares = {name: used[name] / total for name in WEIGHTS}
    due = {name: weight / sum(WEIGHTS.values()) for name, weight in WEIGHTS.items()}
    print(json.dumps({"what": "on and off", "credits": credits, "shares": shares, "due": due}), flush=True)
    return shares["own"] <= due["own"] + 0.02 and all(shares[name] >= due[name] - 0.02 for name in ("b", "c"))


def gains(options, cpus):
    """Useful work of each strategy over that of honest turns beside it; whether the best is within the bar."""
    dice = random.Random(options.seed)
    credits = not options.without_credits
    honest = lambda: Turn(Strategy(2 * cpus), options.seconds, credits).run()[0]
    all_honest, drawn = [honest()], []
    for _ in range(options.strategies):
        strategy = Strategy.drawn(dice, cpus)
        work, used = Turn(strategy, options.seconds, credits).run()
        all_honest.append(honest())
        gain = work / statistics.mean(all_honest[-2:])
        drawn.append(gain)
        share = used["own"] / sum(used.values())
        print(json.dumps({"what": "strategy", **vars(strategy), "credits": credits, "gain": round(gain, 4), "share": round(share, 4)}), flush=True)
    spread = [min(all_honest), max(all_honest)]
    mean = statistics.mean(all_honest)
    summary = {"seed": options.seed, "strategies": len(drawn), "credits": credits, "best": max(drawn), "honest": [one / mean for one in spread]}
    print(json.dumps({"what": "gains", **summary}), flush=True)
    return max(drawn) <= (1.1 if credits else 1.02)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--strategies", type=int, default=10)
    arguments.add_argument("--seconds", type=int, default=30)
    arguments.add_argument("--without-credits", action="store_true")
    arguments.add_argument("--on-off", action="store_true")
    arguments.add_argument("--programs", help="a folder with tenantd and tenantctl; built of the profile dist unless given")
    options = arguments.parse_args()
    compare_here.use_programs(options.programs)
    cpus = len(os.sched_getaffinity(0))
    is_held = on_off(cpus, not options.without_credits) if options.on_off else gains(options, cpus)
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
