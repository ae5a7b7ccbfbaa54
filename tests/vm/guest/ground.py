"""Where the tenants of a comparison live: slices of systemd's, as in the guests.

A comparison asks its ground for everything that depends on that, so that the same scenarios run elsewhere too
(tests/compare_here.py).
"""

import contextlib
import os
from pathlib import Path

from cgroups import MOUNT, Cgroup
from host import finish, run
from units import start

TOP = "tenants.slice"


class Slices:
    """Slices below that of all tenants; loads are services in them."""

    def about(self):
        """What a table says of the machine beside what it finds by itself."""
        return {"disk": "virtio, cache=unsafe"}

    def unit(self, slice):
        return f"tenants-{slice}.slice" if slice else TOP

    def group(self, slice):
        return Cgroup(MOUNT / TOP / self.unit(slice))

    def where(self, slices):
        """What a policy says of where the tenant in these slices lives."""
        if len(slices) == 1:
            return {"owner": "systemd"}
        return {"match": {"unit": [self.unit(slice) for slice in slices]}}

    def set(self, slice, *settings):
        """Sets properties (systemd.resource-control) until the next start; of all tenants' slice without a name."""
        run("systemctl", "set-property", "--runtime", self.unit(slice), *settings)

    def revert(self, slice):
        finish(["systemctl", "revert", self.unit(slice)])

    def start(self, host, load, command):
        start(host, load.unit, *command, slice=self.unit(load.slice), **load.settings())

    def stop(self, load):
        # What keeps one from stopping is told where its cgroup stays.
        finish(["systemctl", "stop", load.unit])

    def signal(self, load, signum):
        # By systemctl it takes a tenth of a second here.
        for pid in self.group(load.slice).child(load.unit).pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    def clear(self, slices):
        finish(["systemctl", "stop", *map(self.unit, slices), TOP])

    def sleepers(self, host, slices):
        """A process that sleeps in each."""
        file = Path("/run/systemd/system/idle@.service")
        file.write_text("[Service]\nExecStart=sleep infinity\nSlice=tenants-%i.slice\n")
        units = [f"idle@{slice}.service" for slice in slices]
        host.cleanup.callback(lambda: (file.unlink(), run("systemctl", "daemon-reload")))
        host.cleanup.callback(finish, ["systemctl", "stop", *units])
        run("systemctl", "daemon-reload")
        return lambda: run("systemctl", "start", *units)

    def daemon(self, host, policy, *options):
        return host.daemon(policy, None, *options)
