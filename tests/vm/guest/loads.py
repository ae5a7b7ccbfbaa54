"""The loads of a comparison: services in the slices of their tenants, and what each has got done.

A load keeps count of its work by itself (examples/load.rs), and so says the same under every way of sharing. The file
cache that a reader depends on, and the hog beside it, are those of memory.py.
"""

import struct
import tempfile
from pathlib import Path

from cgroups import wait_until
from host import BIN, run
from memory import MIB, PACED_READ, PACED_TAKE, meminfo

LOAD = BIN / "load"
# A reader wants its whole file in this time.
PASS_SECONDS = 3
# Where no more of the memory than this is available, it is full.
FULL_RATIO = 0.2


class Load:
    """A service in the slice of a tenant that keeps count of its units of work in a file."""

    def __init__(self, slice, *arguments, victim=False):
        self.slice, self.arguments = slice, arguments
        # Whose seconds are looked at one by one.
        self.victim = victim
        self.unit = f"load-{slice}.service"

    def command(self):
        kind, *rest = self.arguments
        return [str(LOAD), kind, str(self.file), *map(str, rest)]

    def settings(self):
        return {}

    def start(self, host, folder):
        # A new file for each start: what an earlier one counted is over.
        self.file = Path(tempfile.mktemp(dir=folder, prefix=f"{self.slice}-"))
        host.ground.start(host, self, self.command())

    def done(self):
        """Units since it was started."""
        data = self.file.read_bytes() if self.file.exists() else b""
        return sum(struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8]))

    def waits(self):
        """What was waited for, in seconds, in order."""
        file = self.file.with_name(f"{self.file.name}.waits")
        data = file.read_bytes() if file.exists() else b""
        return [usec / 1e6 for (usec,) in struct.iter_unpack("<I", data[: len(data) // 4 * 4])]


class Reader(Load):
    """Reads a file of so many bytes in random order, all of it once in `PASS_SECONDS`; counts MiB."""

    def __init__(self, host, slice, size):
        self.size = size // MIB * MIB
        super().__init__(slice, "reads", self.size // MIB, "MiB in", PASS_SECONDS, "s", victim=True)
        self.hot = Path(f"/var/tmp/{slice}")
        with open(self.hot, "wb") as made:
            for _ in range(self.size // MIB):
                made.write(b"x" * MIB)
        host.cleanup.callback(self.hot.unlink)
        run("sync")

    def command(self):
        pace = self.size / MIB / PASS_SECONDS
        return ["python3", "-c", PACED_READ, str(self.hot), str(self.file), str(pace)]

    def start(self, host, folder):
        # Every way begins without the file in memory, and with a reader that has seen all of it.
        Path("/proc/sys/vm/drop_caches").write_text("1")
        super().start(host, folder)
        wait_until(lambda: self.number(1), f"{self.unit} to have read all")

    def number(self, which):
        data = self.file.read_bytes() if self.file.exists() else b""
        return int.from_bytes(data[8 * which : 8 * which + 8], "little")

    def done(self):
        return self.number(0)


class Hog(Load):
    """Takes memory without end, and is started again when it is killed; counts MiB."""

    def __init__(self, slice):
        super().__init__(slice, "takes memory")

    def command(self):
        return ["python3", "-c", PACED_TAKE, "-1", "0", "/dev/null", str(self.file)]

    def start(self, host, folder):
        super().start(host, folder)
        # What it goes on to do begins where the memory is full, or a limit has ended it once.
        total = meminfo("MemTotal")
        is_full = lambda: meminfo("MemAvailable") < FULL_RATIO * total or self.done() * MIB > total
        wait_until(is_full, "the hog to fill the memory")

    def settings(self):
        return {"Restart": "always", "RestartSec": "200ms", "StartLimitIntervalSec": "0"}

    def done(self):
        return int.from_bytes(self.file.read_bytes()[:8], "little") if self.file.exists() else 0


class Build(Load):
    """Builds a program of so many C files over and over, with as many compilers as there are CPUs; counts files."""

    FUNCTIONS = 6

    def __init__(self, host, slice, nr_files):
        super().__init__(slice, "builds", nr_files, "files", victim=True)
        self.sources = host.folder()
        for number in range(nr_files):
            body = "\n".join(
                f"int f{number}_{i}(int x) {{ for (int j = 0; j < x; j++) x ^= (x >> {i + 1}) * {2 * i + 3}; return x; }}"
                for i in range(self.FUNCTIONS)
            )
            (self.sources / f"f{number}.c").write_text(body)
        objects = " ".join(f"f{number}.o" for number in range(nr_files))
        # A line for each file that is compiled.
        (self.sources / "Makefile").write_text(
            f"all: {objects}\n%.o: %.c\n\t@gcc -O1 -c -o $@ $< && echo >>$(TOLD)\n"
        )

    def command(self):
        script = f"while :; do rm -f *.o; make -s -j$(nproc) TOLD={self.file}; done"
        return ["/bin/sh", "-c", f"cd {self.sources} && {script}"]

    def done(self):
        return self.file.stat().st_size if self.file.exists() else 0
