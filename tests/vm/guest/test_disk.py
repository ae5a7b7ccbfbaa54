"""Weights and limits on disks that systemd writes, and what it writes over them."""

import contextlib
import json
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, wait_until
from disks import NullDisk, exact_disk, load_bfq
from host import TENANTCTL, TENANTD, Skip, finish, run
from loads import LOAD
from marks import alone, both, long, newer
from test_systemd import Host
from units import show, start

# Bytes per second of the disk, in MB: an emulated processor has to keep up.
RATE = 10
UNITS = {name: f"disk-{name}.service" for name in ("heavy", "light", "limited")}


def line(group, file, number):
    """The words of a disk in a file of lines; none where it has no line."""
    with contextlib.suppress(FileNotFoundError):
        for words in map(str.split, group.read(file).splitlines()):
            if words[0] == number:
                return dict(word.split("=") for word in words[1:])
    return {}


def reader(host, unit, disk):
    script = f"for i in 1 2 3 4; do (while :; do dd if={disk.path} of=/dev/null bs=64k count=512 iflag=direct; done) & done; wait"
    start(host, unit, "/bin/sh", "-c", script, IOAccounting="yes")
    return Cgroup(MOUNT / "system.slice" / unit)


@alone
@both
def test_disks_are_weighed_and_limited_through_systemd(host):
    load_bfq()
    disk = NullDisk(host, "slow", mbps=RATE)
    disk.choose("bfq")
    groups = {name: reader(host, unit, disk) for name, unit in UNITS.items()}
    for group in groups.values():
        wait_until(lambda: line(group, "io.stat", disk.number), f"requests of {group.name}")
    # Set and not unset: systemd keeps a drop-in for a property that was set back.
    tasks = lambda most: [run("systemctl", "set-property", "--runtime", it, f"TasksMax={most}") for it in UNITS.values()]
    tasks(600)
    world = Host(*UNITS.values())
    tenants = {
        "heavy": {"match": {"unit": UNITS["heavy"]}, "weight": 300},
        "light": {"match": {"unit": UNITS["light"]}, "weight": 100},
        "limited": {
            "match": {"unit": UNITS["limited"]},
            "weight": 100,
            "limit": {"disk": {"read": "1MiB/s", "read_iops": 500}},
        },
    }
    rest = {"reserve": {"cpu": 0, "memory": 0}, "disks": "weigh"}
    daemon = host.daemon(host.policy(tenants, host=rest), None)

    def weight(name):
        return int(groups[name].read("io.bfq.weight").splitlines()[0].split()[-1])

    def is_weighed():
        heavy, light = weight("heavy"), weight("light")
        return 2.85 * light < heavy < 3.15 * light

    def is_limited(number=disk.number):
        held = line(groups["limited"], "io.max", number)
        return (held.get("rbps"), held.get("riops"), held.get("wbps")) == (str(1 << 20), "500", "max")

    daemon.until(is_weighed, "weights as the policy says")
    daemon.until(is_limited, "the limit")
    host.note(
        f"weights {weight('heavy')}:{weight('light')}, IOWeight={show(UNITS['heavy'], 'IOWeight')}, "
        f"IOReadBandwidthMax={show(UNITS['limited'], 'IOReadBandwidthMax')}"
    )
    assert f"/dev/block/{disk.number} {1 << 20}" in show(UNITS["limited"], "IOReadBandwidthMax")
    assert not line(groups["heavy"], "io.max", disk.number)

    # Whatever is set, systemd writes the weights of all its properties again, as it compresses them.
    for round in range(4):
        tasks(500 + round)
        run("systemctl", "daemon-reload")
        daemon.until(lambda: is_weighed() and is_limited(), "weights and limits again")
    tasks(600)

    read = lambda: {name: int(line(group, "io.stat", disk.number)["rbytes"]) for name, group in groups.items()}
    before = read()
    wait_until(lambda: sum(read().values()) - sum(before.values()) > 60 * RATE * 10**6 // 10, "reads to compare")
    after = read()
    used = {name: (after[name] - before[name]) / 2**20 for name in groups}
    host.note("MiB read: " + ", ".join(f"{name} {used[name]:.1f}" for name in used))

    # A disk that appears has the limit after its first request, and takes it along when it goes.
    late = NullDisk(host, "late", mbps=RATE)
    late.use()
    daemon.until(lambda: is_limited(late.number), "the limit on a disk that appeared")
    late.remove()
    wait_until(lambda: not line(groups["limited"], "io.max", late.number), "the end of its line")

    # The files of bfq go with its module, and the weights come back with it.
    disk.choose("none")
    run("rmmod", "bfq")
    daemon.until(lambda: "disk weights are ineffective" in daemon.log(), "the finding on the disk")
    run("modprobe", "bfq")
    disk.choose("bfq")
    daemon.until(is_weighed, "weights after the module was loaded again")
    assert "someone else wrote here" not in daemon.log(), daemon.log()
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)


