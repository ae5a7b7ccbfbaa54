"""Jobs of Slurm, on a cluster of one node: an account is a tenant, whatever the number of its jobs."""

import shutil
import socket
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, telling, wait_until
from host import finish, run
from marks import both, long, newer
from test_systemd import Host
from test_units import SERVICE, install, log, settle
import fairness

FOLDER = Path("/var/tmp/slurm")
SCRIPTS = Path("/payload/slurm")
# Debian builds Slurm for several node daemons on one host.
SCOPE = Cgroup(MOUNT / f"system.slice/{socket.gethostname()}_slurmstepd.scope")
CONFIGURATION = """
ClusterName=guest
SlurmctldHost={name}(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ReturnToService=2
MpiDefault=none
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmdTimeout=0
Prolog={folder}/prolog.sh
Epilog={folder}/epilog.sh
PrologFlags=Alloc
NodeName={name} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# Nothing is confined: jobs have to share.
CGROUPS = "CgroupPlugin=cgroup/v2\nConstrainCores=no\nConstrainRAMSpace=no\n"


# The share tree of Slurm is in a database.
ACCOUNTING = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
PriorityType=priority/multifactor
"""
DATABASE = """
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
"""


class Cluster:
    """Controller and node daemon on this machine, with the prolog of the package."""

    def __init__(self, host, accounts=None):
        """`accounts`: those of the share tree, each with its parent and its shares; without them there is no database."""
        self.host = host
        for folder in (FOLDER, FOLDER / "state", FOLDER / "spool"):
            folder.mkdir()
            shutil.chown(folder, "slurm", "slurm")
        host.cleanup.callback(shutil.rmtree, FOLDER)
        for script in SCRIPTS.glob("*.sh"):
            shutil.copy(script, FOLDER)
        # Without any address but 127.0.0.1 the resolver (AI_ADDRCONFIG) has none to listen on.
        address = ["192.0.2.1/32", "dev", "lo"]
        host.cleanup.callback(finish, ["ip", "address", "del", *address])
        run("ip", "address", "add", *address)
        configuration = CONFIGURATION.format(name=socket.gethostname(), folder=FOLDER)
        written = {"slurm.conf": configuration + (ACCOUNTING if accounts else ""), "cgroup.conf": CGROUPS}
        if accounts:
            written["slurmdbd.conf"] = DATABASE.format(folder=FOLDER)
        for name, text in written.items():
            file = Path("/etc/slurm", name)
            file.write_text(text)
            host.cleanup.callback(file.unlink)
        units = ["slurmd.service", "slurmctld.service", "munge.service"]
        host.cleanup.callback(wait_until, lambda: not SCOPE.exists(), "the scope of Slurm's to go")
        host.cleanup.callback(finish, ["systemctl", "stop", *units, SCOPE.path.name])
        if accounts:
            self.store(accounts)
        run("systemctl", "start", *reversed(units))
        with telling(self.log):
            wait_until(lambda: "idle" in finish(["sinfo", "--noheader", "--format=%T"]).stdout, "an idle node")

    def store(self, accounts):
        """Starts the database, and puts the tree of accounts into it."""
        shutil.chown("/etc/slurm/slurmdbd.conf", "slurm", "slurm")
        Path("/etc/slurm/slurmdbd.conf").chmod(0o600)
        self.host.cleanup.callback(finish, ["systemctl", "stop", "slurmdbd.service", "mariadb.service"])
        run("systemctl", "start", "mariadb.service", "munge.service")
        run("mariadb", "-e", "CREATE DATABASE slurm; GRANT ALL ON slurm.* TO slurm@localhost IDENTIFIED BY 'slurm'")
        run("systemctl", "start", "slurmdbd.service")
        with telling(self.log):
            wait_until(lambda: finish(["sacctmgr", "-i", "add", "cluster", "guest"]).returncode == 0, "the database")
        for name, parent, shares in accounts:
            run("sacctmgr", "-i", "add", "account", name, f"parent={parent}", f"fairshare={shares}")
            run("sacctmgr", "-i", "add", "user", "root", f"account={name}")

    @staticmethod
    def log():
        texts = [path.read_text(errors="replace")[-3000:] for path in sorted(FOLDER.glob("*.log"))]
        return "\n".join([*texts, finish(["sinfo"]).stdout, finish(["squeue"]).stdout])

    def submit(self, account, processes=1):
        """A job that keeps so many CPUs busy; returns its cgroup once it runs there."""
        script = "while :; do :; done &\n" * processes + "wait"
        options = ["--parsable", f"--account={account}", "--ntasks=1", "--chdir=/tmp", "--output=/dev/null"]
        number = run("sbatch", *options, f"--wrap={script}").strip()
        job = SCOPE.child(f"job_{number}")
        with telling(self.log):
            wait_until(lambda: job.stat("cgroup.events", "populated"), f"job {number} of {account} to run")
        return job

    def cancel(self, *jobs):
        run("scancel", *(job.path.name.removeprefix("job_") for job in jobs))
        with telling(self.log):
            wait_until(lambda: not any(job.exists() for job in jobs), "the jobs to end")


