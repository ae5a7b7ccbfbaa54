"""A tenant that reads a set of files all the time, beside one that takes memory: what reaches it each second, with no
agent, with what an administrator could set by hand, and with the agent, in the same guest and one after the other.

Which of these are compared says SCENARIO_PHASES, a regular expression (`.` for all of them)."""

import contextlib
import json
import os
import re
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, wait_until
from host import Skip, finish, run
from manager import asked_all_the_time
from marks import both, long, newer
from memory import GIVE_BACK_SECONDS, MIB, PACED_READ, PACED_TAKE, meminfo
from test_systemd import policy
from units import start

# Of the memory: as 600 MiB on a machine of 2 GiB.
HOT_RATIO = 0.3
# The reader wants all of its file in this time. It could have it far more often: what it lacks is memory, not a CPU.
PASS_SECONDS = 3
# Beside its files: the program that reads, and what the kernel keeps for them.
GUARANTEE_MORE = 32 * MIB
WATCH_SECONDS = int(os.environ.get("SCENARIO_WATCH", "20"))
PHASES = os.environ.get("SCENARIO_PHASES", "nothing|guaranteed")
# Where memory is short, the reader has to get so many pages again with nothing set.
SHORT_REFAULTS = 1000
# Of those, what a guarantee may cost: the second in which the agent starts, and pages that are read for the first time.
REFAULTS_MAX_RATIO = 0.01
# Of what reaches it alone: in the mean, and in its worst second in twenty.
MEAN_MIN_RATIO, P05_MIN_RATIO = 0.97, 0.9
# The agent's longest tick, or what process 1 takes at most to answer without the agent, where that is more.
TICK_MAX_MS = 250


class Kind:
    """What the other tenant does."""

    def __init__(self, held_ratio=0.0, pace=0.0, stream_ratio=0.0):
        self.held_ratio, self.pace, self.stream_ratio = held_ratio, pace, stream_ratio


