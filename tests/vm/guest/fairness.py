"""What tenants are entitled to, computed here once more and without the program under test, and
whether they get it."""

import os
import time
from pathlib import Path

from cgroups import shares
from host import Skip

SHARE_ERROR_MAX = 0.05
WINDOW_SECONDS = 5.0
# A kernel that misses most of its timer interrupts cannot share by weight: measured without any
# program of ours, 1 : 2 : 4 is missed by 0.03 to 0.07 where one tick in ten arrives, and now and then by
# as much where every second one does. It happens when the host of the guest is overloaded.
TICKS_ARRIVING_MIN = 0.8
NR_WINDOWS_MAX = 7
# How many windows in a row may be wrong before the kernel's own balancing is ruled out: with exact weights at rest,
# two groups of two threads each kept 0.95 and 0.65 instead of 1.08 and 0.54 of 2 CPUs for six seconds, until
# the kernel (6.12) moved a thread of one of them to the other CPU.
NR_WINDOWS_WRONG_MAX = 3


def entitled(weights, demands, capacity):
    """Weighted max-min of one resource: nobody gets more than it demands, and what one leaves goes
    to the others by weight. Bertsekas and Gallager, Data Networks, §6.5.2 (water filling)."""
    given = [0.0] * len(weights)
    open_ = [i for i, demand in enumerate(demands) if demand > 0]
    left = capacity
    while open_:
        level = left / sum(weights[i] for i in open_)
        filled = [i for i in open_ if demands[i] <= level * weights[i]]
        if not filled:
            for i in open_:
                given[i] = level * weights[i]
            break
        for i in filled:
            given[i] = demands[i]
            left -= demands[i]
        open_ = [i for i in open_ if i not in filled]
    return given


def entitled_shares(weights, demands, capacity):
    """The same as parts of what is used at all."""
    given = entitled(weights, demands, capacity)
    total = sum(given)
    return [part / total for part in given]


def expect_shares(host, groups, want, what):
    """Each group gets its part of the CPU time in one of a few windows of some seconds, as soon as the kernel has
    spread the threads over the CPUs.

    Where the guest was too starved to judge that, the scenario is skipped.
    """
    doubt = doubt_of_shares(host, groups, want, what)
    if doubt:
        raise Skip(doubt)


def doubt_of_shares(host, groups, want, what):
    """The same, for a scenario that has more to judge: what keeps one from judging the shares, or None."""

    def look():
        measured = shares(groups, WINDOW_SECONDS)
        error = max(abs(m - w) for m, w in zip(measured, want))
        figures = ", ".join(f"{m:.3f} of {w:.3f}" for m, w in zip(measured, want))
        return error <= SHARE_ERROR_MAX, f"measured {figures}; largest error {error:.3f}"

    return doubt_of(host, look, what)


def doubt_of(host, look, what, windows_max=NR_WINDOWS_MAX):
    """Measures with `look`, which returns whether all is well and what to say of it.

    A window in which it is not counts only if the guest itself got enough of its host to be able to, and
    a few of them make it a failure; until then the next one is looked at. Returns what there is to say where
    none could be judged.
    """
    assert host.is_alone, "a scenario that measures needs the mark `alone`"
    wrong = 0
    for _ in range(windows_max):
        ticks = Ticks()
        is_well, figures = look()
        arriving = ticks.arriving()
        said = f"{what}: {figures}; {arriving:.0%} of ticks arrived"
        host.note(said)
        if is_well:
            return None
        wrong += arriving >= TICKS_ARRIVING_MIN
        assert wrong < NR_WINDOWS_WRONG_MAX, said
    return f"{said}: the host is too busy to measure on"


class Ticks:
    """How many of its timer ticks the kernel has seen since this was made."""

    def __init__(self):
        self.seen, self.since = self.count(), time.monotonic()

    def arriving(self):
        """As a part of those that there should have been on all CPUs."""
        per_second = os.sysconf("SC_CLK_TCK") * os.cpu_count()
        return (self.count() - self.seen) / (per_second * (time.monotonic() - self.since))

    @staticmethod
    def count():
        """Ticks accounted to anything at all, idling included."""
        return sum(int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
