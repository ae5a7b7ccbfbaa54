"""Work that lives all over the tree of systemd: the policy takes effect there too, and leaves nothing behind."""

import json
import time

from cgroups import MOUNT, Cgroup, wait_until
from host import finish, run
from marks import alone, both, core
from test_systemd import Host, log_in, policy
from units import show, start
import fairness

WEIGHTS = {"db": 400, "web": 200, "ana": 100}
BURN = "while :; do :; done"


class Scattered:
    """A service in a slice of its own, one beside it, and a session, all hungry; and a service of nobody's."""

    def __init__(self, host, database=None):
        everywhere = f"{BURN} &\n" * host.cpus + "wait"
        start(host, "db.service", *(database or ["/bin/sh", "-c", everywhere]), slice="system-db.slice")
        host.cleanup.callback(finish, ["systemctl", "stop", "system-db.slice"])
        start(host, "web.service", "/bin/sh", "-c", everywhere)
        # A tenth of a CPU.
        start(host, "other.service", "/bin/sh", "-c", BURN, CPUQuota="10%")
        self.session(host, "ana", 1000)
        system, user = MOUNT / "system.slice", MOUNT / "user.slice"
        self.groups = [
            Cgroup(system / "system-db.slice/db.service"),
            Cgroup(system / "web.service"),
            Cgroup(user / "user-1000.slice"),
        ]
        self.other = Cgroup(system / "other.service")
        self.slices = [Cgroup(system), Cgroup(user), Cgroup(system / "system-db.slice")]
        self.tenants = {
            "db": {"weight": WEIGHTS["db"], "match": {"unit": "db.service"}},
            "web": {"weight": WEIGHTS["web"], "match": {"unit": "web.service"}},
            "ana": {"weight": WEIGHTS["ana"], "match": {"users": "ana"}},
        }
        units = [group.path.name for group in self.slices + self.groups]
        self.world = Host(*units, leave_out=[self.groups[2]])

    @staticmethod
    def session(host, user, uid):
        run("useradd", "--create-home", f"--uid={uid}", user)
        host.cleanup.callback(run, "userdel", "--force", "--remove", user)
        slice = Cgroup(MOUNT / f"user.slice/user-{uid}.slice")
        host.cleanup.callback(wait_until, lambda: not slice.exists(), "the session to end")
        host.cleanup.callback(finish, ["systemctl", "stop", f"user-{uid}.slice"])
        log_in(host, user)
        wait_until(lambda: slice.exists() and slice.stat("cgroup.events", "populated"), "a session")

    def are_weighed(self):
        """Whether system.slice has six times the weight of user.slice, or a little more for the other service; and
        the slice of the database twice that of the service beside it."""
        system, user, db = (int(slice.read("cpu.weight")) for slice in self.slices[:3])
        web = int(self.groups[1].read("cpu.weight"))
        return 5.5 * user < system < 9 * user and 1.8 * web < db < 2.3 * web


@alone
@core
@both
def test_work_in_different_slices_is_shared_by_the_policy(host):
    scattered = Scattered(host)
    used = scattered.other.usage_usec
    daemon = host.daemon(policy(host, scattered.tenants), None)
    daemon.until(scattered.are_weighed, "the weights of the slices")
    # What the other work needs is known in a few ticks.
    time.sleep(3)
    before = used()
    want = fairness.entitled_shares(list(WEIGHTS.values()), [float(host.cpus)] * 3, host.cpus - 0.1)
    fairness.expect_shares(host, scattered.groups, want, "all want every CPU")
    assert used() > before, "the other service does not run"
    # The guest itself may be busy beside them.
    for what in ("cpu weights are ineffective between", "memory.low is ineffective"):
        assert what not in daemon.log(), daemon.log()
    assert daemon.terminate() == 0, daemon.log()
    scattered.world.expect_as_before(daemon.log)


@both
def test_slices_that_were_weighed_come_back_after_a_kill(host):
    scattered = Scattered(host)
    run("systemctl", "set-property", "--runtime", "user.slice", "CPUWeight=60")
    host.cleanup.callback(finish, ["systemctl", "revert", "user.slice"])
    scattered.world = Host(*(group.path.name for group in scattered.slices), leave_out=[scattered.groups[2]])
    state = host.folder()
    daemon = host.daemon(policy(host, scattered.tenants), None, state=state)
    daemon.until(scattered.are_weighed, "the weights of the slices")
    daemon.murder()
    run("systemctl", "daemon-reload")
    second = host.daemon(policy(host, scattered.tenants), None, state=state)
    # What the first one left is put back by then.
    second.says("started on")
    second.until(scattered.are_weighed, "the weights of the slices")
    assert second.terminate() == 0, second.log()
    assert show("user.slice", "CPUWeight") == "60"
    scattered.world.expect_as_before(second.log)


