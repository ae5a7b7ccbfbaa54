"""Work of four kinds at once: a service in a slice of its own, a service beside it, a user's session, and a container
of a real engine, each a tenant where it is."""

import json
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, wait_until
from containers import Podman
from host import Skip, run
from marks import both, long
from memory import MIB, meminfo
from test_memory import READ
from test_reach import BURN, WEIGHTS, Scattered
from test_systemd import Host, policy
from units import start
import fairness

# Ticks of a second each, in which the shares follow.
TICKS_MAX = 5
# What work of no tenant keeps of what it used before.
FOREIGN_MIN_RATIO = 0.9
FOREIGN_CORES = 0.1


class Everywhere(Scattered):
    """Those of `Scattered`, and a container."""

    def __init__(self, host, database=None, script=None, *options):
        super().__init__(host, database)
        self.host, self.folder = host, host.folder()
        burn = f"{BURN} &\n" * host.cpus + "wait"
        self.groups.append(Podman(host).start("box", script or burn, *options))
        self.slices.append(Cgroup(MOUNT / "machine.slice"))
        # In another slice than the tenants.
        start(host, "far.service", "/bin/sh", "-c", BURN, CPUQuota=f"{FOREIGN_CORES:.0%}", slice="far.slice")
        host.cleanup.callback(run, "systemctl", "stop", "far.slice")
        self.foreign = [self.other, Cgroup(MOUNT / "far.slice/far.service")]
        self.tenants["box"] = {"weight": 100, "match": {"unit": "libpod-*.scope"}}
        self.weights = [*WEIGHTS.values(), 100]
        units = [group.path.name for group in self.slices + self.groups + self.foreign]
        self.world = Host(*units, leave_out=[self.groups[2]])

    def foreign_usage(self, seconds):
        """CPUs that work of no tenant uses together for some time."""
        before = [group.usage_usec() for group in self.foreign]
        began = time.monotonic()
        time.sleep(seconds)
        used = sum(group.usage_usec() - was for group, was in zip(self.foreign, before))
        return used / 1e6 / (time.monotonic() - began)

    def doubt_of_shares(self, demands, what):
        """What keeps one from judging the shares: each tenant gets its part of what other work leaves, once the ticks
        have passed in which that has to be so."""
        time.sleep(TICKS_MAX)
        capacity = self.host.cpus - FOREIGN_CORES * len(self.foreign)
        want = fairness.entitled_shares(self.weights, demands, capacity)
        return fairness.doubt_of_shares(self.host, self.groups, want, what)

    def enforce(self):
        """A daemon that has weighed everything: it asks systemd, which an emulated guest of hungry work keeps waiting."""
        state = self.host.folder()
        daemon = self.host.daemon(policy(self.host, self.tenants), None, state=state)
        began = time.monotonic()
        daemon.until(self.are_weighed, "the weights of the slices")
        told = self.host.ctl("status", "--json", "--socket", state / "socket")
        tick = json.loads(told.stdout)["tick"] if told.returncode == 0 else "unknown"
        self.host.note(f"all weighed after {time.monotonic() - began:.0f} s, in tick {tick}")
        return daemon

    def every(self, asleep=()):
        return [0.0 if number in asleep else float(self.host.cpus) for number in range(len(self.groups))]


@long
@both
def test_four_kinds_of_work_share_by_the_policy(host):
    stage = Everywhere(host)
    before = stage.foreign_usage(5)
    daemon = stage.enforce()
    doubts = [stage.doubt_of_shares(stage.every(), "all want every CPU")]
    after = stage.foreign_usage(5)
    host.note(f"work of no tenant used {before:.3f} CPUs before and {after:.3f} since")
    for number, name in [(1, "web"), (3, "box")]:
        stage.groups[number].write("cgroup.freeze", 1)
        doubts.append(stage.doubt_of_shares(stage.every(asleep=[number]), f"{name} sleeps"))
        stage.groups[number].write("cgroup.freeze", 0)
        doubts.append(stage.doubt_of_shares(stage.every(), f"{name} is awake again"))
    for what in ("cpu weights are ineffective between", "memory.low is ineffective"):
        assert what not in daemon.log(), daemon.log()
    assert daemon.terminate() == 0, daemon.log()
    stage.world.expect_as_before(daemon.log)
    assert after >= FOREIGN_MIN_RATIO * before or any(doubts), (before, after)
    if any(doubts):
        raise Skip(next(filter(None, doubts)))


