"""Memory that runs short on a host without swap: a file that is read all the time, beside anonymous memory that grows
until next to nothing is left to reclaim."""

import json
import re
import shutil
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, telling, wait_until
from host import run
from marks import alone, both
from memory import MIB, meminfo
from test_units import SERVICE, install, log
from units import show, start

# Reads a whole file again and again, and keeps count of it.
READ = """
import os, sys, time
file, nowhere = os.open(sys.argv[1], os.O_RDONLY), os.open("/dev/null", os.O_WRONLY)
count = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
passes = 0
while True:
    at = 0
    while got := os.sendfile(nowhere, file, at, 1 << 20):
        at += got
    passes += 1
    os.pwrite(count, b"%d" % passes, 0)
    time.sleep(0.2)
"""
# Takes memory as fast as it can, and keeps it.
TAKE = """
import sys, time
held = [bytearray(b"x") * (1 << 20) for _ in range(int(sys.argv[1]))]
open(sys.argv[2], "w").close()
time.sleep(1e6)
"""
# Of the memory, as on the machine of 2 GiB with 600 MiB of files that this was first seen on.
HOT_RATIO = 0.3
# Of the files, what is left for them beside the anonymous memory.
LEFT_RATIO = 0.3
WATCH_SECONDS = 10
# What may be lost to measuring: of the answers in a time, of the time, and of the files.
ANSWERS_MIN_RATIO, STALLED_MORE, RESIDENT_LESS = 0.25, 0.25, 0.1


class Stage:
    """A tenant that reads and one that takes, each in its slice."""

    def __init__(self, host):
        self.host = host
        self.folder = host.folder()
        self.reader, self.hog = (Cgroup(MOUNT / f"tenants.slice/tenants-{name}.slice") for name in ("reader", "hog"))
        # Nothing of it is on the disk, and all of it in memory.
        file = Path("/var/tmp/hot")
        self.hot = int(HOT_RATIO * meminfo("MemTotal")) // MIB * MIB
        with open(file, "wb") as made:
            made.truncate(self.hot)
        host.cleanup.callback(file.unlink)
        self.taken = meminfo("MemAvailable") - int(LEFT_RATIO * self.hot)
        count = self.folder / "passes"
        self.serve("reader", READ, file, count)
        passes = lambda: int(count.read_text() or 0) if count.exists() else 0
        wait_until(lambda: passes() >= 2, "the file to be read")

    def serve(self, name, script, *arguments):
        command = ["python3", "-c", script, *map(str, arguments)]
        return start(self.host, f"{name}.service", *command, slice=f"tenants-{name}.slice")

    def take(self):
        """Starts to take nearly all memory; the file that is returned is there when it has been taken."""
        full = self.folder / "full"
        full.unlink(missing_ok=True)
        self.serve("hog", TAKE, self.taken // MIB, full)
        return full

    def give_back(self):
        run("systemctl", "stop", "hog.service")
        self.whole()

    def whole(self):
        wait_until(lambda: self.resident() > 0.99, "all of the file to be in memory")

    def resident(self):
        return self.reader.stat("memory.stat", "file") / self.hot

    def low(self):
        return int(self.reader.read("memory.low"))

    def watch(self, what, ask):
        """How the host fares for a while: round trips to systemd, with `ask()` after each few of them."""
        full = lambda: int(re.search(r"full .*total=(\d+)", Path("/proc/pressure/memory").read_text())[1]) / 1e6
        refaults = lambda: self.reader.stat("memory.stat", "workingset_refault_file")
        began, stalled, refaulted = time.monotonic(), full(), refaults()
        answers, slowest, resident = 0, 0.0, []
        while (now := time.monotonic()) < began + WATCH_SECONDS:
            show("reader.service", "MainPID")
            slowest = max(slowest, time.monotonic() - now)
            answers += 1
            resident.append(self.resident())
            if answers % 5 == 1:
                ask()
        seconds = time.monotonic() - began
        found = {
            "answers": answers / seconds,
            "slowest": slowest,
            "stalled": (full() - stalled) / seconds,
            "resident": sorted(resident)[len(resident) // 2],
        }
        figures = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
        self.host.note(f"{what}: {figures}; {refaults() - refaulted} refaults")
        assert refaults() > refaulted, "memory was not short"
        return found


@alone
@both
def test_protection_leaves_a_host_alive_that_would_live_without(host):
    """And where memory is limited, the tenant that takes too much is ended for it, and the other loses nothing."""
    stage = Stage(host)
    host.note(f"{stage.hot // MIB} MiB of files, {stage.taken // MIB} of {meminfo('MemTotal') // MIB} taken")
    full = stage.take()
    wait_until(full.exists, "the memory to be taken")
    without = stage.watch("without tenantd", lambda: host.ctl("--version"))
    stage.give_back()

    tenants = {name: {"owner": "systemd"} for name in ("reader", "hog")}
    # Programs count where they were read first; those of a package were not read by who installed it.
    install(host, tenants)
    Path("/proc/sys/vm/drop_caches").write_text("1")
    run("systemctl", "start", SERVICE)
    demands = []

    def demand():
        told = host.installed("status", "--json")
        assert told.returncode == 0, told.stderr
        demands.extend(t["demand_memory_bytes"] for t in json.loads(told.stdout)["tenants"] if t["name"] == "reader")

    with telling(log):
        wait_until(lambda: stage.low() > 0.95 * stage.hot and stage.hog.exists(), "the files to be protected")
        full = stage.take()
        wait_until(full.exists, "the memory to be taken")
        wait_until(lambda: stage.low() < 0.5 * stage.hot, "less to be protected")
        found = stage.watch("with tenantd", demand)
        assert found["answers"] > ANSWERS_MIN_RATIO * without["answers"], (found, without)
        assert found["stalled"] < without["stalled"] + STALLED_MORE, (found, without)
        assert found["resident"] > without["resident"] - RESIDENT_LESS, (found, without)
        # It needs what it needed, and says so though it has less.
        assert min(demands) > 0.95 * stage.hot, (demands, stage.hot)
        stage.give_back()

        limit = stage.taken // 2 // MIB * MIB
        tenants["hog"]["limit"] = {"memory": limit}
        shutil.copy(host.policy(tenants), "/etc/tenantd/tenants.yaml")
        run("systemctl", "reload", SERVICE)
        wait_until(lambda: stage.hog.holds("memory.max", str(limit)), "the limit")
        pid = show("reader.service", "MainPID")
        stage.take()
        wait_until(lambda: stage.hog.stat("memory.events", "oom_kill") > 0, "the hog to meet its limit")
        wait_until(lambda: show("hog.service", "ActiveState") in ("failed", "inactive"), "the hog to end")
        assert show("reader.service", "MainPID") == pid and stage.resident() > 0.99
        assert stage.reader.stat("memory.events", "oom_kill") == 0
        run("systemctl", "stop", SERVICE)
