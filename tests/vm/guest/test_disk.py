"""Weights and limits on disks that systemd writes, and what it writes over them."""

import contextlib
from pathlib import Path

from cgroups import MOUNT, Cgroup, wait_until
from host import TENANTD, Skip, finish, run
from marks import both
from test_systemd import Host
from units import show, start

CONFIG = Path("/sys/kernel/config/nullb")
# Bytes per second of the disk, in MB: an emulated processor has to keep up.
RATE = 10
UNITS = {name: f"disk-{name}.service" for name in ("heavy", "light", "limited")}


class NullDisk:
    """A block device in the kernel that does RATE MB/s and gives zeros."""

    def __init__(self, host, name):
        if finish(["modprobe", "null_blk", "nr_devices=0"]).returncode != 0:
            raise Skip("the kernel has no null_blk")
        before = set(Path("/sys/block").iterdir())
        self.folder = CONFIG / name
        self.folder.mkdir()
        host.cleanup.callback(self.remove)
        for key, value in {"size": 256, "blocksize": 512, "queue_mode": 2, "mbps": RATE, "power": 1}.items():
            (self.folder / key).write_text(str(value))
        new = lambda: set(Path("/sys/block").iterdir()) - before
        wait_until(new, "the disk")
        (self.block,) = new()
        self.path = f"/dev/{self.block.name}"
        self.number = (self.block / "dev").read_text().strip()
        wait_until(lambda: Path(f"/dev/block/{self.number}").exists(), "udev's link to the disk")

    def choose(self, scheduler):
        (self.block / "queue/scheduler").write_text(scheduler)

    def use(self):
        """Nothing is limited on a disk before its first request."""
        run("dd", f"if={self.path}", "of=/dev/null", "bs=64k", "count=1", "iflag=direct", "status=none")

    def remove(self):
        if self.folder.exists():
            (self.folder / "power").write_text("0")
            self.folder.rmdir()


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


@both
def test_disks_are_weighed_and_limited_through_systemd(host):
    if finish(["modprobe", "bfq"]).returncode != 0:
        raise Skip("the kernel has no bfq")
    disk = NullDisk(host, "slow")
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
    late = NullDisk(host, "late")
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


@both
def test_a_disk_is_divided_and_restored_after_a_kill(host):
    if finish(["modprobe", "bfq"]).returncode != 0:
        raise Skip("the kernel has no bfq")
    if not (MOUNT / "io.cost.qos").exists():
        raise Skip("the kernel has no io.cost")
    disk = NullDisk(host, "divided")
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
