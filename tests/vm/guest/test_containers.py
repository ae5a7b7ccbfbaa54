"""Containers of a real engine: tenants by the names of their scopes, and by the slice in which they are started."""

import time

from cgroups import MOUNT, Cgroup
from containers import Podman
from host import finish
from marks import alone, both
from test_systemd import Host, policy
from units import start
import fairness

BURN = "while :; do :; done"
SETTLE_SECONDS = 5
LIMITS = ["cpu.max", "memory.max"]
# Of the engine's own, on its command line.
OWN = {"--cpus=1.5": "150000 100000", "--memory=200m": str(200 << 20)}


def everywhere(host):
    return f"{BURN} &\n" * host.cpus + "wait"


def limits(scope):
    """What the engine has limited in a container; some versions do it in a cgroup of their own below the scope."""
    return {f"{group.name}/{file}": group.read(file) for group in scope.below() for file in LIMITS}


def expect_own(scope):
    assert set(OWN.values()) <= set(limits(scope).values()), limits(scope)


@alone
@both
def test_containers_are_a_tenant_by_the_names_of_their_scopes(host):
    podman = Podman(host)
    first = podman.start("first", everywhere(host), *OWN)
    start(host, "db.service", "/bin/sh", "-c", everywhere(host))
    db = Cgroup(MOUNT / "system.slice/db.service")
    before = limits(first)
    expect_own(first)
    world = Host("system.slice", "machine.slice", "db.service", first.path.name)
    tenants = {
        "db": {"weight": 300, "match": {"unit": "db.service"}},
        "boxes": {"weight": 100, "match": {"unit": "libpod-*.scope"}},
    }
    daemon = host.daemon(policy(host, tenants), None)
    slices = [Cgroup(MOUNT / name) for name in ("system.slice", "machine.slice")]

    def is_weighed():
        system, machine = (int(slice.read("cpu.weight")) for slice in slices)
        return system > 2.5 * machine

    daemon.until(is_weighed, "the weights of the slices")
    time.sleep(SETTLE_SECONDS)
    fairness.expect_shares(host, [db, first], [0.75, 0.25], "one container")
    second = podman.start("second", everywhere(host))
    daemon.until(lambda: second.read("cpu.weight") == first.read("cpu.weight"), "two equal members")
    time.sleep(SETTLE_SECONDS)
    fairness.expect_shares(host, [db, first, second], [0.75, 0.125, 0.125], "two containers")
    expect_own(first)
    podman.remove("second")
    time.sleep(SETTLE_SECONDS)
    fairness.expect_shares(host, [db, first], [0.75, 0.25], "one of them has ended")
    assert limits(first) == before, (limits(first), before)
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)
    assert limits(first) == before, (limits(first), before)


@alone
@both
def test_containers_are_tenants_by_the_slices_that_they_are_started_in(host):
    podman = Podman(host)
    world = Host()
    names = ["tenants-large.slice", "tenants-small.slice"]
    tenants = {"large": {"weight": 300, "owner": "systemd"}, "small": {"weight": 100, "owner": "systemd"}}
    daemon = host.daemon(policy(host, tenants), None)
    host.cleanup.callback(finish, ["systemctl", "stop", *names, "tenants.slice"])
    groups = [Cgroup(MOUNT / "tenants.slice" / name) for name in names]
    daemon.until(lambda: all(group.exists() for group in groups), "the slices of the tenants")
    parent = lambda name: f"--cgroup-parent={name}"
    limited = podman.start("limited", everywhere(host), parent(names[0]), *OWN)
    podman.start("greedy", everywhere(host), parent(names[1]))
    podman.start("greedier", everywhere(host), parent(names[1]))
    assert limited.path.parent == groups[0].path, limited.name

    def is_weighed():
        large, small = (int(group.read("cpu.weight")) for group in groups)
        return large > 2.5 * small

    daemon.until(is_weighed, "the weights of the slices")
    time.sleep(SETTLE_SECONDS)
    fairness.expect_shares(host, groups, [0.75, 0.25], "one container against two")
    expect_own(limited)
    podman.remove("limited")
    time.sleep(SETTLE_SECONDS)
    podman.start("again", everywhere(host), parent(names[0]))
    time.sleep(SETTLE_SECONDS)
    fairness.expect_shares(host, groups, [0.75, 0.25], "one has ended, and another one has begun")
    for name in ("again", "greedy", "greedier"):
        podman.remove(name)
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)
