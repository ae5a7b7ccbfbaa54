"""Tenants that are units of systemd: they are changed through systemd, and given back as they were."""

import os
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, expect_same, settings
from host import finish, run
import fairness

WEIGHTS = {"a": 100, "b": 200, "c": 400}
PROPERTIES = ["CPUWeight", "CPUQuotaPerSecUSec", "AllowedCPUs", "AllowedMemoryNodes", "MemoryLow",
              "MemoryHigh", "MemoryMax"]
DROP_INS = [Path(f"/run/systemd/{name}") for name in ("system.control", "transient")]
SLICES = {name: f"tenants-{name}.slice" for name in WEIGHTS}


def show(unit, property):
    return run("systemctl", "show", "-p", property, "--value", unit).strip()


def properties(*units):
    """What systemd thinks of units: {unit and property: value}."""
    return {f"{unit} {name}": show(unit, name) + "\n" for unit in units for name in PROPERTIES}


def drop_ins():
    """Every file that was made by setting something at run time, with its text."""
    found = {}
    for top in DROP_INS:
        for folder, _, files in os.walk(top):
            # What systemd itself runs meanwhile (a session, a mount) comes and goes.
            found.update({f"{folder}/{f}": Path(folder, f).read_text() for f in files if f.startswith("50-")})
    return found


class Host:
    """What is true of the whole host, so that a trace anywhere in it is found."""

    def __init__(self, *units):
        self.units = units
        self.before = self.now()

    def now(self):
        return {**settings(Cgroup(MOUNT)), **properties(*self.units), **drop_ins()}

    def expect_as_before(self, daemon):
        try:
            expect_same(self.before, self.now())
        except AssertionError as error:
            raise AssertionError(f"{error}\n{daemon.log()}") from None


def start(host, unit, *command, slice=None, **more):
    """A unit of systemd-run's that runs `command`; stopped when the scenario is over."""
    options = [f"--slice={slice}"] if slice else []
    for key, value in more.items():
        options += ["-p", f"{key}={value}"]
    run("systemd-run", "--quiet", "--collect", f"--unit={unit}", *options, *command)
    host.cleanup.callback(finish, ["systemctl", "stop", unit], 60)
    return unit


def burn(host, slice, number=0):
    """Keeps every CPU busy from a service in `slice`."""
    unit = f"burn-{slice.split('.')[0]}-{number}.service".replace("\\", "")
    script = "while :; do :; done &\n" * host.cpus + "wait"
    return start(host, unit, "/bin/sh", "-c", script, slice=slice)


def in_slices(names=WEIGHTS):
    return [Cgroup(MOUNT / "tenants.slice" / SLICES[name]) for name in names]


def policy(host, tenants=None, **rest):
    slices = {name: {"weight": weight, "owner": "systemd"} for name, weight in WEIGHTS.items()}
    return host.policy(tenants or slices, **rest)


def weights(groups):
    return [int(group.read("cpu.weight")) for group in groups]


def settled(groups):
    """Whether the weights are there, and about as unequal as those of the policy."""
    try:
        a, b, c = weights(groups)
    except FileNotFoundError:
        return False
    return 1.8 * a < b < 2.2 * a and 1.8 * b < c < 2.2 * b


def test_slices_are_made_shared_by_weight_and_gone(host):
    world = Host()
    daemon = host.daemon(policy(host), None)
    groups = in_slices()
    daemon.until(lambda: all(g.exists() for g in groups), "the tenants' slices")
    load = [burn(host, slice) for slice in SLICES.values()]
    daemon.until(lambda: settled(groups), "weights as the policy says")
    host.note(f"weights {weights(groups)}, tenantd {resident(daemon)}")
    for name, slice in SLICES.items():
        assert show(slice, "CPUWeight") == Cgroup(MOUNT / "tenants.slice" / slice).read("cpu.weight"), name
    time.sleep(3)
    want = fairness.entitled_shares(list(WEIGHTS.values()), [float(host.cpus)] * 3, host.cpus)
    try:
        fairness.expect_shares(host, groups, want, "all want every CPU")
    finally:
        for unit in load:
            run("systemctl", "stop", unit)
    assert daemon.terminate(seconds=60) == 0, daemon.log()
    world.expect_as_before(daemon)


def resident(daemon):
    for line in Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return line
    return ""


def test_an_existing_unit_is_set_and_given_back(host):
    start(host, "plain.service", "sleep", "infinity")
    start(host, "lived-in.service", "sleep", "infinity", CPUWeight=70, MemoryMax="700M")
    run("systemctl", "set-property", "--runtime", "lived-in.service", "MemoryLow=9M")
    units = ["plain.service", "lived-in.service"]
    world = Host(*units)
    tenants = {
        "plain": {"weight": 100, "match": {"unit": "plain.service"}, "limit": {"cpu": 1}},
        "lived-in": {
            "weight": 300,
            "match": {"unit": "lived-in.service"},
            "limit": {"memory": "600MiB"},
            "guarantee": {"memory": "50MiB"},
            "cpus": "0",
        },
    }
    daemon = host.daemon(policy(host, tenants), None)
    plain, lived_in = (Cgroup(MOUNT / "system.slice" / unit) for unit in units)
    daemon.until(lambda: lived_in.read("memory.max") == str(600 << 20), "the memory limit")
    daemon.until(lambda: lived_in.read("cpuset.cpus") == "0", "the set of CPUs")
    daemon.until(lambda: plain.read("cpu.max") == "100000 100000", "the CPU limit")
    assert int(lived_in.read("memory.low")) == 50 << 20, lived_in.read("memory.low")
    assert show("lived-in.service", "MemoryMax") == str(600 << 20)
    assert daemon.terminate(seconds=60) == 0, daemon.log()
    world.expect_as_before(daemon)
