"""How wide and where: tenants with `cpus: dop` on eight CPUs of two nodes, awake and asleep, with
CPUs that come and go."""

import signal
import subprocess
import threading
import time
from pathlib import Path

from cgroups import PATIENCE, expect_soon_same, shares, telling, whole_host
from fairness import doubt_of, doubt_of_shares
from host import Skip, restore
from marks import numa

SYS_CPU = Path("/sys/devices/system/cpu")
SYS_NODE = Path("/sys/devices/system/node")
NOBODY = 65534
DWELL_SECONDS = 10
POLL_SECONDS = 0.1
DOP = {"weight": 100, "cpus": "dop"}


def cpus_of(text):
    """The kernel's list format as a set of numbers."""
    found = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


def nodes():
    return [cpus_of((n / "cpulist").read_text()) for n in sorted(SYS_NODE.glob("node[0-9]*"))]


def online():
    return cpus_of((SYS_CPU / "online").read_text())


def plug(host, cpu, is_in):
    """Takes a CPU offline or back; the end of the scenario brings it back."""
    file = SYS_CPU / f"cpu{cpu}" / "online"
    host.cleanup.callback(file.write_text, "1")
    file.write_text("1" if is_in else "0")


class Watch:
    """Follows the CPUs of tenants while a scenario goes on: every change with the times between which it
    came, and every moment at which one of them had none."""

    def __init__(self, host, tenants):
        self.tenants = tenants
        self.changes = {tenant.name: [] for tenant in tenants}
        self.without = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()
        host.cleanup.callback(self.end)

    def follow(self):
        looked = dict.fromkeys(self.changes, time.monotonic())
        while not self.over.wait(POLL_SECONDS):
            for tenant in self.tenants:
                began = time.monotonic()
                try:
                    written, effective = tenant.read("cpuset.cpus"), tenant.read(EFFECTIVE)
                except FileNotFoundError:
                    continue
                now = time.monotonic()
                seen = self.changes[tenant.name]
                if written and (not seen or seen[-1][2] != written):
                    seen.append((looked[tenant.name], now, written))
                looked[tenant.name] = began
                if not effective:
                    self.without.append((now, tenant.name))

    def end(self):
        self.over.set()
        self.thread.join(PATIENCE)

    def expect_still(self):
        """Nobody was ever without a CPU, and nobody was placed twice within the dwell time."""
        self.end()
        assert not self.without, self.without
        for name, seen in self.changes.items():
            assert seen, f"{name} was never placed"
            # As much time as can have passed between them, however rarely a busy guest let us look; a tick writes
            # some time after the clock reading that it counts by.
            for (since, _, was), (_, until, became) in zip(seen, seen[1:]):
                assert until - since >= DWELL_SECONDS - 1, (
                    f"{name} went from {was} to {became} {until - since:.1f} s after its last change: {seen}"
                )


EFFECTIVE = "cpuset.cpus.effective"


class Stage:
    """Two tenants of equal weight with `cpus: dop`, each with as many threads as there are CPUs."""

    def __init__(self, host, adopted=False):
        self.host = host
        self.root = host.delegated()
        if adopted:
            self.root.write("cgroup.subtree_control", "+cpu +memory +cpuset")
            self.root.make("a"), self.root.make("b")
        self.state = host.folder()
        self.state.chmod(0o755)
        self.daemon = host.daemon(host.policy({"a": DOP, "b": DOP}), self.root, state=self.state)
        self.a, self.b = (self.root.child(name) for name in "ab")
        self.daemon.until(lambda: all(self.placed(t) for t in (self.a, self.b)), "placements")
        self.watch = Watch(host, [self.a, self.b])
        self.load = {t.name: host.burn(t, host.cpus) for t in (self.a, self.b)}

    @staticmethod
    def placed(tenant):
        return tenant.read("cpuset.cpus") != ""

    def cpus(self, tenant):
        return cpus_of(tenant.read(EFFECTIVE))

    def dop(self, tenant):
        return int((self.state / "tenants" / tenant.path.name / "dop").read_text())

    def seen_in(self, tenant):
        """How many CPUs a program sees that is started in this tenant."""
        process = self.host.start_in(tenant, ["nproc"], stdout=subprocess.PIPE, text=True)
        return int(process.communicate(timeout=PATIENCE)[0])

    def signal(self, tenant, number):
        for process in self.load[tenant.name]:
            process.send_signal(number)

    def until(self, condition, what):
        started = time.monotonic()
        try:
            self.daemon.until(condition, what)
        except AssertionError as error:
            raise AssertionError(f"{self.describe()}; {error}") from None
        return time.monotonic() - started

    def describe(self):
        return ", ".join(
            f"{t.path.name}: {t.read('cpuset.cpus')} (dop {self.dop(t)})" for t in (self.a, self.b)
        )

    def shared_evenly(self):
        """Each tenant has the whole of one node, and is told so."""
        a, b = self.cpus(self.a), self.cpus(self.b)
        return sorted([a, b], key=min) == nodes() and self.dop(self.a) == self.dop(self.b) == 4


