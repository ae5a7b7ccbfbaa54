"""People who log in and out many times: their tenants come and go with them, and no session leaves anything behind."""

import os
import subprocess
from pathlib import Path

from cgroups import MOUNT, Cgroup, wait_until
from host import end, finish, resident_kib, run
from test_systemd import Host, policy
from test_units_kept import user
from units import start

# Sessions of one user, of which so many are open at once.
LOGINS = int(os.environ.get("SCENARIO_LOGINS", "8"))
AT_ONCE = max(2, LOGINS // 50)
# What the agent may have grown by meanwhile.
RESIDENT_MORE_KIB = 4096
# Lines of the journal: it is compacted from a thousand on.
JOURNAL_MAX = 2000


def leave_at_once(host):
    """Logind ends what belongs to a user with the last session, not ten seconds later."""
    file = Path("/run/systemd/logind.conf.d/scenario.conf")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("[Login]\nUserStopDelaySec=0\n")
    host.cleanup.callback(finish, ["systemctl", "stop", "systemd-logind.service"])
    host.cleanup.callback(file.unlink)
    run("systemctl", "restart", "systemd-logind.service")


def log_in(host, name, number):
    """A session by way of PAM and logind."""
    session = {"PAMName": "login", "User": name, "KillMode": "control-group"}
    return start(host, f"login-{name}-{number}.service", "sleep", "infinity", **session)


def managers_started(*uids):
    """Logind leaves a user alone whose last session ends while the user's manager is still being started.

    Logind hears of the end of the start after systemd has shown it: until then the user is `opening`.
    """
    for uid in uids:
        state = ["loginctl", "show-user", uid, "--property=State", "--value"]
        wait_until(lambda: finish(state).stdout.strip() in ("active", "online"), f"the manager of user {uid} to be started")


class Agent:
    """What a running agent holds."""

    def __init__(self, daemon):
        self.pid, self.journal = daemon.process.pid, daemon.state / "journal"

    def files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def recorded(self):
        return len(self.journal.read_text().splitlines()) if self.journal.exists() else 0


def test_a_user_who_logs_in_many_times_leaves_nothing(host):
    leave_at_once(host)
    run("groupadd", "people")
    host.cleanup.callback(finish, ["groupdel", "people"])
    slices = [user(host, name, uid) for name, uid in (("ana", 1000), ("ben", 1001))]
    run("usermod", "--append", "--groups", "people", "ben")
    # What systemd enables for the first session stays.
    first = log_in(host, "ana", "first")
    managers_started("1000")
    run("systemctl", "stop", first)
    wait_until(lambda: not slices[0].exists(), "the session to end")
    # The user manager of each session has these.
    world = Host("user.slice", delegated=("memory", "pids"))
    tenants = {
        "ana": {"match": {"users": "ana"}, "limit": {"cpu": 1}},
        "people": {"match": {"groups": ["people"]}, "limit": {"cpu": 1}},
    }
    daemon = host.daemon(policy(host, tenants), None)
    daemon.says("started on")
    agent, most, rounds = Agent(daemon), None, -(-LOGINS // AT_ONCE)
    for round in range(rounds):
        units = [log_in(host, "ana", f"{round}-{number}") for number in range(AT_ONCE)]
        units.append(log_in(host, "ben", round))
        for slice in slices:
            daemon.until(lambda: slice.holds("cpu.max", "100000 100000"), f"the limit of {slice.name}")
        managers_started("1000", "1001")
        if most is None:
            most, resident = agent.files(), resident_kib(agent.pid)
        run("systemctl", "stop", *units)
        wait_until(lambda: not any(slice.exists() for slice in slices), "the sessions to end")
    daemon.until(lambda: agent.files() < most, "what was open of the sessions to be closed")
    host.note(
        f"{rounds * AT_ONCE} sessions of one user, {rounds} of another: resident set {resident} KiB in the first round, "
        f"{resident_kib(agent.pid)} at the end, files {most} and {agent.files()}, {agent.recorded()} lines in the journal"
    )
    assert agent.recorded() < JOURNAL_MAX
    assert resident_kib(agent.pid) < resident + RESIDENT_MORE_KIB
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)


def test_a_log_out_leaves_what_a_container_runtime_wrote(host):
    """A reload makes systemd write what it knows of every unit over what runtimes write into their scopes without it."""
    leave_at_once(host)
    slice = user(host, "ana", 1000)
    scope, properties = "fake-container.scope", ["-p", "MemoryMax=200M", "-p", "MemorySwapMax=infinity"]
    command = ["systemd-run", "--quiet", "--scope", f"--unit={scope}", *properties, "sleep", "infinity"]
    container = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    host.cleanup.callback(end, container)
    host.cleanup.callback(finish, ["systemctl", "stop", scope])
    group = Cgroup(MOUNT / "system.slice" / scope)
    wait_until(lambda: group.exists() and group.stat("cgroup.events", "populated"), "the scope to run")
    group.write("memory.swap.max", "0")
    is_kept = lambda: group.read("memory.swap.max").strip() == "0"
    # When systemd read its configuration last.
    loaded = lambda: run("systemctl", "show", "-p", "UnitsLoadFinishTimestampMonotonic", "--value")
    daemon = host.daemon(policy(host, {"people": {"each": {"match": {"users": "*"}, "limit": {"cpu": 1}}}}), None)
    daemon.says("started on")
    before = loaded()
    drop_ins = Path("/run/systemd/system.control/user-1000.slice.d")
    for round in range(3):
        session = log_in(host, "ana", f"container-{round}")
        daemon.until(lambda: slice.holds("cpu.max", "100000 100000"), "the limit of the user")
        managers_started("1000")
        run("systemctl", "stop", session)
        wait_until(lambda: not slice.exists(), "the session to end")
        assert is_kept() and loaded() == before, daemon.log()
    # A tenant of a template is kept for a while after its last process.
    daemon.until(lambda: not drop_ins.exists(), "the drop-ins of the user to go")
    assert is_kept() and loaded() == before, daemon.log()
    assert daemon.terminate() == 0, daemon.log()
