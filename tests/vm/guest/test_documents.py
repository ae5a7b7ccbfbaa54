"""The documents, followed literally: the commands are read from the documents themselves."""

import json
import re
import time
from pathlib import Path

from cgroups import wait_until
from host import finish, run
from marks import newer
from test_logins import log_in
from test_package import PACKAGES, active, package
from test_systemd import Host
from test_units_kept import user
from units import start

DOCUMENTS = Path("/payload/documents")
# The time in which a person has a job run, a user's share shown and the host restored.
MINUTES_MAX = 10


def blocks(document):
    """Fenced and indented blocks, each as its language and its lines; tests/face/blocks.rs finds the same."""
    found, fence, previous = [], None, ""
    for line in (DOCUMENTS / document).read_text().splitlines():
        if fence is not None:
            if line.startswith("```"):
                fence = None
            else:
                fence[1].append(line)
        elif line.startswith("```"):
            fence = (line[3:], [])
            found.append(fence)
        elif line.startswith("    ") and previous == "":
            found.append(("", [line[4:]]))
        elif line.startswith("    ") and previous.startswith("    "):
            found[-1][1].append(line[4:])
        previous = line
    return found


def commands(lines):
    bare = (line.split(" #")[0].strip() for line in lines)
    return [line for line in bare if line and not line.startswith("#")]


def documented(document):
    """Commands of a document that documented.txt gives to the guests."""
    rows = (row.split("\t") for row in (Path(__file__).parent / "documented.txt").read_text().splitlines())
    found = [row[2] for row in rows if row[:2] == ["run", document]]
    assert found, document
    return found


class Person:
    """A user with a session, who may become root."""

    def __init__(self, host, folder):
        self.host, self.folder, self.seconds = host, folder, 0.0
        self.slice = user(host, "ana", 1000)
        self.session = log_in(host, "ana", 1)
        wait_until(self.slice.exists, "the session")

    def types(self, line):
        """Runs a line of a document, which must succeed; returns its output."""
        begun = time.monotonic()
        if line.startswith("sudo "):
            done = finish(["sh", "-c", f"cd {self.folder} && {line[5:]}"])
        else:
            unit = ["systemd-run", "--quiet", "--wait", "--collect", "--pipe", "-p", "User=ana", "-p", "PAMName=login"]
            done = finish([*unit, "-p", f"WorkingDirectory={self.folder}", "sh", "-c", line])
        took = time.monotonic() - begun
        self.seconds += took
        self.host.note(f"{took:.1f} s: {line}")
        assert done.returncode == 0, f"{line}: {done.returncode} {done.stdout}{done.stderr}"
        return done.stdout


def folder_of_the_reader(host):
    """A checkout after `make deb`."""
    folder = host.folder()
    folder.chmod(0o755)
    package("deb", "cargo-deb")
    (folder / "target").mkdir()
    (folder / "target/debian").symlink_to(PACKAGES)
    for name in ("scenarios", "packaging"):
        (folder / name).symlink_to(DOCUMENTS / name)
    return folder


def without_a_package(host):
    host.cleanup.callback(finish, ["dpkg", "--purge", "tenantd"])
    host.cleanup.callback(finish, ["systemctl", "stop", "tenantd-serve.service", "tenantd.socket", "tenantd.service"])


@newer
def test_readme_is_followed(host):
    """From the package to a job, a user's share and a restored host; no command fails."""
    folder = folder_of_the_reader(host)
    without_a_package(host)
    # The guests have no compiler; the job of the README is a make.
    make = Path("/usr/local/bin/make")
    if not finish(["sh", "-c", "command -v make"]).stdout:
        make.write_text("#!/bin/sh\necho built in $(cat /proc/self/cgroup)\n")
        make.chmod(0o755)
        host.cleanup.callback(make.unlink)
    ana = Person(host, folder)
    text = (DOCUMENTS / "README.md").read_text()
    spans = re.findall(r"`((?:tenantctl run|tenantctl simulate host|systemctl start) [^`\n]+)`", text)
    jobs = [span for span in spans if span.startswith("tenantctl run")]
    assert jobs and len(spans) > len(jobs), spans
    world, has_restored = None, False
    for language, lines in blocks("README.md"):
        if language == "yaml":
            (folder / "policy.yaml").write_text("\n".join(lines) + "\n")
            continue
        for line in commands(lines):
            if line.startswith("make "):
                continue
            if line.endswith("tenantctl mode observe"):
                use(host, ana, world, spans)
                has_restored = True
            shown = ana.types(line)
            if "apt install" in line:
                wait_until(lambda: host.installed("status").returncode == 0, "the first tick")
                assert json.loads(host.installed("status", "--json").stdout)["mode"] == "observe"
                # The service and its socket have cgroups of their own, which end with them.
                run("systemctl", "stop", "tenantd.service")
                world = Host("system.slice", "user.slice", "user-1000.slice", delegated=("memory", "pids"))
                run("systemctl", "start", "tenantd.socket", "tenantd.service")
                wait_until(lambda: host.installed("status").returncode == 0, "the first tick")
            if line.endswith("tenantctl reload"):
                # The next tick has the tenants; a person does not type faster.
                wait_until(lambda: "web" in host.installed("status").stdout, "the tick after the reload")
            if has_restored and "systemctl stop" in line:
                assert active("tenantd.service") == "inactive"
    assert has_restored and world
    world.expect_as_before(lambda: run("journalctl", "--no-pager", "-o", "cat", "-u", "tenantd"))
    host.note(f"the commands took {ana.seconds:.0f} s")
    assert ana.seconds < 60 * MINUTES_MAX


