"""Units whose state changes, or whose processes a policy claims, while tenantd runs: systemd's view stays whole."""

import contextlib
import json
import shutil
import signal
from pathlib import Path

from cgroups import MOUNT, PATIENCE, Cgroup, telling, wait_until
from host import TENANTD, finish, run
from marks import both
from test_dop import plug
from test_systemd import SLEEPS, Filed, Host, drop_ins, log_in
from units import show, start


def user(host, name, uid):
    run("useradd", "--create-home", f"--uid={uid}", name)
    host.cleanup.callback(run, "userdel", "--force", "--remove", name)
    slice = Cgroup(MOUNT / f"user.slice/user-{uid}.slice")
    host.cleanup.callback(wait_until, lambda: not slice.exists(), "the session to end")
    host.cleanup.callback(finish, ["systemctl", "stop", f"user-{uid}.slice"])
    return slice


def place(pid):
    return Path(f"/proc/{pid}/cgroup").read_text().strip()


def test_no_process_is_claimed_out_of_a_service_or_session(host):
    """Systemd takes a process that left its unit for one that has ended."""
    slice = user(host, "ana", 1000)
    user(host, "bob", 1001)
    forks = "Type=forking\nUser=ana\nExecStart=/bin/sh -c 'sleep infinity & sleep infinity &'\n"
    service, other = (Filed(host, name, f"[Service]\n{forks}") for name in ("forks.service", "other.service"))
    run("systemctl", "start", service.name, other.name)
    log_in(host, "ana")
    wait_until(lambda: slice.exists() and slice.stat("cgroup.events", "populated"), "the session")
    scopes = lambda: sorted(path.name for path in slice.path.glob("session-*.scope"))
    wait_until(scopes, "the scope of the session")
    # As logind lists them, with their leaders, and as the cgroups are.
    sessions = lambda: (run("loginctl", "list-sessions", "--no-legend").split(), scopes())
    before, children, others = sessions(), service.group.pids(), other.group.pids()
    assert len(children) == len(others) == 2, (children, others)
    jobs = Cgroup(MOUNT).make("jobs")
    host.cleanup.callback(jobs.path.rmdir)
    job = host.start_in(jobs, ["setpriv", "--reuid=1000", "--clear-groups", "sleep", "infinity"])
    root = host.delegated()
    team = {"team": {"owner": "direct", "match": {"users": ["ana", "bob"]}}}
    daemon = host.daemon(host.policy(team), root)
    daemon.says("match: { unit: forks.service }", "match: { unit: user-1000.slice }", "match: { cgroup: /jobs }")
    assert place(job.pid).endswith("/jobs"), daemon.log()
    assert service.group.pids() == children and sessions() == before, daemon.log()
    assert show(service.name, "ActiveState") == "active"
    done = host.ctl("check", host.policy(team))
    assert "P065" in done.stdout and "forks.service" in done.stdout, done.stdout
    gone = lambda pids: not any(Path(f"/proc/{pid}").exists() for pid in pids)
    run("systemctl", "stop", other.name)
    daemon.until(lambda: gone(others), "the children of a service that is stopped meanwhile to end")
    assert daemon.terminate() == 0, daemon.log()
    assert place(job.pid).endswith("/jobs"), daemon.log()
    assert service.group.pids() == children and show(service.name, "ActiveState") == "active"
    assert sessions() == before, daemon.log()
    run("systemctl", "stop", service.name)
    with telling(daemon.log):
        wait_until(lambda: gone(children), "its children to end")


def test_a_single_user_is_weighed_in_place(host):
    """As the slice that logind keeps, without `owner: systemd`."""
    slice = user(host, "ana", 1000)
    log_in(host, "ana")
    wait_until(lambda: slice.exists() and slice.stat("cgroup.events", "populated"), "the session")
    tenants = {"ana": {"match": {"users": ["ana"]}, "limit": {"cpu": 1}}}
    daemon = host.daemon(host.policy(tenants), None)
    daemon.until(lambda: slice.holds("cpu.max", "100000 100000"), "the limit of the slice")
    assert slice.stat("cgroup.events", "populated")
    assert daemon.terminate() == 0, daemon.log()
    wait_until(lambda: slice.holds("cpu.max", "max 100000"), "the limit to be gone")


class Overridden:
    """A service with an `override.conf` of `systemctl edit`, whose name comes after those of run-time settings."""

    def __init__(self, host, **rest):
        self.unit = Filed(host, "edited.service", SLEEPS)
        self.file = Path(f"/etc/systemd/system/{self.unit.name}.d/override.conf")
        self.file.parent.mkdir()
        host.cleanup.callback(shutil.rmtree, self.file.parent)
        self.edit("700M")
        run("systemctl", "start", self.unit.name)
        self.world = Host(self.unit.name)
        tenants = {"edited": {"match": {"unit": self.unit.name}, "limit": {"memory": "600MiB"}}}
        self.daemon = host.daemon(host.policy(tenants, **rest), None)
        self.await_ours()

    def edit(self, limit):
        self.file.write_text(f"[Service]\nMemoryMax={limit}\n")
        run("systemctl", "daemon-reload")

    def await_ours(self):
        self.daemon.until(lambda: self.unit.group.holds("memory.max", str(600 << 20)), "our limit")

    def provoke(self):
        """Systemd 252 writes the files when it has read its configuration, 257 when anything is set."""
        run("systemctl", "daemon-reload")
        run("systemctl", "set-property", "--runtime", self.unit.name, "MemoryHigh=infinity")
        Path(f"/run/systemd/system.control/{self.unit.name}.d/50-MemoryHigh.conf").unlink()


