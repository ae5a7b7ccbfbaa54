"""Disks of a known speed, and ways to share one among the same readers, one after the other.

Two tenants with weights 300 and 100 read from a disk. Each way is watched three times: the heavy one alone, both with all
that they can take, and a program of the heavy one that reads 4 KiB now and then beside the light one. A way must divide the
disk by weight, must leave none of it idle, and should not make the small reads wait.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import figures
from cgroups import wait_until
from compare import SETTLE_SECONDS, WATCH_SECONDS, Nothing, Tenant, Tenantd, machine
from fairness import Ticks
from host import Skip, finish, run
from loads import Load

CONFIG = Path("/sys/kernel/config/nullb")
WEIGHTS = {"heavy": 300, "light": 100}
# Of a disk, in MiB. bfq takes reads within 4 MiB of each other for one stream and merges their queues, so places at random
# must be far apart.
SIZE_MIB = 65536
# Threads that read without end, and the size of what they read.
DEPTH, KIB = 16, 64
# A small read is due so often.
LOOKUPS_PER_SECOND, LOOKUP_KIB = 20, 4


class Disk:
    """A block device; `block` is its folder in sysfs."""

    def __init__(self, block):
        self.block = block
        self.number = (block / "dev").read_text().strip()
        self.path = f"/dev/{block.name}"

    def choose(self, scheduler):
        (self.block / "queue/scheduler").write_text(scheduler)

    def use(self):
        """Nothing is limited on a disk before its first request."""
        run("dd", f"if={self.path}", "of=/dev/null", "bs=64k", "count=1", "iflag=direct", "status=none")


class NullDisk(Disk):
    """A block device in the kernel that gives zeros, at a speed that its settings say (null_blk in configfs)."""

    def __init__(self, host, name, **settings):
        if finish(["modprobe", "null_blk", "nr_devices=0"]).returncode != 0:
            raise Skip("the kernel has no null_blk")
        before = set(Path("/sys/block").iterdir())
        self.folder = CONFIG / name
        self.folder.mkdir()
        host.cleanup.callback(self.remove)
        for key, value in {"size": SIZE_MIB, "blocksize": 512, "queue_mode": 2, **settings, "power": 1}.items():
            (self.folder / key).write_text(str(value))
        new = lambda: set(Path("/sys/block").iterdir()) - before
        wait_until(new, "the disk")
        (block,) = new()
        super().__init__(block)
        wait_until(lambda: Path(f"/dev/block/{self.number}").exists(), "udev's link to the disk")

    def remove(self):
        if self.folder.exists():
            (self.folder / "power").write_text("0")
            self.folder.rmdir()


def exact_disk(host, name, **settings):
    """A `NullDisk` whose figures are exact."""
    if not os.environ.get("SCENARIO_EXACT"):
        raise Skip("a disk of the guest's kernel needs a guest without noise (TENANTD_VM_ACCEL=exact)")
    return NullDisk(host, name, **settings)


def load_bfq():
    if finish(["modprobe", "bfq"]).returncode != 0:
        raise Skip("the kernel has no bfq")


class SlowDisk(Disk):
    """A loop device on a file that a program serves at a fixed speed (tests/kernel/slow_disk.py)."""

    SERVER = Path(__file__).resolve().parents[2] / "kernel/slow_disk.py"

    def __init__(self, host, *arguments):
        folder = tempfile.mkdtemp(prefix="slow-disk-")
        host.cleanup.callback(os.rmdir, folder)
        command = [sys.executable, str(self.SERVER), folder, str(SIZE_MIB), *map(str, arguments)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        host.cleanup.callback(lambda: (server.terminate(), server.wait()))
        if server.stdout.readline().strip() != "mounted":
            raise Skip("no FUSE file system can be mounted")
        path = run("losetup", "-f", "--show", "--direct-io=on", f"{folder}/disk").strip()
        host.cleanup.callback(finish, ["losetup", "-d", path])
        super().__init__(Path("/sys/block") / Path(path).name)
        host.cleanup.callback(self.choose, "none")


class Equal(Nothing):
    """A scheduler, and no weights."""

    def __init__(self, stage, scheduler="none"):
        super().__init__(stage)
        self.name = "nothing" if scheduler == "none" else f"{scheduler}, no weights"
        self.scheduler = scheduler

    def begin(self):
        self.stage.disk.choose(self.scheduler)


class Static(Nothing):
    """bfq, and IOWeight= by the weights, set once."""

    name = "bfq, static"

    def begin(self):
        self.stage.disk.choose("bfq")
        for name, weight in WEIGHTS.items():
            self.set(name, f"IOWeight={weight}")


class Shared(Tenantd):
    """A policy with the same weights, and with this word on disks."""

    def __init__(self, stage, name, scheduler, disks):
        super().__init__(stage)
        self.name, self.scheduler, self.disks = f"tenantd, {name}", scheduler, disks

    def begin(self):
        self.stage.disk.choose(self.scheduler)
        super().begin()

    def write_policy(self):
        host = {"reserve": {"cpu": 0, "memory": 0}, "disks": self.disks}
        return self.stage.host.policy(self.tenants(), host=host, control={"interval": "1s"})


def ways(stage, model):
    """All of them for a disk; `model` is that of io.cost, or None where the kernel has none."""
    divided = lambda way: {"divide": {stage.disk.block.name: way}}
    yield Equal(stage)
    yield Equal(stage, "bfq")
    yield Static(stage)
    yield Shared(stage, "weigh", "bfq", "weigh")
    yield Shared(stage, "divide by bfq", "none", divided("bfq"))
    if model:
        yield Shared(stage, "divide by cost", "none", divided({"cost": model}))


class Stage:
    """A disk and the two tenants."""

    def __init__(self, host, disk, what):
        self.host, self.disk, self.what, self.ground = host, disk, what, host.ground
        self.tenants = [Tenant(name, weight, None) for name, weight in WEIGHTS.items()]
        for tenant in self.tenants:
            tenant.ground = self.ground
        self.folder = tempfile.mkdtemp(dir="/dev/shm", prefix="compare-")
        host.cleanup.callback(shutil.rmtree, self.folder)
        host.cleanup.callback(self.ground.clear, list(WEIGHTS))

    def rates(self, *loads):
        """MiB per second of each, together."""
        try:
            for load in loads:
                load.start(self.host, self.folder)
            time.sleep(SETTLE_SECONDS)
            before, then = [load.done() for load in loads], time.monotonic()
            time.sleep(WATCH_SECONDS)
            after, seconds = [load.done() for load in loads], time.monotonic() - then
        finally:
            for load in loads:
                self.ground.stop(load)
        return [(b - a) / 1024 / seconds for a, b in zip(before, after)]

    def under(self, way):
        """Runs the loads under a way; returns the row of the table."""
        stream = lambda name: Load(name, "direct", DEPTH, KIB, self.disk.path)
        lookups = Load("heavy", "lookup", LOOKUPS_PER_SECOND, LOOKUP_KIB, self.disk.path)
        ticks = Ticks()
        way.begin()
        try:
            began, used = time.monotonic(), way.cpu_seconds()
            (alone,) = self.rates(stream("heavy"))
            both = self.rates(stream("heavy"), stream("light"))
            _, beside = self.rates(lookups, stream("light"))
            waits = lookups.waits()[SETTLE_SECONDS * LOOKUPS_PER_SECOND :]
            cpu = (way.cpu_seconds() - used) / (time.monotonic() - began)
        finally:
            way.end()
        return {
            "scenario": self.what,
            "way": way.name,
            **machine(),
            **self.ground.about(),
            "load": [f"each {DEPTH} reads of {KIB} KiB at a time", f"{LOOKUPS_PER_SECOND} reads of {LOOKUP_KIB} KiB/s"],
            "seconds": WATCH_SECONDS,
            "ticks_arrived": ticks.arriving(),
            "work_per_second": dict(zip(WEIGHTS, both)),
            "share_error": figures.share_error(both, list(WEIGHTS.values())),
            "alone": alone,
            "beside": beside,
            "waits_ms": {"lookups": {f"p{it}": 1000 * figures.percentile(waits, it) for it in (50, 99)}},
            "way_cpu_percent": 100 * cpu,
        }


def compare(stage, model=None):
    """Prints a row for each way; returns them by name."""
    # Where it is part of the kernel, there may be no modprobe.
    if shutil.which("modprobe"):
        load_bfq()
    if "bfq" not in (stage.disk.block / "queue/scheduler").read_text():
        raise Skip("the kernel has no bfq")
    rows = {}
    for way in ways(stage, model):
        rows[way.name] = stage.under(way)
        stage.host.note(figures.line(rows[way.name]))
    return rows
