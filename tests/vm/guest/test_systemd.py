"""Tenants that are units of systemd: they are changed through systemd, and given back as they were."""

import contextlib
import os
import signal
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, expect_same, expect_soon_same, telling, wait_until, whole_host
from host import TENANTD, finish, resident_kib, run
from marks import alone, both, core, newest
from units import show, start
import fairness

WEIGHTS = {"a": 100, "b": 200, "c": 400}
PROPERTIES = ["CPUWeight", "CPUQuotaPerSecUSec", "AllowedCPUs", "AllowedMemoryNodes", "MemoryLow",
              "MemoryHigh", "MemoryMax", "TasksMax"]
DROP_INS = [Path(f"/run/systemd/{name}") for name in ("system.control", "transient")]
SLICES = {name: f"tenants-{name}.slice" for name in WEIGHTS}


def properties(*units):
    """What systemd thinks of units: {unit and property: value}."""
    if not units:
        return {}
    told = run("systemctl", "show", "-p", ",".join(PROPERTIES), *units).strip().split("\n\n")
    assert len(told) == len(units), told
    lines = [(unit, line.split("=", 1)) for unit, block in zip(units, told) for line in block.splitlines()]
    found = {f"{unit} {name}": f"{value}\n" for unit, (name, value) in lines}
    assert len(found) == len(units) * len(PROPERTIES), found
    return found


def drop_ins():
    """Every file that was made by setting something at run time, with its text."""
    found = {}
    for top in DROP_INS:
        for folder, _, files in os.walk(top):
            # What systemd itself runs meanwhile (a session, a mount) comes and goes.
            for file in (Path(folder, name) for name in files if name.startswith("50-")):
                # Gone since it was listed is as good as gone before.
                with contextlib.suppress(FileNotFoundError):
                    found[str(file)] = file.read_text()
    return found


# What the files of a controller hold that systemd has just enabled. It disables one that no unit wants any more,
# some time: a file with its default is as good as none.
DEFAULTS = {
    "cpu.idle": "0",
    "cpu.max": "max 100000",
    "cpu.max.burst": "0",
    "cpu.uclamp.max": "max",
    "cpu.uclamp.min": "0.00",
    "cpu.weight": "100",
    "cpu.weight.nice": "0",
    "cpuset.cpus": "",
    "cpuset.cpus.exclusive": "",
    "cpuset.cpus.partition": "member",
    "cpuset.mems": "",
}


def wanted(settings, delegated=()):
    """The settings without those that only say that a controller is enabled."""
    kept = {}
    for path, text in settings.items():
        file = path.rsplit("/", 1)[1]
        if file == "cgroup.subtree_control":
            text = " ".join(sorted(set(text.split()) - {"cpu", "cpuset", *delegated}))
        # Logind is started when somebody asks for it, and stops with the bus.
        if DEFAULTS.get(file) != text.strip() and "/systemd-logind.service/" not in path:
            kept[path] = text
    return kept


class Host:
    """What is true of the whole host, so that a trace anywhere in it is found."""

    def __init__(self, *units, leave_out=(), delegated=()):
        self.units = units
        # Controllers that units which come and go have for their own cgroups: systemd disables them again, some time.
        self.delegated = delegated
        # Of these groups, what is inside.
        self.leave_out = leave_out
        self.before = self.now()

    def now(self):
        tops = [f"{group.path}/" for group in self.leave_out]
        inside = lambda path: any(path.startswith(top) and "/" in path[len(top) :] for top in tops)
        everything = {path: text for path, text in whole_host().items() if not inside(path)}
        return {**wanted(everything, self.delegated), **properties(*self.units), **drop_ins()}

    def expect_as_before(self, log):
        """Once systemd has done what it was told; `log()` is told where that is not so."""
        with telling(log):
            expect_soon_same(self.before, self.now)


def burn(host, slice, number=0):
    """Keeps every CPU busy from a service in `slice`."""
    unit = f"burn-{slice.split('.')[0]}-{number}.service".replace("\\", "")
    script = "while :; do :; done &\n" * host.cpus + "wait"
    return start(host, unit, "/bin/sh", "-c", script, slice=slice)


def in_slices(names=WEIGHTS):
    return [Cgroup(MOUNT / "tenants.slice" / SLICES[name]) for name in names]


def policy(host, tenants=None, **rest):
    slices = {name: {"weight": weight, "owner": "systemd"} for name, weight in WEIGHTS.items()}
    return host.policy(tenants or slices, **rest)


def weights(groups):
    return [int(group.read("cpu.weight")) for group in groups]


