"""Ways to share a host among the same tenants with the same load, one after the other in the same guest: nothing,
properties that an administrator sets once, an arbiter that halves quotas, systemd-oomd, and tenantd.

A scenario is a `Stage` with tenants; `compare` runs it under each way and prints a line of JSON for each. Which ways
are compared says SCENARIO_WAYS, a regular expression, for how long each is watched SCENARIO_WATCH, in seconds, and how
often all of them take their turn SCENARIO_ROUNDS.
"""

import contextlib
import os
import platform
import re
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

import figures
from cgroups import wait_until
from fairness import Ticks
from host import finish, run
from memory import meminfo, own_memory_locked

WATCH_SECONDS = int(os.environ.get("SCENARIO_WATCH", "20"))
ROUNDS = int(os.environ.get("SCENARIO_ROUNDS", "1"))
WAYS = os.environ.get("SCENARIO_WAYS", ".")
# After the load has started, before anything is measured: several ticks of any way that has ticks.
SETTLE_SECONDS = 6
# What a way may change while the load is steady.
KNOBS = ("cpu.weight", "cpu.max", "memory.min", "memory.low", "memory.high", "memory.max", "cpuset.cpus")
# After a change, the shares have converged once so many seconds in a row are this near.
CONVERGED_ERROR, CONVERGED_SECONDS = 0.05, 3
OOMD = Path("/usr/lib/systemd/systemd-oomd")


class Tenant:
    """One that has a part of the host by weight. `wants` is what it would use of CPUs and of memory, in bytes."""

    def __init__(self, name, weight, wants, loads=(), slices=None, guarantee=0, limit=0, cpus=None):
        self.name, self.weight, self.wants = name, weight, wants
        self.loads, self.guarantee, self.limit, self.cpus = list(loads), guarantee, limit, cpus
        self.slices = slices or [name]
        # Where the slices are; the stage of the comparison says it.
        self.ground = None

    def groups(self):
        return [self.ground.group(slice) for slice in self.slices]

    def policy(self):
        """What a policy of tenantd says of it."""
        where = self.ground.where(self.slices)
        memory = {"guarantee": {"memory": self.guarantee}, "limit": {"memory": self.limit}}
        given = {key: value for key, value in memory.items() if value["memory"]}
        return {"weight": self.weight, **where, **given, **({"cpus": self.cpus} if self.cpus else {})}

    def used(self, file, key):
        """The sum over its slices, 0 for those that are not there."""
        total = 0
        for group in self.groups():
            with contextlib.suppress(FileNotFoundError):
                total += group.stat(file, key) if key else int(group.read(file))
        return total


class Nothing:
    """No setting at all."""

    name = "nothing"

    def __init__(self, stage):
        self.stage, self.touched = stage, []

    def begin(self):
        pass

    def reweigh(self):
        """The weights of the tenants are others now."""

    def end(self):
        # With no unit in between: a slice that has stopped is no longer loaded.
        for slice in dict.fromkeys(self.touched):
            self.stage.ground.revert(slice)

    def set(self, slice, *settings):
        """Properties of a slice; of that of all tenants without a name."""
        self.stage.ground.set(slice, *settings)
        self.touched.append(slice)

    def cpu_seconds(self):
        """What the way itself has used."""
        return 0.0


class Static(Nothing):
    """Properties of slices, set once: CPUWeight= by the weights, and where memory is short, MemoryMin= what is
    guaranteed and MemoryLow= the part of the memory by the weights. MemoryMax= is what the policy of tenantd has as limit."""

    name = "static"

    def begin(self):
        self.weigh()
        tenants, memory = self.stage.tenants, meminfo("MemTotal")
        guaranteed = sum(tenant.guarantee for tenant in tenants)
        if not self.stage.memory:
            return
        # A protection holds where what is above has it as well.
        self.set(None, f"MemoryMin={guaranteed}", f"MemoryLow={memory}")
        for tenant in tenants:
            for slice in tenant.slices:
                low = int(memory * tenant.weight / sum(t.weight for t in tenants)) // len(tenant.slices)
                self.set(slice, f"MemoryMin={tenant.guarantee // len(tenant.slices)}", f"MemoryLow={low}")
                if tenant.limit:
                    self.set(slice, f"MemoryMax={tenant.limit}")

    def weigh(self):
        for tenant in self.stage.tenants:
            for slice in tenant.slices:
                # A slice has its part of its tenant's weight: nothing that is set once knows which of them works.
                self.set(slice, f"CPUWeight={max(1, tenant.weight // len(tenant.slices))}")

    def reweigh(self):
        self.weigh()


