"""What a scenario has in its hands: cgroups of its own, load in them, the programs, and a broom.

A scenario gets one `Host`. Whatever it takes from it (a delegated root, load, a daemon) is ended
and removed when the scenario is over, in reverse order, whether it passed or not.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from cgroups import Cgroup, MOUNT, PATIENCE, telling, wait_until

BIN = Path(__file__).resolve().parent.parent / "bin"
TENANTD = BIN / "tenantd"
TENANTCTL = BIN / "tenantctl"

HOLD_MEMORY = """
import sys, time
held = bytearray(int(sys.argv[1]) << 20)
print("full", flush=True)
time.sleep(1e6)
"""


class Skip(Exception):
    """This guest cannot show what the scenario is about; the message says why."""


class Host:
    def __init__(self, note):
        self.note = note
        self.cpus = len(os.sched_getaffinity(0))
        self.cleanup = contextlib.ExitStack()
        self.units = 0
        # Whether no other guest runs beside this one.
        self.is_alone = True
        # Where the tenants of a comparison live.
        self.ground = None

    # Places

    def folder(self):
        """An empty folder for files of this scenario."""
        path = Path(tempfile.mkdtemp(prefix="scenario-"))
        self.cleanup.callback(shutil.rmtree, path)
        return path

    def delegated(self, controllers="+cpu +cpuset +memory +io +pids"):
        """A cgroup that systemd has delegated to us, and in it an empty one to be the root.

        The unit's own process must stay somewhere and a cgroup with processes gives no controllers
        to its children, so the unit's cgroup has two: `supervisor` with the process, and `tenants`,
        which has these controllers and is returned.
        """
        self.units += 1
        unit = f"scenario-{os.getpid()}-{self.units}.service"
        # Type=exec: the process that is to be moved is the only one, and no fork of systemd's.
        properties = ["-p", "Delegate=yes", "-p", "Type=exec"]
        run("systemd-run", "--quiet", f"--unit={unit}", *properties, "sleep", "infinity")
        self.cleanup.callback(run, "systemctl", "stop", unit)
        path = run("systemctl", "show", "-p", "ControlGroup", "--value", unit).strip()
        top = Cgroup(MOUNT / path.lstrip("/"))
        supervisor = top.make("supervisor")
        for pid in top.pids():
            supervisor.enter(pid)
        top.write("cgroup.subtree_control", controllers)
        root = top.make("tenants")
        self.cleanup.callback(root.kill)
        return root

    # Load

    def burn(self, group, threads):
        """Keeps `threads` CPUs busy from `group`; returns the processes."""
        command = ["/bin/sh", "-c", "while :; do :; done"]
        return [self.start_in(group, command) for _ in range(threads)]

    def fill(self, group, megabytes):
        """A process in `group` that holds that much memory, once it does hold it."""
        process = self.start_in(
            group, ["python3", "-c", HOLD_MEMORY, str(megabytes)], stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == b"full\n", "the memory load did not come up"
        return process

    def start_in(self, group, command, **options):
        """Starts a program that is in `group` before its first instruction."""
        # 0 is whoever writes it.
        enter = lambda: group.enter(0)
        process = subprocess.Popen(command, preexec_fn=enter, stdin=options.pop("stdin", subprocess.DEVNULL), **options)
        self.cleanup.callback(end, process)
        return process

    def stop(self, processes):
        for process in processes:
            end(process)

    # Programs

    def policy(self, tenants, **rest):
        """Writes a policy of these tenants (JSON is YAML) and returns its path."""
        rest.setdefault("version", 1)
        rest.setdefault("mode", "enforce")
        rest.setdefault("host", {"reserve": {"cpu": 0, "memory": 0}})
        rest.setdefault("control", {"interval": "1s"})
        path = self.folder() / "policy.yaml"
        path.write_text(json.dumps({**rest, "tenants": tenants}))
        return path

    def daemon(self, policy, root, *options, state=None, prefix=()):
        """Starts tenantd on `root`. See `Daemon`."""
        daemon = Daemon(policy, root, state or self.folder(), self.folder(), options, prefix)
        self.cleanup.callback(daemon.end)
        return daemon

    def ctl(self, *arguments):
        """Runs tenantctl to its end; returns the finished process, output as text."""
        return finish([str(TENANTCTL), *map(str, arguments)])

    def installed(self, *arguments):
        """Runs the tenantctl of the installed package to its end."""
        return finish(["/usr/bin/tenantctl", *map(str, arguments)])


class Daemon:
    """A tenantd that runs. What it logs is kept, and told when a scenario fails."""

    def __init__(self, policy, root, state, folder, options, prefix):
        self.state = state
        self.was_killed = False
        self.log_path = folder / "log"
        self.command = [*prefix, *command_line(policy, root, state, *options)]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def log(self):
        return self.log_path.read_text(errors="replace")

    def running(self):
        return self.process.poll() is None

    def says(self, *words):
        """Waits until the log has these words. They may come later than what they are about."""
        for word in words:
            self.until(lambda: word in self.log(), f"{word!r} in the log")

    def until(self, condition, what):
        """Waits for an effect of the running daemon; fails with its log when it ends before."""

        def holds():
            assert self.running(), f"tenantd ended with {self.process.returncode}: {self.log()}"
            return condition()

        with telling(self.log):
            wait_until(holds, what)

    def answering(self):
        """Waits for the first answer, and returns the socket."""
        self.until(lambda: finish(self.client("status", "--json")).returncode == 0, "an answer")
        return self.state / "socket"

    def client(self, *arguments):
        """The command line of a tenantctl that asks this daemon."""
        return [str(TENANTCTL), "--socket", str(self.state / "socket"), *arguments]

    def job(self, tenant):
        """What stands before a command that runs as a job of this tenant."""
        return self.client("run", "--tenant", tenant, "--")

    def jobs(self):
        """The jobs that run and wait."""
        return json.loads(run(*self.client("jobs", "--json")))["jobs"]

    @contextlib.contextmanager
    def stopped(self):
        """It sees what is done meanwhile as if it had been done at once."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        yield
        self.process.send_signal(signal.SIGCONT)

    def terminate(self, signum=signal.SIGTERM):
        """Asks it to end and returns its exit status."""
        assert self.running(), f"tenantd had ended with {self.process.returncode}: {self.log()}"
        self.process.send_signal(signum)
        return self.process.wait(PATIENCE)

    def murder(self):
        """kill -9: it gets no chance to put anything back."""
        self.was_killed = True
        self.process.kill()
        self.process.wait(PATIENCE)

    def end(self):
        """After a scenario. Of units above its cgroups nothing is left either."""
        if self.running():
            self.murder()
        if self.was_killed:
            finish([str(TENANTD), "--restore", "--state-dir", str(self.state)])


def command_line(policy, root, state, *options):
    arguments = ["--policy", policy, "--state-dir", state]
    if root is not None:
        arguments += ["--root", root.name]
    return [str(TENANTD), *map(str, arguments), *options]


def restore(root, state):
    """`tenantd --restore` to its end."""
    command = [str(TENANTD), "--restore", "--state-dir", str(state), "--root", root.name]
    return finish(command)


def end(process):
    if process.poll() is None:
        process.kill()
    process.wait(PATIENCE)


def finish(command):
    """Runs a command to its end, which must come."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
    )


def status_of(pid):
    """What the kernel says of a process: a mapping from the keys of `/proc/PID/status` to their texts."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: text.strip() for key, text in (line.split(":", 1) for line in lines)}


def resident_kib(pid):
    return int(status_of(pid)["VmRSS"].split()[0])


def run(*command):
    """Runs a command of the host that has to succeed; returns its output."""
    done = finish(command)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout
