"""The main job: shares of the CPU follow the policy's weights, and the load."""

from cgroups import PATIENCE, expect_same, settings
from marks import alone, both, core
from tenants import POLICY, expect_shares, make_lived_in, written


@alone
@core
@both
def test_follow_weights_and_load(host):
    root = host.delegated()
    tenants = make_lived_in(root)
    load = [host.burn(tenant, host.cpus) for tenant in tenants]
    daemon = host.daemon(host.policy(POLICY), root)
    daemon.until(lambda: written(tenants), "the weights of the policy")
    every = float(host.cpus)
    expect_shares(host, tenants, [every, every, every], "all want every CPU")

    host.stop(load[2])
    expect_shares(host, tenants, [every, every, 0.0], "c is idle")

    load[2] = host.burn(tenants[2], 1)
    expect_shares(host, tenants, [every, every, 1.0], "c wants one CPU")

    load[2] += host.burn(tenants[2], host.cpus - 1)
    expect_shares(host, tenants, [every, every, every], "all want every CPU again")
    assert daemon.terminate() == 0, daemon.log()


@alone
def test_hold_in_cgroups_that_the_daemon_made(host):
    """An empty root: the daemon enables the controllers and makes the tenants' cgroups itself."""
    root = host.delegated()
    daemon = host.daemon(host.policy(POLICY), root)
    tenants = [root.child(name) for name in POLICY]
    daemon.until(lambda: all(t.exists() for t in tenants), "the tenants' cgroups")
    for tenant in tenants:
        host.burn(tenant, host.cpus)
    expect_shares(host, tenants, [float(host.cpus)] * 3, "all want every CPU")


def test_observing_changes_nothing(host):
    root = host.delegated()
    tenants = make_lived_in(root)
    load = host.burn(tenants[0], host.cpus)
    before = settings(root)
    daemon = host.daemon(host.policy(POLICY), root, "--observe", "--once")
    assert daemon.process.wait(PATIENCE) == 0, daemon.log()
    host.stop(load)
    expect_same(before, settings(root))
