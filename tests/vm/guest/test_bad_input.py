"""What can be wrong with a host: one clear line and an exit status, never a panic, and never a
value left behind."""

import os
import subprocess
import time

from cgroups import PATIENCE, expect_same, settings, wait_until
from host import run
from marks import core
from tenants import POLICY, make_lived_in, written


def expect_refusal(daemon, codes, *words):
    """It ends soon with one of these exit statuses, and says why in these words."""
    try:
        code = daemon.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"tenantd still runs: {daemon.log()}") from None
    log = daemon.log()
    assert "panicked" not in log, log
    assert code in codes, f"exit status {code}: {log}"
    assert log.strip(), "not a word why"
    for word in words:
        assert word.lower() in log.lower(), f"{word!r} is not in {log!r}"


def test_second_daemon_on_the_same_root_is_refused(host):
    root = host.delegated()
    tenants = make_lived_in(root)
    before = settings(root)
    policy = host.policy(POLICY)
    first = host.daemon(policy, root)
    first.until(lambda: written(tenants), "the weights of the policy")
    expect_refusal(host.daemon(policy, root), {1, 75}, root.name)
    assert first.running()
    assert first.terminate() == 0, first.log()
    expect_same(before, settings(root))


def test_no_policy_is_refused(host):
    root = host.delegated()
    missing = host.folder() / "policy.yaml"
    expect_refusal(host.daemon(missing, root), {78}, str(missing))


def test_root_that_is_not_there_is_refused(host):
    root = host.delegated().child("nowhere")
    expect_refusal(host.daemon(host.policy(POLICY), root), {1, 78}, root.name)


def test_read_only_mount_is_refused(host):
    root = host.delegated()
    make_lived_in(root)
    before = settings(root)
    remount = 'mount -o remount,bind,ro /sys/fs/cgroup && exec "$@"'
    prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", remount, "sh"]
    daemon = host.daemon(host.policy(POLICY), root, prefix=prefix)
    expect_refusal(daemon, {1, 77}, "read-only")
    expect_same(before, settings(root))


def test_missing_permission_is_refused(host):
    root = host.delegated()
    make_lived_in(root)
    before = settings(root)
    state = host.folder()
    os.chown(state, 65534, 65534)
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    policy = host.policy(POLICY)
    os.chmod(policy.parent, 0o755)
    daemon = host.daemon(policy, root, state=state, prefix=prefix)
    expect_refusal(daemon, {1, 77})
    expect_same(before, settings(root))


def test_missing_controller_leaves_the_other_one_working(host):
    """The root has memory but not cpu: said in a line, and memory is still looked after."""
    root = host.delegated(controllers="+memory")
    before = settings(root)
    policy = host.policy({"a": {"limit": {"memory": "256MiB"}}, "b": {}})
    daemon = host.daemon(policy, root)
    daemon.until(lambda: root.child("a").holds("memory.max", str(256 << 20)), "memory.max")
    daemon.says("the cpu controller is not available")
    assert daemon.terminate() == 0, daemon.log()
    expect_same(before, settings(root))


@core
def test_a_cgroup_that_vanishes_stops_no_other_tenant(host):
    root = host.delegated()
    a, b, c = tenants = make_lived_in(root)
    for tenant in tenants:
        host.burn(tenant, 1)
    daemon = host.daemon(host.policy(POLICY), root)
    daemon.until(lambda: written(tenants), "the weights of the policy")
    b.kill()
    b.remove()
    a.write("cpu.weight", 9999)
    daemon.until(lambda: written([a, c]), "the repair of a's weight while b is gone")
    assert daemon.terminate() == 0, daemon.log()
    put_back = a.read("cpu.weight") == "50" and c.read("cpu.weight.nice") == "-3"
    assert put_back, "a and c were not put back"
    assert not b.exists(), "b is there again"


def test_a_recreated_cgroup_is_attached_with_its_own_values(host):
    """The same name is not the same cgroup: what is put back at the end is what the new one held."""
    root = host.delegated()
    _, b, _ = tenants = make_lived_in(root)
    for tenant in tenants:
        host.burn(tenant, 1)
    daemon = host.daemon(host.policy(POLICY), root)
    daemon.until(lambda: written(tenants), "the weights of the policy")
    b.kill()
    # It would make one itself.
    with daemon.stopped():
        b.remove()
        root.make("b").write("cpu.weight", 77)
    host.burn(b, 1)
    daemon.until(lambda: b.read("cpu.weight") != "77", "a new weight of the new b")
    daemon.until(lambda: written(tenants), "the weights of the policy")
    assert daemon.terminate() == 0, daemon.log()
    assert b.read("cpu.weight") == "77", f"b has {b.read('cpu.weight')}, which is not what it had"