def settled(groups):
    """Whether the weights are there, and about as unequal as those of the policy."""
    a, b, c = weights(groups)
    return 1.8 * a < b < 2.2 * a and 1.8 * b < c < 2.2 * b


@alone
@core
@both
def test_slices_are_created_weighted_and_removed(host):
    world = Host()
    daemon = host.daemon(policy(host), None)
    groups = in_slices()
    daemon.until(lambda: all(g.exists() for g in groups), "the tenants' slices")
    load = [burn(host, slice) for slice in SLICES.values()]
    daemon.until(lambda: settled(groups), "weights as the policy says")
    host.note(f"weights {weights(groups)}, resident set of tenantd {resident_kib(daemon.process.pid)} kB")
    for group in groups:
        daemon.until(lambda: show(group.path.name, "CPUWeight") == group.read("cpu.weight"), "systemd to know the weight")
    time.sleep(3)
    want = fairness.entitled_shares(list(WEIGHTS.values()), [float(host.cpus)] * 3, host.cpus)
    try:
        fairness.expect_shares(host, groups, want, "all want every CPU")
    finally:
        for unit in load:
            run("systemctl", "stop", unit)
    # Started here, it makes systemd look for files of units while those of the slices are among them.
    again = once_in(host, SLICES["a"])
    run("systemctl", "start", again)
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)
    # A slice that has gone is made for whoever names it.
    host.cleanup.callback(finish, ["systemctl", "stop", SLICES["a"], "tenants.slice"])
    run("systemctl", "start", again)


def once_in(host, slice):
    """A service in `slice` that ends at once."""
    file = Path("/run/systemd/system/once.service")
    file.write_text(f"[Service]\nType=oneshot\nExecStart=true\nSlice={slice}\n")
    host.cleanup.callback(file.unlink)
    return file.name


@core
@both
def test_an_existing_unit_is_set_and_restored(host):
    start(host, "plain.service", "sleep", "infinity")
    start(host, "lived-in.service", "sleep", "infinity", CPUWeight=70, MemoryMax="700M")
    run("systemctl", "set-property", "--runtime", "lived-in.service", "MemoryLow=9M")
    units = ["plain.service", "lived-in.service"]
    world = Host(*units)
    tenants = {
        "plain": {"weight": 100, "match": {"unit": "plain.service"}, "limit": {"cpu": 1}},
        "lived-in": {
            "weight": 300,
            "match": {"unit": "lived-in.service"},
            "limit": {"memory": "600MiB"},
            "guarantee": {"memory": "50MiB"},
            "cpus": "0",
        },
    }
    daemon = host.daemon(policy(host, tenants), None)
    plain, lived_in = (Cgroup(MOUNT / "system.slice" / unit) for unit in units)
    daemon.until(lambda: lived_in.holds("memory.max", str(600 << 20)), "the memory limit")
    daemon.until(lambda: lived_in.holds("memory.low", str(50 << 20)), "the protection")
    daemon.until(lambda: lived_in.holds("cpuset.cpus", "0"), "the set of CPUs")
    daemon.until(lambda: plain.holds("cpu.max", "100000 100000"), "the CPU limit")
    assert show("lived-in.service", "MemoryMax") == str(600 << 20)
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)


@alone
@both
def test_users_share_by_the_slices_of_their_sessions(host):
    users = {"ana": 1000, "bob": 1001}
    for user, uid in users.items():
        run("useradd", "--create-home", f"--uid={uid}", user)
        host.cleanup.callback(run, "userdel", "--force", "--remove", user)
        slice = Cgroup(MOUNT / f"user.slice/user-{uid}.slice")
        host.cleanup.callback(wait_until, lambda gone=slice: not gone.exists(), "the session to end")
        host.cleanup.callback(finish, ["systemctl", "stop", f"user-{uid}.slice"])
        log_in(host, user)
    slices = [f"user-{uid}.slice" for uid in users.values()]
    groups = [Cgroup(MOUNT / "user.slice" / slice) for slice in slices]
    for group in groups:
        wait_until(lambda: group.exists() and group.stat("cgroup.events", "populated"), f"a session in {group.name}")
    # What a session is made of comes and goes by itself.
    world = Host(*slices, leave_out=groups)
    tenants = {
        "ana": {"weight": 100, "owner": "systemd", "match": {"users": "ana"}},
        "bob": {"weight": 300, "match": {"unit": "user-1001.slice"}},
    }
    daemon = host.daemon(policy(host, tenants), None)
    daemon.until(lambda: heavier(groups, 3.0), "weights as the policy says")
    time.sleep(3)
    fairness.expect_shares(host, groups, [0.25, 0.75], "both want every CPU")
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)


