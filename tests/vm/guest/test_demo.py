"""What a stranger types first, on a host with systemd."""

import json

from cgroups import MOUNT, Cgroup, expect_same, settings
from host import run


def test_converges_and_leaves_a_clean_host(host):
    # The first delegated unit makes systemd enable controllers for good; have that behind us.
    host.delegated()
    before, tree = settings(Cgroup(MOUNT)), run("systemd-cgls", "--no-pager")
    done = host.ctl("demo", "--json", seconds=150)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stdout}{done.stderr}"
    result = json.loads(done.stdout)
    host.note(f"max_share_error {result['max_share_error']:.4f}, jain_index {result['jain_index']:.4f}")
    assert result["max_share_error"] <= 0.05, done.stdout
    assert result["jain_index"] >= 0.95, done.stdout
    expect_same(before, settings(Cgroup(MOUNT)))
    assert run("systemd-cgls", "--no-pager") == tree


def test_simulated_needs_no_kernel(host):
    before = settings(Cgroup(MOUNT))
    done = host.ctl("demo", "--simulated", "--json", seconds=150)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stdout}{done.stderr}"
    assert json.loads(done.stdout)["max_share_error"] <= 0.05, done.stdout
    expect_same(before, settings(Cgroup(MOUNT)))
