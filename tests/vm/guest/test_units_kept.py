"""Units whose state changes, or whose processes a policy claims, while tenantd runs: systemd's view stays whole."""

from pathlib import Path

from cgroups import MOUNT, Cgroup, telling, wait_until
from host import finish, run
from test_systemd import Filed, log_in, show


def user(host, name, uid):
    run("useradd", "--create-home", f"--uid={uid}", name)
    host.cleanup.callback(run, "userdel", "--force", "--remove", name)
    slice = Cgroup(MOUNT / f"user.slice/user-{uid}.slice")
    host.cleanup.callback(wait_until, lambda: not slice.exists(), "the session to end")
    host.cleanup.callback(finish, ["systemctl", "stop", f"user-{uid}.slice"])
    return slice


def place(pid):
    return Path(f"/proc/{pid}/cgroup").read_text().strip()


def test_nothing_is_taken_out_of_a_service_or_session_by_its_owner(host):
    """Systemd takes a process that left its unit for one that has ended."""
    slice = user(host, "ana", 1000)
    user(host, "bob", 1001)
    forks = "Type=forking\nUser=ana\nExecStart=/bin/sh -c 'sleep infinity & sleep infinity &'\n"
    service = Filed(host, "forks.service", f"[Service]\n{forks}")
    run("systemctl", "start", service.name)
    log_in(host, "ana")
    wait_until(lambda: slice.exists() and slice.stat("cgroup.events", "populated"), "the session")
    sessions = lambda: sorted(path.name for path in slice.path.glob("session-*.scope"))
    wait_until(sessions, "the scope of the session")
    before, children = sessions(), service.group.pids()
    assert len(children) == 2, children
    jobs = Cgroup(MOUNT).make("jobs")
    host.cleanup.callback(jobs.path.rmdir)
    job = host.start_in(jobs, ["setpriv", "--reuid=1000", "--clear-groups", "sleep", "infinity"])
    root = host.delegated()
    team = {"team": {"match": {"users": ["ana", "bob"]}}}
    daemon = host.daemon(host.policy(team), root)
    daemon.says("match: { unit: forks.service }", "match: { unit: user-1000.slice }")
    daemon.until(lambda: place(job.pid).endswith("/team"), "the process in no unit to be claimed")
    assert service.group.pids() == children and sessions() == before, daemon.log()
    assert show(service.name, "ActiveState") == "active"
    done = host.ctl("check", host.policy(team))
    assert "P065" in done.stdout and "forks.service" in done.stdout, done.stdout
    assert daemon.terminate() == 0, daemon.log()
    assert place(job.pid).endswith("/jobs"), daemon.log()
    assert service.group.pids() == children and show(service.name, "ActiveState") == "active"
    run("systemctl", "stop", service.name)
    with telling(daemon.log):
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "its children to end")


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
