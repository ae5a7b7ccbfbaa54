"""The loads of a comparison: services in the slices of their tenants, and what each has got done.

A load keeps count of its work by itself (examples/load.rs), and so says the same under every way of sharing. The file
cache that a reader depends on, and the hog beside it, are those of memory.py.
"""

import re
import shutil
import struct
import tempfile
import time
from pathlib import Path

from cgroups import wait_until
from host import BIN, Skip, run
from memory import GIVE_BACK_SECONDS, MIB, PACED_READ, PACED_TAKE, meminfo

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


class Stream(Load):
    """Holds a part of the memory, and reads a file of half of it without end, in two processes; counts MiB read."""

    FILE_RATIO = 0.5

    def __init__(self, host, slice, held_ratio):
        total = meminfo("MemTotal")
        self.held, size = int(held_ratio * total) // MIB, int(self.FILE_RATIO * total) // MIB
        super().__init__(slice, "holds", self.held, "MiB and reads", size, "MiB without end")
        self.stream = Path(f"/var/tmp/{slice}")
        with open(self.stream, "wb") as made:
            # None of it is on the disk: it is read as fast as can be.
            made.truncate(size * MIB)
        host.cleanup.callback(self.stream.unlink)

    def command(self):
        return ["python3", "-c", PACED_TAKE, str(self.held), "0", str(self.stream), str(self.file)]

    def start(self, host, folder):
        super().start(host, folder)
        enough = 4 * self.stream.stat().st_size
        wait_until(lambda: self.done() * MIB > enough, "the stream to have filled the memory")
        time.sleep(GIVE_BACK_SECONDS)

    def done(self):
        data = self.file.read_bytes() if self.file.exists() else b""
        return sum(int.from_bytes(data[at : at + 8], "little") for at in (8, 16))


class Build(Load):
    """Builds a program of so many C files over and over, with as many compilers as there are CPUs; counts files."""

    FUNCTIONS = 6
    # What stands before `make` where builds are admitted as jobs, which are as wide as they are told.
    admitted = ()

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
        width = () if self.admitted else ("-j$(nproc)",)
        make = " ".join([*self.admitted, "make", "-s", *width, f"TOLD={self.file}"])
        script = f"while :; do rm -f *.o; {make}; done"
        return ["/bin/sh", "-c", f"cd {self.sources} && {script}"]

    def done(self):
        return self.file.stat().st_size if self.file.exists() else 0


class Database(Load):
    """PostgreSQL with the clients of pgbench beside it, in one service; counts transactions. Nothing is synced: what is
    measured does not wait for the disk."""

    CLIENTS, SCALE = 4, 2

    def __init__(self, host, slice):
        super().__init__(slice, "pgbench", self.CLIENTS, "clients", victim=True)
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if not programs:
            raise Skip("no PostgreSQL here")
        self.programs, self.starts = programs[-1].parent, 0
        self.folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix=f"{slice}-"))
        host.cleanup.callback(shutil.rmtree, self.folder)
        shutil.chown(self.folder, "postgres", "postgres")
        self.as_server("initdb", "--no-sync", "--auth=trust", "-D", self.folder / "data")
        server = ("pg_ctl", "-w", "-s", "-D", self.folder / "data", "-l", self.folder / "log")
        self.as_server(*server, "-o", self.options(), "start")
        self.as_server("pgbench", "-q", "-i", "-s", self.SCALE, "-h", self.folder, "postgres")
        self.as_server(*server, "stop")

    def options(self):
        """Of the server: reached in its folder only."""
        return f"-c fsync=off -c listen_addresses= -k {self.folder}"

    def server_command(self, program, *arguments):
        """A program of PostgreSQL's as the user who may start it."""
        user = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")
        return [*user, str(self.programs / program), *map(str, arguments)]

    def as_server(self, *command):
        run(*self.server_command(*command))

    def log(self):
        """What each transaction of this start took."""
        return self.folder / f"transactions-{self.starts}"

    def command(self):
        inner = lambda *command: " ".join(self.server_command(*command))
        server = inner("postgres", "-D", self.folder / "data", *self.options().split())
        log = ("--log", f"--log-prefix={self.log()}")
        clients = inner("pgbench", "-n", "-c", self.CLIENTS, "-T", 10**6, "-P", 1, *log, "-h", self.folder, "postgres")
        is_ready = inner("pg_isready", "-q", "-h", self.folder)
        return ["/bin/sh", "-c", f"{server} >{self.folder}/log 2>&1 & until {is_ready}; do sleep 0.1; done; exec {clients} 2>{self.file}"]

    def start(self, host, folder):
        self.starts += 1
        # Of a server that was killed: its number may be another process' by now.
        for lock in (self.folder / "data" / "postmaster.pid", *self.folder.glob(".s.PGSQL.*.lock")):
            lock.unlink(missing_ok=True)
        super().start(host, folder)
        wait_until(self.done, "the first transactions")

    def done(self):
        """The sum over what pgbench says each second: its rate since it last said so."""
        told = re.findall(r"progress: ([0-9.]+) s, ([0-9.]+) tps", self.file.read_text()) if self.file.exists() else []
        ends = [0.0, *(float(end) for end, _ in told)]
        return sum((end - begin) * float(rate) for begin, end, (_, rate) in zip(ends, ends[1:], told))

    def waits(self):
        found = []
        for log in self.folder.glob(f"{self.log().name}.*"):
            # The client, its transactions, microseconds, and when. The last line may not be whole yet.
            found += [int(line.split()[2]) / 1e6 for line in log.read_text().splitlines()[:-1]]
        return sorted(found)
