"""What a tenant gains by a strategy: turns of a few seconds, each judged by useful work beside honest turns.

A tenant with more work than the host can do has half of the weight of two others, which always work as well. It is honest when
it works all the time; a strategy is a random one of what it could do instead: rest and return by plan, spin without use while it
rests, split its work among processes, start many threads, hold memory.

A gain is the part of the units of all three tenants that is its useful work, over that part in honest turns: what the rest of the
machine does meanwhile takes from all of them. Where the tenants live is a matter of the host's ground (ground.py).
"""

import json
import random
import signal
import statistics
import time

import loads

WEIGHTS = {"own": 100, "b": 100, "c": 200}
# Banks fill and fade within a turn.
CREDITS = {"half_life": "30s", "cap": "10s", "keep": "10%"}
SETTLE_SECONDS = 6
# Strategies of the first turns for each honest one.
HONEST_EVERY = 5
# Largest gain without credits, and with them.
GAIN_MAX = {False: 1.02, True: 1.1}


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
            load.unit = f"own-{number}.service"
        return useful, useless


def turn(host, strategy, seconds, credits):
    """One strategy beside the two that always work, under a daemon of its own: the part of all work that is its useful work, and
    the CPU time of each tenant."""
    ground = host.ground
    groups = {name: ground.group(name) for name in WEIGHTS}
    control = {"interval": "1s", **({"credits": CREDITS} if credits else {})}
    tenants = {name: {"weight": weight, **ground.where([name])} for name, weight in WEIGHTS.items()}
    daemon = ground.daemon(host, host.policy(tenants, control=control))
    daemon.says("started on")
    folder = host.folder()
    useful, useless = strategy.loads()
    others = [loads.Load(name, "spin", 2 * host.cpus) for name in ("b", "c")]
    every = [*others, *useful, *useless]
    for load in every:
        load.start(host, folder)
    send(host, useless, signal.SIGSTOP)
    follow(host, strategy, useful, useless, SETTLE_SECONDS)
    used = lambda: {name: group.stat("cpu.stat", "usage_usec") / 1e6 for name, group in groups.items()}
    done = lambda some: sum(load.done() for load in some)
    before = used(), done(useful), done([*others, *useless])
    follow(host, strategy, useful, useless, seconds)
    after = used(), done(useful), done([*others, *useless])
    # All before any is waited for: a cgroup is empty after the last.
    send(host, every, signal.SIGKILL)
    for load in every:
        ground.stop(load)
    assert daemon.terminate() == 0, daemon.log()
    own, rest = after[1] - before[1], after[2] - before[2]
    return own / (own + rest), {name: after[0][name] - before[0][name] for name in WEIGHTS}


def follow(host, strategy, useful, useless, seconds):
    """Works and rests by plan for so long."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if not strategy.off:
            time.sleep(left)
            return
        time.sleep(min(left, strategy.on))
        send(host, useful, signal.SIGSTOP)
        send(host, useless, signal.SIGCONT)
        time.sleep(max(0.0, min(end - time.monotonic(), strategy.off)))
        send(host, useless, signal.SIGSTOP)
        send(host, useful, signal.SIGCONT)


def send(host, some, signum):
    for load in some:
        host.ground.signal(load, signum)


def measure(host, *, seed, count, seconds, credits, screen=None):
    """Plays so many strategies, and notes the gain of each as a line of JSON; returns the sums. With `screen`, all are played for
    that many seconds first, and only the best tenth for `seconds`: the best of many short turns is mostly the luckiest."""
    dice = random.Random(seed)
    strategies = [Strategy.drawn(dice, host.cpus) for _ in range(count)]
    if screen:
        screened, _ = played(host, strategies, screen, credits, HONEST_EVERY)
        order = sorted(range(count), key=lambda at: -screened[at])
        strategies = [strategies[at] for at in order[: -(-count // 10)]]
    drawn, all_honest = played(host, strategies, seconds, credits, 1)
    mean = statistics.mean(all_honest)
    spread = [min(all_honest) / mean, max(all_honest) / mean]
    sums = {"what": "gains", "seed": seed, "strategies": count, "credits": credits, "best": max(drawn), "honest": spread}
    host.note(json.dumps(sums))
    return sums


def played(host, strategies, seconds, credits, honest_every):
    """Gain of each strategy over the honest turns before and after it, and the work of all honest turns."""
    honest = lambda: turn(host, Strategy(2 * host.cpus), seconds, credits)[0]
    all_honest, drawn = [honest()], []
    for first in range(0, len(strategies), honest_every):
        part = strategies[first : first + honest_every]
        turns = [turn(host, strategy, seconds, credits) for strategy in part]
        all_honest.append(honest())
        for strategy, (work, used) in zip(part, turns):
            gain = work / statistics.mean(all_honest[-2:])
            drawn.append(gain)
            share = used["own"] / sum(used.values())
            about = {"seconds": seconds, "credits": credits, "gain": round(gain, 4), "share": round(share, 4)}
            host.note(json.dumps({"what": "strategy", **vars(strategy), **about}))
    return drawn, all_honest
