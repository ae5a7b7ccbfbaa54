"""The tenants that most scenarios share: a, b and c at weights 1 : 2 : 4."""

import time

import fairness

WEIGHTS = {"a": 100, "b": 200, "c": 400}
POLICY = {name: {"weight": weight} for name, weight in WEIGHTS.items()}
TICK_SECONDS = 1.0
SETTLE_TICKS = 5


def make_lived_in(root):
    """Makes the tenants' cgroups as an administrator before us may have left them: no two alike,
    and with values of their own in the files that tenantd writes."""
    root.write("cgroup.subtree_control", "+cpu +memory +cpuset")
    a, b, c = (root.make(name) for name in WEIGHTS)
    a.write("cpu.weight", 50)
    a.write("memory.low", 8 << 20)
    a.write("cpu.max", "max 50000")
    b.write("cpu.weight", 777)
    b.write("memory.max", 600 << 20)
    b.write("memory.high", 500 << 20)
    c.write("cpu.weight.nice", -3)
    return [a, b, c]


def written(tenants):
    """Whether the weights now stand in the order of the policy, as they did not before."""
    weights = [int(tenant.read("cpu.weight")) for tenant in tenants]
    return weights == sorted(weights) and len(set(weights)) == len(weights)


def expect_shares(host, tenants, demands, what):
    """After the ticks allowed for settling, the measured shares are those entitled to."""
    time.sleep(SETTLE_TICKS * TICK_SECONDS)
    want = fairness.entitled_shares(list(WEIGHTS.values()), demands, host.cpus)
    fairness.expect_shares(host, tenants, want, what)