def test_refused_write_does_not_stop_the_others(host):
    """A cgroup with cpu.idle set takes no weight: the kernel answers EINVAL."""
    root = host.delegated()
    root.write("cgroup.subtree_control", "+cpu +memory")
    a, b, c = (root.make(name) for name in POLICY)
    b.write("cpu.idle", 1)
    for tenant in (a, b, c):
        host.burn(tenant, host.cpus)
    before = settings(root)
    daemon = host.daemon(host.policy(POLICY), root)
    daemon.until(lambda: written([a, c]), "the weights of the other two")
    daemon.says("b/cpu.weight", "Invalid argument", "cpu.idle is 1 there")
    assert daemon.terminate() == 0, daemon.log()
    expect_same(before, settings(root))


def test_without_pressure_information_it_still_shares(host):
    """As on a kernel without PSI: no /proc/pressure, no *.pressure in the tenants' cgroups."""
    root = host.delegated()
    tenants = make_lived_in(root)
    for tenant in tenants:
        tenant.write("cgroup.pressure", 0)
        host.burn(tenant, host.cpus)
    before = settings(root)
    hide = 'mount -t tmpfs none /proc/pressure && exec "$@"'
    prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", hide, "sh"]
    daemon = host.daemon(host.policy(POLICY), root, prefix=prefix)
    daemon.until(lambda: written(tenants), "the weights of the policy")
    time.sleep(2)
    assert daemon.terminate() == 0, daemon.log()
    expect_same(before, settings(root))


@core
def test_a_memory_limit_below_usage_kills_no_process(host):
    root = host.delegated()
    root.write("cgroup.subtree_control", "+cpu +memory")
    a = root.make("a")
    holder = host.fill(a, 200)
    before = settings(root)
    daemon = host.daemon(host.policy({"a": {"limit": {"memory": "96MiB"}}}), root)
    daemon.until(
        lambda: a.read("memory.max") != "max" or "memory limit" in daemon.log(),
        "the limit, or why it is not set",
    )
    time.sleep(8)
    host.note(f"200 MiB held under a limit of 96 MiB: memory.max is {a.read('memory.max')}")
    assert holder.poll() is None, "the tenant's process was killed"
    assert a.stat("memory.events", "oom_kill") == 0
    assert daemon.terminate() == 0, daemon.log()
    expect_same(before, settings(root))


def test_full_disk_under_the_journal_changes_nothing(host):
    """What could not be put back after a crash must not be changed."""
    root = host.delegated()
    make_lived_in(root)
    before = settings(root)
    state = host.folder()
    run("mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "none", str(state))
    host.cleanup.callback(run, "umount", str(state))
    with open(state / "ballast", "wb", buffering=0) as ballast:
        try:
            while ballast.write(b"x" * 4096):
                pass
        except OSError:
            pass
    daemon = host.daemon(host.policy(POLICY), root, state=state)
    wait_until(lambda: "No space left" in daemon.log() or not daemon.running(), "a word about the full disk")
    time.sleep(3)
    expect_same(before, settings(root))
    if daemon.running():
        daemon.terminate()
    assert "panicked" not in daemon.log(), daemon.log()
    assert "No space left" in daemon.log(), f"not a word about the full disk: {daemon.log()}"
    expect_same(before, settings(root))


def test_a_truncated_journal_does_not_panic(host):
    root = host.delegated()
    tenants = make_lived_in(root)
    state = host.folder()
    daemon = host.daemon(host.policy(POLICY), root, state=state)
    daemon.until(lambda: written(tenants), "the weights of the policy")
    daemon.murder()
    for file in state.iterdir():
        if file.is_file():
            os.truncate(file, file.stat().st_size * 2 // 3)
    again = host.daemon(host.policy(POLICY), root, state=state)
    wait_until(lambda: "started on" in again.log() or not again.running(), "a start, or why there is none")
    time.sleep(3)
    if again.running():
        assert again.terminate() == 0, again.log()
    else:
        assert again.process.returncode in (1, 78), again.log()
    assert "panicked" not in again.log(), again.log()