class Isolation:
    def __init__(self, host, kind):
        self.host, self.kind = host, kind
        self.folder = host.folder()
        self.total = meminfo("MemTotal")
        self.hot = int(HOT_RATIO * self.total) // MIB * MIB
        self.guarantee = self.hot + GUARANTEE_MORE
        self.slices = {name: Cgroup(MOUNT / f"tenants.slice/tenants-{name}.slice") for name in ("reader", "hog")}
        host.cleanup.callback(finish, ["systemctl", "stop", "tenants-hog.slice", "tenants-reader.slice", "tenants.slice"])
        # Its blocks are on the disk; those of the other's are not, so that it reads as fast as it can.
        self.file = self.made("/var/tmp/hot", self.hot, True)
        self.stream = self.made("/var/tmp/stream", int(kind.stream_ratio * self.total) // MIB * MIB, False)
        run("sync")
        Path("/proc/sys/vm/drop_caches").write_text("1")
        self.count, self.taken = self.folder / "reads", self.folder / "taken"
        start(host, "reader.service", "python3", "-c", PACED_READ, str(self.file), str(self.count), str(self.hot / MIB / PASS_SECONDS),
              slice="tenants-reader.slice")
        wait_until(lambda: self.told(self.count, 1), "the reader to have read all")
        self.alone = self.watch("alone")

    def made(self, path, size, on_disk):
        with open(path, "wb") as made:
            if on_disk:
                for _ in range(size // MIB):
                    made.write(b"x" * MIB)
            made.truncate(size)
        self.host.cleanup.callback(Path(path).unlink)
        return path

    @staticmethod
    def told(file, number):
        data = file.read_bytes() if file.exists() else b""
        return int.from_bytes(data[8 * number : 8 * number + 8], "little")

    def begin(self):
        """Starts the other tenant; returns when it has done for the first time what it then goes on to do."""
        kind = self.kind
        most = -1 if kind.held_ratio < 0 else int(kind.held_ratio * self.total) // MIB
        self.taken.unlink(missing_ok=True)
        start(self.host, "hog.service", "python3", "-c", PACED_TAKE, str(most), str(kind.pace), str(self.stream), str(self.taken),
              slice="tenants-hog.slice", Restart="always", RestartSec="200ms", StartLimitIntervalSec="0")
        if most >= 0:
            wait_until(lambda: self.streamed() * MIB >= min(4 * kind.stream_ratio, 3.0) * self.total, "the stream")
        else:
            left = lambda: meminfo("MemAvailable") + meminfo("SwapFree") - 0.2 * self.total
            room = self.total + meminfo("SwapTotal")
            wait_until(lambda: left() < 0 or self.told(self.taken, 0) * MIB > room, "the hog to fill the memory")

    def end(self):
        run("systemctl", "stop", "hog.service")
        wait_until(lambda: self.resident() > 0.99, "all of the file to be in memory")

    def streamed(self):
        return self.told(self.taken, 1) + self.told(self.taken, 2)

    def resident(self):
        return self.slices["reader"].stat("memory.stat", "file") / self.hot

    def counters(self):
        reader = self.slices["reader"]
        hog = self.slices["hog"]
        has_hog = hog.exists()
        return {
            "read": self.told(self.count, 0),
            "refaults": reader.stat("memory.stat", "workingset_refault_file"),
            "broken": reader.stat("memory.events", "low"),
            "killed": reader.stat("memory.events", "oom_kill"),
            "hog_killed": hog.stat("memory.events", "oom_kill") if has_hog else 0,
            "streamed": self.streamed(),
            "taken": self.told(self.taken, 0),
            **self.busy(),
            "stalled": int(re.search(r"full .*total=(\d+)", Path("/proc/pressure/memory").read_text())[1]) / 1e6,
        }

    def busy(self):
        """Seconds of CPU time, of those that matter."""
        used = {f"cpu of {name}": group.usage_usec() / 1e6 for name, group in self.slices.items() if group.exists()}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                name, fields = stat.read_text().rsplit(")", 1)
                name = name.split("(", 1)[1]
                if name in ("systemd", "kswapd0", "tenantd"):
                    used[f"cpu of {name}"] = sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")
        return used

    def watch(self, what):
        """Each second for a while; returns what reached the reader in each, in MiB."""
        first = before = self.counters()
        then = began = time.monotonic()
        rates, resident = [], []
        with asked_all_the_time() as pings:
            while then < began + WATCH_SECONDS:
                time.sleep(1)
                now, seen = time.monotonic(), self.counters()
                rates.append((seen["read"] - before["read"]) / (now - then))
                resident.append(self.resident())
                before, then = seen, now
        pings = sorted(ping * 1e3 for ping in pings)
        grown = {name: before[name] - first[name] for name in first if name in before}
        cpus = ", ".join(f"{name} {used:.1f} s" for name, used in grown.items() if name.startswith("cpu"))
        files = {name: self.slices["reader"].read(name) for name in ("memory.current", "memory.min", "memory.low")}
        for name, group in self.slices.items():
            if group.exists():
                files |= {f"{name} {key}": str(group.stat("memory.stat", key)) for key in ("anon", "active_file", "inactive_file")}
        hog = self.slices["hog"]
        if hog.exists():
            files |= {f"hog {name}": hog.read(name) for name in ("memory.current", "memory.low", "memory.high", "memory.max")}
        mib = ", ".join(f"{name} {int(text) // MIB if text.isdigit() else text}" for name, text in files.items())
        base = getattr(self, "alone", None) or rates
        mean = sum(base) / len(base)
        parts = sorted(rate / mean for rate in rates)
        self.host.note(
            f"{what}: p05 {parts[len(parts) // 20]:.0%}, median {parts[len(parts) // 2]:.0%}, mean "
            f"{sum(parts) / len(parts):.0%} of {mean:.0f} MiB/s; {grown['refaults']} refaults, least {min(resident):.0%} in "
            f"memory, {grown['broken']} low events, killed {grown['killed']} and {grown['hog_killed']}, streamed "
            f"{grown['streamed']}, taken {grown['taken']} MiB, {grown['stalled']:.1f} s stalled in {then - began:.0f} s; "
            f"a ping of systemd {pings[len(pings) // 2]:.1f} ms, p99 {pings[len(pings) * 99 // 100]:.0f}, at most {pings[-1]:.0f}; {cpus}; {mib}"
        )
        if what == "alone":
            return rates
        return {**grown, "mean": sum(parts) / len(parts), "p05": parts[len(parts) // 20], "ping": pings[-1]}

    def by_hand(self, what, **slices):
        """With properties that are set on slices."""
        names = {"tenants": "tenants.slice", "reader": "tenants-reader.slice", "hog": "tenants-hog.slice"}
        for name, settings in slices.items():
            run("systemctl", "set-property", "--runtime", names[name], *settings)
        self.begin()
        found = self.watch(what)
        self.end()
        for name in slices:
            run("systemctl", "revert", names[name])
        return found

    def with_agent(self, what, guarantee):
        tenants = {"reader": {"owner": "systemd"}, "hog": {"owner": "systemd"}}
        if guarantee:
            tenants["reader"]["guarantee"] = {"memory": guarantee}
        daemon = self.host.daemon(policy(self.host, tenants), None)
        reader = self.slices["reader"]
        kept = lambda: max(int(reader.read("memory.low")), int(reader.read("memory.min")))
        if guarantee:
            daemon.until(lambda: kept() > 0.95 * guarantee, "the reader to be protected")
        self.begin()
        if not guarantee:
            # Who holds more than allocated gives a twentieth a second back.
            time.sleep(GIVE_BACK_SECONDS)
        found = self.watch(what)
        self.host.note(" | ".join(daemon.log().splitlines()[-6:]))
        agent = json.loads(run(*daemon.client("status", "--json")))["agent"]
        found["tick"] = agent["longest_tick_seconds"] * 1e3
        self.host.note(f"{what}: the longest tick {found['tick']:.0f} ms, {agent['nr_skipped_ticks']} skipped, {agent['cpu_seconds']:.1f} s of CPU")
        self.end()
        assert daemon.terminate() == 0, daemon.log()
        return found


def swap_on_disk(host):
    host.cleanup.callback(Path("/var/tmp/swap").unlink, missing_ok=True)
    swap_to(host, "/var/tmp/swap", lambda file, size: run("fallocate", "--length", str(size), file))


def swap_in_zram(host):
    if finish(["modprobe", "zram", "num_devices=1"]).returncode != 0:
        raise Skip("this kernel has no zram")
    swap_to(host, "/dev/zram0", lambda _, size: Path("/sys/block/zram0/disksize").write_text(str(size)))


def swap_to(host, place, make):
    """Swaps to this place, half as much as there is memory."""
    host.cleanup.callback(finish, ["swapoff", place])
    make(place, meminfo("MemTotal") // 2 // MIB * MIB)
    Path(place).chmod(0o600)
    run("mkswap", place)
    run("swapon", place)


def compare(host, kind):
    stage = Isolation(host, kind)
    half = [f"MemoryMax={stage.total // 2}"]
    low, least = [f"MemoryLow={stage.guarantee}"], [f"MemoryMin={stage.guarantee}"]
    phases = {
        "nothing set": lambda what: stage.by_hand(what),
        "memory.max, a half each": lambda what: stage.by_hand(what, reader=half, hog=half),
        "memory.low for the reader": lambda what: stage.by_hand(what, tenants=low, reader=low),
        "memory.min for the reader": lambda what: stage.by_hand(what, tenants=least, reader=least),
        "tenantd": lambda what: stage.with_agent(what, None),
        "tenantd, guaranteed": lambda what: stage.with_agent(what, stage.guarantee),
    }
    found = {what: act(what) for what, act in phases.items() if re.search(PHASES, what)}
    nothing, kept = found.get("nothing set"), found.get("tenantd, guaranteed")
    if not (nothing and kept):
        return
    assert kept["killed"] == 0, "the reader was killed"
    if nothing["refaults"] < SHORT_REFAULTS:
        raise Skip(f"memory was not short: {nothing['refaults']} refaults with nothing set")
    assert kept["refaults"] <= REFAULTS_MAX_RATIO * nothing["refaults"], (kept, nothing)
    assert kept["mean"] >= MEAN_MIN_RATIO and kept["p05"] >= P05_MIN_RATIO, kept
    assert kept["tick"] <= max(TICK_MAX_MS, nothing["ping"]), (kept, nothing)


@long
@newer
def test_a_guarantee_holds_beside_held_memory_and_a_stream(host):
    compare(host, Kind(held_ratio=0.45, stream_ratio=0.5))


@long
@both
def test_a_guarantee_holds_beside_a_hog(host):
    compare(host, Kind(held_ratio=-1))


@long
@newer
def test_a_guarantee_holds_beside_a_hog_with_swap_on_disk(host):
    swap_on_disk(host)
    compare(host, Kind(held_ratio=-1))


@long
@newer
def test_a_guarantee_holds_beside_a_hog_with_swap_in_zram(host):
    swap_in_zram(host)
    compare(host, Kind(held_ratio=-1))
