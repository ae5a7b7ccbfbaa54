"""It leaves no trace: however the daemon ends, every file holds what it held before, and nothing
outside its root was ever touched."""

import signal
import time

from cgroups import MOUNT, Cgroup, differences, expect_same, expect_soon_same, settings, telling
from host import restore
from marks import core, newest
from tenants import POLICY, make_lived_in, written


class Stage:
    """Lived-in tenants under load, a fourth that is not there yet, and how it all was before."""

    def __init__(self, host):
        self.host = host
        self.root = host.delegated()
        self.tenants = make_lived_in(self.root)
        for tenant in self.tenants:
            host.burn(tenant, 1)
        self.policy = host.policy({**POLICY, "late": {"weight": 50}})
        self.state = host.folder()
        self.inside = settings(self.root)
        self.outside = self.look_outside()

    def look_outside(self):
        return settings(Cgroup(MOUNT), leave_out=[self.root])

    def start(self, *says):
        """A daemon that has set its values, after it has said this."""
        daemon = self.host.daemon(self.policy, self.root, state=self.state)
        daemon.says(*says)
        daemon.until(lambda: written(self.tenants), "the weights of the policy")
        daemon.until(self.root.child("late").exists, "the cgroup of the tenant that had none")
        return daemon

    def expect_changed(self):
        """Without this, a daemon that does nothing would pass."""
        changed = differences(self.inside, settings(self.root))
        assert len(changed) >= 3, f"only {changed} changed"

    def expect_as_before(self, log):
        with telling(log):
            expect_same(self.inside, settings(self.root))
            expect_soon_same(self.outside, self.look_outside)


@core
def test_sigterm_restores_everything(host):
    stage = Stage(host)
    daemon = stage.start()
    stage.expect_changed()
    assert daemon.terminate() == 0, daemon.log()
    stage.expect_as_before(daemon.log)


def test_sigint_restores_everything(host):
    stage = Stage(host)
    daemon = stage.start()
    assert daemon.terminate(signal.SIGINT) == 0, daemon.log()
    stage.expect_as_before(daemon.log)


@core
@newest
def test_restore_after_kill_restores_everything(host):
    stage = Stage(host)
    daemon = stage.start()
    time.sleep(2)
    daemon.murder()
    stage.expect_changed()
    done = restore(stage.root, stage.state)
    assert done.returncode == 0, done.stderr
    stage.expect_as_before(lambda: done.stderr)


def test_start_after_kill_continues(host):
    """The second daemon must not take the first one's values for what was there before."""
    stage = Stage(host)
    stage.start().murder()
    # The values of the first are there until then.
    again = stage.start("restored the values from before tenantd")
    stage.expect_changed()
    time.sleep(2)
    assert again.terminate() == 0, again.log()
    stage.expect_as_before(again.log)


def test_restore_with_nothing_to_do_is_quiet(host):
    stage = Stage(host)
    done = restore(stage.root, stage.state)
    assert done.returncode == 0, done.stderr
    stage.expect_as_before(lambda: done.stderr)
