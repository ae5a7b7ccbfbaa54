"""One tenant has all that no other claims: services and sessions, where they are."""

import json
import os
import time

from cgroups import MOUNT, Cgroup
from host import Skip, run
from marks import alone
from test_reach import BURN, Scattered
from test_systemd import Host, policy
from units import start
import fairness

TENANTS = {
    "db": {"weight": 200, "match": {"unit": "db.service"}},
    "ana": {"weight": 100, "match": {"users": "ana"}},
    "others": {"weight": 100, "match": "rest"},
}


@alone
def test_the_rest_of_a_host_is_a_tenant(host):
    everywhere = f"{BURN} &\n" * host.cpus + "wait"
    start(host, "db.service", "/bin/sh", "-c", everywhere)
    start(host, "other.service", "/bin/sh", "-c", everywhere)
    Scattered.session(host, "ana", 1001)
    Scattered.session(host, "ben", 1002)
    system, user = MOUNT / "system.slice", MOUNT / "user.slice"
    db, other = Cgroup(system / "db.service"), Cgroup(system / "other.service")
    ana, ben = Cgroup(user / "user-1001.slice"), Cgroup(user / "user-1002.slice")
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
    # Each of its two parts is due a quarter of what db is and half of what ana is; what they want shows step by step.
    near = lambda group, part, ratio: 0.8 * ratio < weight(group) / weight(part) < 1.25 * ratio
    daemon.until(lambda: near(db, other, 4) and near(ana, ben, 2), "the weights")
    # So near they may still be on their way; five ticks after a change they are there.
    tick = lambda: json.loads(run(*daemon.client("status", "--json")))["tick"]
    began = tick()
    daemon.until(lambda: tick() >= began + 5, "five more ticks")
    # The runner of the scenarios is with the daemon; what other services do is the rest's.
    runner = Cgroup.of_pid(os.getpid())
    groups = [db, ana, Cgroup(system), Cgroup(user), runner, other, ben]

    def look():
        before = [group.usage_usec() for group in groups]
        time.sleep(fairness.WINDOW_SECONDS)
        used = [group.usage_usec() - then for group, then in zip(groups, before)]
        rest = used[2] + used[3] - used[0] - used[1] - used[4]
        whole = used[0] + used[1] + rest
        measured = [used[0] / whole, used[1] / whole, rest / whole]
        error = max(abs(m - w) for m, w in zip(measured, [0.5, 0.25, 0.25]))
        said = ", ".join(f"{part:.3f}" for part in [*measured, used[5] / whole, used[6] / whole])
        is_even = 0.7 * used[6] < used[5] < 1.4 * used[6]
        return error <= fairness.SHARE_ERROR_MAX and is_even, f"measured {said} of 0.5, 0.25, 0.25"

    doubt = fairness.doubt_of(host, look, "a service, a session and the rest")
    if doubt:
        raise Skip(doubt)
    inside = [group for group in ben.below() if group.path != ben.path and (group.path / "cpu.weight").exists()]
    assert {group.read("cpu.weight") for group in inside} <= {"100"}, "a session is the rest's as a whole"
    # What comes later is weighed as well, and what has ended is not in the way.
    start(host, "later.service", "/bin/sh", "-c", everywhere)
    daemon.until(lambda: "later.service" in parts(), "a service that came later")
    run("systemctl", "stop", "later.service")
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)
