#!/usr/bin/env python3
"""tenantd beside static weights and an arbiter of quotas, on the kernel of this machine and not in a guest.

Usage: tests/compare_here.py [--only PATTERN] [--out target/compare.jsonl] [--programs target/dist]

The scenarios are those of the guests (tests/vm/guest/test_compare.py) that share CPUs, and two of disks that a program
serves. Tenants are legacy cgroups that are made below this process' own in the hierarchies of cpu, cpuacct, cpuset, memory
and blkio, and are removed at the end. Needs root.
SCENARIO_WATCH, SCENARIO_ROUNDS and SCENARIO_WAYS mean what they do there. `tests/vm/tables.py FILE` makes tables of it.
"""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "vm" / "guest"))

import disks  # noqa: E402
import host as programs  # noqa: E402
import loads  # noqa: E402
import test_compare  # noqa: E402
from cgroups import wait_until  # noqa: E402

MOUNT = Path("/sys/fs/cgroup")
# That of disks is not on every host.
TREES = ("cpu", "cpuacct", "cpuset", "memory", *(["blkio"] if (MOUNT / "blkio").is_dir() else []))
ROOT = f"tenantd-compare-{os.getpid()}"
PERIOD_USEC = 100_000
# The kernel's cpu.shares for a weight of 100.
SHARES = 1024
# Bytes per second of a disk of one head, and requests of each of four channels.
HEAD, CHANNELS, PER_CHANNEL = 50_000_000, 4, 400


def share_a_disk(host, what, *speed):
    if "blkio" not in TREES:
        raise programs.Skip("no legacy hierarchy of blkio")
    rows = disks.compare(disks.Stage(host, disks.SlowDisk(host, *speed), f"two readers of a disk of {what}"))
    test_compare.judge_disk(rows, ["tenantd, weigh", "tenantd, divide by bfq"])


def test_two_readers_of_a_disk_of_one_head(host):
    share_a_disk(host, "one head", HEAD)


def test_two_readers_of_a_disk_of_four_channels(host):
    share_a_disk(host, "four channels", 10**9, CHANNELS, PER_CHANNEL)


# What needs memory.low, slices or another machine is not here.
SCENARIOS = (
    test_compare.test_steady_contention_one_thread_per_cpu,
    test_compare.test_steady_contention_two_threads_per_cpu,
    test_compare.test_steady_contention_four_threads_per_cpu,
    test_compare.test_a_bursty_tenant_beside_steady_ones,
    test_compare.test_requests_beside_a_batch_job,
    test_compare.test_a_database_beside_a_batch_job,
    test_compare.test_more_threads_than_share,
    test_compare.test_a_change_of_weights,
    test_compare.test_fifty_tenants_of_which_five_are_busy,
    test_compare.test_work_of_one_tenant_in_three_slices,
    test_compare.test_two_builds_beside_each_other,
    test_two_readers_of_a_disk_of_one_head,
    test_two_readers_of_a_disk_of_four_channels,
)


