"""Jobs of HTCondor, in a pool of one machine: an accounting group is a tenant, whatever the number of its jobs."""

import shutil
import socket
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, telling, wait_until
from host import finish, run
from marks import long, newer
from test_systemd import Host
from test_units import SERVICE, install, log, settle
import fairness

WRAPPER = Path("/payload/htcondor/wrapper.sh")
UNIT = "condor.service"
CONFIGURATION = Path("/etc/condor/config.d/50-guest")
# A job has a /tmp and a /var/tmp of its own.
FOLDER = Path("/srv/condor")
HOSTS = Path("/etc/hosts")
# More slots than CPUs: jobs have to share. Nobody waits for a timer of the pool.
SETTINGS = f"""
CONDOR_HOST = 127.0.0.1
NETWORK_INTERFACE = 127.0.0.1
ENABLE_IPV6 = FALSE
NUM_CPUS = 16
MEMORY = 4096
NUM_SLOTS = 1
NUM_SLOTS_TYPE_1 = 1
SLOT_TYPE_1 = 100%
SLOT_TYPE_1_PARTITIONABLE = TRUE
NEGOTIATOR_INTERVAL = 2
NEGOTIATOR_MIN_INTERVAL = 1
NEGOTIATOR_CYCLE_DELAY = 1
SCHEDD_INTERVAL = 2
UPDATE_INTERVAL = 2
STARTER_ALLOW_RUNAS_OWNER = TRUE
USER_JOB_WRAPPER = {FOLDER}/wrapper.sh
"""


class Pool:
    """All daemons of a pool on this machine, with the wrapper of the package."""

    def __init__(self, host, users):
        FOLDER.mkdir(mode=0o755)
        host.cleanup.callback(shutil.rmtree, FOLDER)
        shutil.copy(WRAPPER, FOLDER / "wrapper.sh")
        for user in users:
            host.cleanup.callback(finish, ["userdel", user])
            run("useradd", user)
            home = FOLDER / user
            home.mkdir()
            shutil.chown(home, user, user)
        # Every daemon waits for a name of this host.
        host.cleanup.callback(HOSTS.write_text, HOSTS.read_text())
        HOSTS.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
        CONFIGURATION.write_text(SETTINGS)
        host.cleanup.callback(CONFIGURATION.unlink)
        host.cleanup.callback(finish, ["systemctl", "stop", UNIT])
        run("systemctl", "start", UNIT)
        with telling(self.log):
            wait_until(lambda: "slot1" in finish(["condor_status", "-autoformat", "Name"]).stdout, "a slot")

    @staticmethod
    def log():
        logs = sorted(Path("/var/log/condor").glob("*Log*"))
        texts = [f"== {path}\n{path.read_text(errors='replace')[-1500:]}" for path in logs]
        return "\n".join([*texts, finish(["condor_q", "-all", "-better-analyze"]).stdout[-3000:], finish(["condor_status"]).stdout])

    def submit(self, user, group, processes=1):
        """A job that keeps so many CPUs busy; returns its number and its cgroup once it runs there."""
        folder = FOLDER / user
        script, description = folder / "burn.sh", folder / "job"
        script.write_text("#!/bin/sh\n" + "while :; do :; done &\n" * processes + "wait\n")
        script.chmod(0o755)
        description.write_text(f"executable = {script}\naccounting_group = {group}\nrequest_cpus = 1\nrequest_memory = 32\nqueue\n")
        said = run("runuser", "-u", user, "--", "sh", "-c", f"cd {folder} && condor_submit -terse {description}")
        number = said.split()[0]
        place = lambda: finish(["condor_q", "-all", number, "-autoformat", "JobStatus", "RemoteHost"]).stdout.split()
        with telling(self.log):
            wait_until(lambda: place()[:1] == ["2"], f"job {number} of {user} to run")
        slot = place()[1]
        found = lambda: [group for group in Cgroup(MOUNT).below() if group.path.name.endswith(f"_{slot}")]
        with telling(lambda: f"{slot}\n{finish(['systemd-cgls', '--no-pager']).stdout}\n{self.log()}"):
            wait_until(lambda: [group for group in found() if group.stat("cgroup.events", "populated")], f"the cgroup of {slot}")
        return number, found()[0]

    def remove(self, *jobs):
        run("condor_rm", *(number for number, _ in jobs))
        with telling(self.log):
            wait_until(lambda: not any(group.exists() and group.stat("cgroup.events", "populated") for _, group in jobs), "the jobs to end")


@long
@newer
def test_accounting_groups_share_a_machine_whatever_the_number_of_their_jobs(host):
    pool = Pool(host, ["ana", "ben"])
    install(host, {
        "physics": {"weight": 3, "allow": {"users": ["ana"]}},
        "biology": {"weight": 1, "allow": {"users": ["ben"]}},
    })
    settle()
    # What HTCondor enables for its first job stays.
    pool.remove(pool.submit("ana", "none"))
    world = Host("system.slice", UNIT)
    run("systemctl", "start", SERVICE)
    one = pool.submit("ana", "physics", host.cpus)
    many = [pool.submit("ben", "biology") for _ in range(4)]
    groups = [group for _, group in [one, *many]]
    told = lambda: f"{log()}\n{finish(['journalctl', '--no-pager', '-t', 'tenantd-condor']).stdout}\n{pool.log()}"

    def is_weighed():
        weights = [int(group.read("cpu.weight")) for group in groups]
        return weights[0] > 2.5 * sum(weights[1:])

    with telling(told):
        wait_until(is_weighed, "the weights of the jobs")
    time.sleep(5)
    fairness.expect_shares(host, groups, [0.75, *[0.0625] * 4], "one job of one group, four of the other")
    pool.remove(*many[1:])
    time.sleep(5)
    # The one that is left wants one CPU, of which it is entitled to half.
    fairness.expect_shares(host, groups[:2], [0.75, 0.25], "one job each")
    # The user of one group is no user of the other.
    stranger = pool.submit("ben", "physics")
    with telling(told):
        wait_until(lambda: "of physics" in run("journalctl", "--no-pager", "-t", "tenantd-condor"), "the refusal in the journal")
    pool.remove(one, many[0], stranger)
    run("systemctl", "stop", SERVICE)
    world.expect_as_before(told)