@both
def test_an_override_that_wins_at_each_reload_is_no_drift(host):
    for accept in (False, True):
        control = {"interval": "1s", "on_drift": "accept" if accept else "repair"}
        with contextlib.ExitStack() as cleanup:
            host.cleanup, kept = cleanup, host.cleanup
            edited = Overridden(host, control=control)
            for _ in range(4):
                edited.provoke()
                wait_until(lambda: show(edited.unit.name, "MemoryMax") == str(600 << 20), "the limit to be set again")
                edited.await_ours()
            log = edited.daemon.log()
            assert "someone else" not in log, log
            assert edited.daemon.terminate() == 0, log
            run("systemctl", "daemon-reload")
            edited.world.expect_as_before(edited.daemon.log)
        host.cleanup = kept


def test_our_drop_in_is_removed_even_if_an_administrator_set_the_value(host):
    edited = Overridden(host, control={"interval": "1s", "on_drift": "accept"})
    edited.edit("800M")
    edited.provoke()
    edited.daemon.says("is left so")
    assert edited.daemon.terminate() == 0, edited.daemon.log()
    assert not drop_ins(), drop_ins()
    assert show(edited.unit.name, "MemoryMax") == str(800 << 20)
    assert edited.unit.group.holds("memory.max", str(800 << 20))


@both
def test_a_lasting_quota_that_is_accepted_leaves_no_drop_in(host):
    """A quota that is no whole percent is rounded in systemd's file."""
    unit = Filed(host, "quota.service", SLEEPS)
    run("systemctl", "start", unit.name)
    tenants = {"quota": {"match": {"unit": unit.name}, "limit": {"cpu": "305m"}}}
    daemon = host.daemon(host.policy(tenants, control={"interval": "1s", "on_drift": "accept"}), None)
    daemon.until(lambda: unit.group.holds("cpu.max", "30500 100000"), "our limit")
    host.cleanup.callback(finish, ["systemctl", "revert", unit.name])
    run("systemctl", "set-property", unit.name, "CPUQuota=130%")
    daemon.says("is left so")
    assert daemon.terminate() == 0, daemon.log()
    assert not drop_ins(), drop_ins()
    assert show(unit.name, "CPUQuotaPerSecUSec") == "1.300000s"
    assert unit.group.holds("cpu.max", "130000 100000")


def unloaded(host, unload):
    """A service whose file is in /usr, limited by a daemon; `unload(file)` happens while it runs."""
    file = Path("/usr/lib/systemd/system/kept.service")
    file.write_text(f"{SLEEPS}CPUQuota=70%\nMemoryMax=900M\n")
    host.cleanup.callback(lambda: (file.unlink(missing_ok=True), run("systemctl", "daemon-reload")))
    host.cleanup.callback(finish, ["systemctl", "stop", file.name])
    host.cleanup.callback(finish, ["systemctl", "unmask", file.name])
    run("systemctl", "daemon-reload")
    run("systemctl", "start", file.name)
    group = Cgroup(MOUNT / "system.slice" / file.name)
    world = Host()
    tenants = {"kept": {"match": {"unit": file.name}, "limit": {"memory": "600MiB", "cpu": "300m"}}}
    state = host.folder()
    daemon = host.daemon(host.policy(tenants), None, state=state)
    ours = {"memory.max": str(600 << 20), "cpu.max": "30000 100000"}
    for name, text in ours.items():
        daemon.until(lambda: group.holds(name, text), f"our {name}")
    unload(file)
    assert show(file.name, "ActiveState") == "active" and show(file.name, "LoadState") != "loaded"
    return daemon, world, state


def test_a_unit_that_is_masked_while_it_runs_is_restored(host):
    daemon, world, _ = unloaded(host, lambda file: run("systemctl", "mask", file.name))
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)


def test_a_unit_without_its_file_is_restored_after_a_kill(host):
    remove = lambda file: (file.unlink(), run("systemctl", "daemon-reload"))
    daemon, world, state = unloaded(host, remove)
    daemon.murder()
    done = finish([str(TENANTD), "--restore", "--state-dir", str(state)])
    assert done.returncode == 0, done.stderr
    world.expect_as_before(daemon.log)


