"""Long and rough: a host whose parts come, go and stop, while the service is watched at every tick.

The faults are drawn by a seed (SCENARIO_SEED; the note tells it) and last for SCENARIO_ENDURANCE seconds.
"""

import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import threading
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, wait_until
from host import TENANTCTL, finish, resident_kib, run
from marks import both, long
from test_systemd import Host
from test_units import SERVICE, install, log, settle
from units import show, start, systemd_run

SECONDS = float(os.environ.get("SCENARIO_ENDURANCE", "400"))
CPU1 = Path("/sys/devices/system/cpu/cpu1/online")
POLICY = Path("/etc/tenantd/tenants.yaml")
JOURNALD = ["systemd-journald.socket", "systemd-journald-dev-log.socket", "systemd-journald-audit.socket", "systemd-journald.service"]
# Figures of a tick are sums of roundings.
CORES_SLACK, BYTES_SLACK = 0.001, 4096
# Tenants are read one after the other, and an emulated processor may pause in between: what one used meanwhile counts
# in this tick, and what another used in the next one.
SKEW = 1.25


def tenants(weight=200, limit=1.5):
    return {
        "web": {"match": {"unit": "web.service"}, "weight": weight, "guarantee": {"cpu": 0.25}},
        "batch": {"match": {"unit": "batch.service"}, "limit": {"cpu": limit, "pids": 200}},
        "lab": {"owner": "systemd", "weight": 50},
        "direct": {"weight": 100, "limit": {"memory": "256MiB"}},
    }


