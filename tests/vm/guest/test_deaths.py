"""Deaths for lack of memory, as the installed service reports them from its sandbox: a service that systemd stops with its
cgroup, and a job."""

import json
from pathlib import Path

from cgroups import telling, wait_until
from host import TENANTCTL, Skip, finish, run
from marks import both, long, newest
from test_units import SERVICE, install, log
from units import start

OOMD = Path("/usr/lib/systemd/systemd-oomd")
# It kills after the shortest time that it knows, and waits for its hooks.
OOMD_CONFIGURATION = "[OOM]\nDefaultMemoryPressureDurationSec=1s\nPrekillHookTimeoutSec=2s\n"
HOOKS = Path("/run/systemd/oomd.prekill.hook")
# Takes 200 MiB, and keeps them.
TAKE = "held = [bytearray(b'x') * (1 << 20) for _ in range(200)]; import time; time.sleep(1e6)"


def deaths(tenant):
    status = json.loads(run(TENANTCTL, "status", "--json"))
    (found,) = [it for it in status["tenants"] if it["name"] == tenant]
    return found["deaths"]


@both
@newest
def test_a_killed_service_and_a_killed_job_have_their_causes(host):
    start(host, "calm.service", "sleep", "infinity")
    tenants = {"web": {"match": {"unit": "web.service"}}, "jobs": {"allow": {"users": ["root"]}}}
    install(host, tenants)
    run("systemctl", "start", SERVICE)
    start(host, "web.service", "sleep", "infinity", MemoryMax="64M", MemorySwapMax="0")
    for number in (1, 2):
        # One that was killed is gone already.
        finish(["systemctl", "stop", "web.service"])
        start(host, "web.service", "python3", "-c", TAKE, MemoryMax="64M", MemorySwapMax="0")
        with telling(log):
            wait_until(lambda: len(deaths("web")) == number, f"death {number} of the service")
        last = deaths("web")[-1]
        assert (last["cause"], last["program"]) == ("limit", "python3"), last
        assert "raise MemoryMax= of web.service" in last["text"], last
    done = finish([TENANTCTL, "run", "--tenant", "jobs", "--memory", "64MiB", "--class", "take", "--", "python3", "-c", TAKE])
    assert done.returncode in (-9, 137), done
    with telling(log):
        wait_until(lambda: deaths("jobs"), "the death of the job")
    (last,) = deaths("jobs")
    assert (last["cause"], last["job"]) == ("declared", 1), last
    # Its end is recorded after its death.
    job = lambda: run(TENANTCTL, "jobs", "1")
    with telling(job):
        wait_until(lambda: "run with --memory" in " ".join(job().split()), "what helps the job")
    fields = run("journalctl", "-u", SERVICE, "-o", "json", "ACTION=death")
    causes = [json.loads(line)["CAUSE"] for line in fields.splitlines()]
    assert causes == ["limit", "limit", "declared"], fields
    host.note(f"reported: {last['text']}")


@long
def test_systemd_oomd_gives_notice_of_its_kill(host):
    """The cgroup that it ends is inside of a tenant: no result of a unit of the policy shows that."""
    version = int(run("systemctl", "--version").split()[1].split("~")[0].split(".")[0])
    if not OOMD.exists() or version < 260:
        raise Skip(f"systemd {version} {'with' if OOMD.exists() else 'without'} systemd-oomd")
    drop_in = Path("/run/systemd/oomd.conf.d/tenantd.conf")
    drop_in.parent.mkdir(parents=True, exist_ok=True)
    drop_in.write_text(OOMD_CONFIGURATION)
    host.cleanup.callback(drop_in.unlink)
    host.cleanup.callback(finish, ["systemctl", "stop", "systemd-oomd.socket", "systemd-oomd.service"])
    run("systemctl", "restart", "systemd-oomd.service")
    host.note(f"systemd {version}; the directory of hooks is {'there' if HOOKS.is_dir() else 'missing'}")
    if not HOOKS.is_dir():
        HOOKS.mkdir()
        host.cleanup.callback(HOOKS.rmdir)
    daemon = host.daemon(host.policy({"web": {"owner": "systemd"}}, memory={"victims": "share"}), None)
    daemon.answering()
    oomd = lambda: run("journalctl", "--no-pager", "-n", "30", "-o", "cat", "-u", "systemd-oomd.service")
    told = lambda: f"{daemon.log()}\n{oomd()}"
    of_web = lambda: json.loads(run(*daemon.client("status", "--json")))["tenants"][0]["deaths"]
    with telling(told):
        wait_until((HOOKS / "io.tenantd").exists, "the hook of tenantd")
        slice = "tenants-web.slice"
        wait_until(lambda: finish(["systemctl", "is-active", "--quiet", slice]).returncode == 0, "the slice")
        properties = ["ManagedOOMMemoryPressure=kill", "ManagedOOMMemoryPressureLimit=1%"]
        host.cleanup.callback(finish, ["systemctl", "revert", slice])
        run("systemctl", "set-property", "--runtime", slice, *properties)
        start(host, "web.service", "python3", "-c", TAKE, slice=slice, MemoryHigh="40M", MemorySwapMax="0")
        wait_until(of_web, "its death")
    (death,) = of_web()
    host.note(f"{death['cause']}: {death['text']}")
    assert death["cause"] == "oomd", death
    assert "systemd-oomd is about to end" in daemon.log() and "web.service" in daemon.log(), told()
    assert "web.service" in (death["cgroup"] or ""), death
    assert daemon.terminate() == 0, told()