def log_in(host, user):
    """A session as a login makes it, by way of PAM and logind, that wants every CPU."""
    unit = f"login-{user}.service"
    # Logind comes with the first session and stays: a scenario leaves it as it was.
    logind = "systemd-logind.service"
    if finish(["systemctl", "is-active", "--quiet", logind]).returncode != 0:
        host.cleanup.callback(finish, ["systemctl", "stop", logind])
    script = "while :; do :; done &\n" * host.cpus + "wait"
    options = ["-p", "PAMName=login", "-p", f"User={user}", "-p", "KillMode=control-group"]
    run("systemd-run", "--quiet", "--collect", f"--unit={unit}", *options, "/bin/sh", "-c", script)
    host.cleanup.callback(finish, ["loginctl", "terminate-user", user])
    host.cleanup.callback(finish, ["systemctl", "stop", unit])


def heavier(groups, ratio):
    """Whether the second weighs about so many times as much as the first."""
    first, second = weights(groups)
    return 0.95 * ratio * first < second < 1.05 * ratio * first


class Limited:
    """A service whose CPU limit, protection and weight tenantd sets, and a daemon that does."""

    def __init__(self, host, **rest):
        self.host = host
        self.unit = start(host, "plain.service", "sleep", "infinity")
        self.group = Cgroup(MOUNT / "system.slice" / self.unit)
        self.world = Host(self.unit)
        tenants = {"plain": {"match": {"unit": self.unit}, "limit": {"cpu": 1, "memory": "600MiB"}}}
        self.state = host.folder()
        self.daemon = host.daemon(policy(host, tenants, **rest), None, state=self.state)
        self.await_limits()

    def holds(self):
        return self.group.holds("cpu.max", "100000 100000") and self.group.holds("memory.max", str(600 << 20))

    def drifts(self):
        return self.daemon.log().count("someone else wrote here")

    def await_limits(self):
        self.daemon.until(self.holds, "the limits")

    def stop(self):
        assert self.daemon.terminate() == 0, self.daemon.log()
        self.world.expect_as_before(self.daemon.log)


def test_survives_reload_and_set_property_in_a_loop(host):
    plain = Limited(host)
    # One round less than after which the agent leaves the values to who sets them.
    for round in range(4):
        run("systemctl", "daemon-reload")
        before = plain.drifts()
        run("systemctl", "set-property", "--runtime", plain.unit, f"MemoryMax={700 + round}M", "CPUQuota=35%")
        # The files follow some time after the answer.
        plain.daemon.until(lambda: plain.drifts() > before, "the drift to be seen")
        plain.await_limits()
    plain.stop()


def test_accepts_values_of_an_administrator_if_the_policy_allows(host):
    plain = Limited(host, control={"interval": "1s", "on_drift": "accept"})
    run("systemctl", "set-property", "--runtime", plain.unit, "MemoryMax=700M")
    plain.daemon.says("is left so")
    time.sleep(3)
    assert plain.group.read("memory.max") == str(700 << 20)
    assert plain.daemon.terminate() == 0, plain.daemon.log()
    # What is theirs stays; all else is as it was.
    assert show(plain.unit, "MemoryMax") == str(700 << 20)
    assert plain.group.read("memory.max") == str(700 << 20)
    run("systemctl", "set-property", "--runtime", plain.unit, "MemoryMax=infinity")
    left = {path for path in drop_ins() if path not in plain.world.before}
    assert [Path(path).name for path in left] == ["50-MemoryMax.conf"], left


@both
def test_survives_reexec_and_a_bus_that_restarts(host):
    plain = Limited(host)
    run("systemctl", "daemon-reexec")
    run("systemctl", "set-property", "--runtime", plain.unit, "CPUQuota=35%")
    plain.await_limits()
    host.cleanup.callback(finish, ["systemctl", "start", "dbus.socket", "dbus.service"])
    run("systemctl", "stop", "dbus.socket", "dbus.service")
    # systemctl needs no bus; what the administrator sets meanwhile is put right once there is one again.
    run("systemctl", "set-property", "--runtime", plain.unit, "CPUQuota=45%")
    plain.daemon.says("over D-Bus")
    assert plain.daemon.running() and not plain.holds()
    run("systemctl", "start", "dbus.socket", "dbus.service")
    plain.await_limits()
    plain.stop()


