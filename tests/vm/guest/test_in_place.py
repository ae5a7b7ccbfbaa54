"""Cgroups that are there already, weighed where they are, beside units of systemd."""

import json
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, wait_until
from host import TENANTCTL, Skip, finish
from marks import alone, both
from test_systemd import Host, policy
from units import show, start
import fairness

BURN = "while :; do :; done"

# A container engine: cgroups of its own below its service, and work in one of them.
ENGINE = """
own=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)
mkdir -p $own/main $own/boxes/one $own/boxes/two
echo $$ > $own/main/cgroup.procs
echo '+cpu +memory' > $own/cgroup.subtree_control
echo '+cpu +memory' > $own/boxes/cgroup.subtree_control
echo 300 > $own/boxes/two/cpu.weight
echo $$ > $own/boxes/one/cgroup.procs
"""


@alone
@both
def test_a_cgroup_below_a_delegated_service_is_weighed_against_a_service(host):
    everywhere = f"{BURN} &\n" * host.cpus + "wait"
    # On a command line systemd would take `$` for its own.
    engine = host.folder() / "engine.sh"
    engine.write_text(ENGINE + everywhere)
    start(host, "engine.service", "/bin/sh", str(engine), Delegate="yes")
    start(host, "web.service", "/bin/sh", "-c", everywhere)
    engine = MOUNT / "system.slice/engine.service"
    box, boxes, other = (Cgroup(engine / path) for path in ("boxes/one", "boxes", "boxes/two"))
    web = Cgroup(MOUNT / "system.slice/web.service")
    populated = lambda: box.exists() and box.stat("cgroup.events", "populated")
    wait_until(populated, "work in the cgroup of the engine")
    world = Host("system.slice", "engine.service", "web.service")
    state = host.folder()
    daemon = host.daemon(
        policy(
            host,
            {
                "box": {
                    "weight": 300,
                    "match": {"cgroup": "/system.slice/engine.service/boxes/one"},
                },
                # What systemd made is changed through it.
                "web": {"match": {"cgroup": "/system.slice/web.service"}},
            },
        ),
        None,
        state=state,
    )

    def is_weighed():
        service, unit = (int(Cgroup(path).read("cpu.weight")) for path in (engine, web.path))
        return 2.5 * unit < service < 3.5 * unit

    daemon.until(is_weighed, "the weights of both services")
    daemon.until(lambda: show("web.service", "CPUWeight") == web.read("cpu.weight"), "systemd to know")
    daemon.until(lambda: boxes.read("memory.low") != "0", "the protection between them")
    time.sleep(3)
    want = fairness.entitled_shares([300, 100], [float(host.cpus)] * 2, host.cpus)
    assert populated() and other.read("cpu.weight") == "300", "another's cgroup was changed"
    doubt = fairness.doubt_of_shares(host, [box, web], want, "both want every CPU")
    for what in ("cpu weights are ineffective between", "memory.low is ineffective"):
        assert what not in daemon.log(), daemon.log()
    daemon.murder()
    assert int(box.read("memory.low")) > 0, "nothing was held"
    daemon = host.daemon(policy(host, {"web": {"match": {"unit": "web.service"}}}), None, state=state)
    daemon.until(lambda: box.read("memory.low") == "0", "what the killed one left to be restored")
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)
    if doubt:
        raise Skip(doubt)


@both
def test_running_work_is_handed_to_a_tenant(host):
    """A cgroup of a delegated service by root, and a process of his own by a user whom the policy allows."""
    engine = host.folder() / "engine.sh"
    engine.write_text(ENGINE + "while :; do sleep 1; done")
    start(host, "engine.service", "/bin/sh", str(engine), Delegate="yes")
    start(host, "mine.service", "/bin/sh", "-c", "sleep infinity & sleep infinity", User="nobody")
    engine, mine = (Cgroup(MOUNT / "system.slice" / name) for name in ("engine.service", "mine.service"))
    box, other = (Cgroup(engine.path / path) for path in ("boxes/one", "boxes/two"))
    wait_until(lambda: box.exists() and box.stat("cgroup.events", "populated"), "work in the cgroup of the engine")
    wait_until(lambda: len(mine.pids()) == 3, "the processes of the user")
    root = host.delegated()
    world = Host("system.slice", "engine.service", "mine.service")
    child = mine.pids()[-1]
    place = lambda pid: Path(f"/proc/{pid}/cgroup").read_text().strip()
    state = host.folder()
    state.chmod(0o711)
    state.parent.chmod(0o711)
    tenants = {"a": {"guarantee": {"memory": "64MiB"}}, "b": {"allow": {"users": ["nobody"]}}}

    def begin():
        started = host.daemon(host.policy(tenants), root, state=state)
        started.answering()
        return started

    daemon = begin()

    def ask(*arguments, user=None):
        prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return finish([*prefix, str(TENANTCTL), "--socket", str(daemon.state / "socket"), *map(str, arguments)])

    def expect(status, done):
        assert done.returncode == status, (status, done.returncode, done.stdout, done.stderr, daemon.log())
        return done

    expect(0, ask("attach", "a", "--cgroup", "/system.slice/engine.service/boxes/one"))
    daemon.until(lambda: box.read("memory.min") + box.read("memory.low") != "00", "its protection")
    refused = expect(1, ask("attach", "b", child, user=65534))
    assert "--leave-unit" in refused.stderr and "mine.service" in refused.stderr, refused.stderr
    expect(77, ask("attach", "a", "--leave-unit", child, user=65534))
    expect(77, ask("attach", "b", "--leave-unit", box.pids()[0], user=65534))
    expect(0, ask("attach", "b", "--leave-unit", child, user=65534))
    assert place(child).endswith("/tenants/b"), place(child)
    daemon.until(lambda: ask("explain", "a", "--json").returncode == 0, "the explanation")
    members = json.loads(ask("explain", "a", "--json").stdout)["members"]
    assert [member["cgroup"] for member in members if member["is_attached"]] == [
        "/system.slice/engine.service/boxes/one"
    ], members
    # A restart, and a kill.
    for end in (daemon.terminate, None):
        assert end is None or end() == 0, daemon.log()
        if end is None:
            daemon.murder()
        else:
            assert place(child).endswith("/mine.service") and box.read("memory.low") == "0", daemon.log()
        daemon = begin()
        # The socket of one that was killed is still there.
        daemon.until(lambda: ask("status").returncode == 0, "an answer")
        daemon.until(lambda: place(child).endswith("/tenants/b"), "the process to be in its tenant again")
        daemon.until(lambda: box.read("memory.min") + box.read("memory.low") != "00", "its protection again")
    expect(0, ask("detach", child, user=65534))
    assert place(child).endswith("/mine.service"), place(child)
    assert daemon.terminate() == 0, daemon.log()
    assert other.read("cpu.weight") == "300", "another's cgroup was changed"
    world.expect_as_before(daemon.log)
