"""Kills when memory runs out, with `memory: { victims: share }`: a hundred of them, without swap, with swap on a disk and in
zram, of the whole host and below a limit above all tenants. Each is compared with the rule of docs/host.md, which is worked out
here from the sizes alone."""

import json
import os
import re
import shutil
import time
from pathlib import Path

from cgroups import MOUNT, Cgroup, telling, wait_until
from host import TENANTCTL, finish, run
from marks import long, newer
from memory import MIB, meminfo
from test_isolation import swap_in_zram, swap_on_disk
from test_units import SERVICE, install, log
from units import start

# Tenants with their weights and sizes in MiB. At weights of 1 : 4 : 2 : 1 and 900 MiB or more, `greedy` holds twice its share
# in small processes, `modest` has the largest process within its share, and `kept` is within its guarantee.
TENANTS = {
    "greedy": {"weight": 1, "match": {"unit": "greedy.service"}},
    "modest": {"weight": 4, "match": {"unit": "modest.service"}},
    "kept": {"weight": 2, "guarantee": {"memory": "200MiB"}, "match": {"unit": "kept.service"}},
    "batch": {"weight": 1, "owner": "systemd", "allow": {"users": ["root"]}},
}
GREEDY, MODEST, KEPT = [60] * 4, [170], [160]
JOB, SMALL_JOB = 100, 40
SLICE, LIMIT = "tenants.slice", 900
# A death is to be reported so soon: two ticks.
TOLD_MAX_SECONDS = 2.0

# Holds an amount in each of some processes.
HOLD = """
import os, sys, time
sizes = [int(size) for size in sys.argv[1:]]
for size in sizes[1:]:
    if os.fork() == 0:
        sizes = [size]
        break
held = bytearray(b"x") * (sizes[0] << 20)
time.sleep(1e6)
"""
# Takes memory at a pace in MiB/s until the kernel kills.
TAKE = """
import re, sys, time
kills = lambda: re.search(r"^oom_kill (\\d+)", open("/proc/vmstat").read(), re.M)[1]
before, held, pace = kills(), [], float(sys.argv[1])
while kills() == before:
    held.append(bytearray(b"x") * (1 << 20))
    time.sleep(1 / pace)
"""
FILL_PACE, GROW_PACE = 200, 30
# The mark of the first victim.
FIRST = 997
# Before the kernel kills, it takes the pages of all programs again and again, on emulated CPUs for minutes. The multi-generational
# LRU kills once the pages of so many milliseconds do not fit (Documentation/admin-guide/mm/multigen_lru.rst).
LRU_GEN = Path("/sys/kernel/mm/lru_gen")
KEPT_MS = 1000


