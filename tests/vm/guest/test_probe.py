"""A tenant that holds more memory than it needs, and is squeezed until that shows (`memory: { probe: true }`)."""

import os
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup
from host import run
from marks import both, long
from memory import MIB, meminfo
from test_isolation import Isolation, swap_in_zram
from test_systemd import policy
from units import start

# Of the memory: what is in use all the time, and what was read once and stays in the cache.
HOT_RATIO, COLD_RATIO = 0.05, 0.25
# How long tasks have to be calm before a probe begins, and one lowering of a hundredth at most.
CALM_SECONDS, INTERVAL_SECONDS = 60, 6
WATCH_SECONDS = int(os.environ.get("SCENARIO_WATCH", "120"))
# Of the lowerings that the time allows, so many have to come: tasks of an emulated machine wait longer for each page.
STEPS_MIN_RATIO = 0.5
# Of what the program does without a probe. The turns of a guest's CPUs differ by more than a probe costs.
WORK_MIN_RATIO = 0.8
# Touches all of what it holds, again and again at a fixed pace, and keeps count; reads a file first, and once more for each SIGUSR1.
TOUCH = """
import mmap, os, signal, sys, time
hot, cold, count = int(sys.argv[1]), os.open(sys.argv[2], os.O_RDONLY), os.open(sys.argv[3], os.O_RDWR | os.O_CREAT)
os.ftruncate(count, 4096)
told = mmap.mmap(count, 4096)
tell = lambda at, value: told.__setitem__(slice(at, at + 8), value.to_bytes(8, "little"))
nowhere, readings = os.open("/dev/null", os.O_WRONLY), 0
def read(*_):
    global readings
    at = 0
    while got := os.sendfile(nowhere, cold, at, 1 << 20):
        at += got
    readings += 1
    tell(8, readings)
signal.signal(signal.SIGUSR1, read)
held = bytearray(os.urandom(1 << 16) * (hot >> 16))
read()
rounds = 0
while True:
    for at in range(0, hot, 4096):
        held[at] = rounds & 255
    rounds += 1
    tell(0, rounds)
    time.sleep(0.05)
"""


class Program:
    """What is squeezed."""

    def __init__(self, host):
        self.count = host.folder() / "count"
        hot, cold = (int(ratio * meminfo("MemTotal")) // MIB * MIB for ratio in (HOT_RATIO, COLD_RATIO))
        file = Path("/var/tmp/cold")
        with open(file, "wb") as made:
            for _ in range(cold // MIB):
                made.write(os.urandom(MIB))
        host.cleanup.callback(file.unlink)
        run("sync")
        Path("/proc/sys/vm/drop_caches").write_text("1")
        self.unit = start(host, "app.service", "python3", "-c", TOUCH, str(hot), str(file), str(self.count), slice="tenants-app.slice")
        self.group = Cgroup(MOUNT / "tenants.slice/tenants-app.slice")
        host.cleanup.callback(run, "systemctl", "stop", "tenants-app.slice", "tenants.slice")

    def told(self, number):
        return Isolation.told(self.count, number)

    def held(self):
        return int(self.group.read("memory.current"))

    def bound(self):
        """`None` without one."""
        text = self.group.read("memory.high").strip()
        return None if text == "max" else int(text)

    def rounds_per_second(self, seconds):
        began, before = time.monotonic(), self.told(0)
        time.sleep(seconds)
        return (self.told(0) - before) / (time.monotonic() - began)


@long
@both
def test_what_a_tenant_does_not_need_is_found_and_given_up(host):
    swap_in_zram(host)
    app = Program(host)
    daemon = host.daemon(policy(host, {"app": {"owner": "systemd"}}, memory={"probe": True}), None)
    daemon.until(lambda: app.told(1) == 1, "the file to be read")
    alone = app.rounds_per_second(CALM_SECONDS / 3)
    held = app.held()
    daemon.until(lambda: app.bound() is not None, "a probe to begin")
    probed = app.rounds_per_second(WATCH_SECONDS)
    left, bound = app.held(), app.bound()
    host.note(
        f"{held / MIB:.0f} MiB held, after {WATCH_SECONDS} s {left / MIB:.0f}, bound {bound and bound // MIB} MiB; "
        f"{alone:.1f} rounds a second, {probed:.1f} while probed"
    )
    steps = STEPS_MIN_RATIO * WATCH_SECONDS / INTERVAL_SECONDS
    assert left <= held * 0.99**steps, (held, left)
    assert probed >= WORK_MIN_RATIO * alone, (alone, probed)
    # What it needs again it has at once: no bound stands in its way for longer than a tick or two.
    began = time.monotonic()
    run("systemctl", "kill", "--signal=USR1", app.unit)
    daemon.until(lambda: app.told(1) == 2, "the file to be read once more")
    host.note(f"read again in {time.monotonic() - began:.1f} s, bound {app.bound()}")
    daemon.until(lambda: app.bound() is None or app.bound() > app.held(), "the bound to make room")
    assert app.group.stat("memory.events", "oom_kill") == 0
    assert daemon.terminate() == 0, daemon.log()
    assert app.bound() is None, app.bound()
