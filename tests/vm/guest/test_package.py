"""The packages, from their installation to their removal, as an administrator goes through it."""

import grp
import json
import re
import stat
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, expect_soon_same, telling, wait_until, whole_host
from containers import Podman
from host import Skip, finish, run
from marks import both, long
from test_reach import Scattered
from test_systemd import Host, drop_ins, log_in, wanted
from test_units_kept import user
from units import show, start, systemd_run

PACKAGES = Path("/payload/package")
POLICY = Path("/etc/tenantd/policy.yaml")
SOCKET = Path("/run/tenantd/socket")
ENFORCE = """
version: 1
mode: enforce
host: { reserve: { cpu: 0, memory: 0 } }
tenants:
  small: { weight: 100 }
  large: { weight: 300 }
"""
# What a package manager keeps of itself, and the caches of others.
NOT_OURS = ("/var/lib/dpkg", "/var/lib/rpm", "/usr/lib/sysimage/rpm", "/var/log", "/var/cache", "/var/lib/systemd/catalog", "/etc/group-", "/etc/gshadow-")


def package(kind, maker):
    found = sorted(PACKAGES.glob(f"*.{kind}")) if PACKAGES.is_dir() else []
    if not found:
        raise Skip(f"no package was built: {maker} is not there")
    return found[-1]


def install(host):
    deb = package("deb", "cargo-deb")
    # A guest of the tests is small: the dependencies are what it is made of.
    run("dpkg", "-i", str(deb))
    host.cleanup.callback(finish, ["dpkg", "--purge", "tenantd"])


def traces():
    """Paths of this host that speak of tenantd."""
    folders = ["/etc", "/usr/lib/systemd", "/usr/lib/sysusers.d", "/usr/lib/tmpfiles.d", "/usr/share", "/run", "/var"]
    listed = finish(["find", *folders, "-xdev", "-name", "*tenant*"]).stdout.splitlines()
    return sorted(path for path in listed if not path.startswith(NOT_OURS) and "/credentials/" not in path)


