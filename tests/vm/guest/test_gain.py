"""What a program that starts a thread for each CPU it sees gains from `cpus: dop`, beside a tenant that
competes. Figures are only said: what is judged is that the program sees the width of its tenant."""

import subprocess
import time

from host import BIN
from test_dop import EFFECTIVE, cpus_of, shape_numa

# Items of work that take an emulated CPU a few seconds.
WORK = {"barrier": 400, "ticket": 20000, "independent": 2000}
LIMIT_SECONDS = 25


class Pair:
    """A tenant that works and one that keeps every CPU busy that it may use, both settled."""

    def __init__(self, host, cpus):
        self.host = host
        self.root = host.delegated()
        self.daemon = host.daemon(
            host.policy({name: {"weight": 100, "cpus": cpus} for name in ("worker", "rival")}), self.root
        )
        self.worker, self.rival = (self.root.child(name) for name in ("worker", "rival"))
        self.daemon.until(lambda: self.worker.exists() and self.rival.exists(), "the tenants")
        awake = host.burn(self.worker, host.cpus)
        self.competing = host.burn(self.rival, host.cpus)
        if cpus == "dop":
            self.daemon.until(self.halves, "a half of the CPUs for each", 60)
        time.sleep(2)
        host.stop(awake)

    def halves(self):
        sets = [cpus_of(tenant.read(EFFECTIVE)) for tenant in (self.worker, self.rival)]
        return sets[0].isdisjoint(sets[1]) and all(len(cpus) == self.host.cpus / 2 for cpus in sets)

    def run(self, kind):
        """How long the work took, or the limit, and how many threads did it."""
        command = [str(BIN / "one_per_cpu"), kind, str(WORK[kind])]
        started = time.monotonic()
        process = self.host.start_in(self.worker, command, stdout=subprocess.PIPE, text=True)
        try:
            said, _ = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.host.stop([process])
            return LIMIT_SECONDS, None
        return time.monotonic() - started, int(said)

    def end(self):
        self.host.stop(self.competing)
        assert self.daemon.terminate() == 0, self.daemon.log()


@shape_numa
def test_a_program_sees_the_width_of_its_tenant(host):
    took = {}
    for cpus, width in (("shared", host.cpus), ("dop", host.cpus // 2)):
        pair = Pair(host, cpus)
        for kind in WORK:
            seconds, threads = pair.run(kind)
            assert threads in (None, width), f"{kind} under cpus: {cpus} started {threads} threads"
            took[kind, cpus] = seconds
        pair.end()
    for kind in WORK:
        alone, dop = took[kind, "shared"], took[kind, "dop"]
        least = "at least " if alone == LIMIT_SECONDS else ""
        host.note(
            f"{kind}: {least}{alone:.1f} s by weights alone, {dop:.1f} s with cpus: dop: "
            f"{least}{alone / dop:.1f} times as fast"
        )
