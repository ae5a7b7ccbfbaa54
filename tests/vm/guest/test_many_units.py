"""Many units at once: what they cost systemd and its bus, and that a service gets through with them in its time."""

import os
import re
import subprocess
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, telling, wait_until
from host import end, finish, run
from test_units import SERVICE, install, log
from units import show

COUNT = int(os.environ.get("SCENARIO_UNITS", "24"))
# Connections to the bus that others may make meanwhile.
OTHERS = 6
# Calls for each unit: it is looked at and set at the start, and once more when its protection is known; looked at,
# set and looked at again at the stop.
CALLS_MAX = 8


def many(host, count):
    """Services of somebody's, all of one template; returns their cgroups and the tenants that name them."""
    template = Path("/run/systemd/system/many@.service")
    template.write_text("[Service]\nExecStart=sleep infinity\nSlice=many.slice\nCPUWeight=90\n")
    host.cleanup.callback(lambda: (template.unlink(), run("systemctl", "daemon-reload")))
    run("systemctl", "daemon-reload")
    units = [f"many@{number}.service" for number in range(count)]
    host.cleanup.callback(finish, ["systemctl", "stop", *units, "many.slice"])
    run("systemctl", "start", *units)
    groups = [Cgroup(MOUNT / "many.slice" / unit) for unit in units]
    tenants = {f"m{number}": {"match": {"unit": unit}, "limit": {"cpu": 1}} for number, unit in enumerate(units)}
    return groups, tenants


def connections():
    """How many connections the bus has had: it numbers them."""
    table = run("busctl", "list", "--unique", "--no-legend", "--no-pager")
    return max(int(number) for number in re.findall(r"^:1\.(\d+)", table, re.MULTILINE))


class Calls:
    """The calls to systemd that go over the bus."""

    def __init__(self, host):
        self.path = host.folder() / "calls"
        rule = "type='method_call',destination='org.freedesktop.systemd1'"
        with open(self.path, "wb") as out:
            command = ["stdbuf", "-oL", "dbus-monitor", "--system", "--profile", rule]
            host.cleanup.callback(end, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out))
        wait_until(lambda: "NameAcquired" in self.path.read_text(), "the monitor of the bus")

    def count(self):
        return self.path.read_text().count("org.freedesktop.systemd1\t")


def work():
    """The CPU seconds that systemd, the bus and tenantd have used."""
    groups = {"systemd": "init.scope", "bus": "system.slice/dbus.service", "tenantd": "tenants.slice"}
    used = {name: Cgroup(MOUNT / path) for name, path in groups.items()}
    return {name: group.stat("cpu.stat", "usage_usec") / 1e6 if group.exists() else 0 for name, group in used.items()}


class Phase:
    """What was spent since this was made, in one line."""

    def __init__(self, calls):
        self.calls, self.work, self.begin = calls, work(), time.monotonic()

    def __str__(self):
        used = ", ".join(f"{name} {seconds - self.work[name]:.1f}" for name, seconds in work().items())
        return f"{time.monotonic() - self.begin:.1f} s, {self.calls.count()} calls so far, CPU seconds: {used}"


def test_many_units_start_and_stop_over_a_few_connections(host):
    groups, tenants = many(host, COUNT)
    install(host, tenants)
    calls, before = Calls(host), connections()
    phase = Phase(calls)
    run("systemctl", "start", SERVICE)
    with telling(log):
        wait_until(lambda: all(group.holds("cpu.max", "100000 100000") for group in groups), "all limits")
    host.note(f"{COUNT} units: all set after {phase}")
    phase = Phase(calls)
    run("systemctl", "stop", SERVICE)
    made = connections() - before
    host.note(f"given back in {phase}, {made} connections to the bus")
    assert show(SERVICE, "Result") == "success", log()
    assert made <= OTHERS and COUNT <= calls.count() <= CALLS_MAX * COUNT, (made, calls.path.read_text())
    assert all(group.read("cpu.weight") == "90" and group.holds("cpu.max", "max 100000") for group in groups), log()
