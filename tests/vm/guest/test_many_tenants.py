"""Ten thousand tenants in a host: what the agent costs there, and that shares still follow the weights."""

import json
import os
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup
from host import resident_kib, run
from marks import long, newer

COUNT = int(os.environ.get("SCENARIO_TENANTS", "10000"))
# Emulated ticks with so many tenants take seconds, and a host with so many would have a longer interval than 1 s.
INTERVAL = 20
TICKS = 3
# As in systemd/tenantd.service.
ENVIRONMENT = ["MALLOC_ARENA_MAX=1", "MALLOC_MMAP_THRESHOLD_=65536", "MALLOC_TRIM_THRESHOLD_=131072"]
# The program itself, and each tenant: 22 KiB with 1,000 and with 2,000 tenants.
BASE_BYTES, BYTES = 10 << 20, 25 << 10


def read_all(pid):
    """Number of the files that this process has open below the hierarchy, and the CPU time to open, read and close each."""
    folder = Path(f"/proc/{pid}/fd")
    paths = [os.readlink(folder / name) for name in os.listdir(folder)]
    paths = [path for path in paths if path.startswith(str(MOUNT)) and os.path.isfile(path)]
    begin = time.process_time()
    for path in paths:
        # Files without a buffer of Python's.
        file = os.open(path, os.O_RDONLY)
        os.read(file, 16384)
        os.close(file)
    return len(paths), time.process_time() - begin


@long
@newer
def test_ten_thousand_tenants(host):
    root = host.delegated("+cpu +memory +pids")
    tenants = {f"t{number}": {"weight": 100} for number in range(COUNT - 2)}
    tenants |= {"light": {"weight": 100}, "heavy": {"weight": 300}}
    policy = host.policy(tenants, control={"interval": f"{INTERVAL}s"})
    begin = time.monotonic()
    # Each open file of the kernel counts; the unit has `LimitNOFILE=`.
    daemon = host.daemon(policy, root, prefix=["env", *ENVIRONMENT, "prlimit", "--nofile=1000000"])
    daemon.says("started on")
    started = time.monotonic() - begin
    status = lambda: json.loads(run(*daemon.client("status", "--json")))
    daemon.until(lambda: Cgroup(root.path / "heavy").exists() and status()["tick"] >= 3, "the third tick")
    settled = time.monotonic() - begin
    light, heavy = (host.burn(Cgroup(root.path / name), host.cpus) for name in ("light", "heavy"))
    used = lambda: [Cgroup(root.path / name).stat("cpu.stat", "usage_usec") for name in ("light", "heavy")]
    first = status()
    daemon.until(lambda: status()["tick"] > first["tick"] + 1, "two ticks")
    before, then = used(), status()
    daemon.until(lambda: status()["tick"] >= then["tick"] + TICKS, "some ticks")
    after, now = used(), status()
    host.stop(light + heavy)
    parts = [y - x for x, y in zip(before, after)]
    share = parts[1] / sum(parts)
    ticks = now["tick"] - then["tick"]
    cpu = (now["agent"]["cpu_seconds"] - then["agent"]["cpu_seconds"]) / ticks
    nr_files = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
    resident = resident_kib(daemon.process.pid) * 1024
    nr_read, read_seconds = read_all(daemon.process.pid)
    host.note(f"{COUNT} tenants: started after {started:.1f} s, third tick after {settled:.0f} s, a tick takes {cpu:.2f} s of CPU")
    host.note(f"opening, reading and closing its {nr_read} files once takes {read_seconds:.2f} s of CPU")
    host.note(f"{resident / 1e6:.1f} MB resident, {nr_files / COUNT:.1f} descriptors for each tenant; the heavy one had {share:.3f}")
    begin = time.monotonic()
    assert daemon.terminate() == 0, daemon.log()
    host.note(f"all removed after {time.monotonic() - begin:.1f} s")
    assert not list(root.path.glob("t*/")), "cgroups of tenants are left"
    assert abs(share - 0.75) <= 0.05, share
    assert resident <= BASE_BYTES + COUNT * BYTES, resident
