"""tenantd as administrators run it: a unit of systemd, with its own cgroup delegated to it."""

import json

from cgroups import MOUNT, Cgroup, expect_same, expect_soon_same, settings, wait_until, whole_host
from host import command_line, finish, run
from marks import alone, both, core
from tenants import POLICY, expect_shares, make_lived_in


@alone
@core
@both
def test_runs_in_its_own_delegated_cgroup(host):
    """No --root: the root is the cgroup that systemd gave it, and it takes nothing above that."""
    # The first delegated unit makes systemd enable controllers for good; have that behind us.
    host.delegated()
    unit = "scenario-tenantd.service"
    command = command_line(host.policy(POLICY), None, host.folder())
    before = whole_host()
    run("systemd-run", "--quiet", f"--unit={unit}", "-p", "Delegate=yes", "-p", "Type=exec", *command)
    # A unit that ended well is forgotten by then; one that failed is not.
    host.cleanup.callback(finish, ["systemctl", "stop", unit])
    own = Cgroup(MOUNT / "system.slice" / unit)
    tenants = [own.child(name) for name in POLICY]
    wait_until(lambda: all(tenant.exists() for tenant in tenants), "the tenants' cgroups")
    load = [process for tenant in tenants for process in host.burn(tenant, host.cpus)]
    expect_shares(host, tenants, [float(host.cpus)] * 3, "all want every CPU")
    host.stop(load)
    run("systemctl", "stop", unit)
    result = run("systemctl", "show", "-p", "Result", "--value", unit).strip()
    assert result == "success", run("journalctl", "--no-pager", "-u", unit)
    expect_soon_same(before, whole_host)


def test_plan_writes_nothing(host):
    root = host.delegated()
    tenants = make_lived_in(root)
    host.burn(tenants[0], 1)
    before = settings(root)
    policy = host.policy(POLICY, host={"root": root.name})
    done = host.ctl("plan", "--policy", policy, "--json")
    assert done.returncode == 0, done.stderr
    plan = json.dumps(json.loads(done.stdout))
    assert "cpu.weight" in plan and root.name in plan, plan
    expect_same(before, settings(root))


def test_check_finds_nothing_wrong_with_a_good_policy(host):
    done = host.ctl("check", host.policy(POLICY))
    assert done.returncode == 0, done.stdout + done.stderr