def test_a_service_that_restarts_keeps_its_values(host):
    """Systemd sets what it was told at run time for the next run as well."""
    unit = Path("/run/systemd/system/again.service")
    unit.write_text("[Service]\nExecStart=sleep infinity\nCPUWeight=70\n")
    host.cleanup.callback(lambda: (unit.unlink(), run("systemctl", "daemon-reload")))
    host.cleanup.callback(finish, ["systemctl", "stop", unit.name])
    run("systemctl", "daemon-reload")
    run("systemctl", "start", unit.name)
    world = Host(unit.name)
    group = Cgroup(MOUNT / "system.slice" / unit.name)
    tenants = {"again": {"match": {"unit": unit.name}, "limit": {"cpu": 1}}}
    daemon = host.daemon(policy(host, tenants), None)
    limited = lambda: group.holds("cpu.max", "100000 100000")
    daemon.until(limited, "the limit")
    run("systemctl", "restart", unit.name)
    daemon.until(limited, "the limit of the next run")
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)


class Filed:
    """A service with a file in /run, and perhaps other names."""

    def __init__(self, host, name, text, aliases=()):
        self.path = Path("/run/systemd/system", name)
        self.path.write_text(text)
        links = [self.path.with_name(alias) for alias in aliases]
        for link in links:
            link.symlink_to(name)
        host.cleanup.callback(lambda: ([p.unlink() for p in [self.path, *links]], run("systemctl", "daemon-reload")))
        host.cleanup.callback(finish, ["systemctl", "stop", name])
        run("systemctl", "daemon-reload")
        self.name = name
        self.group = Cgroup(MOUNT / "system.slice" / name)


SLEEPS = "[Service]\nExecStart=sleep infinity\n"


@both
def test_a_transient_service_that_restarts_is_restored(host):
    """Its drop-ins outlast the restart, and so does what they wrote over."""
    plain = Limited(host)
    for _ in range(2):
        run("systemctl", "restart", plain.unit)
        plain.await_limits()
        time.sleep(3)
    plain.stop()


def test_a_unit_named_by_an_alias_is_restored(host):
    real = Filed(host, "real.service", SLEEPS, aliases=["other.service"])
    run("systemctl", "start", real.name)
    world = Host(real.name)
    tenants = {"web": {"match": {"unit": "other.service"}, "limit": {"cpu": 1}}}
    daemon = host.daemon(policy(host, tenants), None)
    daemon.until(lambda: real.group.holds("cpu.max", "100000 100000"), "the limit")
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)


@both
def test_a_stopped_unit_gets_back_the_values_of_its_administrator(host):
    db = Filed(host, "db.service", SLEEPS)
    run("systemctl", "start", db.name)
    run("systemctl", "set-property", "--runtime", db.name, "MemoryLow=9M")
    host.cleanup.callback(finish, ["systemctl", "revert", db.name])
    before = drop_ins()
    tenants = {"db": {"match": {"unit": db.name}, "guarantee": {"memory": "50MiB"}}}
    daemon = host.daemon(policy(host, tenants), None)
    daemon.until(lambda: db.group.holds("memory.low", str(50 << 20)), "the protection")
    run("systemctl", "stop", db.name)
    assert daemon.terminate() == 0, daemon.log()
    expect_same(before, drop_ins())
    assert show(db.name, "MemoryLow") == str(9 << 20)
    assert not db.group.exists(), f"a cgroup for a unit that does not run: {daemon.log()}"
    run("systemctl", "start", db.name)
    assert db.group.read("memory.low") == str(9 << 20)


def test_a_slice_that_a_socket_needs_stays(host):
    """A socket that listens has no cgroup, and stops with the slice it is in."""
    socket = Path("/run/systemd/system/held.socket")
    service = Path("/run/systemd/system/held.service")
    socket.write_text(f"[Socket]\nSlice={SLICES['a']}\nListenStream=/run/held.sock\n")
    service.write_text(f"[Service]\nSlice={SLICES['a']}\nExecStart=sleep infinity\n")
    host.cleanup.callback(lambda: (socket.unlink(), service.unlink(), run("systemctl", "daemon-reload")))
    host.cleanup.callback(finish, ["systemctl", "stop", "held.socket", SLICES["a"], "tenants.slice"])
    run("systemctl", "daemon-reload")
    daemon = host.daemon(policy(host), None)
    daemon.until(lambda: all(group.exists() for group in in_slices()), "the tenants' slices")
    run("systemctl", "start", socket.name)
    assert daemon.terminate() == 0, daemon.log()
    assert show(socket.name, "ActiveState") == "active", daemon.log()
    states = lambda: [show(slice, "ActiveState") for slice in SLICES.values()]
    wait_until(lambda: states() == ["active", "inactive", "inactive"], "the slices that nobody needs to stop")
    assert not drop_ins(), drop_ins()


