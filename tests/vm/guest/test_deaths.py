"""Deaths for lack of memory, as the installed service reports them from its sandbox: a service that systemd stops with its
cgroup, and a job."""

import json

from cgroups import telling, wait_until
from host import TENANTCTL, finish, run
from marks import both, newest
from test_units import SERVICE, install, log
from units import start

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
    job = run(TENANTCTL, "jobs", "1")
    assert "run with --memory" in " ".join(job.split()), job
    fields = run("journalctl", "-u", SERVICE, "-o", "json", "ACTION=death")
    causes = [json.loads(line)["CAUSE"] for line in fields.splitlines()]
    assert causes == ["limit", "limit", "declared"], fields
    host.note(f"reported: {last['text']}")
