"""From a fresh installation to a policy in force, with nothing written by hand."""

import re
from pathlib import Path

from cgroups import MOUNT, Cgroup, telling, wait_until
from host import finish, run
from marks import alone, both
from test_reach import BURN, Scattered
from test_systemd import Host
from test_units import SERVICE, install, log, settle
from units import start
import fairness

POLICY = Path("/etc/tenantd/policy.yaml")


def busy_usec():
    """The CPU time of the machine since it was started."""
    ticks = [int(number) for number in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) * 10_000


@alone
@both
def test_init_reload_and_enforce_lead_to_a_policy_in_force(host):
    """Two services and a user, all hungry: by systemd alone the user has half of the machine, by the proposal a third."""
    everywhere = f"{BURN} &\n" * host.cpus + "wait"
    for unit in ("web.service", "db.service"):
        start(host, unit, "/bin/sh", "-c", everywhere)
    Scattered.session(host, "ana", 1000)
    system, user = Cgroup(MOUNT / "system.slice"), Cgroup(MOUNT / "user.slice")
    groups = [system.child("web.service"), system.child("db.service"), user.child("user-1000.slice")]
    install(host)
    settle()
    shipped = POLICY.read_text()
    world = Host("system.slice", "user.slice", "web.service", "db.service")
    run("systemctl", "start", SERVICE)
    wait_until(lambda: host.installed("status").returncode == 0, "the first tick")
    # A hundredth of the time that the machine was busy makes a service a tenant, whatever ran before.
    hungry = lambda: all(group.usage_usec() > max(3_000_000, busy_usec() / 60) for group in groups)
    wait_until(hungry, "CPU time of the services")

    done = host.installed("init")
    assert done.returncode == 0, done.stdout + done.stderr
    text = POLICY.read_text()
    for line in text.splitlines():
        host.note(line)
    assert text != shipped and "unit: web.service" in text and "users: ana" in text, text
    assert not re.search(r"^[^#]*tenantd", text, re.MULTILINE), text
    strict = host.installed("check", "--strict", "/etc/tenantd")
    assert strict.returncode == 0, strict.stdout + strict.stderr
    again = host.installed("init")
    assert again.returncode == 1 and "--output" in again.stderr, again
    assert POLICY.read_text() == text

    run("systemctl", "reload", SERVICE)
    assert system.read("cpu.weight") == user.read("cpu.weight") == "100"
    enforced = host.installed("mode", "enforce")
    assert enforced.returncode == 0, enforced.stdout + enforced.stderr

    def weighed():
        weights = [int(slice.read("cpu.weight")) for slice in (system, user)]
        return 1.8 * weights[1] < weights[0] < 2.6 * weights[1]

    with telling(log):
        wait_until(weighed, "the weights of the slices")
    fairness.expect_shares(host, groups, [1 / 3] * 3, "as proposed")
    status = host.installed("status")
    for line in filter(None, status.stdout.splitlines()):
        host.note(line)
    assert "ineffective" not in status.stdout, status.stdout
    assert finish(["systemctl", "stop", SERVICE]).returncode == 0
    world.expect_as_before(log)
