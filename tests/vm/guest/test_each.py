"""A tenant for each user who logs in, without a word of that user in the policy."""

from cgroups import MOUNT, Cgroup, wait_until
from host import finish, run
from marks import alone, both
from test_reach import Scattered
from test_systemd import Host, log_in, policy
import fairness

PEOPLE = {
    "people": {
        "each": {"match": {"users": "*"}, "weight": 100, "limit": {"pids": 4096}},
        "tenants": {"ana": {"weight": 200, "match": {"users": "ana"}}},
    }
}


def home(uid):
    return Cgroup(MOUNT / f"user.slice/user-{uid}.slice")


def log_out(user, uid):
    finish(["systemctl", "stop", f"login-{user}.service"])
    finish(["loginctl", "terminate-user", user])
    finish(["systemctl", "stop", f"user-{uid}.slice"])
    wait_until(lambda: not home(uid).exists(), "the session to end")


@alone
@both
def test_each_user_who_logs_in_is_a_tenant(host):
    Scattered.session(host, "ana", 1001)
    Scattered.session(host, "ben", 1002)
    Scattered.session(host, "cem", 1003)
    log_out("cem", 1003)
    ana, ben, cem = (home(uid) for uid in (1001, 1002, 1003))
    world = Host("user.slice", "user-1001.slice", "user-1002.slice", leave_out=[ana, ben])
    daemon = host.daemon(policy(host, PEOPLE), None)
    weighs = lambda group, other: 1.8 * int(other.read("cpu.weight")) < int(group.read("cpu.weight"))
    daemon.until(lambda: weighs(ana, ben), "the weights of two users")
    daemon.until(lambda: ben.read("pids.max") == "4096", "the limit of the template")
    log_in(host, "cem")
    wait_until(cem.exists, "a third user")
    daemon.until(lambda: cem.exists() and cem.read("pids.max") == "4096", "the third user is a tenant")
    daemon.until(lambda: weighs(ana, cem), "the weights of three users")
    fairness.expect_shares(host, [ana, ben, cem], [0.5, 0.25, 0.25], "three users want every CPU")
    log_out("cem", 1003)
    fairness.expect_shares(host, [ana, ben], [2 / 3, 1 / 3], "one has logged out")
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)
    run("systemctl", "is-active", "--quiet", "user.slice")
