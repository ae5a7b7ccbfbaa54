"""Pods below a CRI: the policy chooses their tenants by namespace and label, as the plugin of containerd's NRI reports them."""

import json
import shutil
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, telling, wait_until
from cri import Containerd
from host import BIN, finish, run
from marks import long, newer
from test_units import SERVICE, SYSTEMD, UNITS, install, log, settle
import fairness

NRI = "tenantd-nri.service"
SETTLE_SECONDS = 5


def everywhere(host):
    return "while :; do :; done &\n" * host.cpus + "wait"


def uid(number):
    return f"2b9f4c1e-7c52-4a4e-8f1b-{number:012}"


def slice_of(number):
    """The slice that a kubelet makes for a pod, and its cgroup."""
    name = f"kubepods-pod{uid(number).replace('-', '_')}.slice"
    return name, Cgroup(MOUNT / "kubepods.slice" / name)


def slice_path(number):
    return f"/kubepods.slice/{slice_of(number)[0]}"


def weight(group):
    """The weight of a cgroup; where systemd does not give it the controller, the kernel's own."""
    return int(group.read_or("cpu.weight", "100"))


def start_plugin(host):
    program, unit = Path("/usr/bin/tenantd-nri"), UNITS / NRI
    for source, to in ((BIN / "tenantd-nri", program), (SYSTEMD / NRI, unit)):
        shutil.copy(source, to)
        host.cleanup.callback(to.unlink)
    run("systemctl", "daemon-reload")
    host.cleanup.callback(finish, ["systemctl", "stop", NRI])
    run("systemctl", "start", NRI)


def plugin_log():
    return run("journalctl", "--no-pager", "-o", "cat", "-u", NRI)


@long
@newer
def test_namespaces_of_pods_are_tenants(host):
    shop = {"weight": 3, "match": {"pod": {"namespace": "shop"}}}
    spaces = {"weight": 1, "each": {"match": {"pod": {"namespace": ["bank", "till"]}}}}
    teams = {"weight": 1, "each": {"match": {"pod": {"label": "team=*"}}}}
    install(host, {"shop": shop, "spaces": spaces, "teams": teams})
    settle()
    containerd = Containerd(host)
    told = lambda: f"{log()}\n{plugin_log()}\n{containerd.log()}"
    host.cleanup.callback(finish, ["systemctl", "stop", "kubepods.slice"])
    burn = everywhere(host)
    groups = [slice_of(number)[1] for number in range(3)]
    # One runs before the plugin is there.
    containerd.pod("shop", "web", uid(0), burn, slice_of(0)[0])
    before = weight(groups[0])
    run("systemctl", "start", SERVICE)
    start_plugin(host)
    first, _ = containerd.pod("bank", "ledger", uid(1), burn, slice_of(1)[0])
    containerd.pod("bank", "ledger-2", uid(2), burn, slice_of(2)[0])

    def is_weighed():
        weights = [weight(group) for group in groups]
        return weights[0] > 2.5 * sum(weights[1:])

    with telling(told):
        wait_until(is_weighed, "the weights of the pods")
    time.sleep(SETTLE_SECONDS)
    fairness.expect_shares(host, groups, [0.75, 0.125, 0.125], "one pod of a namespace, two of the other")
    # In a slice that is not one pod's the container's own cgroup is a member; a namespace without a tenant stays out.
    _, loose = containerd.pod("bank", "loose", "short", "sleep infinity", "kubepods-shared.slice")
    stranger, _ = containerd.pod("stranger", "some", uid(3), "sleep infinity", slice_of(3)[0])
    scope = f"/kubepods.slice/kubepods-shared.slice/cri-containerd-{loose}.scope"
    with telling(told):
        wait_until(lambda: scope in attached(host, "spaces/bank"), "the scope of a container to be a member")
        wait_until(lambda: "this pod of the namespace `stranger`" in plugin_log(), "a line about the stranger")
    assert weight(slice_of(3)[1]) == 100, told()
    # A label gives it a tenant.
    labelled, _ = containerd.pod("stranger", "red", uid(4), "sleep infinity", slice_of(4)[0], {"team": "red"})
    with telling(told):
        wait_until(lambda: attached(host, "teams/red") == [slice_path(4)], "the tenant of a label")
    containerd.remove(labelled)
    containerd.remove(stranger)
    containerd.remove(first)
    # As a kubelet does.
    run("systemctl", "stop", slice_of(1)[0])
    with telling(told):
        wait_until(lambda: groups[1].path.name not in str(attached(host, "spaces/bank")), "the ended pod to be forgotten")
    time.sleep(SETTLE_SECONDS)
    fairness.expect_shares(host, [groups[0], groups[2]], [0.75, 0.25], "one pod each")
    # A plugin that starts again takes what runs.
    run("systemctl", "restart", NRI)
    with telling(told):
        wait_until(lambda: "containerd runs 3 containers" in plugin_log(), "the pods to be known again")
    # Another policy chooses anew, and a restarted tenantd knows the pods.
    bank = {"weight": 1, "match": {"pod": {"namespace": "bank"}}}
    shutil.copy(host.policy({"shop": shop, "bank": bank}), "/etc/tenantd/tenants.yaml")
    run("systemctl", "reload", SERVICE)
    with telling(told):
        wait_until(lambda: slice_path(2) in attached(host, "bank"), "the pod in the tenant of the other policy")
    run("systemctl", "stop", NRI)
    run("systemctl", "restart", SERVICE)
    with telling(told):
        wait_until(lambda: slice_path(2) in attached(host, "bank"), "the pod after a restart")
    run("systemctl", "start", NRI)
    # Without tenantd the pods go on as before.
    run("systemctl", "stop", SERVICE)
    with telling(told):
        wait_until(lambda: weight(groups[0]) == before, "the weight from before")
    containerd.remove_all()
    assert "containerd closed" not in plugin_log(), plugin_log()


def attached(host, tenant):
    """Cgroups that are attached to a tenant."""
    status = json.loads(host.installed("status", "--json").stdout)
    return [cgroup for it in status["attached"] if it["tenant"] == tenant for cgroup in it["cgroups"]]
