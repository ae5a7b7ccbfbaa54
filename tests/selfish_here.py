#!/usr/bin/env python3
"""What a tenant gains by a strategy, on the kernel of this machine (tests/vm/guest/strategies.py).

Usage: tests/selfish_here.py [--seed N] [--strategies N] [--seconds N] [--screen N] [--without-credits] [--on-off] [--programs target/dist]

Credits are on unless told otherwise. `--screen 8` plays all strategies for eight seconds first, and only the best tenth for
`--seconds`. `--on-off` is one turn of ten minutes in which the tenant works every other twenty seconds, judged by the shares of
CPU time. Needs root and legacy cgroups.
"""

import argparse
import json
import sys

import compare_here
from compare_here import Here, programs

import strategies
from strategies import WEIGHTS

ON_OFF_SECONDS = 600


def on_off(host, credits):
    """True if no tenant had more or less than its weight says, by two parts in a hundred."""
    _, used = strategies.turn(host, strategies.Strategy(2 * host.cpus, on=20.0, off=20.0), ON_OFF_SECONDS, credits)
    total = sum(used.values())
    shares = {name: used[name] / total for name in WEIGHTS}
    due = {name: weight / sum(WEIGHTS.values()) for name, weight in WEIGHTS.items()}
    host.note(json.dumps({"what": "on and off", "credits": credits, "shares": shares, "due": due}))
    return shares["own"] <= due["own"] + 0.02 and all(shares[name] >= due[name] - 0.02 for name in ("b", "c"))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--strategies", type=int, default=10)
    arguments.add_argument("--seconds", type=int, default=30)
    arguments.add_argument("--screen", type=int, help="seconds of a first turn of each; the best tenth is played again")
    arguments.add_argument("--without-credits", action="store_true")
    arguments.add_argument("--on-off", action="store_true")
    arguments.add_argument("--programs", help="a folder with tenantd and tenantctl; built of the profile dist unless given")
    options = arguments.parse_args()
    compare_here.use_programs(options.programs)
    credits = not options.without_credits
    host = programs.Host(lambda line: print(line, flush=True))
    host.ground = Here()
    host.cleanup.callback(host.ground.clear_all)
    with host.cleanup:
        if options.on_off:
            return 0 if on_off(host, credits) else 1
        turns = {"seed": options.seed, "count": options.strategies, "seconds": options.seconds, "screen": options.screen}
        sums = strategies.measure(host, credits=credits, **turns)
    return 0 if sums["best"] <= strategies.GAIN_MAX[credits] else 1


if __name__ == "__main__":
    sys.exit(main())
