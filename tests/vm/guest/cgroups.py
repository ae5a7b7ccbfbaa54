"""Cgroups of the unified hierarchy, as a scenario sees them: plain files, read and written."""

import contextlib
import errno
import os
import signal
import stat
import time
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")

# How long anything is waited for, in seconds, before it is taken for something that never comes. A guest on a
# busy host is thirty times as slow as a machine, so this is no bound of any program's. The harness's own test
# waits for something that does not come.
PATIENCE = int(os.environ.get("SCENARIO_PATIENCE", "180"))

# Files with write permission that are not settings: what they read changes by itself, or reading
# and writing them are two different things.
NOT_SETTINGS = {
    "cgroup.procs",
    "cgroup.threads",
    "cgroup.kill",
    "cpu.pressure",
    "io.pressure",
    "irq.pressure",
    "memory.pressure",
    "memory.peak",
    "memory.swap.peak",
    "memory.reclaim",
    "pids.peak",
}


@contextlib.contextmanager
def gone_is_not_found():
    """A cgroup that is removed between open and read or write answers ENODEV: it is not there, like one
    that was removed before."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        raise FileNotFoundError(errno.ENOENT, "removed meanwhile", error.filename) from error


class Cgroup:
    """One cgroup, by its path under the mount. Where it is not there, or not any more, reading and
    writing raise FileNotFoundError."""

    def __init__(self, path):
        self.path = Path(path)

    @classmethod
    def of_pid(cls, pid):
        line = Path(f"/proc/{pid}/cgroup").read_text().strip().splitlines()[-1]
        return cls(MOUNT / line.split("::/", 1)[1])

    @property
    def name(self):
        """The path as the kernel and our programs spell it, from the mount on."""
        return "/" + str(self.path.relative_to(MOUNT)) if self.path != MOUNT else "/"

    def exists(self):
        return self.path.is_dir()

    def read(self, file):
        return read_whole(self.path / file).strip()

    def read_or(self, file, default):
        """What the file says, or `default` where there is none. To ask first whether it is there would be a race:
        between the question and the read it can go."""
        try:
            return self.read(file)
        except FileNotFoundError:
            return default

    def holds(self, file, text):
        """Whether the file is there and says this."""
        return self.read_or(file, None) == text

    def write(self, file, value):
        """One write, without truncation: the kernel takes each write as a command."""
        with gone_is_not_found():
            fd = os.open(self.path / file, os.O_WRONLY)
            try:
                os.write(fd, str(value).encode())
            finally:
                os.close(fd)

    def stat(self, file, key):
        for line in self.read(file).splitlines():
            name, value = line.split()
            if name == key:
                return int(value)
        raise KeyError(f"{self.name}/{file} has no {key}")

    def usage_usec(self):
        return self.stat("cpu.stat", "usage_usec")

    def make(self, name):
        child = Cgroup(self.path / name)
        child.path.mkdir()
        return child

    def child(self, name):
        return Cgroup(self.path / name)

    def children(self):
        return [Cgroup(p) for p in sorted(self.path.iterdir()) if p.is_dir()]

    def below(self):
        """This cgroup and all under it, parents first."""
        return [Cgroup(path) for path, _, _ in os.walk(self.path)]

    def pids(self):
        return [int(pid) for pid in self.read("cgroup.procs").split()]

    def enter(self, pid):
        self.write("cgroup.procs", pid)

    def kill(self):
        """Ends every process in and under it, and waits until the kernel calls it empty, or somebody has
        removed it."""
        with contextlib.suppress(FileNotFoundError):
            if (self.path / "cgroup.kill").exists():
                self.write("cgroup.kill", "1")
            else:
                for group in self.below():
                    for pid in group.pids():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
            is_empty = lambda: not self.exists() or self.stat("cgroup.events", "populated") == 0
            wait_until(is_empty, f"{self.name} to be empty")

    def remove(self):
        """Removes it with all under it; everything in it must be dead."""
        for group in reversed(self.below()):
            group.path.rmdir()


def settings(top, leave_out=()):
    """Every setting of the cgroups in and under `top`: {path of the file: what it holds}.

    A setting is a file that can be read and written. Cgroups in `leave_out` are passed over with
    all that is under them. The keys also say which cgroups there are.
    """
    skipped = {str(group.path) for group in leave_out}
    found = {}
    for path, folders, files in os.walk(top.path):
        folders[:] = [f for f in folders if os.path.join(path, f) not in skipped]
        for file in files:
            full = os.path.join(path, file)
            try:
                if is_setting(file, full):
                    found[full] = read_whole(full)
            except FileNotFoundError:
                # Systemd disables a controller that no unit wants any more, some time: listed, and gone.
                continue
            except OSError as error:
                found[full] = f"error {error.errno}"
    return found


def whole_host():
    """Every setting that there is."""
    return settings(Cgroup(MOUNT))


IS_SETTING = {}


def is_setting(file, full):
    """The kernel gives files of one name the same mode in every cgroup: one of them is asked. There are
    thousands, and emulated processors are slow."""
    if file in NOT_SETTINGS:
        return False
    if file not in IS_SETTING:
        mode = os.stat(full).st_mode
        IS_SETTING[file] = bool(mode & stat.S_IRUSR and mode & stat.S_IWUSR)
    return IS_SETTING[file]


def read_whole(path):
    """The text of a small file of the kernel's, with as few system calls as there can be."""
    with gone_is_not_found():
        fd = os.open(path, os.O_RDONLY)
        try:
            parts = []
            while part := os.read(fd, 65536):
                parts.append(part)
        finally:
            os.close(fd)
    return b"".join(parts).decode()


def differences(before, after):
    """One line for each setting that is not what it was."""
    lines = []
    for file in sorted(before.keys() | after.keys()):
        was, now = before.get(file), after.get(file)
        if was != now:
            lines.append(f"{file}: {show(was)} became {show(now)}")
    return lines


def expect_same(before, after):
    """Every setting is what it was, and the same cgroups are there."""
    lines = differences(before, after)
    assert not lines, "\n".join([f"{len(lines)} settings differ: {lines[0]}", *lines[1:]])


def expect_soon_same(before, look):
    """The same for what `look()` returns, now or soon: systemd answers before it has done all that it was told."""
    try:
        wait_until(lambda: look() == before, "what was there before")
    except AssertionError:
        expect_same(before, look())


@contextlib.contextmanager
def telling(log):
    """What fails in here says what `log()` returns, too."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{error}\n{log()}") from None


def show(value):
    return "absent" if value is None else repr(value.strip())


def shares(groups, seconds):
    """The part of the CPU time of all `groups` that each of them used in the next `seconds`."""
    before = [group.usage_usec() for group in groups]
    time.sleep(seconds)
    used = [group.usage_usec() - was for group, was in zip(groups, before)]
    total = sum(used)
    assert total > 0, "nothing ran"
    return [part / total for part in used]


def wait_until(condition, what):
    """Polls until `condition()` holds; a scenario fails with `what` when it never does.

    Where the condition reads a file that is not there (systemd makes a cgroup and enables its controllers some time
    later), it does not hold yet.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        missing = ""
        try:
            if condition():
                return
        except FileNotFoundError as error:
            missing = f": {error}"
        assert time.monotonic() < deadline, f"waited {PATIENCE} s in vain for {what}{missing}"
        time.sleep(0.05)