@long
@both
def test_accounts_share_a_node_whatever_the_number_of_their_jobs(host):
    cluster = Cluster(host)
    install(host, {"physics": {"weight": 3}, "biology": {"weight": 1}})
    settle()
    # What Slurm enables for its first job stays.
    cluster.cancel(cluster.submit("nobody"))
    world = Host("system.slice", SCOPE.path.name)
    run("systemctl", "start", SERVICE)
    one = cluster.submit("physics", host.cpus)
    many = [cluster.submit("biology") for _ in range(5)]

    def is_weighed():
        weights = [int(job.read("cpu.weight")) for job in [one, *many]]
        return weights[0] > 2.5 * sum(weights[1:])

    told = lambda: f"{log()}\n{cluster.log()}"
    with telling(told):
        wait_until(is_weighed, "the weights of the jobs")
    time.sleep(5)
    fairness.expect_shares(host, [one, *many], [0.75, *[0.05] * 5], "one job of one account, five of the other")
    cluster.cancel(*many[1:])
    time.sleep(5)
    # The one that is left wants one CPU, of which it is entitled to half.
    fairness.expect_shares(host, [one, many[0]], [0.75, 0.25], "one job each")
    run("systemctl", "restart", SERVICE)
    with telling(told):
        wait_until(lambda: int(one.read("cpu.weight")) > 2.5 * int(many[0].read("cpu.weight")), "the jobs to be known again")
    # An allocation without a step leaves neither a cgroup nor a member.
    for _ in range(5):
        run("salloc", "--account=physics", "--nodes=1", "true")
    with telling(told):
        jobs = {one.path.name, many[0].path.name}
        wait_until(lambda: {path.name for path in SCOPE.path.glob("job_*")} == jobs, "allocations without a step to go")
    stranger = cluster.submit("nobody")
    assert stranger.exists()
    cluster.cancel(one, many[0], stranger)
    run("systemctl", "stop", SERVICE)
    world.expect_as_before(told)


@long
@newer
def test_weights_are_those_of_the_share_tree(host):
    cluster = Cluster(host, [("physics", "root", 60), ("optics", "physics", 3), ("biology", "root", 20)])
    with telling(cluster.log):
        wait_until(lambda: "optics" in finish(["sshare", "--noheader", "--all"]).stdout, "the share tree")
    written = run(str(FOLDER / "weights.sh"))
    install(host, {"biology": {"weight": 1}})
    policy = Path("/etc/tenantd/tenants.yaml")
    policy.write_text(written + "mode: enforce\ncontrol: { interval: 1s }\n")
    assert finish(["/usr/bin/tenantctl", "check", str(policy)]).returncode == 0, written
    run("systemctl", "start", SERVICE)
    told = lambda: f"{written}\n{log()}\n{cluster.log()}"
    jobs = [cluster.submit("optics", host.cpus), cluster.submit("physics", host.cpus), cluster.submit("biology", host.cpus)]

    def is_weighed():
        optics, physics, biology = (int(job.read("cpu.weight")) for job in jobs)
        # 60 : 20 between the accounts at the top; 3 : 1 between `optics` and the users of `physics` itself.
        return 1.8 * biology < optics < 2.7 * biology and 2.5 * physics < optics < 3.5 * physics

    with telling(told):
        wait_until(is_weighed, "the weights of the jobs")
    cluster.cancel(*jobs)
    run("systemctl", "stop", SERVICE)


# Takes 200 MiB, once its job has the limit.
TAKE = "import time; time.sleep(5); held = [bytearray(b'x') * (1 << 20) for _ in range(200)]; time.sleep(1e6)"


@long
@newer
def test_the_reason_of_an_end_is_in_the_comment_of_the_job(host):
    cluster = Cluster(host, [("physics", "root", 1)])
    install(host, {"physics": {"weight": 1}})
    settle()
    run("systemctl", "start", SERVICE)
    options = ["--parsable", "--account=physics", "--ntasks=1", "--chdir=/tmp", "--output=/dev/null"]
    job = lambda script: run("sbatch", *options, f"--wrap={script}").strip()
    told = lambda: f"{log()}\n{cluster.log()}\n{run('journalctl', '--no-pager', '-o', 'cat', '-t', 'tenantd-epilog', '-t', 'tenantd-prolog')}"
    calm, greedy = job("true"), job(f'exec python3 -c "{TAKE}"')
    with telling(told):
        limit = SCOPE.child(f"job_{greedy}").path / "memory.max"
        wait_until(limit.exists, "the memory of the job to be counted")
        limit.write_text(str(64 << 20))
        ended = lambda number: run("sacct", "--noheader", "--parsable2", "--allocations", "--format=State,SystemComment", f"--jobs={number}").strip()
        wait_until(lambda: "tenantd: " in ended(greedy), "the comment of the job")
    host.note(ended(greedy))
    assert f"job_{greedy} was reached" in ended(greedy), ended(greedy)
    assert ended(calm) == "COMPLETED|", ended(calm)
    # The node takes the next job.
    wait_until(lambda: "idle" in finish(["sinfo", "--noheader", "--format=%T"]).stdout, "an idle node")
    run("systemctl", "stop", SERVICE)
