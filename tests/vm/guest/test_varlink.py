"""The socket, asked by clients that others wrote: `varlinkctl` of systemd, and the Python package `varlink`."""

import json
import shutil
import sys
import zipfile
from pathlib import Path

from cgroups import MOUNT, wait_until
from host import Skip, finish, run
from marks import newer
from test_units import SERVICE, install

ADDRESS = "unix:/run/tenantd/socket"
MANAGER = "io.tenantd.Manager"
JOBS = "io.tenantd.Jobs"
WHEELS = Path("/payload/python")
TENANTS = {"small": {"weight": 100}, "large": {"weight": 300}}


def serve(host):
    """The installed daemon, after its first tick."""
    install(host, TENANTS)
    run("systemctl", "start", SERVICE)
    wait_until(lambda: finish(["tenantctl", "status"]).returncode == 0, "the first tick")


def weights(status):
    return {tenant["name"]: tenant["weight"] for tenant in status["tenants"]}


def varlinkctl(*arguments):
    if not shutil.which("varlinkctl"):
        raise Skip("this systemd has no varlinkctl")
    return finish(["varlinkctl", *arguments])


@newer
def test_varlinkctl_introspects_and_calls(host):
    varlinkctl("--version")
    serve(host)
    info = varlinkctl("info", ADDRESS)
    assert info.returncode == 0 and MANAGER in info.stdout, info.stdout + info.stderr
    interfaces = varlinkctl("list-interfaces", ADDRESS).stdout.split()
    assert sorted(interfaces) == [JOBS, MANAGER, "org.varlink.service"], interfaces
    # It parses what it is given, and prints it in its own way: the description is one that others can read.
    described = varlinkctl("introspect", ADDRESS, MANAGER)
    assert described.returncode == 0 and "method GetStatus" in described.stdout, described.stderr
    called = varlinkctl("-j", "call", ADDRESS, f"{MANAGER}.GetStatus", "{}")
    assert called.returncode == 0, called.stderr
    assert weights(json.loads(called.stdout)["status"]) == {"small": 100, "large": 300}
    unknown = varlinkctl("-j", "call", ADDRESS, f"{MANAGER}.Explain", '{"tenant":"nobody"}')
    assert unknown.returncode != 0 and "NoSuchTenant" in unknown.stderr + unknown.stdout, unknown
    changed = varlinkctl("-j", "call", ADDRESS, f"{MANAGER}.SetMode", '{"mode":"observe"}')
    assert changed.returncode == 0, changed.stderr
    mode = json.loads(varlinkctl("-j", "call", ADDRESS, f"{MANAGER}.GetStatus", "{}").stdout)["status"]["mode"]
    assert mode == "observe"
    assert not (MOUNT / "tenants.slice" / SERVICE / "small").exists()


@newer
def test_varlinkctl_watches(host):
    varlinkctl("--version")
    serve(host)
    # It ends with its third answer, as head does.
    command = f"varlinkctl -j --more call {ADDRESS} {MANAGER}.Watch '{{}}' | head -n 3"
    # Each begins with a record separator (RFC 7464).
    frames = finish(["/bin/sh", "-c", command]).stdout.split("\x1e")[1:]
    ticks = [json.loads(frame)["status"]["tick"] for frame in frames]
    assert len(ticks) == 3 and ticks == sorted(set(ticks)), ticks


def test_the_python_client_reads_watches_and_is_refused(host):
    wheels = [str(path) for path in WHEELS.glob("varlink-*.whl")]
    if not wheels:
        raise Skip("the package varlink was not there to be brought along")
    # Pure Python, but for a file that it reads beside its own.
    folder = host.folder()
    zipfile.ZipFile(wheels[0]).extractall(folder)
    sys.path.insert(0, str(folder))
    import varlink

    serve(host)
    with varlink.Client.new_with_address(ADDRESS) as client:
        with client.open("org.varlink.service") as service:
            info = service.GetInfo()
        assert info["product"] == "tenantd" and MANAGER in info["interfaces"], info
        with client.open(MANAGER) as manager:
            assert weights(manager.GetStatus()["status"]) == {"small": 100, "large": 300}
            explained = manager.Explain("large")
            assert "large" in json.dumps(explained), explained
            try:
                manager.Explain("nobody")
            except varlink.VarlinkError as error:
                assert error.error() == f"{MANAGER}.NoSuchTenant", error
            else:
                raise AssertionError("nobody was explained")
            reloaded = manager.Reload()
            host.note(f"Reload() gave {json.dumps(reloaded)[:100]}")
        with client.open(MANAGER) as manager:
            ticks = []
            for frame in manager.Watch(_more=True):
                ticks.append(frame["status"]["tick"])
                if len(ticks) == 3:
                    break
            assert ticks == sorted(set(ticks)), ticks
