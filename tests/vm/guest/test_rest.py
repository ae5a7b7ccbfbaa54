"""One tenant has all that no other claims: services and sessions, where they are."""

import json
import time

from cgroups import MOUNT, Cgroup
from host import run
from test_reach import BURN, Scattered
from test_systemd import Host, policy, start
import fairness

TENANTS = {
    "db": {"weight": 200, "match": {"unit": "db.service"}},
    "ana": {"weight": 100, "match": {"users": "ana"}},
    "others": {"weight": 100, "match": "rest"},
}


def test_the_rest_of_a_host_is_a_tenant(host):
    everywhere = f"{BURN} &\n" * host.cpus + "wait"
    start(host, "db.service", "/bin/sh", "-c", everywhere)
    start(host, "other.service", "/bin/sh", "-c", everywhere)
    Scattered.session(host, "ana", 1001)
    Scattered.session(host, "ben", 1002)
    system, user = MOUNT / "system.slice", MOUNT / "user.slice"
    db, other = Cgroup(system / "db.service"), Cgroup(system / "other.service")
    ana, ben = Cgroup(user / "user-1001.slice"), Cgroup(user / "user-1002.slice")
    inside = ben.below()
    names = ["system.slice", "user.slice", db.name, other.name, ana.name, ben.name]
    world = Host("init.scope", *(name.rsplit("/", 1)[-1] for name in names), leave_out=[ana, ben])
    state = host.folder()
    daemon = host.daemon(policy(host, TENANTS), None, state=state)

    def parts():
        done = host.ctl("explain", "others", "--json", "--socket", state / "socket")
        return [member["cgroup"] for member in json.loads(done.stdout)["members"]] if done.returncode == 0 else []

    daemon.until(lambda: {"other.service", "user-1002.slice"} <= set(parts()), "the rest")
    found = parts()
    assert "user.slice" not in found and "system.slice" not in found and "init.scope" not in found, found
    assert not any(part.startswith("session-") or "tenantd" in part for part in found), found
    weight = lambda group: int(group.read("cpu.weight"))
    daemon.until(lambda: weight(db) > 1.5 * weight(other), "the weights")
    time.sleep(5)
    # Each of the two busy ones of the rest has half of its quarter.
    want = [0.5, 0.25, 0.125, 0.125]
    fairness.expect_shares(host, [db, ana, other, ben], want, "two services and two sessions")
    assert [group.path for group in ben.below()] == [group.path for group in inside]
    assert {group.read("cpu.weight") for group in ben.below()[1:] if (group.path / "cpu.weight").exists()} <= {"100"}
    # What comes later is weighed as well, and what has ended is not in the way.
    start(host, "later.service", "/bin/sh", "-c", everywhere)
    daemon.until(lambda: "later.service" in parts(), "a service that came later")
    run("systemctl", "stop", "later.service")
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)
