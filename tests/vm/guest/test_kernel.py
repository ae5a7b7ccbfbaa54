"""The ground that the other scenarios stand on: this kernel shares by weight when it is told to,
and the harness can see it. No program of ours takes part."""

import time

from cgroups import differences, expect_same, settings
from fairness import entitled_shares, expect_shares
from marks import alone, both, core
from tenants import WEIGHTS


@alone
@core
@both
def test_gives_cpu_by_weight(host):
    """If this fails, the guest is no place to measure fairness, and the fault is not tenantd's."""
    root = host.delegated()
    root.write("cgroup.subtree_control", "+cpu")
    tenants = [root.make(name) for name in WEIGHTS]
    for tenant, weight in zip(tenants, WEIGHTS.values()):
        tenant.write("cpu.weight", weight)
        host.burn(tenant, host.cpus)
    time.sleep(1)
    want = entitled_shares(list(WEIGHTS.values()), [host.cpus] * 3, host.cpus)
    expect_shares(host, tenants, want, "all want every CPU")


@both
def test_shows_every_change_of_a_setting(host):
    """What later says "everything was put back" must be able to say the opposite."""
    root = host.delegated()
    root.write("cgroup.subtree_control", "+cpu +memory")
    tenant = root.make("a")
    before = settings(root)
    tenant.write("memory.low", 4096 * 100)
    tenant.write("cpu.weight", 101)
    made = root.make("b")
    found = "\n".join(differences(before, settings(root)))
    for part in ("a/memory.low: '0' became '409600'", "a/cpu.weight: '100' became '101'", "b/cpu.max"):
        assert part in found, f"{part} is not in {found}"
    made.remove()
    tenant.write("memory.low", 0)
    tenant.write("cpu.weight", 100)
    expect_same(before, settings(root))