class Stage:
    def __init__(self, host):
        self.host = host
        for unit in ("greedy.service", "modest.service", "kept.service", "filler.service"):
            host.cleanup.callback(finish, ["systemctl", "stop", unit])
        install(host, TENANTS)
        shutil.copy(host.policy(TENANTS, memory={"victims": "share"}), "/etc/tenantd/tenants.yaml")
        run("systemctl", "start", SERVICE)
        self.jobs = []
        host.cleanup.callback(self.end_jobs)
        self.kmsg = open("/dev/kmsg", "rb", buffering=0)
        os.set_blocking(self.kmsg.fileno(), False)
        host.cleanup.callback(self.kmsg.close)
        self.rows = []
        for name, value in (("enabled", "y"), ("min_ttl_ms", KEPT_MS)):
            host.cleanup.callback((LRU_GEN / name).write_text, (LRU_GEN / name).read_text())
            (LRU_GEN / name).write_text(str(value))

    def status(self):
        return json.loads(run(TENANTCTL, "status", "--json"))

    @staticmethod
    def running():
        return json.loads(run(TENANTCTL, "jobs", "--json"))["jobs"]

    def serve(self, name, sizes):
        start(self.host, f"{name}.service", "python3", "-c", HOLD, *map(str, sizes), slice=SLICE)

    def job(self, size):
        """Starts a job; returns its number once it runs."""
        known = {job["id"] for job in self.running()}
        self.jobs.append(self.host.start_in(Cgroup.of_pid("self"), [*self.as_job(), "python3", "-c", HOLD, str(size)]))
        return self.newest(known)

    def as_job(self):
        return [str(TENANTCTL), "run", "--tenant", "batch", "--dop", "1", "--"]

    def newest(self, known):
        found = lambda: [job["id"] for job in self.running() if job["id"] not in known and job["state"] == "running"]
        with telling(log):
            wait_until(found, "the job to run")
        return found()[0]

    def end_jobs(self):
        self.host.stop(self.jobs)
        self.jobs.clear()

    def restore(self, nr_jobs, size):
        """Everything that the last kill has ended runs again."""
        for name, sizes in (("greedy", GREEDY), ("modest", MODEST), ("kept", KEPT)):
            unit = Cgroup(MOUNT / SLICE / f"{name}.service")
            if not unit.exists() or len(unit.pids()) < len(sizes):
                finish(["systemctl", "stop", f"{name}.service"])
                wait_until(lambda: not unit.exists(), f"{name} to be gone")
                self.serve(name, sizes)
        running = sorted(job["id"] for job in self.running())
        for id in running[nr_jobs:]:
            self.host.ctl("cancel", id)
        while len(running) < nr_jobs:
            running = sorted([*running, self.job(size)])
        wait_until(lambda: len(self.running()) == nr_jobs, "the jobs alone")
        whole = {"greedy": sum(GREEDY), "modest": sum(MODEST), "kept": sum(KEPT), "batch": nr_jobs * size}
        # A tenant without jobs may hold nothing at all.
        is_whole = lambda: all(self.sizes()[name] >= 0.95 * size * MIB for name, size in whole.items())
        with telling(lambda: f"{whole} MiB: {self.sizes()}, {meminfo('MemAvailable')} available\n{log()}"):
            wait_until(is_whole, "the sizes of all tenants")

    def sizes(self):
        """Memory of each tenant in bytes, also what was swapped of it."""
        return {it["name"]: (it["usage_memory_bytes"] or 0) + self.swapped(it["name"]) for it in self.status()["tenants"]}

    def swapped(self, tenant):
        group = MOUNT / SLICE / ("tenants-batch.slice" if tenant == "batch" else f"{tenant}.service")
        file = group / "memory.swap.current"
        return int(file.read_text()) if file.exists() else 0

    def kills(self):
        """Kills in the kernel's log since the last look: seconds since boot, number, cgroup and the limit, if any."""
        found = []
        while True:
            try:
                record = self.kmsg.read(8192)
            except BrokenPipeError:
                continue
            if not record:
                return found
            head, _, text = record.decode(errors="replace").partition(";")
            if kill := re.match(r"oom-kill:constraint=(\w+),.*task_memcg=([^,]*),task=[^,]*,pid=(\d+)", text):
                found.append((int(head.split(",")[2]) / 1e6, int(kill[3]), kill[2], kill[1]))

    @staticmethod
    def logged_at(pid):
        """Time of the line about this victim in the log of tenantd, in seconds since boot."""
        lines = run("journalctl", "-u", SERVICE, "-o", "json", "ACTION=death", f"PID={pid}").splitlines()
        return int(json.loads(lines[-1])["__MONOTONIC_TIMESTAMP"]) / 1e6

    def force(self, kind, want, grows, small_job):
        """Memory runs out once; notes whether the work ended that the rule has."""
        self.kills()
        before = {it["name"]: it["nr_deaths"] for it in self.status()["tenants"]}
        if grows:
            known = {job["id"] for job in self.running()}
            command = [*self.as_job(), "python3", "-c", TAKE, str(GROW_PACE)]
            taker = self.host.start_in(Cgroup.of_pid("self"), command)
            taken = self.newest(known)
            want = ("batch", taken)
        else:
            slice = {"slice": SLICE} if kind == "limit" else {}
            start(self.host, "filler.service", "python3", "-c", TAKE, str(FILL_PACE), OOMScoreAdjust="-1000", **slice)
            taker = None
        # Memory that the filler leaves to the tenants, at each look.
        killed, left = [], []

        def has_killed():
            killed.extend(self.kills())
            left.append(int(Cgroup(MOUNT / SLICE).read("memory.current")) + meminfo("MemAvailable"))
            return killed

        with telling(log):
            wait_until(has_killed, "a kill")
        told = lambda: [it for it in self.status()["tenants"] if it["nr_deaths"] > before[it["name"]]]
        with telling(lambda: f"{killed}\n{log()}"):
            wait_until(told, "its report")
        (ended, *others) = told()
        death = ended["deaths"][-1 - (ended["nr_deaths"] - before[ended["name"]] - 1)]
        found = (ended["name"], death["job"])
        ended_jobs = {death["job"]}
        if taker:
            self.host.stop([taker])
            ended_jobs.add(taken)
        # It ends by itself: it takes nothing after a kill.
        wait_until(lambda: finish(["systemctl", "is-active", "--quiet", "filler.service"]).returncode != 0, "the filler to end")
        killed.extend(self.kills())
        wait_until(lambda: not ended_jobs & {job["id"] for job in self.running()}, f"the end of {ended_jobs}")
        # Systemd stops a service with a process that was killed (`OOMPolicy=stop`), some time after the kill.
        services = {cgroup.rsplit("/", 1)[1] for _, _, cgroup, _ in killed if cgroup.endswith(".service")}
        for service in services:
            wait_until(lambda: finish(["systemctl", "is-active", "--quiet", service]).returncode != 0, f"the end of {service}")
        at = self.logged_at(death["pid"]) - killed[0][0]
        # Shares are parts of what the filler leaves, and with swap that is less than a small job holds.
        share = min(left) * TENANTS["batch"]["weight"] / sum(it["weight"] for it in TENANTS.values())
        if small_job and kind == "host" and SMALL_JOB * MIB > share:
            want = ("batch", small_job)
        cause = {"host": "host", "limit": "limit"}[kind]
        row = {
            "want": want, "found": found, "seconds": at,
            "right": found == want and not others,
            "kept": not any("kept.service" in cgroup for _, _, cgroup, _ in killed),
            "log": any(pid == death["pid"] for _, pid, _, _ in killed), "cause": death["cause"] == cause,
        }
        self.rows.append(row)
        if not (row["right"] and row["log"] and row["cause"]):
            self.host.note(f"{row}: {killed} {death['text']}")


