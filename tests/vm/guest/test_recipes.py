"""Recipes of docs/hosts.md whose hosts are unlike the others: a container without systemd, programs that count CPUs, many
agents that start builds, and a cluster of workers in one slice."""

import json
import time

from cgroups import MOUNT, Cgroup, telling, wait_until
from host import BIN, TENANTCTL, Skip, finish, run
from marks import long, newer
from test_nri import everywhere
from test_systemd import Host, policy
from units import start
import fairness

SETTLE_SECONDS = 5
# Of docs/hosts.md: the first process of a container without systemd.
ENTRY = """
mkdir -p /sys/fs/cgroup/init
for pid in $(cat /sys/fs/cgroup/cgroup.procs); do echo $pid >/sys/fs/cgroup/init/cgroup.procs 2>/dev/null; done
echo "+cpu +memory +pids" >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/tenants
"""
# A program that starts as many threads as it sees CPUs, in rounds, as steps of a build do.
ROUNDS = """
import os, multiprocessing, sys, time
def burn(end):
    while time.monotonic() < end: pass
while True:
    width = len(os.sched_getaffinity(0))
    open(sys.argv[1], "w").write(str(width))
    team = [multiprocessing.Process(target=burn, args=(time.monotonic() + 2,)) for _ in range(width)]
    [one.start() for one in team], [one.join() for one in team]
"""
# Workers in sessions of their own, as many as CPUs.
WORKERS = """
import os, time
for _ in range(len(os.sched_getaffinity(0)) + 2):
    if os.fork() == 0:
        os.setsid()
        while True: pass
time.sleep(1e6)
"""


def people(host, **uids):
    for name, uid in uids.items():
        run("useradd", "--create-home", f"--uid={uid}", name)
        host.cleanup.callback(run, "userdel", "--force", "--remove", name)


@long
@newer
def test_a_login_node_in_a_container_without_systemd(host):
    people(host, ana=1000, ben=1001)
    folder = host.folder()
    each = {"match": {"users": "*", "move": True}, "weight": 1}
    written = policy(host, {"people": {"weight": 1, "each": each}})
    burn = lambda uid: f"setpriv --reuid={uid} --regid={uid} --clear-groups sh -c 'while :; do :; done' &\n"
    daemon = f"exec {BIN}/tenantd --policy {written} --root /tenants --state-dir {folder}/state --socket {folder}/socket\n"
    entry = folder / "entry"
    entry.write_text(f"{ENTRY}{burn(1000)}{burn(1001) * 5}{daemon}")
    mounts = [f"--volume={path}:{path}" for path in ("/payload", folder, written.parent)]
    fixed = ["--detach", "--privileged", "--cgroupns=private", "--network=none", "--systemd=false", "--name=node"]
    host.cleanup.callback(finish, ["systemctl", "stop", "machine.slice"])
    host.cleanup.callback(finish, ["podman", "rm", "--all", "--force", "--time", "0"])
    run("podman", "run", *fixed, *mounts, "--rootfs", "/:O", "/bin/sh", str(entry))
    told = lambda: (lambda done: done.stdout + done.stderr)(finish(["podman", "logs", "node"]))
    found = lambda name: [group for group in Cgroup(MOUNT / "machine.slice").below() if group.path.name == name]
    with telling(told):
        wait_until(lambda: all(found(name) and found(name)[0].stat("cgroup.events", "populated") for name in ("ana", "ben")), "both at work in their tenants")
    time.sleep(SETTLE_SECONDS)
    groups = [found(name)[0] for name in ("ana", "ben")]
    doubt = fairness.doubt_of_shares(host, groups, [0.5, 0.5], "one process of one user, five of the other")
    # The daemon is the first process: it restores, and ends the container.
    run("podman", "kill", "--signal=TERM", "node")
    with telling(told):
        wait_until(lambda: run("podman", "inspect", "--format={{.State.Status}} {{.State.ExitCode}}", "node").strip() == "exited 0", "an orderly end")
    if doubt:
        raise Skip(doubt)


@long
@newer
def test_runners_that_count_cpus_see_their_share(host):
    folder = host.folder()
    (folder / "rounds.py").write_text(ROUNDS)
    names = ["a", "b"]
    tenants = {name: {"match": {"unit": f"runner-{name}.service"}, "cpus": "dop"} for name in names}
    for name in names:
        start(host, f"runner-{name}.service", "python3", "-B", f"{folder}/rounds.py", f"{folder}/{name}")
    world = Host(*(f"runner-{name}.service" for name in names))
    daemon = host.daemon(policy(host, tenants), None)
    width = lambda name: int((folder / name).read_text() or 0)
    daemon.until(lambda: [width(name) for name in names] == [1, 1], "each to see half of the CPUs")
    Cgroup(MOUNT / "system.slice/runner-b.service").write("cgroup.freeze", 1)
    daemon.until(lambda: width("a") == host.cpus, "one to see all CPUs, while the other sleeps")
    Cgroup(MOUNT / "system.slice/runner-b.service").write("cgroup.freeze", 0)
    daemon.until(lambda: [width(name) for name in names] == [1, 1], "each to see half of the CPUs again")
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)


