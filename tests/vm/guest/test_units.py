"""tenantd as it is installed: its units, its sandbox, and that it can do all its work in there."""

import json
import re
import shutil
from pathlib import Path

from cgroups import MOUNT, Cgroup, telling, wait_until
from host import TENANTCTL, TENANTD, finish, run, status_of
from marks import both, core, newest
from test_systemd import Host
from units import show, start

SYSTEMD = Path(__file__).resolve().parent.parent / "systemd"
SHIPPED = SYSTEMD.parent / "policy.yaml"
UNITS = Path("/etc/systemd/system")
SERVICE = "tenantd.service"
# Of 10, where 10 is a service that may do everything.
EXPOSURE_MAX = 2.5


def install(host, tenants=None):
    """Puts everything where a package would, and takes it away again; the policy is the package's, or has these tenants."""

    def put(source, to, mode):
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, to)
        to.chmod(mode)
        host.cleanup.callback(to.unlink)

    host.cleanup.callback(finish, ["systemctl", "daemon-reload"])
    put(TENANTD, Path("/usr/bin/tenantd"), 0o755)
    put(TENANTCTL, Path("/usr/bin/tenantctl"), 0o755)
    for unit in ("tenantd.service", "tenantd.socket", "tenants.slice"):
        put(SYSTEMD / unit, UNITS / unit, 0o644)
    put(SYSTEMD / "sysusers.d/tenantd.conf", Path("/usr/lib/sysusers.d/tenantd.conf"), 0o644)
    put(SYSTEMD / "tmpfiles.d/tenantd.conf", Path("/usr/lib/tmpfiles.d/tenantd.conf"), 0o644)
    Path("/etc/tenantd").mkdir(exist_ok=True)
    host.cleanup.callback(shutil.rmtree, "/etc/tenantd")
    if tenants is None:
        put(SHIPPED, Path("/etc/tenantd/policy.yaml"), 0o644)
    else:
        put(host.policy(tenants), Path("/etc/tenantd/tenants.yaml"), 0o644)
    run("systemd-sysusers")
    run("systemd-tmpfiles", "--create", "tenantd.conf")
    run("systemctl", "daemon-reload")
    host.cleanup.callback(finish, ["systemctl", "stop", "tenantd.socket", SERVICE, "tenants.slice"])


def log():
    return run("journalctl", "--no-pager", "-o", "cat", "-u", SERVICE)


def settle():
    """What the service is in, and what it is asked on, stays; so does what systemd enabled for it there."""
    run("systemctl", "start", SERVICE)
    run("systemctl", "stop", SERVICE)


def limited(host):
    """A service of somebody's, limited by the tenant whose policy is returned."""
    start(host, "plain.service", "sleep", "infinity")
    return limit(1)


def limit(cpus):
    return {"unit": {"match": {"unit": "plain.service"}, "limit": {"cpu": cpus}}}


def is_limited(cpus=1):
    unit = Cgroup(MOUNT / "system.slice/plain.service")
    return unit.holds("cpu.max", f"{cpus * 100000} 100000")


@both
def test_units_are_verified(host):
    install(host, {"a": {}})
    units = [str(UNITS / unit) for unit in ("tenantd.service", "tenantd.socket", "tenants.slice")]
    done = finish(["systemd-analyze", "verify", *units])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stdout + done.stderr