def use(host, ana, world, spans):
    """While the policy of the README is in force: the commands of its text, and what they are for."""
    assert world is not None, "the policy is in force before anything was installed"
    shown = lambda: ana.types("tenantctl me")
    wait_until(lambda: "people/ana" in shown(), "ana to be a tenant")
    assert "share now" in shown() and "share if busy" in shown()
    wait_until(lambda: "people/ana" in host.installed("status").stdout, "ana in the status")
    for span in spans:
        if span.startswith("tenantctl run"):
            assert "user-1000.slice" in ana.types(span), span
        elif span.startswith("systemctl"):
            ana.types(f"sudo {span}")
            wait_until(lambda: active("tenantd-serve.service") == "active", "the page")
            run("systemctl", "stop", "tenantd-serve.service")
        else:
            ana.types(span)


@newer
def test_commands_of_the_other_documents_work(host):
    """Those that need an installed package and systemd, and the examples of units and drop-ins."""
    folder = folder_of_the_reader(host)
    without_a_package(host)
    ana = Person(host, folder)
    ana.types(f"sudo {documented('README.md')[0]}")
    wait_until(lambda: host.installed("status").returncode == 0, "the first tick")
    for line in documented("tenantctl.1"):
        ana.types(f"sudo {line}")
    wait_until(lambda: json.loads(host.installed("status", "--json").stdout)["mode"] == "enforce", "the mode")
    for line in documented("docs/using.md"):
        ana.types(f"sudo {line}")
    host.cleanup.callback(finish, ["rm", "-f", "/etc/profile.d/tenantd.sh"])
    Path("/etc/slurm").mkdir(exist_ok=True)
    for line in documented("docs/hosts.md"):
        ana.types(f"sudo {line}")
    expect_a_scope(host, ana)
    expect_units(host)


def expect_a_scope(host, ana):
    """A job in the slice of a user has a scope, by the number of the job."""
    wait_until(lambda: json.loads(ana.types("tenantctl me --json"))["tenants"], "ana to be a tenant")
    session = {"PAMName": "login", "User": "ana"}
    start(host, "job.service", "/usr/bin/tenantctl", "run", "--", "sleep", "600", **session)
    jobs = lambda: [job["id"] for job in json.loads(host.installed("jobs", "--json").stdout)["jobs"] if job["started"]]
    wait_until(jobs, "the job")
    number = jobs()[0]
    wait_until(lambda: active(f"tenantd-job-{number}.scope") == "active", "the scope of the job")
    for line in documented("docs/run.md"):
        ana.types("sudo " + line.replace("job-12", f"job-{number}"))
    run("systemctl", "stop", "job.service")
    cancelled = host.installed("cancel", str(number))
    wait_until(lambda: active(f"tenantd-job-{number}.scope") != "active", f"the scope to go: {cancelled}")


def expect_units(host):
    """Units and drop-ins of the documents are those of the systemd that is here."""
    number = 0
    for document in sorted(DOCUMENTS.glob("docs/*.md")):
        for language, lines in blocks(document.relative_to(DOCUMENTS)):
            if language != "ini":
                continue
            for name, text in files(lines):
                path = Path(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                # Two drop-ins of one unit may have one name: the second replaces the first.
                host.cleanup.callback(path.unlink, missing_ok=True)
                number += 1
    assert number >= 5, number
    run("systemd-sysusers")
    run("systemctl", "daemon-reload")
    host.cleanup.callback(finish, ["systemctl", "daemon-reload"])
    units = ["tenantd.service", "tenantd-metrics.service", "tenantd-metrics.timer"]
    done = finish(["systemd-analyze", "verify", "--man=no", *units])
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    run("systemctl", "start", "tenantd-metrics.service")
    prom = Path("/var/lib/tenantd-metrics/tenantd.prom")
    assert "tenantd_up 1" in prom.read_text()


def files(lines):
    """Files of a block: each begins with a comment that has its path, or the unit of a drop-in."""
    found = []
    for line in lines:
        if path := re.match(r"# (/[^ ,]+)", line):
            found.append((path.group(1), []))
        elif unit := re.match(r"# systemctl edit (\S+)", line):
            found.append((f"/etc/systemd/system/{unit.group(1)}.d/{len(lines)}.conf", []))
        else:
            found[-1][1].append(line)
    return [(name, "\n".join(text) + "\n") for name, text in found]