def settings(disk):
    """What dividing the disk may change, but for a line of io.cost that is off and the kernel's: it never goes away."""
    files = ["scheduler", "nr_requests", "wbt_lat_usec", "iosched/read_expire", "iosched/low_latency"]
    found = {}
    for name in files:
        with contextlib.suppress(OSError):
            found[name] = (disk.block / "queue" / name).read_text()
    for name in ("io.cost.model", "io.cost.qos"):
        with contextlib.suppress(OSError):
            held = line(Cgroup(MOUNT), name, disk.number)
            found[name] = {} if held.get("ctrl") == "auto" and held.get("enable", "0") == "0" else held
    return found


def divide(host, disk, way):
    tenants = {name: {"match": {"unit": UNITS[name]}, "weight": weight} for name, weight in (("heavy", 300), ("light", 100))}
    disks = {"divide": {disk.block.name: way}}
    return host.daemon(host.policy(tenants, host={"reserve": {"cpu": 0, "memory": 0}, "disks": disks}), None)


@alone
@both
def test_a_disk_is_divided_and_restored_after_a_kill(host):
    load_bfq()
    if not (MOUNT / "io.cost.qos").exists():
        raise Skip("the kernel has no io.cost")
    disk = NullDisk(host, "divided", mbps=RATE)
    disk.choose("mq-deadline")
    (disk.block / "queue/iosched/read_expire").write_text("77")
    before = settings(disk)
    groups = {name: reader(host, UNITS[name], disk) for name in ("heavy", "light")}
    for group in groups.values():
        wait_until(lambda: line(group, "io.stat", disk.number), f"requests of {group.name}")
    speed = {"read": RATE * 10**6, "read_iops": RATE * 10**6 // 4096}
    is_on = lambda: line(Cgroup(MOUNT), "io.cost.qos", disk.number).get("enable") == "1"
    ways = {
        "bfq": ("bfq", lambda: "[bfq]" in (disk.block / "queue/scheduler").read_text()),
        "cost": ({"cost": speed}, is_on),
        "cost with a latency": ({"cost": {**speed, "latency": "20ms"}}, is_on),
    }
    read = lambda: {name: int(line(group, "io.stat", disk.number)["rbytes"]) for name, group in groups.items()}
    for name, (way, is_divided) in ways.items():
        daemon = divide(host, disk, way)
        daemon.until(is_divided, f"the disk divided by {name}")
        file = "io.bfq.weight" if name == "bfq" else "io.weight"

        def weight(of):
            return int(groups[of].read(file).splitlines()[0].split()[-1])

        daemon.until(lambda: 2.85 < weight("heavy") / weight("light") < 3.15, "weights as the policy says")
        start = read()
        wait_until(lambda: sum(read().values()) - sum(start.values()) > 5 * RATE * 10**6, "reads to compare")
        used = {of: count - start[of] for of, count in read().items()}
        host.note(f"{name}: heavy reads {used['heavy'] / max(1, used['light']):.2f} times as much as light")
        daemon.murder()
        assert is_divided(), name
        assert finish([str(TENANTD), "--restore", "--state-dir", str(daemon.state)]).returncode == 0
        assert settings(disk) == before, f"{name}: {settings(disk)} instead of {before}"


SHARED = {"reader": 300, "compiler": 200, "both": 100}
COUPLED_UNITS = {name: f"coupled-{name}.service" for name in SHARED}
# Ticks whose means are judged.
JUDGED = 20
# Of the part of the CPUs that a tenant is allocated, and of the part of the disk that it uses, from what `solve` gives for
# the same demands. Which CPU time it uses is noted: beside siblings that read, kernels obey weights by half (docs/disk.md).
SOLVED_ERROR_MAX, USED_ERROR_MAX = 0.02, 0.05


def solved(host, status):
    """Parts of the CPUs and of the disk that `tenantctl solve` gives for the demands of a tick."""
    cores = status["host"]["capacity_cores"]
    tenants = {
        of["name"]: {
            "weight": SHARED[of["name"]],
            "demand": {"cpu": min(cores, of["demand_cores"]), "disk": of["disk_share"]["demand_ratio"]},
        }
        for of in status["tenants"]
    }
    problem = host.folder() / "problem.yaml"
    problem.write_text(json.dumps({"algorithm": "drf", "capacity": {"cpu": cores, "disk": 1}, "tenants": tenants}))
    answer = json.loads(run(str(TENANTCTL), "solve", "--json", str(problem)))
    return {name: (of["allocation"]["cpu"] / cores, of["allocation"]["disk"]) for name, of in answer["tenants"].items()}


@long
@newer
def test_three_tenants_share_a_disk_and_the_cpus(host):
    """One waits for the disk, one for CPUs, and one for both."""
    disk = exact_disk(host, "coupled", mbps=50)
    load_bfq()
    disk.choose("bfq")
    counts = host.folder()
    reads = lambda name: f"{LOAD} direct {counts}/{name}-reads 16 64 {disk.path}"
    works = lambda name: f"{LOAD} spin {counts}/{name}-works 4"
    commands = {"reader": reads("reader"), "compiler": works("compiler"), "both": f"{works('both')} & exec {reads('both')}"}
    for name, unit in COUPLED_UNITS.items():
        start(host, unit, "/bin/sh", "-c", commands[name], IOAccounting="yes")
    tenants = {name: {"match": {"unit": COUPLED_UNITS[name]}, "weight": weight} for name, weight in SHARED.items()}
    control = {"interval": "1s", "couple": ["cpu", "memory", "disk"]}
    around = {"reserve": {"cpu": 0, "memory": 0}, "disks": "weigh"}
    daemon = host.daemon(host.policy(tenants, host=around, control=control), None)
    status = lambda: json.loads(run(*daemon.client("status", "--json")))

    def is_coupled():
        of = {tenant["name"]: tenant.get("disk_share") or {} for tenant in status()["tenants"]}
        return all(of[name].get("is_coupled") for name in ("reader", "both"))

    daemon.says("started on")
    daemon.until(is_coupled, "the disk to be coupled")
    looks, first = [], status()["tick"] + 5
    while len(looks) < JUDGED:
        look = status()
        if look["tick"] >= max(first, looks[-1]["tick"] + 1 if looks else 0):
            looks.append(look)
        time.sleep(0.2)
    due = [solved(host, look) for look in looks]
    mean = lambda values: sum(values) / len(values)
    wrong = []
    for at, name in enumerate(SHARED):
        of = [look["tenants"][at] for look in looks]
        assert of[0]["name"] == name, of[0]
        cores = [look["host"]["capacity_cores"] for look in looks]
        allocated = mean([tenant["allocation_cores"] / all for tenant, all in zip(of, cores)])
        used = mean([tenant["usage_cores"] / all for tenant, all in zip(of, cores)])
        read = mean([tenant["disks"][0]["work_ratio"] if tenant.get("disks") else 0.0 for tenant in of])
        cpu, part = mean([it[name][0] for it in due]), mean([it[name][1] for it in due])
        host.note(f"{name}: CPU {allocated:.3f} of {cpu:.3f}, used {used:.3f}; disk {read:.3f} of {part:.3f}")
        if abs(allocated - cpu) > SOLVED_ERROR_MAX:
            wrong.append(f"{name}: CPU {allocated:.3f} instead of {cpu:.3f}")
        if abs(read - part) > USED_ERROR_MAX:
            wrong.append(f"{name}: disk {read:.3f} instead of {part:.3f}")
    assert not wrong, wrong
