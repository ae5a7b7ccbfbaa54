"""The tenants that most scenarios share: a, b and c at weights 1 : 2 : 4."""

from cgroups import shares
from fairness import entitled_shares

WEIGHTS = {"a": 100, "b": 200, "c": 400}
POLICY = {name: {"weight": weight} for name, weight in WEIGHTS.items()}
TICK_SECONDS = 1.0
SETTLE_TICKS = 5
SHARE_ERROR_MAX = 0.05


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
    # The window of the measurement starts where the allowance ends.
    shares(tenants, SETTLE_TICKS * TICK_SECONDS)
    measured = shares(tenants, 5 * TICK_SECONDS)
    want = entitled_shares(list(WEIGHTS.values()), demands, host.cpus)
    error = max(abs(m - w) for m, w in zip(measured, want))
    figures = ", ".join(f"{m:.3f} of {w:.3f}" for m, w in zip(measured, want))
    host.note(f"{what}: measured {figures}; largest error {error:.3f}")
    assert error <= SHARE_ERROR_MAX, f"{what}: measured {figures}"