def status(host):
    done = host.installed("status", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def active(unit):
    return finish(["systemctl", "is-active", unit]).stdout.strip()


@both
def test_the_deb_observes_enforces_serves_and_is_removed(host):
    """One installation, as its administrator goes through it; to install costs a minute under emulation."""
    before = traces()
    install(host)
    expect_observing(host)
    enforce(host)
    expect_bad_policy_refused(host)
    expect_page_served_by_nobody(host)
    run("systemctl", "stop", "tenantd.socket")
    run("dpkg", "--purge", "tenantd")
    expect_no_trace(before)


def expect_observing(host):
    """As installed it runs, and changes nothing."""
    assert active("tenantd.service") == "active", run("journalctl", "--no-pager", "-u", "tenantd")
    assert active("tenantd.socket") == "active"
    assert active("tenantd-serve.service") == "inactive", "nobody asked for a page"
    for unit in ["tenantd.service", "tenantd.socket"]:
        assert finish(["systemctl", "is-enabled", unit]).stdout.strip() == "enabled", unit
    wait_until(lambda: host.installed("status").returncode == 0, "the first tick")
    now = status(host)
    assert now["mode"] == "observe", now
    assert [tenant["name"] for tenant in now["tenants"]] == ["users", "services"], now
    assert run("/usr/bin/tenantctl", "check", "/etc/tenantd") is not None
    assert grp.getgrnam("tenantd")
    # What is installed can be read about.
    for page in ["man8/tenantd.8.gz", "man1/tenantctl.1.gz", "man1/tenantctl-top.1.gz", "man5/tenantd.policy.5.gz"]:
        assert (Path("/usr/share/man") / page).exists(), page


def own_tenants():
    own = Cgroup(MOUNT / "tenants.slice" / "tenantd.service")
    return own.child("small"), own.child("large")


def enforce(host):
    """Told to, it divides the CPU of tenants of its own."""
    POLICY.write_text(ENFORCE)
    run("systemctl", "reload", "tenantd")
    wait_until(lambda: status(host)["mode"] == "enforce", "the new policy")
    small, large = own_tenants()
    wait_until(lambda: small.exists() and large.exists(), "the tenants' cgroups")
    load = host.burn(small, host.cpus) + host.burn(large, host.cpus)

    def divided():
        # Cgroups are made between two ticks, and a tick reports them.
        tenants = {tenant["name"]: tenant for tenant in status(host)["tenants"]}
        if "small" not in tenants:
            return False
        used = [tenants[name]["usage_cores"] or 0 for name in ("small", "large")]
        return sum(used) > 0.5 * host.cpus and 2 < used[1] / max(used[0], 0.01) < 4

    wait_until(divided, "shares of 1 to 3")
    for line in filter(None, run("/usr/bin/tenantctl", "status").splitlines()):
        host.note(line)
    host.stop(load)


def expect_bad_policy_refused(host):
    """The good one stays."""
    POLICY.write_text("version: 1\ntenants: { a: { weight: 0 } }\n")
    refused = host.installed("reload")
    assert refused.returncode == 78 and "P025" in refused.stderr + refused.stdout, refused
    assert status(host)["mode"] == "enforce"


def expect_page_served_by_nobody(host):
    run("systemctl", "start", "tenantd-serve")
    wait_until(lambda: finish(asking("healthz")).returncode == 0, "the page")
    metrics = run(*asking("metrics"))
    assert "tenantd_up 1" in metrics and 'tenantd_tenant_weight{tenant="large"} 300' in metrics, metrics
    assert "<title>tenantd" in run(*asking(""))
    pid = run("systemctl", "show", "-p", "MainPID", "--value", "tenantd-serve").strip()
    told = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    assert told["Uid"].split()[0] != "0" and int(told["CapEff"], 16) == 0, told
    verified = finish(["systemd-analyze", "verify", "--man=no", "tenantd-serve.service"])
    assert verified.returncode == 0 and "tenantd" not in verified.stderr, verified.stderr
    exposure = finish(["systemd-analyze", "security", "--no-pager", "tenantd-serve"]).stdout
    host.note(exposure.strip().splitlines()[-1])
    run("systemctl", "stop", "tenantd.service")
    assert not any(tenant.exists() for tenant in own_tenants())
    wait_until(lambda: "tenantd_up 0" in run(*asking("metrics")), "the news that it is away")
    assert active("tenantd.service") == "inactive", "a scrape has started what was stopped"


def asking(page):
    script = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9595/{}').read().decode())"
    return ["python3", "-c", script.format(page)]


def expect_no_trace(before):
    assert not Path("/etc/tenantd").exists() and not Path("/run/tenantd").exists()
    wait_until(lambda: not (MOUNT / "tenants.slice").exists(), "the slice of all tenants to go")
    left = [path for path in traces() if path not in before]
    assert left == [], left
    try:
        grp.getgrnam("tenantd")
    except KeyError:
        pass
    else:
        raise AssertionError("the group is left")
    assert active("tenantd.service") == "inactive"
    assert active("tenantd-serve.service") == "inactive"


def older(host):
    """The package as 0.1.0 was: a socket for its group alone, and scripts that leave an open socket as it is."""
    tree = host.folder() / "tree"
    run("dpkg-deb", "--raw-extract", str(package("deb", "cargo-deb")), str(tree))

    def edit(name, pattern, text):
        path = tree / name
        before = path.read_text()
        after = re.sub(pattern, text, before, flags=re.MULTILINE | re.DOTALL)
        assert after != before, f"{name} has no {pattern}"
        path.write_text(after)

    edit("DEBIAN/control", r"^Version: .*?$", "Version: 0.1.0-1")
    edit("DEBIAN/postinst", r"^ *if \[ -S /run/tenantd/socket \].*?^ *fi\n", "")
    edit("usr/lib/systemd/system/tenantd.socket", r"^SocketMode=0666$", "SocketMode=0660")
    deb = tree.parent / "tenantd_0.1.0.deb"
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(deb))
    return deb