@numa
def test_two_tenants_get_a_node_each_and_lend_it_while_idle(host):
    """Who is where is judged on any guest; shares only on one that gets enough of its host."""
    stage = Stage(host)
    stage.until(stage.shared_evenly, "a node for each")
    doubts = [doubt_of_shares(host, [stage.a, stage.b], [0.5, 0.5], f"both awake: {stage.describe()}")]
    own = stage.cpus(stage.a)
    assert [stage.seen_in(tenant) for tenant in (stage.a, stage.b)] == [4, 4]

    def uses_all():
        before = stage.b.usage_usec()
        time.sleep(2)
        used = (stage.b.usage_usec() - before) / 2e6
        return used > 5, f"b uses {used:.2f} CPUs of 8"

    for _ in range(2):
        stage.signal(stage.a, signal.SIGSTOP)
        took = stage.until(lambda: stage.cpus(stage.b) == online(), "b on the CPUs of a")
        doubts.append(doubt_of(host, uses_all, f"lent after {took:.1f} s: {stage.describe()}", 3))
        assert stage.cpus(stage.a) == own, "a sleeper keeps its CPUs to wake up on"
        stage.signal(stage.a, signal.SIGCONT)
        part = shares([stage.a, stage.b], 3)
        took = stage.until(stage.shared_evenly, "its node for a again")
        host.note(f"given back after {took + 3:.1f} s; until then a had {part[0]:.3f}")
        assert stage.cpus(stage.a) == own, "it has other CPUs than before"
    stage.watch.expect_still()
    assert stage.daemon.terminate() == 0, stage.daemon.log()
    doubts = [doubt for doubt in doubts if doubt]
    if doubts:
        raise Skip(f"all are where they should be, but {doubts[0]}")


@numa
def test_sets_follow_cpu_hotplug(host):
    stage = Stage(host)
    stage.until(stage.shared_evenly, "a node for each")
    second = max(nodes(), key=min)
    away = sorted(second)

    def follows():
        written = [cpus_of(t.read("cpuset.cpus")) for t in (stage.a, stage.b)]
        return all(cpus and cpus <= online() for cpus in written) and set().union(*written) == online()

    plug(host, away[1], False)
    took = stage.until(follows, "sets without the CPU that went away")
    host.note(f"without CPU {away[1]} after {took:.1f} s: {stage.describe()}")
    for cpu in away:
        plug(host, cpu, False)
    took = stage.until(follows, "sets on the node that is left")
    host.note(f"without a whole node after {took:.1f} s: {stage.describe()}")
    assert all(len(stage.cpus(t)) >= 2 for t in (stage.a, stage.b)), stage.describe()
    for cpu in away:
        plug(host, cpu, True)
    took = stage.until(stage.shared_evenly, "a node for each again")
    host.note(f"all back after {took:.1f} s: {stage.describe()}")
    stage.watch.end()
    assert not stage.watch.without, stage.watch.without
    assert stage.daemon.terminate() == 0, stage.daemon.log()


