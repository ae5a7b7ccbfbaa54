"""Random administration of the guest's own cgroups, by the compiled tests."""

import os
import subprocess
from pathlib import Path

from cgroups import MOUNT
from host import BIN, Skip
from marks import both, long

TESTS = BIN / "tests"
STEPS = os.environ.get("SCENARIO_STEPS", "200")
SEED = os.environ.get("SCENARIO_SEED", "1")


@long
@both
def test_random_administration_of_the_kernel(host):
    """Its root is at the top of the hierarchy, so the tests run in the root cgroup, which may have processes and children."""
    if not TESTS.exists():
        raise Skip("the compiled tests are not in the guest: tests/vm/run.sh --tests FILE")
    environment = {"TENANTD_STEPS": STEPS, "TENANTD_SEED": SEED, "TENANTD_PROGRAMS": str(BIN), "TENANTD_REQUIRE_KERNEL": "1"}
    enter = lambda: Path(MOUNT, "cgroup.procs").write_text(str(os.getpid()))
    done = subprocess.run(
        [str(TESTS), "--include-ignored", "--nocapture", "--test-threads=1", "kernel::soak::"],
        env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True, preexec_fn=enter,
    )
    output = done.stdout + done.stderr
    for line in output.splitlines():
        if "steps" in line:
            host.note(line.strip())
    assert done.returncode == 0 and "1 passed" in output, output[-6000:]