@both
def test_a_stop_while_a_cpu_is_offline_confines_nothing(host):
    """A service that is loaded, one that is masked, and all others: a CPU that comes back is theirs again.

    Linux 6.2 and later would keep every process of the host off that CPU if the controller went meanwhile."""
    units = [Filed(host, name, SLEEPS) for name in ("loaded.service", "masked.service")]
    names = [unit.name for unit in units]
    run("systemctl", "start", *names)
    everywhere = Cgroup(MOUNT).read("cpuset.cpus.effective")
    cpus = ["0", str(host.cpus - 1)]
    tenants = {name: {"match": {"unit": f"{name}.service"}, "cpus": cpu} for name, cpu in zip(("loaded", "masked"), cpus)}
    daemon = host.daemon(host.policy(tenants), None)
    for unit, cpu in zip(units, cpus):
        daemon.until(lambda: unit.group.holds("cpuset.cpus", cpu), f"{unit.name} to be confined")
    # Systemd does not write to a unit that is masked.
    host.cleanup.callback(finish, ["systemctl", "unmask", names[1]])
    run("systemctl", "mask", names[1])
    assert show(names[1], "LoadState") == "masked"
    plug(host, host.cpus - 1, False)
    assert daemon.terminate() == 0, daemon.log()
    restore = lambda: finish([str(TENANTD), "--restore", "--state-dir", str(daemon.state)])
    # As after every stop of a service: nothing is lost by it.
    done = restore()
    assert done.returncode == 0, done.stderr
    assert f"systemctl set-property --runtime {names[0]} AllowedCPUs=" in daemon.log(), daemon.log()
    plug(host, host.cpus - 1, True)
    wait_until(lambda: Cgroup(MOUNT).read("cpuset.cpus.effective") == everywhere, "the CPU to be back")
    # With the first process, whatever is started from now on.
    pids = [pid for unit in units for pid in unit.group.pids()] + [1]
    assert len(pids) == 3, pids
    unconfined = lambda: all(runs_on(pid) == everywhere for pid in pids)
    with telling(daemon.log):
        wait_until(unconfined, "everything everywhere")
    done = restore()
    assert done.returncode == 0, done.stderr
    assert not drop_ins(), drop_ins()
    assert show(names[0], "AllowedCPUs") == "" and not (daemon.state / "journal").exists(), done.stderr
    assert unconfined(), pids


def runs_on(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list:"))


def test_a_stop_while_units_vanish_owes_nothing(host):
    """Transient services: once stopped, nobody knows them. Half are gone before, half go meanwhile."""
    names = [f"vanishing-{number}" for number in range(12)]
    world = Host()
    units = [start(host, f"{name}.service", "sleep", "infinity") for name in names]
    groups = [Cgroup(MOUNT / "system.slice" / unit) for unit in units]
    tenants = {name: {"match": {"unit": f"{name}.service"}, "limit": {"cpu": 1}} for name in names}
    daemon = host.daemon(host.policy(tenants), None)
    daemon.until(lambda: all(group.holds("cpu.max", "100000 100000") for group in groups), "the limits")
    with daemon.stopped():
        run("systemctl", "stop", *units[:6])
        daemon.process.send_signal(signal.SIGTERM)
        run("systemctl", "stop", "--no-block", *units[6:])
    assert daemon.process.wait(PATIENCE) == 0, daemon.log()
    assert not (daemon.state / "journal").exists(), daemon.log()
    world.expect_as_before(daemon.log)


@both
def test_kills_of_a_service_are_counted_though_its_cgroup_is_gone(host):
    """Systemd stops such a service, removes its cgroup and starts it again: four times in a second or two."""
    hungry = "ExecStart=tail /dev/zero\nMemoryMax=16M\nMemorySwapMax=0\nRestart=always\nRestartSec=0\n"
    runs = lambda count: f"[Unit]\nStartLimitBurst={count}\nStartLimitIntervalSec=1h\n[Service]\n{hungry}"
    tenant, other = Filed(host, "hungry.service", runs(4)), Filed(host, "other.service", runs(2))
    state = host.folder()
    daemon = host.daemon(host.policy({"hungry": {"match": {"unit": tenant.name}}}), None, state=state)
    daemon.says("hungry.service does not run")
    for unit in (tenant, other):
        run("systemctl", "start", "--no-block", unit.name)
    for unit in (tenant, other):
        daemon.until(lambda: show(unit.name, "ActiveState") == "failed", f"{unit.name} to be given up")
    # Where the end of the process reaches systemd before the kernel's event, it takes the kill for a signal.
    run("journalctl", "--sync")
    log = run("journalctl", "--unit", tenant.name, "--output", "cat", "--no-pager")
    killed = log.count(f"status=9/KILL\n{tenant.name}: Failed with result 'oom-kill'")
    assert 1 <= killed <= 4, log

    def counted():
        done = host.ctl("status", "--json", "--socket", state / "socket")
        assert done.returncode == 0, done.stderr
        # Null until the first tick that has read a counter.
        return json.loads(done.stdout)["tenants"][0]["nr_oom_kills"] or 0

    daemon.until(lambda: counted() >= killed, f"{killed} kills")
    # They stay as many, whatever is told of the unit again.
    before = counted()
    assert before <= 4, daemon.log()
    run("systemctl", "daemon-reload")
    ticks = lambda: json.loads(host.ctl("status", "--json", "--socket", state / "socket").stdout)["tick"]
    seen = ticks()
    daemon.until(lambda: ticks() > seen + 3, "some more ticks")
    assert counted() == before, daemon.log()