def socket_mode():
    return stat.S_IMODE(SOCKET.stat().st_mode)


@both
def test_an_upgrade_keeps_tenants_and_opens_the_socket(host):
    """From 0.1.0, while it enforces: the policy, the weights and the processes of tenants stay, and the socket is for every user."""
    traces_before = traces()
    run("dpkg", "-i", str(older(host)))
    host.cleanup.callback(finish, ["dpkg", "--purge", "tenantd"])
    policy = f"# Ours.\n{ENFORCE}"
    POLICY.write_text(policy)
    run("systemctl", "reload", "tenantd")
    small, large = own_tenants()
    wait_until(lambda: small.exists() and large.exists(), "the tenants' cgroups")
    (process,) = host.burn(small, 1)
    weights = lambda: [int(group.read("cpu.weight")) for group in (small, large)]
    is_weighed = lambda: small.exists() and large.exists() and 2.5 * weights()[0] < weights()[1] < 3.5 * weights()[0]
    wait_until(is_weighed, "the weights")
    assert socket_mode() == 0o660 and finish(asking_as_a_user()).returncode == 77

    new = str(package("deb", "cargo-deb"))
    run("dpkg", "--force-confold", "-i", new)
    assert socket_mode() == 0o666 and SOCKET.group() == "tenantd", oct(socket_mode())
    assert active("tenantd.service") == active("tenantd.socket") == "active", run("journalctl", "--no-pager", "-u", "tenantd")
    wait_until(lambda: finish(asking_as_a_user()).returncode == 0, "an answer to a user")
    assert status(host)["version"] == run("/usr/bin/tenantctl", "--version").split()[1] != "0.1.0"
    assert status(host)["mode"] == "enforce" and POLICY.read_text() == policy
    wait_until(is_weighed, "the weights again")
    assert process.poll() is None
    wait_until(lambda: process.pid in small.pids(), "the process in its tenant")
    expect_own_mode_kept(host, new)
    host.stop([process])
    run("dpkg", "--remove", "tenantd")
    assert active("tenantd.service") == "inactive" and POLICY.read_text() == policy
    run("dpkg", "--purge", "tenantd")
    expect_no_trace(traces_before)


def asking_as_a_user():
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", "/usr/bin/tenantctl", "me"]


def expect_own_mode_kept(host, deb):
    """An administrator who keeps other users away keeps them away at an upgrade."""
    own = Path("/etc/systemd/system/tenantd.socket.d/own.conf")
    own.parent.mkdir(parents=True)
    host.cleanup.callback(finish, ["rm", "-rf", str(own.parent)])
    own.write_text("[Socket]\nSocketMode=0660\n")
    run("dpkg", "--force-confold", "-i", deb)
    assert socket_mode() == 0o660, oct(socket_mode())
    run("rm", "-r", str(own.parent))
    run("systemctl", "daemon-reload")


def test_removal_ends_no_process_of_a_tenant(host):
    install(host)
    POLICY.write_text("version: 1\nmode: enforce\ntenants: { a: { owner: systemd } }\n")
    run("systemctl", "reload", "tenantd")
    group = Cgroup(MOUNT / "tenants.slice/tenants-a.slice")
    wait_until(group.exists, "the tenant's slice")
    systemd_run("--unit=resident.service", "--slice=tenants-a.slice", "sleep", "infinity")
    host.cleanup.callback(finish, ["systemctl", "stop", "resident.service", "tenants-a.slice", "tenants.slice"])
    run("dpkg", "--purge", "tenantd")
    assert active("resident.service") == "active", run("journalctl", "--no-pager", "-u", "resident")
    assert not Path("/run/tenantd").exists()