class StaticOomd(Static):
    """The same, and systemd-oomd kills in the slice of tenants with the highest pressure."""

    name = "static and oomd"

    def begin(self):
        super().begin()
        drop_in = Path("/run/systemd/oomd.conf.d/compare.conf")
        drop_in.parent.mkdir(parents=True, exist_ok=True)
        # Half a minute is the default, and longer than a watch.
        drop_in.write_text("[OOM]\nDefaultMemoryPressureDurationSec=2s\n")
        self.stage.host.cleanup.callback(finish, ["systemctl", "stop", "systemd-oomd.socket", "systemd-oomd.service"])
        run("systemctl", "restart", "systemd-oomd.service")
        for tenant in self.stage.tenants:
            if not tenant.guarantee:
                for slice in tenant.slices:
                    self.set(slice, "ManagedOOMMemoryPressure=kill", "ManagedOOMMemoryPressureLimit=20%")

    def end(self):
        finish(["systemctl", "stop", "systemd-oomd.socket", "systemd-oomd.service"])
        super().end()

    def cpu_seconds(self):
        return cpu_of("systemd-oomd")


class Arbiter(Nothing):
    """What arbiters of login nodes do (Arbiter2: thresholds, penalties in steps, an expiry), with seconds for its
    minutes: a tenant that has used more than its part of the CPUs for five seconds gets a quota of half of the host,
    then of half of that, and so on; after fifteen seconds it has none again. Memory has a fixed limit, the part by weight.
    """

    name = "arbiter"
    LOOK_SECONDS, EXPIRES_SECONDS, LEAST_CPUS, EXCESS = 5, 15, 0.1, 1.05

    def begin(self):
        self.over = threading.Event()
        memory, total = meminfo("MemTotal"), sum(tenant.weight for tenant in self.stage.tenants)
        if self.stage.memory:
            for tenant in self.stage.tenants:
                for slice in tenant.slices:
                    self.set(slice, f"MemoryMax={int(memory * tenant.weight / total)}")
        self.began = time.thread_time()
        self.used = 0.0
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()
        # A scenario that fails must not leave it to set properties of the next one.
        self.stage.host.cleanup.callback(self.over.set)

    def follow(self):
        tenants, cpus = self.stage.tenants, self.stage.host.cpus
        look = lambda: {tenant.name: tenant.used("cpu.stat", "usage_usec") for tenant in tenants}
        quota, since = {}, {}
        before, then = look(), time.monotonic()
        while not self.over.wait(self.LOOK_SECONDS):
            seen, now = look(), time.monotonic()
            # Sums of now: the weights of a scenario may change.
            total = sum(tenant.weight for tenant in tenants)
            for tenant in tenants:
                name = tenant.name
                used = (seen[name] - before[name]) / 1e6 / (now - then)
                if name in quota and now > since[name] + self.EXPIRES_SECONDS:
                    del quota[name]
                    self.give(tenant, None)
                elif used > self.EXCESS * cpus * tenant.weight / total:
                    quota[name] = max(self.LEAST_CPUS, quota.get(name, cpus) / 2)
                    since[name] = now
                    self.give(tenant, quota[name])
            before, then = seen, now
            self.used = time.thread_time()

    def give(self, tenant, cpus):
        for slice in tenant.slices:
            self.set(slice, f"CPUQuota={round(100 * cpus / len(tenant.slices))}%" if cpus else "CPUQuota=")

    def end(self):
        self.over.set()
        self.thread.join()
        super().end()

    def cpu_seconds(self):
        return self.used


class Tenantd(Nothing):
    """A policy with the same weights and guarantees."""

    name = "tenantd"
    # Keys of `control` beside the interval.
    control = {}

    def begin(self):
        host = self.stage.host
        self.policy = self.write_policy()
        self.daemon = self.stage.ground.daemon(host, self.policy)
        self.daemon.says("started on")

    def write_policy(self):
        control = {"interval": "1s", **self.control}
        return self.stage.host.policy(self.tenants(), control=control)

    def tenants(self):
        return {tenant.name: tenant.policy() for tenant in self.stage.tenants}

    def reweigh(self):
        self.policy.write_text(self.write_policy().read_text())
        self.daemon.process.send_signal(signal.SIGHUP)

    def end(self):
        assert self.daemon.terminate() == 0, self.daemon.log()

    def cpu_seconds(self):
        return cpu_of("tenantd")


class Jobs(Tenantd):
    """The same, and builds wait for their turn and are as wide as they are told (`tenantctl run`)."""

    name = "tenantd, jobs"

    def begin(self):
        super().begin()
        for tenant in self.stage.tenants:
            for load in tenant.loads:
                load.admitted = self.daemon.job(tenant.name)

    def end(self):
        for load in self.stage.loads:
            load.admitted = ()
        # Their cgroups go with the jobs, as long as the daemon is there to see it.
        wait_until(lambda: self.daemon.jobs() == [], "the builds to have ended")
        super().end()