# The database reads a file of this part of the memory all the time, as 600 MiB on a machine of 2 GiB.
HOT_RATIO = 0.3
# What the container holds of it, and what it streams again and again. The generations of pages of Linux 6.12 give up the
# file only for a stream that comes back before it is displaced itself: one that is larger than what is left for both
# costs the file nothing there.
HELD_RATIO = 0.4
STREAM_RATIO = 0.4
WATCH_SECONDS = 20
REFAULTS_MAX_RATIO = 0.1
STREAM = "while :; do cat /stream >/dev/null; done"


class Cached(Everywhere):
    """The database has a file in memory that it reads all the time, and the container holds memory and streams another
    file; both want every CPU as well."""

    def __init__(self, host):
        total = meminfo("MemTotal")
        self.hot, self.held, self.streamed = (
            int(ratio * total) // MIB * MIB for ratio in (HOT_RATIO, HELD_RATIO, STREAM_RATIO)
        )
        folder = host.folder()
        self.count = folder / "passes"
        # Nothing of them is on the disk, and all that is read goes through memory.
        files = {"hot": self.hot, "stream": self.streamed}
        for name, size in files.items():
            path = Path("/var/tmp", name)
            with open(path, "wb") as made:
                made.truncate(size)
            host.cleanup.callback(path.unlink)
        (folder / "read.py").write_text(READ)
        database = folder / "database.sh"
        database.write_text(f"python3 {folder}/read.py /var/tmp/hot {self.count} &\n" + f"{BURN} &\n" * host.cpus + "wait")
        # In halves, because the file is smaller.
        hold = "".join(f"head -c {self.held // 2} /stream >/held/{half}\n" for half in "ab")
        streams = hold + f"{STREAM} &\n" * host.cpus + "wait"
        mounts = ["--volume=/var/tmp/stream:/stream:ro", "--tmpfs=/held"]
        super().__init__(host, ["/bin/sh", str(database)], streams, *mounts)
        # The file, and the program that reads it.
        self.tenants["db"]["guarantee"] = {"memory": self.hot + 32 * MIB}

    def is_full(self):
        """Whether the container holds what it is to hold, and the database has read its file."""
        return self.groups[3].stat("memory.stat", "shmem") >= self.held and self.passes() >= 2

    def passes(self):
        return int(self.count.read_text() or 0)

    def resident(self):
        return self.groups[0].stat("memory.stat", "file") / self.hot

    def watch(self, what):
        """How often the database had to get a page again that it had had."""
        refaults = lambda: self.groups[0].stat("memory.stat", "workingset_refault_file")
        before, passes, ticks = refaults(), self.passes(), fairness.Ticks()
        time.sleep(WATCH_SECONDS)
        found = refaults() - before
        low = int(self.groups[0].read("memory.low")) // MIB
        self.host.note(
            f"{what}: {found} refaults in {WATCH_SECONDS} s, {self.passes() - passes} passes, {self.resident():.0%} of "
            f"{self.hot // MIB} MiB in memory, {low} MiB protected; {ticks.arriving():.0%} of ticks arrived"
        )
        return found


@long
@both
def test_memory_of_one_stays_while_another_streams(host):
    stage = Cached(host)
    wait_until(stage.is_full, "memory to be short")
    without = stage.watch("without tenantd")
    daemon = stage.enforce()
    above = [Cgroup(group) for group in (MOUNT / "system.slice", MOUNT / "system.slice/system-db.slice")]
    low = lambda group: int(group.read("memory.low")) + int(group.read("memory.min"))
    for group in [*above, stage.groups[0]]:
        daemon.until(lambda: low(group) > 0.95 * stage.hot, f"{group.name} to be protected")
    # What was lost before is read again.
    passes = stage.passes() + 2
    daemon.until(lambda: stage.passes() >= passes, "all of the file to be in memory")
    found = stage.watch("with tenantd")
    doubt = stage.doubt_of_shares(stage.every(), "all want every CPU")
    assert daemon.terminate() == 0, daemon.log()
    stage.world.expect_as_before(daemon.log)
    assert without > 0 and found <= REFAULTS_MAX_RATIO * without, (found, without, daemon.log())
    if doubt:
        raise Skip(doubt)