def test_the_rpm_is_installed_enforces_and_is_removed(host):
    """On Debian, where its dependencies are not RPMs: they are not asked for."""
    before = traces()
    rpm = package("rpm", "cargo-generate-rpm")
    # Debian 12 asks whether one means it; Debian 13 does not know that question any more.
    mean_it = ["--force-debian"] if finish(["rpm", "--force-debian", "--version"]).returncode == 0 else []
    erase = ["rpm", "--erase", "--nodeps", *mean_it, "tenantd"]
    run("rpm", "--install", "--nodeps", *mean_it, str(rpm))
    host.cleanup.callback(finish, erase)
    # Whether a service is enabled is a preset's to say: nobody has started it.
    assert active("tenantd.service") == "inactive"
    POLICY.write_text(ENFORCE)
    run("systemctl", "start", "tenantd")
    wait_until(lambda: all(tenant.exists() for tenant in own_tenants()), "the tenants' cgroups")
    wait_until(lambda: host.installed("status").returncode == 0, "the first tick")
    assert status(host)["mode"] == "enforce"
    assert finish(["rpm", "--verify", "--nodeps", "tenantd"]).stdout.splitlines() == ["S.5....T.  c /etc/tenantd/policy.yaml"]
    run(*erase)
    assert active("tenantd.service") == "inactive"
    wait_until(lambda: not (MOUNT / "tenants.slice/tenantd.service").exists(), "its cgroup to go")
    # The policy was changed: it is kept, as RPMs keep such files.
    kept = Path("/etc/tenantd/policy.yaml.rpmsave")
    assert kept.read_text() == ENFORCE
    kept.unlink()
    kept.parent.rmdir()
    left = [path for path in traces() if path not in before]
    assert left == [], left


@both
def test_a_purge_restores_what_was_weighed_above(host):
    """While slices above tenants are weighed and protected: every value is back, those of slices too."""
    # Before the load, beside which an emulated guest takes minutes for it.
    install(host)
    # What the package made for its service stays until it is purged; what systemd enabled for that stays longer.
    run("systemctl", "stop", "tenantd.socket", "tenantd.service", "tenants.slice")
    wait_until(lambda: not (MOUNT / "tenants.slice").exists(), "the slice of all tenants to go")
    scene = Scattered(host)
    world = Host(*scene.world.units, leave_out=scene.world.leave_out)
    policy = {"version": 1, "mode": "enforce", "host": {"reserve": {"cpu": 0, "memory": 0}}, "tenants": scene.tenants}
    POLICY.write_text(json.dumps(policy))
    run("systemctl", "start", "tenantd.service")
    log = lambda: run("journalctl", "--no-pager", "-o", "cat", "-u", "tenantd")

    def are_weighed():
        system, user = (int(slice.read("cpu.weight")) for slice in scene.slices[:2])
        return system > 2 * user and any(slice.read("memory.low") != "0" for slice in scene.slices)

    started = time.monotonic()
    with telling(log):
        wait_until(are_weighed, "the weights of the slices")
    weighed = time.monotonic()
    run("dpkg", "--purge", "tenantd")
    host.note(f"weighed after {weighed - started:.0f} s, purged in {time.monotonic() - weighed:.0f} s")
    world.expect_as_before(log)


# Properties of units that are measured, or that follow from the machine and from other units.
MEASURED = ("Current", "Peak", "Available", "NSec", "ReadBytes", "WriteBytes", "ReadOperations", "WriteOperations", "Packets", "Bytes")
# Settings of resources, and where a unit has them from.
SETTINGS = ("CPU", "Startup", "Allowed", "Memory", "DefaultMemory", "Tasks", "IO", "Delegate", "DisableControllers", "ManagedOOM",
            "Device", "DropInPaths", "NeedDaemonReload", "FragmentPath", "Slice", "OOMPolicy")
# The units in a slice, in any order: not a setting.
LISTED = ("SliceOf",)
# Differences that a purge leaves, each with its reason; everything else is a failure.
EXPLAINED = {
    r"/libpod-\w+\.scope/memory\.swap\.max": "a reload of systemd, as any package with a unit asks for, sets what a runtime wrote behind it",
}