class Credits(Tenantd):
    """The same, and CPU time that a tenant leaves to the others is returned to it later."""

    name = "tenantd, credits"
    control = {"credits": {}}


class Trimmed(Tenantd):
    """The same, and weights follow the CPU time that they bring about."""

    name = "tenantd, trim"
    control = {"trim": True}


ALL = (Nothing, Static, Arbiter, Tenantd, Trimmed)
# Where tenants leave CPU time to others.
WITH_CREDITS = (*ALL, Credits)


def cpu_of(program):
    """The CPU time that processes of this name have used, in seconds."""
    used = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, fields = stat.read_text().rsplit(")", 1)
            # The kernel keeps fifteen characters of it.
            if name.split("(", 1)[1] == program[:15]:
                used += sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return used


class Stage:
    """Tenants with their loads, which start anew under each way."""

    def __init__(self, host, tenants, what, change=None, shares=True, memory=False):
        self.host, self.tenants, self.what = host, tenants, what
        # Whether memory is divided by weight where somebody sets values by hand; where something is guaranteed it is.
        self.memory = memory or any(tenant.guarantee for tenant in tenants)
        # Memory that can be divided: all but what is held outside of the tenants.
        self.divisible = float(meminfo("MemAvailable"))
        # Whether what each wants is known well enough to say what it is due.
        self.shares = shares
        # Other weights, by name, that are in force from the middle of the watch on.
        self.change = change
        # In memory: what is measured does not wait for the disk.
        self.folder = tempfile.mkdtemp(dir="/dev/shm", prefix="compare-")
        host.cleanup.callback(shutil.rmtree, self.folder)
        self.ground = host.ground
        for tenant in tenants:
            tenant.ground = self.ground
        host.cleanup.callback(self.ground.clear, [slice for tenant in tenants for slice in tenant.slices])
        self.loads = [load for tenant in tenants for load in tenant.loads]
        # Those that sleep are not looked at: in an emulated guest a look at fifty is a load of its own.
        self.working = [tenant for tenant in tenants if tenant.loads]

    def entitled(self):
        """What weighted DRF gives each tenant that works: CPUs, and memory. What others want is too little to count."""
        capacity = (float(self.host.cpus), self.divisible)
        weights = [tenant.weight for tenant in self.working]
        return figures.drf(weights, [tenant.wants for tenant in self.working], capacity)

    def under(self, way):
        """Runs the loads under a way; returns the row of the table."""
        weights = {tenant.name: tenant.weight for tenant in self.tenants}
        way.begin()
        try:
            for load in self.loads:
                load.start(self.host, self.folder)
            time.sleep(SETTLE_SECONDS)
            row = self.watch(way)
        finally:
            if self.memory:
                # Where it is short, systemd cannot answer.
                for group in [group for tenant in self.tenants for group in tenant.groups()]:
                    group.kill()
            for load in self.loads:
                self.ground.stop(load)
            way.end()
            for tenant in self.tenants:
                tenant.weight = weights[tenant.name]
        return row

    def watch(self, way):
        first, ticks, cpu = Look(self), Ticks(), way.cpu_seconds()
        waited = {load.unit: len(load.waits()) for load in self.loads}
        looks, changed = [first], None
        while looks[-1].at < first.at + WATCH_SECONDS * (2 if self.change else 1):
            if self.change and not changed and looks[-1].at >= first.at + WATCH_SECONDS:
                for tenant in self.tenants:
                    tenant.weight = self.change.get(tenant.name, tenant.weight)
                way.reweigh()
                changed = looks[-1]
            time.sleep(max(0.0, 1 - (time.monotonic() - looks[-1].at)))
            looks.append(Look(self))
        # Where the weights change, shares are those of the time after that.
        began, last = changed or first, looks[-1]
        given = [cpus for cpus, _ in self.entitled()]
        used = last.cpu_since(began)
        row = {
            "scenario": self.what,
            "way": way.name,
            **machine(),
            **self.ground.about(),
            "load": [" ".join(map(str, [load.slice, *load.arguments])) for load in self.loads][:6],
            "seconds": last.at - first.at,
            "ticks_arrived": ticks.arriving(),
            "cpu_shares": dict(zip([tenant.name for tenant in self.working], figures.parts(used))),
            "cpu_entitled": dict(zip([tenant.name for tenant in self.working], figures.parts(given))),
            "work_per_second": {
                load.slice: (last.done[load.unit] - first.done[load.unit]) / (last.at - first.at) for load in self.loads
            },
            "writes_per_minute": 60 * sum(b.changed(a) for a, b in zip(looks, looks[1:])) / (last.at - first.at),
            "way_cpu_percent": 100 * (way.cpu_seconds() - cpu) / (last.at - first.at),
            "oom_kills": last.kills() - first.kills(),
        }
        if self.shares:
            row |= {
                "share_error": figures.share_error(used, given),
                "share_error_worst_5s": max(self.errors(looks[looks.index(began):], 5, given)),
                "jain": self.jain(began, last),
            }
        row |= self.victim(looks)
        row |= self.waits(waited)
        if changed:
            row["convergence_seconds"] = self.convergence(looks[looks.index(changed):], given)
        return row

    def errors(self, looks, step, given):
        """The share error of each window of so many seconds."""
        pairs = list(zip(looks, looks[step:]))[::step] or [(looks[0], looks[-1])]
        return [figures.share_error(b.cpu_since(a), given) for a, b in pairs]

    def jain(self, first, last):
        """Over weighted dominant shares. What a tenant is entitled to stands for its weight, so that one that wants little
        and gets it counts as one that has its part."""
        capacity = (self.host.cpus, self.divisible)
        seconds = last.at - first.at
        values = []
        for tenant, used, given in zip(self.working, last.cpu_since(first), self.entitled()):
            has = max(used / seconds / capacity[0], last.memory[tenant.name] / capacity[1])
            due = max(given[0] / capacity[0], given[1] / capacity[1])
            if due > 0:
                values.append(has / due)
        return figures.jain(values)

    def victim(self, looks):
        """What the victim got done in each second."""
        found = {}
        for load in self.loads:
            if load.victim:
                rates = [(b.done[load.unit] - a.done[load.unit]) / (b.at - a.at) for a, b in zip(looks, looks[1:])]
                named = {f"p{percent:02}": figures.percentile(rates, percent) for percent in (0, 1, 5, 50)}
                found[load.slice] = {**named, "mean": sum(rates) / len(rates)}
        return {"victim_per_second": found} if found else {}

    def waits(self, before):
        found = {}
        for load in self.loads:
            if waits := load.waits()[before[load.unit] :]:
                quantiles = {f"p{percent}": 1000 * figures.percentile(waits, percent) for percent in (50, 95, 99)}
                found[load.slice] = {**quantiles, "max": 1000 * max(waits), "count": len(waits)}
        return {"waits_ms": found} if found else {}

    def convergence(self, looks, given):
        """Seconds from the change until the shares stay near, or None."""
        near = [error <= CONVERGED_ERROR for error in self.errors(looks, 1, given)]
        for i in range(len(near) - CONVERGED_SECONDS + 1):
            if all(near[i : i + CONVERGED_SECONDS]):
                return looks[i].at - looks[0].at
        return None