@both
def test_exposure_is_small(host):
    install(host, {"a": {}})
    done = finish(["systemd-analyze", "security", "--no-pager", SERVICE])
    overall = re.search(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
    assert overall, done.stdout + done.stderr
    for line in done.stdout.splitlines():
        exposed = re.match(r"^✗ (\S+)\s+(.*?)\s+([0-9.]+)$", line.strip())
        if exposed:
            host.note(f"left: {exposed[1]} ({exposed[2].strip()}), {exposed[3]}")
    host.note(f"systemd-analyze security says {overall[1]}")
    assert float(overall[1]) <= EXPOSURE_MAX, done.stdout


@core
@both
@newest
def test_does_all_its_work_in_its_sandbox(host):
    """Tenants of all owners, pinned and limited, processes that are claimed, and everything put back."""
    start(host, "plain.service", "sleep", "infinity")
    claimed = start(host, "claimed.service", "sleep", "infinity")
    tenants = {
        "direct": {"match": {"cgroup": f"/system.slice/{claimed}", "move": True}, "cpus": "0", "limit": {"memory": "1GiB", "pids": 500}},
        "slice": {"owner": "systemd", "weight": 200},
        "unit": {"match": {"unit": "plain.service"}, "limit": {"cpu": 1, "pids": 60}, "weight": 300},
    }
    install(host, tenants)
    settle()
    world = Host("plain.service")
    run("systemctl", "start", SERVICE)
    own = Cgroup(MOUNT / "tenants.slice" / SERVICE)
    direct, slice_ = own.child("direct"), Cgroup(MOUNT / "tenants.slice/tenants-slice.slice")
    pid = int(show(claimed, "MainPID"))
    effects = [
        (lambda: direct.exists() and pid in direct.pids(), "the claimed process"),
        (lambda: direct.holds("cpuset.cpus", "0"), "the set of CPUs"),
        (lambda: direct.holds("memory.max", str(1 << 30)), "the memory limit"),
        (slice_.exists, "the slice"),
        (lambda: direct.holds("pids.max", "500"), "the limit of processes"),
        (is_limited, "the unit's CPU limit"),
        (lambda: Cgroup(MOUNT / "system.slice/plain.service").holds("pids.max", "60"), "the unit's limit of tasks"),
        (lambda: int(slice_.read("cpu.weight")) > 110, "the slice's weight beside the service"),
        (lambda: Path("/run/tenantd/tenants/direct/dop").exists(), "the width"),
    ]
    for condition, what in effects:
        with telling(log):
            wait_until(condition, what)
    status = status_of(show(SERVICE, "MainPID"))
    capabilities = status["CapEff"]
    # CAP_SYSLOG, CAP_SYS_RESOURCE, CAP_SYS_NICE, CAP_DAC_OVERRIDE and CAP_CHOWN by their numbers (capabilities(7)), and no other.
    assert int(capabilities, 16) == 1 << 34 | 1 << 24 | 1 << 23 | 1 << 1 | 1 << 0, capabilities
    resident, locked = (int(status[key].split()[0]) for key in ("VmRSS", "VmLck"))
    host.note(f"resident set {resident} kB")
    # Its addresses, of which it locks what it touches.
    assert locked >= resident, (locked, resident)
    run("systemctl", "stop", SERVICE)
    assert show(SERVICE, "Result") == "success", log()
    world.expect_as_before(log)


def test_returns_processes_to_cgroups_of_users(host):
    """A cgroup that systemd has delegated to a user is that user's: root writes there only with a capability."""
    run("useradd", "--uid=1003", "eve")
    host.cleanup.callback(run, "userdel", "eve")
    claimed = start(host, "claimed.service", "sleep", "infinity", User="eve", Delegate="yes")
    home = MOUNT / "system.slice" / claimed
    # It is given away just before the program begins.
    wait_until(lambda: (home / "cgroup.procs").stat().st_uid == 1003, "the cgroup to be the user's own")
    install(host, {"people": {"match": {"cgroup": f"/system.slice/{claimed}", "move": True}}})
    settle()
    pid = int(show(claimed, "MainPID"))
    place = lambda: Path(f"/proc/{pid}/cgroup").read_text().strip()
    before = place()
    run("systemctl", "start", SERVICE)
    with telling(log):
        wait_until(lambda: place().endswith(f"/{SERVICE}/people"), "the process to be claimed")
        run("systemctl", "stop", SERVICE)
        assert place() == before, place()


def test_a_killed_service_leaves_no_trace_and_restarts(host):
    install(host, limited(host))
    settle()
    world = Host("plain.service")
    run("systemctl", "start", SERVICE)
    wait_until(is_limited, "the limit")
    first = show(SERVICE, "MainPID")
    run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", SERVICE)
    wait_until(lambda: show(SERVICE, "MainPID") not in (first, "0"), "the service to come back")
    wait_until(is_limited, "the limit again")
    run("systemctl", "stop", SERVICE)
    world.expect_as_before(log)


def test_the_watchdog_ends_a_service_that_hangs(host):
    """Under load, so that what comes back has work to take up again."""
    install(host, {"small": {"weight": 100}, "large": {"weight": 300}})
    dropped = UNITS / f"{SERVICE}.d/watchdog.conf"
    dropped.parent.mkdir()
    host.cleanup.callback(shutil.rmtree, dropped.parent)
    dropped.write_text("[Service]\nWatchdogSec=10s\n")
    run("systemctl", "daemon-reload")
    run("systemctl", "start", SERVICE)
    own = Cgroup(MOUNT / "tenants.slice" / SERVICE)
    small, large = own.child("small"), own.child("large")
    heavier = lambda: int(large.read("cpu.weight")) > 2 * int(small.read("cpu.weight"))
    wait_until(lambda: small.exists() and large.exists(), "the tenants' cgroups")
    load = host.burn(small, host.cpus) + host.burn(large, host.cpus)
    wait_until(heavier, "the weights")
    first = show(SERVICE, "MainPID")
    run("systemctl", "kill", "--kill-whom=main", "--signal=STOP", SERVICE)
    wait_until(lambda: show(SERVICE, "MainPID") not in (first, "0"), "the watchdog to bite")
    assert show(SERVICE, "NRestarts") == "1"
    wait_until(lambda: "Watchdog timeout" in log(), "the watchdog to be blamed")
    with telling(log):
        wait_until(heavier, "the weights again")
        inside = {pid for group in (small, large) for pid in group.pids()}
        assert inside == {process.pid for process in load}, "the tenants are not where they were"
    host.stop(load)


def test_stopped_is_stopped(host):
    """Whoever asks starts it, but not against the will of who stopped it; its start makes the socket again."""
    install(host, {"a": {}})
    run("systemctl", "start", "tenantd.socket")
    asked = lambda: finish(["tenantctl", "status"])
    wait_until(lambda: asked().returncode == 0, "the service that is started by being asked")
    assert show(SERVICE, "ActiveState") == "active"
    run("systemctl", "restart", SERVICE)
    assert show("tenantd.socket", "ActiveState") == "active"
    # The order is carried out when the service has stopped; its socket stops right behind it.
    run("systemctl", "stop", SERVICE)
    wait_until(lambda: show("tenantd.socket", "ActiveState") == "inactive", "the socket to stop too")
    done = asked()
    assert done.returncode == 69 and "systemctl start tenantd" in done.stderr, done.stderr
    assert [show(unit, "ActiveState") for unit in (SERVICE, "tenantd.socket")] == ["inactive"] * 2
    run("systemctl", "start", SERVICE)
    wait_until(lambda: asked().returncode == 0, "an answer on the socket that is there again")
    assert show("tenantd.socket", "ActiveState") == "active"


def test_reloads_a_good_policy_and_keeps_it_after_a_bad_one(host):
    install(host, limited(host))
    run("systemctl", "start", SERVICE)
    policy = Path("/etc/tenantd/tenants.yaml")
    wait_until(is_limited, "the limit")
    shutil.copy(host.policy(limit(2)), policy)
    run("systemctl", "reload", SERVICE)
    wait_until(lambda: is_limited(2), "the limit of the new policy")
    policy.write_text("version: 1\ntenants: { unit: { weigth: 3 } }\n")
    done = finish(["systemctl", "reload", SERVICE])
    assert done.returncode != 0, "a bad policy was taken"
    wait_until(lambda: "weigth" in log(), "what is wrong in the log")
    assert show(SERVICE, "ActiveState") == "active" and is_limited(2)
    # The group of the socket that systemd made reads all, by supplementary groups; any other user sees the own view.
    socket = Path("/run/tenantd/socket")
    assert (socket.group(), oct(socket.stat().st_mode & 0o777)) == ("tenantd", "0o666")
    done = finish(["tenantctl", "status"])
    assert done.returncode == 0 and "unit" in done.stdout, done.stdout + done.stderr
    user = ["setpriv", "--reuid=65534", "--regid=65534"]
    done = finish([*user, "--groups=tenantd", "tenantctl", "status"])
    assert done.returncode == 0 and "unit" in done.stdout, done.stdout + done.stderr
    done = finish([*user, "--clear-groups", "tenantctl", "status"])
    assert done.returncode == 0 and "the group tenantd sees all: sudo adduser nobody tenantd" in done.stdout, done.stdout + done.stderr
    assert "unit" not in done.stdout, done.stdout


@both
def test_a_stop_together_with_the_bus_restores_everything(host):
    """As `systemctl isolate` does: without the bus no unit is given back, so the service has to stop before it."""
    install(host, limited(host))
    settle()
    world = Host("plain.service")
    run("systemctl", "start", SERVICE)
    wait_until(is_limited, "the limit")
    bus = ["dbus.socket", "dbus.service"]
    host.cleanup.callback(finish, ["systemctl", "start", *bus])
    run("systemctl", "stop", SERVICE, "tenantd.socket", *bus)
    run("systemctl", "start", *bus)
    assert (show(SERVICE, "Result"), show(SERVICE, "ActiveState")) == ("success", "inactive"), log()
    assert not Path("/run/tenantd/journal").exists(), log()
    world.expect_as_before(log)


def test_kept_values_are_restored_only_on_request(host):
    install(host, limited(host))
    settle()
    world = Host("plain.service")
    policy = Path("/etc/tenantd/tenants.yaml")
    policy.write_text(json.dumps({**json.loads(policy.read_text()), "control": {"on_exit": "keep"}}))
    run("systemctl", "start", SERVICE)
    wait_until(is_limited, "the limit")
    run("systemctl", "stop", SERVICE)
    assert is_limited(), log()
    done = finish(["tenantd", "--restore"])
    assert done.returncode == 0, done.stderr
    world.expect_as_before(log)
