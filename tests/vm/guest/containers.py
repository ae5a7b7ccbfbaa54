"""Containers of podman's, with an image that is made on the spot of what this guest has."""

import os
import tarfile

from cgroups import MOUNT, Cgroup
from host import finish, run

IMAGE = "localhost/shell"
PROGRAMS = ["sh", "cat", "head", "sleep"]


class Podman:
    """As root and without a network: the images are known to nobody else, and need no registry."""

    def __init__(self, host):
        self.host = host
        archive = host.folder() / "image.tar"
        with tarfile.open(archive, "w", dereference=True) as made:
            for path in sorted(files_of(PROGRAMS)):
                made.add(path, arcname=path.lstrip("/"))
        host.cleanup.callback(finish, ["systemctl", "stop", "machine.slice"])
        run("podman", "import", "--quiet", str(archive), IMAGE)
        host.cleanup.callback(run, "podman", "rmi", "--force", IMAGE)
        host.cleanup.callback(run, "podman", "rm", "--all", "--force", "--time", "0")

    def start(self, name, script, *options):
        """A container that runs a script; returns the cgroup of its scope."""
        fixed = ["--detach", "--network=none", f"--name={name}"]
        started = run("podman", "run", *fixed, *options, IMAGE, "/usr/bin/sh", "-c", script).strip()
        found = [group for group in Cgroup(MOUNT).below() if group.path.name == f"libpod-{started}.scope"]
        assert len(found) == 1, found
        return found[0]

    def remove(self, name):
        run("podman", "rm", "--force", "--time", "0", name)


def files_of(programs):
    """The programs, and the libraries that they need."""
    needed = set()
    for program in programs:
        path = run("sh", "-c", f"command -v {program}").strip()
        libraries = [word for word in run("ldd", path).split() if word.startswith("/")]
        needed |= {os.path.join("/usr/bin", program), *libraries}
    return needed