def force_kills(host, swap, kind, count):
    """So many kills of the whole host, or below a limit above all tenants."""
    stage = Stage(host)
    if kind == "limit":
        host.cleanup.callback(finish, ["systemctl", "revert", SLICE])
        swap_max = [] if swap == "none" else ["MemorySwapMax=64M"]
        run("systemctl", "set-property", "--runtime", SLICE, f"MemoryMax={LIMIT}M", *swap_max)
    # What was measured before a failure is reported too.
    host.cleanup.callback(lambda: report(host, f"{kind}, swap {swap}", stage.rows))
    for number in range(count):
        # Jobs beside a greedy service; the service alone; a small job, which is within the share of its tenant; a job
        # that grows by itself.
        nr_jobs, size, grows = [(2, JOB, False), (0, JOB, False), (1, SMALL_JOB, False), (0, JOB, True)][number % 4]
        stage.restore(nr_jobs, size)
        youngest = max(stage.running(), key=lambda job: job["id"], default=None)
        want = ("batch", youngest["id"]) if nr_jobs == 2 else ("greedy", None)
        pids = lambda: [youngest["pid"]] if nr_jobs == 2 else Cgroup(MOUNT / SLICE / "greedy.service").pids()
        if not grows:
            with telling(lambda: f"{stage.status()['victim']}\n{log()}"):
                wait_until(lambda: all(score(pid) == FIRST for pid in pids()), f"{want} to be marked as the first victim")
        stage.force(kind, want, grows, youngest["id"] if nr_jobs == 1 else None)
    stage.end_jobs()
    run("systemctl", "stop", SERVICE)
    judge(stage.rows)


def score(pid):
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def report(host, what, rows):
    count = lambda holds: sum(map(holds, rows))
    late = sorted(row["seconds"] for row in rows) or [0]
    host.note(
        f"{what}: {len(rows)} kills, {count(lambda row: row['right'])} by the rule, {count(lambda row: not row['kept'])} within a guarantee, "
        f"{count(lambda row: row['log'] and row['cause'])} with process and cause, {count(lambda row: row['seconds'] <= TOLD_MAX_SECONDS)} reported "
        f"within {TOLD_MAX_SECONDS} s, median {late[len(late) // 2]:.2f} s, longest {late[-1]:.2f} s"
    )


def judge(rows):
    assert all(row["kept"] for row in rows), "a tenant within its guarantee was killed"
    assert all(row["right"] for row in rows), "victims that the rule does not have"
    assert all(row["log"] and row["cause"] for row in rows), "kills without their cause"


@long
@newer
def test_kills_of_the_host_without_swap(host):
    assert meminfo("SwapTotal") == 0
    force_kills(host, "none", "host", 20)


@long
@newer
def test_kills_below_a_limit_without_swap(host):
    assert meminfo("SwapTotal") == 0
    force_kills(host, "none", "limit", 20)


@long
@newer
def test_kills_of_the_host_with_swap_on_disk(host):
    swap_on_disk(host)
    force_kills(host, "disk", "host", 12)


@long
@newer
def test_kills_below_a_limit_with_swap_on_disk(host):
    swap_on_disk(host)
    force_kills(host, "disk", "limit", 18)


@long
@newer
def test_kills_of_the_host_with_swap_in_zram(host):
    swap_in_zram(host)
    force_kills(host, "zram", "host", 10)


@long
@newer
def test_kills_below_a_limit_with_swap_in_zram(host):
    swap_in_zram(host)
    force_kills(host, "zram", "limit", 20)