def own(tree):
    """This process' own cgroup in the hierarchy of a controller."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if tree in controllers.split(","):
            return MOUNT / tree / path.lstrip("/")
    raise SystemExit(f"compare_here: no legacy hierarchy of {tree} in /proc/self/cgroup; use make compare")


class Group:
    """The cgroup of a tenant in all hierarchies, under the names of the unified one."""

    # The files of values that a way may change.
    FILES = {
        "cpu.weight": ("cpu", "cpu.shares"),
        "cpu.max": ("cpu", "cpu.cfs_quota_us"),
        "memory.max": ("memory", "memory.limit_in_bytes"),
        "memory.low": ("memory", "memory.soft_limit_in_bytes"),
        "memory.current": ("memory", "memory.usage_in_bytes"),
        "cpuset.cpus": ("cpuset", "cpuset.cpus"),
        "io.bfq.weight": ("blkio", "blkio.bfq.weight"),
    }

    def __init__(self, name):
        self.name = name
        self.paths = {tree: own(tree) / ROOT / name for tree in TREES}

    def make(self):
        for path in self.paths.values():
            path.mkdir(parents=True, exist_ok=True)
        # A new one has no CPU, from the root of the comparison on.
        for below in (self.paths["cpuset"].parent, self.paths["cpuset"]):
            for file in ("cpuset.cpus", "cpuset.mems"):
                if not (below / file).read_text().strip():
                    (below / file).write_text((below.parent / file).read_text())

    def remove(self):
        for path in self.paths.values():
            wait_until(lambda: is_removed(path), f"{path} to be empty")

    def enter(self, pid):
        for path in self.paths.values():
            (path / "cgroup.procs").write_text(str(pid))

    def pids(self):
        return [int(pid) for pid in (self.paths["cpu"] / "cgroup.procs").read_text().split()]

    def read(self, file):
        tree, name = self.FILES.get(file, ("cpu", file))
        return (self.paths[tree] / name).read_text().strip()

    def stat(self, file, key):
        if (file, key) != ("cpu.stat", "usage_usec"):
            raise FileNotFoundError(file)
        return int((self.paths["cpuacct"] / "cpuacct.usage").read_text()) // 1000

    def set(self, file, value):
        tree, name = self.FILES[file]
        (self.paths[tree] / name).write_text(str(value))


def is_removed(path):
    with contextlib.suppress(OSError):
        path.rmdir()
    return not path.exists()


class Here:
    """Legacy cgroups; loads are processes in them."""

    def __init__(self):
        self.made = {}
        self.running = {}
        # Processes that stay while loads come and go.
        self.sleeping = set()

    def about(self):
        return {"disk": "none", "release": "this kernel, legacy hierarchies"}

    def group(self, slice):
        if slice not in self.made:
            self.made[slice] = Group(slice)
            self.made[slice].make()
        return self.made[slice]

    def where(self, slices):
        # One that bears its tenant's name is found by it.
        if len(slices) == 1:
            return {}
        return {"match": {"cgroup": [f"/{ROOT}/{slice}" for slice in slices]}}

    def set(self, slice, *settings):
        for setting in settings:
            name, value = setting.split("=", 1)
            if name == "CPUWeight":
                self.group(slice).set("cpu.weight", int(value) * SHARES // 100)
            elif name == "CPUQuota":
                quota = int(value.rstrip("%")) * PERIOD_USEC // 100 if value else -1
                self.group(slice).set("cpu.max", quota)
            elif name == "IOWeight":
                self.group(slice).set("io.bfq.weight", int(value))
            else:
                raise AssertionError(f"{setting} means nothing here")

    def revert(self, slice):
        self.set(slice, "CPUWeight=100", "CPUQuota=")
        # It comes with bfq.
        with contextlib.suppress(FileNotFoundError, KeyError):
            self.set(slice, "IOWeight=100")

    def start(self, host, load, command):
        quiet = {"stdout": subprocess.DEVNULL, "start_new_session": True}
        self.running[load.unit] = host.start_in(self.group(load.slice), command, **quiet)

    def stop(self, load):
        process = self.running.pop(load.unit, None)
        if process:
            # A shell that builds has children.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            is_empty = lambda: self.sleeping.issuperset(self.group(load.slice).pids())
            wait_until(is_empty, f"the load to leave {load.slice}")

    def signal(self, load, signum):
        os.killpg(self.running[load.unit].pid, signum)

    def sleepers(self, host, slices):
        def begin():
            for slice in slices:
                self.sleeping.add(host.start_in(self.group(slice), ["sleep", "infinity"]).pid)

        return begin

    def clear(self, slices):
        for slice in slices:
            if group := self.made.pop(slice, None):
                group.remove()

    def clear_all(self):
        self.clear(list(self.made))
        for tree in TREES:
            wait_until(lambda: is_removed(own(tree) / ROOT), f"{ROOT} of {tree} to be empty")

    def daemon(self, host, policy, *options):
        return host.daemon(policy, Path("/") / ROOT, *options)


def build(*command):
    subprocess.run(command, check=True, cwd=HERE.parent)


def use_programs(given):
    """Takes tenantd and tenantctl from a folder, or builds them; the load is built beside them."""
    folder = Path(given or HERE.parent / "target/dist").resolve()
    if not given:
        build("cargo", "build", "--locked", "--quiet", "--profile", "dist", "--bins")
    build("rustc", "--edition", "2024", "-O", "-o", str(folder / "load"), "examples/load.rs")
    programs.TENANTD, programs.TENANTCTL = folder / "tenantd", folder / "tenantctl"
    loads.LOAD = folder / "load"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--only", default=".", help="a regular expression")
    arguments.add_argument("--out", default="target/compare.jsonl")
    arguments.add_argument("--programs", help="a folder with tenantd and tenantctl; built of the profile dist unless given")
    options = arguments.parse_args()
    use_programs(options.programs)
    nr_failed = 0
    with open(options.out, "a") as out:
        for scenario in SCENARIOS:
            name = scenario.__name__.removeprefix("test_")
            if re.search(options.only, name):
                nr_failed += judge(name, scenario, out)
    return 1 if nr_failed else 0


def judge(name, scenario, out):
    """Runs one; returns whether it failed. Rows go to the file, the rest is said."""

    def note(text):
        if text.startswith("{"):
            out.write(f"{text}\n")
            out.flush()
        else:
            print(f"# {name}: {text}", flush=True)

    host, began = programs.Host(note), time.monotonic()
    host.ground = Here()
    host.cleanup.callback(host.ground.clear_all)
    try:
        with host.cleanup:
            scenario(host)
    except programs.Skip as why:
        print(f"skip {name}: {why}", flush=True)
    except AssertionError as why:
        print(f"FAIL {name}: {why}", flush=True)
        traceback.print_exc()
        return True
    else:
        print(f"ok {name} ({time.monotonic() - began:.0f} s)", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