@long
@newer
def test_agents_share_whatever_they_start(host):
    people(host, agents=1000)
    state = host.folder()
    for place in (state, state.parent):
        place.chmod(0o711)
    each = {"match": {"unit": "agent-*.service"}, "weight": 1, "allow": {"users": ["agents"]}, "limit": {"pids": 256}}
    # Jobs of a unit have cgroups below that of the daemon.
    daemon = host.daemon(policy(host, {"agents": {"each": each}}), host.delegated(), state=state)
    socket = daemon.answering()
    job = f"{TENANTCTL} --socket {socket} run --tenant agents/$AGENT.service -- sh -c 'while :; do :; done'"
    # An agent is a tenant with the first tick after its start.
    build = f"(until {job}; do sleep 1; done) &\n"
    # One thinks for itself; the other also starts builds.
    scripts = {"agent-a": everywhere(host), "agent-b": "while :; do :; done &\n" * 6 + build * 2 + "wait"}
    for name, script in scripts.items():
        start(host, f"{name}.service", "/bin/sh", "-c", script, User="agents", Environment=f"AGENT={name}")
    jobs = lambda: host.ctl("jobs", "--json", "--socket", socket).stdout
    unit_logs = lambda: finish(["journalctl", "--no-pager", "-n", "20", "-u", "agent-*.service"]).stdout
    with telling(lambda: f"{daemon.log()}\n{jobs()}\n{unit_logs()}"):
        wait_until(lambda: '"running"' in jobs() and "agents/agent-b.service" in jobs(), "a build of an agent to run as a job")
    time.sleep(SETTLE_SECONDS)
    whole = Usage(host, socket, [f"agents/{name}.service" for name in scripts])
    doubt = fairness.doubt_of(host, lambda: whole.looks_like([0.5, 0.5]), "one agent with two processes, one with six and builds")
    for name in scripts:
        run("systemctl", "stop", f"{name}.service")
    # A build is not in the unit of its agent.
    for job in json.loads(jobs())["jobs"]:
        host.ctl("cancel", job["id"], "--socket", socket)
    daemon.until(lambda: json.loads(jobs())["jobs"] == [], "the builds to end")
    assert daemon.terminate() == 0, daemon.log()
    if doubt:
        raise Skip(doubt)


class Usage:
    """What tenants use by the status, which counts their jobs."""

    def __init__(self, host, socket, tenants):
        self.host, self.socket, self.tenants = host, socket, tenants

    def looks_like(self, want):
        used = dict.fromkeys(self.tenants, 0.0)
        for _ in range(int(fairness.WINDOW_SECONDS)):
            time.sleep(1)
            status = json.loads(self.host.ctl("status", "--json", "--socket", self.socket).stdout)
            for tenant in status["tenants"]:
                if tenant["name"] in used:
                    used[tenant["name"]] += tenant["usage_cores"] or 0
        measured = [part / sum(used.values()) for part in used.values()]
        error = max(abs(m - w) for m, w in zip(measured, want))
        return error <= fairness.SHARE_ERROR_MAX, f"measured {', '.join(f'{m:.3f}' for m in measured)}; largest error {error:.3f}"


@long
@newer
def test_workers_of_a_cluster_stay_in_their_slice(host):
    world = Host()
    daemon = host.daemon(policy(host, {"ray": {"weight": 1, "owner": "systemd"}, "web": {"weight": 1, "match": {"unit": "web.service"}}}), None)
    slice = Cgroup(MOUNT / "tenants.slice/tenants-ray.slice")
    daemon.until(slice.exists, "the slice")
    start(host, "ray-head.service", "python3", "-c", WORKERS, slice="tenants-ray.slice")
    start(host, "web.service", "/bin/sh", "-c", everywhere(host))
    web = Cgroup(MOUNT / "system.slice/web.service")
    time.sleep(2 * SETTLE_SECONDS)
    doubt = fairness.doubt_of_shares(host, [slice, web], [0.5, 0.5], "a cluster of workers beside a service")
    run("systemctl", "stop", "ray-head.service", "web.service")
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)
    if doubt:
        raise Skip(doubt)