class Look:
    """The counters of one moment."""

    def __init__(self, stage):
        self.at = time.monotonic()
        tenants = stage.working
        self.cpu = {tenant.name: tenant.used("cpu.stat", "usage_usec") for tenant in tenants}
        self.memory = {tenant.name: tenant.used("memory.current", None) for tenant in tenants}
        self.oom_kills = {tenant.name: tenant.used("memory.events", "oom_kill") for tenant in tenants}
        self.done = {load.unit: load.done() for load in stage.loads}
        self.files = {}
        for tenant in tenants:
            for group in tenant.groups():
                for knob in KNOBS:
                    with contextlib.suppress(OSError):
                        self.files[group.name, knob] = group.read(knob)

    def cpu_since(self, before):
        """CPU seconds of each tenant."""
        return [(used - before.cpu[name]) / 1e6 for name, used in self.cpu.items()]

    def changed(self, before):
        """How many values are others than they were."""
        return sum(before.files.get(key) != value for key, value in self.files.items())

    def kills(self):
        return sum(self.oom_kills.values())


def machine():
    release = platform.freedesktop_os_release()
    return {
        "release": release["VERSION_CODENAME"],
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "memory_mib": meminfo("MemTotal") >> 20,
        "swap_mib": meminfo("SwapTotal") >> 20,
        "load_average": os.getloadavg()[0],
    }


def compare(stage, ways=ALL):
    """Prints a row for each way that is asked for, in turns; returns those of the last round by name."""
    rows = {}
    with own_memory_locked() if stage.memory else contextlib.nullcontext():
        for number in range(ROUNDS):
            for make in ways:
                way = make(stage)
                if re.search(WAYS, way.name):
                    rows[way.name] = {**stage.under(way), "round": number + 1}
                    stage.host.note(figures.line(rows[way.name]))
    return rows


def calibrated(host, load, folder):
    """Units per second of a load that has the host for itself."""
    load.start(host, folder)
    wait_until(load.done, "the first unit")
    before, then = load.done(), time.monotonic()
    time.sleep(3)
    rate = (load.done() - before) / (time.monotonic() - then)
    host.ground.stop(load)
    return rate