def test_populated_slices_that_are_no_longer_pinned_run_everywhere(host):
    """The kernel empties no set that processes live under, and a sibling's set keeps the controller."""
    pinned = {name: {"owner": "systemd", "cpus": cpu} for name, cpu in (("a", "0"), ("b", "1"))}
    shared = {name: {"owner": "systemd"} for name in ("a", "b")}
    path = policy(host, pinned)
    daemon = host.daemon(path, None)
    groups = in_slices(("a", "b"))
    daemon.until(lambda: all(g.exists() for g in groups), "the tenants' slices")
    load = [start(host, f"in-{n}.service", "sleep", "infinity", slice=SLICES[n]) for n in ("a", "b")]
    everywhere = Cgroup(MOUNT).read("cpuset.cpus.effective")
    # Without the controller there is no file.
    effective = lambda group: group.read_or("cpuset.cpus.effective", everywhere)
    daemon.until(lambda: [effective(g) for g in groups] == ["0", "1"], "the sets of CPUs")
    for tenants, want in [({**shared, "b": pinned["b"]}, [everywhere, "1"]), (shared, [everywhere] * 2)]:
        path.write_text(policy(host, tenants).read_text())
        daemon.process.send_signal(signal.SIGHUP)
        daemon.until(lambda: [effective(g) for g in groups] == want, f"CPUs {want}")
        pins = want.count("1")
        daemon.until(lambda: len([p for p in drop_ins() if "AllowedCPUs" in p]) == pins, "only pins to be left")
    assert daemon.terminate() == 0, daemon.log()
    wait_until(lambda: [effective(g) for g in groups] == [everywhere] * 2, "every CPU for all")
    assert not drop_ins(), drop_ins()
    run("systemctl", "stop", *load, SLICES["a"], SLICES["b"], "tenants.slice")


@both
def test_a_persistent_value_of_an_administrator_remains_after_the_stop(host):
    """While the agent runs it is written over, as the policy says; at the end file and property are his."""
    plain = Filed(host, "plain.service", SLEEPS)
    run("systemctl", "start", plain.name)
    host.cleanup.callback(finish, ["systemctl", "revert", plain.name])
    tenants = {"plain": {"match": {"unit": plain.name}, "limit": {"memory": "600MiB"}}}
    daemon = host.daemon(policy(host, tenants), None)
    ours = lambda: plain.group.holds("memory.max", str(600 << 20))
    daemon.until(ours, "the limit")
    run("systemctl", "set-property", plain.name, "MemoryMax=700M")
    daemon.says("someone else wrote here")
    daemon.until(ours, "the limit to be repaired")
    assert daemon.terminate() == 0, daemon.log()
    assert show(plain.name, "MemoryMax") == str(700 << 20), daemon.log()
    wait_until(lambda: plain.group.holds("memory.max", str(700 << 20)), "the administrator's limit")
    assert not drop_ins(), drop_ins()


@core
@both
@newest
def test_restore_after_kill_restores_units(host):
    plain = Limited(host)
    slices = policy(host)
    plain.daemon.murder()
    assert plain.holds()
    done = finish([str(TENANTD), "--restore", "--state-dir", str(plain.state)])
    assert done.returncode == 0, done.stderr
    plain.world.expect_as_before(plain.daemon.log)
    daemon = host.daemon(slices, None, state=plain.state)
    daemon.until(lambda: all(group.exists() for group in in_slices()), "the tenants' slices")
    inside = start(host, "inside.service", "sleep", "infinity", slice=SLICES["c"])
    time.sleep(2)
    daemon.murder()
    done = finish([str(TENANTD), "--restore", "--state-dir", str(plain.state)])
    assert done.returncode == 0, done.stderr
    there = lambda: [group.exists() for group in in_slices()]
    wait_until(lambda: there() == [False, False, True], "the slices that nobody needs to go")
    assert show(inside, "ActiveState") == "active"
    kept = in_slices()[2]
    weightless = lambda: not (kept.path / "cpu.weight").exists() or kept.holds("cpu.weight", "100")
    wait_until(weightless, "the weight of the slice that stays to be the default")
    run("systemctl", "stop", inside, SLICES["c"], "tenants.slice")
    plain.world.expect_as_before(daemon.log)
