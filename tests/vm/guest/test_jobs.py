"""Commands that run as jobs, where the hierarchy is unified and systemd runs the host."""

import json

from cgroups import MOUNT, Cgroup, telling
from host import TENANTCTL, finish
from marks import both
from test_systemd import Host

# Where it is, what bounds it, and an exit code that nothing else has.
COMMAND = """
own=$(cut -d: -f3 /proc/self/cgroup)
echo $own
cat /sys/fs/cgroup$own/memory.max
nproc
exit 37
"""


def runs_as_a_job(host, owner):
    root = host.delegated()
    world = Host()
    state = host.folder()
    state.chmod(0o711)
    state.parent.chmod(0o711)
    tenants = {"a": {"owner": owner, "allow": {"users": ["nobody"]}}, "b": {"owner": owner}}
    daemon = host.daemon(host.policy(tenants), root, state=state)
    socket = daemon.answering()
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

    def run(*arguments):
        job = ["run", *arguments, "--", "/bin/sh", "-c", COMMAND]
        return finish([*user, str(TENANTCTL), "--socket", str(socket), *job])

    # A job of a slice is a scope in it, once the slice is there.
    expected = {"direct": "/a/job-", "systemd": "/tenants.slice/tenants-a.slice/tenantd-job-"}[owner]
    tries = []

    def takes_jobs():
        tries.append(run("--no-wait"))
        return tries[-1].returncode == 37 and expected in tries[-1].stdout

    with telling(lambda: f"the last try: {tries[-1:]}"):
        daemon.until(takes_jobs, "tenants that take jobs")
    done = run("--memory", "64MiB", "--dop", "1")
    assert done.returncode == 37, (done.stdout, done.stderr, daemon.log())
    place, memory, width = done.stdout.split()
    host.note(f"{owner}: a job ran in {place}")
    assert expected in place and place.endswith(".scope") == (owner == "systemd"), (place, daemon.log())
    assert memory == str(64 << 20) and width == "1", (done.stdout, daemon.log())
    assert "slice of its tenant" not in done.stderr, done.stderr
    refused = run("--tenant", "b")
    assert refused.returncode == 77, (refused.returncode, refused.stderr)
    daemon.until(lambda: not Cgroup(MOUNT / place.lstrip("/")).exists(), "the cgroup of the job to be removed")
    listed = finish([str(TENANTCTL), "--socket", str(socket), "jobs", "--json"])
    assert listed.returncode == 0 and json.loads(listed.stdout)["jobs"] == [], listed.stdout
    assert daemon.terminate() == 0, daemon.log()
    world.expect_as_before(daemon.log)


@both
def test_a_command_runs_as_a_job_of_a_cgroup(host):
    runs_as_a_job(host, "direct")


@both
def test_a_command_runs_as_a_job_of_a_slice(host):
    runs_as_a_job(host, "systemd")