def explained(key):
    """Why a purge leaves this difference, or nothing."""
    return next((why for pattern, why in EXPLAINED.items() if re.search(pattern, key)), None)


def all_properties():
    """Each resource setting of each unit that systemd has loaded: {unit and property: value}."""
    kinds = ["*.service", "*.slice", "*.scope"]
    names = [line.split()[0] for line in run("systemctl", "list-units", "--all", "--plain", "--no-legend", *kinds).splitlines()]
    found = {}
    for block in run("systemctl", "show", "--all", "--", *names).strip().split("\n\n"):
        told = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        settings = {name: value for name, value in told.items() if name.startswith(SETTINGS) and not name.endswith((*MEASURED, *LISTED))}
        found.update({f"{told['Id']} {name}": value for name, value in settings.items()})
    return found


class Everything:
    """Every cgroup file, every resource setting of every unit, and every drop-in of this host."""

    def __init__(self):
        self.before = self.now()

    def now(self):
        return {**wanted(whole_host()), **all_properties(), **drop_ins()}

    def differences(self):
        now = self.now()
        return {key: (self.before.get(key), now.get(key)) for key in self.before.keys() | now.keys() if self.before.get(key) != now.get(key)}

    def unexplained(self):
        is_ours = lambda key: "/tenants.slice" in key or key.split()[0] in ("tenants.slice", "tenantd.service", "tenantd-serve.service")
        left = {key: values for key, values in self.differences().items() if not explained(key)}
        return {key: f"{before} -> {now}" for key, (before, now) in left.items() if not (is_ours(key) and now is None)}


@both
@long
def test_everything_is_as_before_the_installation(host):
    """Users, services and containers run all the time, some of them with settings of their own."""
    slice = user(host, "ana", 1000)
    log_in(host, "ana")
    wait_until(lambda: slice.exists() and slice.stat("cgroup.events", "populated"), "the session")
    start(host, "plain.service", "sleep", "infinity")
    start(host, "weighed.service", "sleep", "infinity")
    run("systemctl", "set-property", "--runtime", "weighed.service", "CPUWeight=70", "MemoryHigh=900M")
    container = Podman(host).start("box", "while :; do :; done", "--memory=200m")
    # As container runtimes do, behind the back of systemd.
    Cgroup(container.path).write("memory.swap.max", "0")
    run("systemctl", "daemon-reload")
    Cgroup(container.path).write("memory.swap.max", "0")
    everything = Everything()
    install(host)
    tenants = {
        "people": {"weight": 300, "each": {"match": {"users": "*"}, "limit": {"memory": "600MiB"}}},
        "plain": {"match": {"unit": "plain.service"}, "limit": {"cpu": 1, "memory": "400MiB"}},
        "weighed": {"match": {"unit": "weighed.service"}, "guarantee": {"memory": "32MiB"}},
        "boxes": {"each": {"match": {"unit": "libpod-*.scope"}, "limit": {"cpu": "500m"}}},
        "own": {"weight": 50},
    }
    POLICY.write_text(json.dumps({"version": 1, "mode": "enforce", "tenants": tenants}))
    run("systemctl", "restart", "tenantd.service")
    log = lambda: run("journalctl", "--no-pager", "-o", "cat", "-u", "tenantd")
    plain = Cgroup(MOUNT / "system.slice/plain.service")
    with telling(log):
        wait_until(lambda: plain.holds("cpu.max", "100000 100000"), "the limit of the service")
        wait_until(lambda: slice.holds("memory.max", str(600 << 20)), "the limit of the user")
        wait_until(lambda: container.holds("cpu.max", "50000 100000"), "the limit of the container")
    assert show("weighed.service", "MemoryMin") != "0", log()
    run("dpkg", "--purge", "tenantd")
    with telling(log):
        expect_soon_same({}, everything.unexplained)
    for key, (before, now) in sorted(everything.differences().items()):
        host.note(f"{key}: {before} -> {now}: {explained(key) or 'gone with the package'}")