@numa
def test_any_user_can_read_and_watch_its_width(host):
    stage = Stage(host)
    stage.until(stage.shared_evenly, "a node for each")
    folder = stage.state / "tenants" / "b"
    script = Path(__file__).resolve().parent / "resize.py"
    watcher = subprocess.Popen(
        ["python3", "-u", str(script), str(folder)], stdout=subprocess.PIPE, text=True,
        user=NOBODY, group=NOBODY, extra_groups=[],
    )
    host.cleanup.callback(watcher.wait, PATIENCE)
    host.cleanup.callback(watcher.kill)

    def expect(last):
        """It may be told a width on the way: a demand that is estimated from too few ticks is a smaller one."""
        told = []
        while told[-1:] != [last]:
            line = watcher.stdout.readline()
            assert line, f"the watcher ended after {told}; {stage.describe()}"
            told.append(int(line))
        return told

    expect(4)
    stage.signal(stage.a, signal.SIGSTOP)
    lent = expect(8)
    stage.signal(stage.a, signal.SIGCONT)
    host.note(f"the width: 4, lent {lent}, given back {expect(4)}")
    denied = subprocess.run(["sh", "-c", f"echo 9 > {folder}/dop"], user=NOBODY, capture_output=True)
    assert denied.returncode != 0, "a tenant can write its own width"
    assert stage.daemon.terminate() == 0, stage.daemon.log()
    assert not folder.exists(), "what tenants were told is left behind"


class Adopted:
    """Tenants that an administrator pinned before us, one that is not pinned, one that is not there."""

    def __init__(self, host):
        self.host = host
        self.root = host.delegated()
        self.root.write("cgroup.subtree_control", "+cpu +memory +cpuset")
        self.pinned, self.free = self.root.make("pinned"), self.root.make("free")
        self.pinned.write("cpuset.cpus", "1,6")
        self.pinned.write("cpuset.mems", "0")
        for tenant in (self.pinned, self.free):
            host.burn(tenant, 4)
        self.state = host.folder()
        self.policy = host.policy({"pinned": DOP, "free": DOP, "fixed": {"cpus": "2-3"}})
        self.before = whole_host()

    def start(self):
        daemon = self.host.daemon(self.policy, self.root, state=self.state)
        fixed = self.root.child("fixed")
        daemon.until(lambda: fixed.exists() and fixed.read(EFFECTIVE) == "2-3", "the fixed list")
        daemon.until(lambda: self.pinned.read("cpuset.cpus") != "1,6", "a placement of its own")
        daemon.until(lambda: self.free.read("cpuset.cpus") != "", "a placement of the other")
        return daemon

    def expect_as_before(self, log):
        with telling(log):
            expect_soon_same(self.before, whole_host)


@numa
def test_sigterm_restores_sets(host):
    stage = Adopted(host)
    daemon = stage.start()
    assert daemon.terminate() == 0, daemon.log()
    stage.expect_as_before(daemon.log)


@numa
def test_restore_after_kill_restores_sets(host):
    stage = Adopted(host)
    stage.start().murder()
    done = restore(stage.root, stage.state)
    assert done.returncode == 0, done.stderr
    stage.expect_as_before(lambda: done.stderr)


@numa
def test_a_restart_moves_no_process(host):
    stage = Stage(host, adopted=True)
    stage.until(stage.shared_evenly, "a node for each")
    stage.signal(stage.a, signal.SIGSTOP)
    stage.until(lambda: stage.cpus(stage.b) == online(), "b on the CPUs of a")
    stage.watch.end()
    assert stage.daemon.terminate() == 0, stage.daemon.log()
    assert not stage.placed(stage.b), "its list was empty before"
    policy = stage.daemon.command[stage.daemon.command.index("--policy") + 1]
    again = host.daemon(policy, stage.root, state=stage.state)
    again.until(lambda: stage.placed(stage.b), "a placement")
    time.sleep(5)
    assert stage.cpus(stage.b) == online(), stage.describe()
    assert again.terminate() == 0, again.log()