def test_slices_that_are_set_or_replaced_meanwhile_come_back(host):
    """A reload of systemd, another value by an administrator, and a slice that goes with its service and comes again."""
    scattered = Scattered(host)
    daemon = host.daemon(policy(host, scattered.tenants), None)
    daemon.until(scattered.are_weighed, "the weights of the slices")
    run("systemctl", "daemon-reload")
    daemon.until(scattered.are_weighed, "the weights after a reload")
    user = scattered.slices[1]
    run("systemctl", "set-property", "--runtime", "user.slice", "CPUWeight=1000")
    host.cleanup.callback(finish, ["systemctl", "revert", "user.slice"])
    wait_until(lambda: user.holds("cpu.weight", "1000") or "someone else wrote" in daemon.log(), "the other value")
    daemon.until(scattered.are_weighed, "the weights of the policy again")
    run("systemctl", "stop", "db.service", "system-db.slice")
    wait_until(lambda: not scattered.slices[2].exists(), "the slice to go")
    start(host, "db.service", "/bin/sh", "-c", f"{BURN} &\n" * host.cpus + "wait", slice="system-db.slice")
    daemon.until(scattered.are_weighed, "the weights of the slice that is there again")
    assert daemon.terminate() == 0, daemon.log()
    scattered.world.expect_as_before(daemon.log)


def test_slices_that_are_left_are_reported(host):
    scattered = Scattered(host)
    control = {"interval": "1s", "ancestors": "leave"}
    daemon = host.daemon(policy(host, scattered.tenants, control=control), None)
    daemon.says("cpu weights are ineffective between")
    assert [slice.read("cpu.weight") for slice in scattered.slices[:2]] == ["100", "100"]
    assert daemon.terminate() == 0, daemon.log()
    scattered.world.expect_as_before(daemon.log)


@alone
@both
def test_services_of_one_tenant_come_and_go(host):
    everywhere = f"{BURN} &\n" * host.cpus + "wait"
    hungry = lambda unit, **more: start(host, unit, "/bin/sh", "-c", everywhere, **more)
    hungry("db@1.service", slice="system-db.slice")
    host.cleanup.callback(finish, ["systemctl", "stop", "system-db.slice"])
    hungry("web.service")
    world = Host("system.slice", "system-db.slice", "db@1.service", "web.service")
    tenants = {
        "db": {"weight": 300, "match": {"unit": "db@*.service"}},
        "web": {"weight": 100, "match": {"unit": ["web.service", "web-worker.service"]}},
    }
    daemon = host.daemon(policy(host, tenants), None)
    daemon.says("web-worker.service")
    hungry("db@2.service", slice="system-db.slice")
    system = MOUNT / "system.slice"
    first, second = (Cgroup(system / f"system-db.slice/db@{n}.service") for n in (1, 2))
    web = Cgroup(system / "web.service")
    # system-db.slice has three quarters of what is divided there.
    slice = Cgroup(system / "system-db.slice")
    is_weighed = lambda: int(slice.read("cpu.weight")) >= 2.5 * int(web.read("cpu.weight"))
    daemon.until(is_weighed, "the weights of both tenants")
    wait_until(lambda: second.read("cpu.weight") == first.read("cpu.weight"), "two equal members")
    fairness.expect_shares(host, [first, second, web], [0.375, 0.375, 0.25], "two services of one tenant")
    run("systemctl", "stop", "db@2.service")
    wait_until(lambda: not second.exists(), "the service to end")
    fairness.expect_shares(host, [first, web], [0.75, 0.25], "one of them has ended")
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)


@alone
def test_work_of_no_tenant_is_the_reason_for_what_a_tenant_lacks(host):
    """Beside the tenant itself, and beside the slice that it is in; with the program."""
    everywhere = f"{BURN} &\n" * host.cpus + "wait"
    start(host, "web.service", "/bin/sh", "-c", everywhere)
    start(host, "hog.service", "/bin/sh", "-c", everywhere)
    start(host, "far.service", "/bin/sh", "-c", everywhere, slice="far.slice")
    host.cleanup.callback(finish, ["systemctl", "stop", "far.slice"])
    state = host.folder()
    tenants = {"web": {"match": {"unit": "web.service"}}}
    daemon = host.daemon(policy(host, tenants, control={"interval": "1s"}), None, state=state)

    last = {}

    def are_named():
        done = host.ctl("explain", "web", "--json", "--socket", state / "socket")
        if done.returncode != 0:
            return False
        last.update(json.loads(done.stdout))
        reasons = [reason for reason in last["reasons"] if reason["kind"] == "outside_work"]
        named = {it["cgroup"]: it["command"] for reason in reasons for it in reason["outsiders"]}
        return named.get("/system.slice/hog.service") == "sh" and named.get("/far.slice") == "sh"

    daemon.until(are_named, "the work of no tenant")
    reasons = "; ".join(reason["text"] for reason in last["reasons"])
    host.note(f"lacks {last['missing_cores']:.2f} of {host.cpus} CPUs: {reasons}")
    assert last["missing_cores"] > 0 and last["faults"]["cpu_short"]["count"] > 0, last
    shown = host.ctl("status", "--socket", state / "socket").stdout
    assert max(map(len, shown.splitlines())) <= 80, shown
    assert daemon.terminate() == 0, daemon.log()