class Watch:
    """Every tick that the service tells, and what was wrong in one."""

    def __init__(self, host):
        self.cpus, self.wrong, self.nr_ticks = host.cpus, [], 0
        command = [str(TENANTCTL), "watch", "--json"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        host.cleanup.callback(self.end)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            for line in self.process.stdout:
                status = json.loads(line)
                self.nr_ticks += 1
                self.wrong += [f"tick {status['tick']}: {what}" for what in broken(status, self.cpus)]
        except Exception as error:
            self.wrong.append(f"what is told is not understood: {error!r}")
        else:
            self.wrong.append(f"the watch ended after {self.nr_ticks} ticks")

    def end(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()


def broken(status, cpus):
    """The invariants that do not hold in this tick."""
    told, total = status["tenants"], lambda key: sum(tenant[key] or 0 for tenant in status["tenants"])
    capacity, memory = status["host"]["capacity_cores"], status["host"]["capacity_memory_bytes"]
    outside = status["host"]["outside_cores"] or 0
    rules = [
        (all((tenant["usage_cores"] or 0) <= cpus + CORES_SLACK for tenant in told), "one uses more CPU time than there is"),
        (total("usage_cores") <= SKEW * cpus, "more CPU time is used than there is"),
        (0 <= outside <= cpus + CORES_SLACK, "more CPU time is used outside than there is"),
        (total("allocation_cores") <= capacity + CORES_SLACK, "more CPUs are allocated than there are"),
        (total("allocation_memory_bytes") <= memory + BYTES_SLACK, "more memory is allocated than there is"),
        (all(tenant["share_error"] is None or 0 <= tenant["share_error"] <= 1 for tenant in told), "a share error is no part"),
        (all(tenant["dop"] is None or 1 <= tenant["dop"] <= cpus for tenant in told), "a width is beyond the CPUs"),
    ]
    return [f"{what}: {json.dumps(status)[:2000]}" for holds, what in rules if not holds]


class Faults:
    """What happens to the host, one at a time; each heals before the next."""

    def __init__(self, host, seed):
        self.host, self.dice = host, random.Random(seed)
        self.kinds = [self.restart, self.crowd, self.reload, self.bad_reload, self.hotplug, self.journald_stops,
                      self.journald_hangs, self.bus_hangs, self.clock_steps, self.fork_and_end]
        self.counts = {kind.__name__: 0 for kind in self.kinds}

    def next(self):
        kind = self.dice.choice(self.kinds)
        self.counts[kind.__name__] += 1
        kind()
        time.sleep(self.dice.uniform(0, 4))

    def restart(self):
        unit = self.dice.choice(["web.service", "batch.service"])
        run("systemctl", "kill", "--signal=KILL", unit)
        wait_until(lambda: show(unit, "ActiveState") == "active" and show(unit, "MainPID") != "0", f"{unit} again")

    def crowd(self):
        """Short services in the slice of a tenant."""
        for number in range(self.dice.randint(1, 6)):
            systemd_run("--collect", "--slice=tenants-lab.slice", f"--unit=short-{number}-{self.dice.random()}",
                        "sh", "-c", f"timeout {self.dice.uniform(0.1, 3):.1f} sh -c 'while :; do :; done'; true")

    def fork_and_end(self):
        """Processes in a tenant that the service owns; it may make the tenant's cgroup anew at that time."""
        group = Cgroup(MOUNT / "tenants.slice" / SERVICE / "direct")
        for _ in range(self.dice.randint(1, 30)):
            with contextlib.suppress(FileNotFoundError, subprocess.SubprocessError):
                subprocess.run(["sh", "-c", "sleep 0.1"], preexec_fn=lambda: group.enter(0), check=True)

    def reload(self):
        policy = {"version": 1, "mode": "enforce", "tenants": tenants(self.dice.choice([50, 200, 800]), self.dice.choice([0.5, 1.5]))}
        policy["control"] = {"interval": self.dice.choice(["500ms", "1s", "2s"])}
        POLICY.write_text(json.dumps(policy))
        run("systemctl", "reload", SERVICE)

    def bad_reload(self):
        text = POLICY.read_text()
        POLICY.write_text(text.replace('"weight"', '"wieght"'))
        finish(["systemctl", "reload", SERVICE])
        POLICY.write_text(text)

    def hotplug(self):
        CPU1.write_text("0")
        time.sleep(self.dice.uniform(0, 6))
        CPU1.write_text("1")

    def journald_stops(self):
        finish(["systemctl", "stop", *JOURNALD])
        time.sleep(self.dice.uniform(0, 5))
        run("systemctl", "start", *JOURNALD)

    def hang(self, unit):
        """systemd kills what its watchdog waits for in vain; then there is nothing to continue."""
        pid = int(show(unit, "MainPID"))
        if pid == 0:
            return
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.dice.uniform(0, 8))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def journald_hangs(self):
        self.hang("systemd-journald.service")

    def bus_hangs(self):
        self.hang("dbus.service")

    def clock_steps(self):
        time.clock_settime(time.CLOCK_REALTIME, time.time() + self.dice.choice([-7200, -60, 60, 7200]))


def resources(pid):
    """Resident set in KiB and open files."""
    return resident_kib(pid), len(os.listdir(f"/proc/{pid}/fd"))


def flat(figures, slack):
    """Whether the last quarter is no higher than the second one."""
    quarter = len(figures) // 4
    return statistics.median(figures[-quarter:]) <= statistics.median(figures[quarter : 2 * quarter]) + slack


@long
@both
def test_faults_without_end_leave_it_as_it_was(host):
    seed = int(os.environ.get("SCENARIO_SEED", time.time_ns() % 1_000_000))
    again = {"Restart": "always", "RestartSec": "100ms", "StartLimitIntervalSec": "0"}
    start(host, "web.service", "sh", "-c", "while :; do :; done", **again)
    start(host, "batch.service", "sh", "-c", "while :; do timeout 3 sh -c 'while :; do :; done'; sleep 3; done", **again)
    install(host, tenants())
    host.cleanup.callback(CPU1.write_text, "1")
    settle()
    world = Host("web.service", "batch.service")
    begin, clock = time.monotonic(), time.time()
    run("systemctl", "start", SERVICE)
    pid = int(show(SERVICE, "MainPID"))
    watch, faults = Watch(host), Faults(host, seed)
    host.cleanup.callback(lambda: time.clock_settime(time.CLOCK_REALTIME, clock + time.monotonic() - begin))
    wait_until(lambda: watch.nr_ticks > 3 or watch.wrong, "ticks")
    taken = []
    while time.monotonic() < begin + SECONDS:
        faults.next()
        assert int(show(SERVICE, "MainPID")) == pid, f"seed {seed}: the service was started again: {log()[-4000:]}"
        assert not watch.wrong, f"seed {seed}: {len(watch.wrong)} times: {watch.wrong[0]}"
        taken.append(resources(pid))
    resident, files = zip(*taken)
    quarter = len(taken) // 4
    tell = lambda figures: " to ".join(str(statistics.median(part)) for part in (figures[quarter : 2 * quarter], figures[-quarter:]))
    host.note(f"seed {seed}: {watch.nr_ticks} ticks in {time.monotonic() - begin:.0f} s, {len(taken)} faults {faults.counts}")
    host.note(f"resident KiB {tell(resident)}, open files {tell(files)}, second quarter to last")
    assert flat(resident, 512), f"seed {seed}: the resident set grew: {resident}"
    assert flat(files, 3), f"seed {seed}: open files grew: {files}"
    run("systemctl", "stop", SERVICE)
    assert show(SERVICE, "Result") == "success", log()[-4000:]
    world.expect_as_before(lambda: f"seed {seed}: {log()[-4000:]}")
