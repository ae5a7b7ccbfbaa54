"""One host, three engines: services of systemd, jobs of Slurm and pods below a CRI, of the same two tenants at once."""

import time

from cgroups import MOUNT, Cgroup, telling, wait_until
from cri import Containerd
from host import Skip, finish, run
from marks import long, newer
from test_nri import NRI, attached, everywhere, plugin_log, slice_of, start_plugin, uid, weight
from test_slurm import SCOPE, Cluster
from test_systemd import drop_ins
from test_units import SERVICE, install, log, settle
from units import start
import fairness

TENANTS = {"shop": 3, "bank": 1}
SETTLE_SECONDS = 5


class Together:
    """Several cgroups, as one."""

    def __init__(self, groups):
        self.groups = groups

    def usage_usec(self):
        return sum(group.usage_usec() for group in self.groups)


def service(host, tenant):
    unit = start(host, f"{tenant}-api.service", "/bin/sh", "-c", everywhere(host))
    return Cgroup(MOUNT / "system.slice" / unit)


@long
@newer
def test_two_tenants_share_a_host_of_three_engines(host):
    cluster = Cluster(host)
    # Jobs of Slurm are attached by the names of their accounts.
    match = lambda name: {"unit": f"{name}-*.service", "pod": {"namespace": name}}
    install(host, {name: {"weight": weight, "match": match(name)} for name, weight in TENANTS.items()})
    settle()
    # What Slurm enables for its first job stays.
    cluster.cancel(cluster.submit("nobody"))
    containerd = Containerd(host)
    host.cleanup.callback(finish, ["systemctl", "stop", "kubepods.slice"])
    services, jobs, pods = {tenant: service(host, tenant) for tenant in TENANTS}, {}, {}
    # containerd enables controllers of the whole tree for its pods, so of the host only what tenantd writes is compared.
    now = lambda: (drop_ins(), [weight(group) for group in (Cgroup(MOUNT / "system.slice"), SCOPE, *services.values())])
    before = now()
    run("systemctl", "start", SERVICE)
    start_plugin(host)
    told = lambda: f"{log()}\n{plugin_log()}\n{cluster.log()}"
    for number, tenant in enumerate(TENANTS):
        jobs[tenant] = cluster.submit(tenant, host.cpus)
        slice, pods[tenant] = slice_of(number)
        containerd.pod(tenant, "web", uid(number), everywhere(host), slice)
    with telling(told):
        for tenant in TENANTS:
            wait_until(lambda: {jobs[tenant].name, pods[tenant].name} <= set(attached(host, tenant)), f"the work of {tenant}")
    time.sleep(SETTLE_SECONDS)
    works = [Together([services[tenant], jobs[tenant], pods[tenant]]) for tenant in TENANTS]
    doubts = [fairness.doubt_of_shares(host, works, [0.75, 0.25], "each tenant in three engines")]
    # One of them loses an engine, and keeps its share.
    cluster.cancel(jobs["shop"])
    time.sleep(SETTLE_SECONDS)
    left = [Together([services["shop"], pods["shop"]]), works[1]]
    doubts.append(fairness.doubt_of_shares(host, left, [0.75, 0.25], "one without its job of Slurm"))
    for what in ("cpu weights are ineffective between", "memory.low is ineffective"):
        assert what not in log(), told()
    cluster.cancel(jobs["bank"])
    containerd.remove_all()
    run("systemctl", "stop", NRI, SERVICE)
    run("systemctl", "stop", "kubepods.slice")
    with telling(told):
        wait_until(lambda: now() == before, f"weights and drop-ins as before, {before}")
    if any(doubts):
        raise Skip(next(filter(None, doubts)))
