"""Cgroups that are there already, weighed where they are, beside units of systemd."""

import time

from cgroups import MOUNT, Cgroup, wait_until
from host import Skip
from marks import both
from test_systemd import Host, policy, show, start
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
