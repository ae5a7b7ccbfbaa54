#!/usr/bin/env python3
"""What a daemon costs on this machine, measured from outside: its own memory at N tenants, the time from exec until it
says that it is ready, how long its ticks take with processes that it claims, and how late they begin while clients attack it.

    tests/cost.py [--tenantd target/dist/tenantd] [--tenants 1000] [--processes 3] [--seconds 20] [--realtime]

The programs are those that packages hold: cargo build --profile dist --bins. Needs root: tenants are made below
this process' own cgroup, and removed at the end. Bars: at most 10 MiB of its own memory at 1,000 tenants (its code and
libraries, some 10 MiB more, are pages of files), ready within 50 ms with any number of tenants, no tick later than 50 ms
under attack and 20 ms without, no steady tick longer than a tenth of its interval: to read the 11,000 files of 1,000 tenants
takes 24 ms alone (benches/sample.rs). Late ticks are also counted for a while without an attack: a machine that is busy with
other things is late by itself. So the CPU time until it is ready is printed beside the time, and with --realtime the daemon
has priority over everything else on the machine. Exit status 1 says that a bar was missed. What readers cost is measured
by benches/status.rs.
"""

import argparse
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

STATUS = b'{"method":"io.tenantd.Manager.GetStatus"}\0'
FIRST_USER = 200_000
# prctl(2): the signal that a process gets when its parent ends.
PR_SET_PDEATHSIG = 1
WATCH = b'{"method":"io.tenantd.Manager.Watch","more":true}\0'


def call(path, message=STATUS):
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(path)
        stream.sendall(message)
        data = b""
        while not data.endswith(b"\0"):
            piece = stream.recv(1 << 20)
            if not piece:
                raise EOFError
            data += piece
    return json.loads(data[:-1])["parameters"]


def unit_environment():
    """What systemd/tenantd.service puts into the environment."""
    unit = os.path.join(os.path.dirname(__file__), "../systemd/tenantd.service")
    with open(unit) as file:
        settings = [line.strip().partition("=")[2] for line in file if line.startswith("Environment=")]
    return dict(setting.split("=", 1) for line in settings for setting in line.split())


class Bars:
    """Prints each figure with its bar, as the benchmarks do (benches/bar.rs)."""

    is_missed = False

    def at_most(self, name, value, unit, bar):
        is_held = value <= bar
        self.is_missed |= not is_held
        print(f"figure: {name}: {value:.3g} {unit} (bar ≤ {bar}): {'held' if is_held else 'missed'}")


class Daemon:
    """A daemon with its own state, policy and notification socket, in the environment of the service."""

    realtime = False

    def __init__(self, program, nr_tenants, cpus="shared", claims=False):
        # In memory, as /run is: the journal is synced after every record.
        self.dir = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.socket = os.path.join(self.dir.name, "state", "socket")
        policy = os.path.join(self.dir.name, "policy.yaml")
        with open(policy, "w") as file:
            file.write("version: 1\nmode: enforce\ntenants:\n")
            for index in range(nr_tenants):
                match = f", match: {{ users: [ {FIRST_USER + index} ] }}" if claims else ""
                file.write(f"  t{index}: {{ weight: {100 + index % 7}, cpus: {cpus}{match} }}\n")
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify = os.path.join(self.dir.name, "notify")
        manager.bind(notify)
        manager.settimeout(120)
        environment = dict(os.environ, NOTIFY_SOCKET=notify, **unit_environment())
        command = [program, "--policy", policy, "--state-dir", os.path.join(self.dir.name, "state")]
        command += ["--root", f"tenantd-cost-{os.getpid()}"]
        if self.realtime:
            command = ["chrt", "--fifo", "10"] + command
        begin = time.monotonic()
        self.log = open(os.path.join(self.dir.name, "log"), "w+")
        # If this program is killed, the daemon ends as well, and takes its cgroups away.
        dies_with_us = lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        self.process = subprocess.Popen(command, env=environment, stderr=self.log, preexec_fn=dies_with_us)
        while b"READY=1" not in manager.recv(4096):
            pass
        self.ready_seconds = time.monotonic() - begin
        self.ready_cpu_seconds = cpu_seconds(self)
        manager.close()

    def status(self):
        return call(self.socket)["status"]

    def resident_bytes(self, part="VmRSS"):
        with open(f"/proc/{self.process.pid}/status") as file:
            for line in file:
                if line.startswith(f"{part}:"):
                    return int(line.split()[1]) * 1024
        return 0

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=120) == 0, open(self.log.name).read()
        self.dir.cleanup()


class Watcher:
    """A connection that is told every tick."""

    def __init__(self, path):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(path)
        self.stream.sendall(WATCH)
        self.data = b""

    def lateness(self, seconds):
        """The latest beginning of a tick in this time, and how many ticks there were."""
        ticks = self.ticks(seconds)
        return max((agent["tick_late_seconds"] for agent in ticks), default=0.0), len(ticks)

    def ticks(self, seconds):
        """What each tick in this time cost."""
        ticks, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            piece = self.stream.recv(1 << 20)
            assert piece, "the watcher was closed"
            *frames, self.data = (self.data + piece).split(b"\0")
            for frame in frames:
                ticks.append(json.loads(frame)["parameters"]["status"]["agent"])
        return ticks


def cpu_seconds(daemon):
    """The CPU time of all its threads."""
    tasks = f"/proc/{daemon.process.pid}/task"
    return sum(int(open(f"{tasks}/{tid}/schedstat").read().split()[0]) for tid in os.listdir(tasks)) / 1e9


def attack(path, stop):
    """A thousand connections that send a byte a second, endless messages, deep ones, and half ones."""
    crowd = []

    def connect():
        stream = socket.socket(socket.AF_UNIX)
        stream.setblocking(False)
        try:
            stream.connect(path)
        except OSError:
            pass
        return stream

    while not stop.is_set():
        while len(crowd) < 1000:
            crowd.append(connect())
        for stream in list(crowd):
            try:
                stream.send(b"{")
            except OSError:
                stream.close()
                crowd.remove(stream)
        for message in (b" " * (64 << 20), b'{"method":' + b"[" * 60000 + b"\0", b'{"method":7}\0', STATUS[:20]):
            stream = connect()
            stream.settimeout(0.5)
            try:
                stream.sendall(message)
            except OSError:
                pass
            stream.close()
        stop.wait(1)
    for stream in crowd:
        stream.close()


def crowd(nr_users, nr_each):
    """Sleeping processes of users that exist by number only."""
    processes = []
    for user in range(FIRST_USER, FIRST_USER + nr_users):
        for _ in range(nr_each):
            processes.append(subprocess.Popen(["sleep", "infinity"], user=user, group=user, stdin=subprocess.DEVNULL))
    return processes


def claimed(options, bars):
    """How long ticks take while processes are claimed and values written first, and afterwards."""
    processes = crowd(options.tenants, options.processes)
    try:
        for cpus in ("shared", "dop"):
            daemon = Daemon(options.tenantd, options.tenants, cpus=cpus, claims=True)
            try:
                watcher = Watcher(daemon.socket)
                first, steady = watcher.ticks(12), watcher.ticks(options.seconds)
                longest = [max(agent["tick_seconds"] for agent in ticks) * 1e3 for ticks in (first, steady)]
                latest = [max(agent["tick_late_seconds"] for agent in ticks) * 1e3 for ticks in (first, steady)]
                usual = sorted(agent["tick_seconds"] for agent in steady)[len(steady) // 2] * 1e3
                print(f"{len(processes)} claimed processes, cpus: {cpus}: longest of the first {len(first)} ticks "
                      f"{longest[0]:.1f} ms, of the next {len(steady)} {longest[1]:.1f} ms (median {usual:.1f}); "
                      f"latest {latest[0]:.1f} and {latest[1]:.1f} ms")
                bars.at_most(f"longest steady tick, cpus: {cpus}", longest[1], "ms", 100)
            finally:
                daemon.stop()
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tenantd", default="target/dist/tenantd")
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=3, help="claimed processes of each tenant")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--realtime", action="store_true")
    options = parser.parse_args()
    Daemon.realtime = options.realtime

    bars = Bars()
    for count in (10, options.tenants):
        ready, cpu = [], []
        for _ in range(5):
            daemon = Daemon(options.tenantd, count)
            ready.append(daemon.ready_seconds * 1e3)
            cpu.append(daemon.ready_cpu_seconds * 1e3)
            daemon.stop()
        median = sorted(ready)[2]
        print(f"ready after exec with {count} tenants: {sorted(cpu)[2]:.0f} ms of CPU, times {[round(r) for r in ready]}")
        bars.at_most(f"ready after exec with {count} tenants", median, "ms", 50)

    daemon = Daemon(options.tenantd, options.tenants)
    try:
        measure(daemon, options, bars)
    finally:
        daemon.stop()
    if options.processes:
        claimed(options, bars)
    return int(bars.is_missed)


def measure(daemon, options, bars):
    time.sleep(5)
    bars.at_most(f"own memory at {options.tenants} tenants", daemon.resident_bytes("RssAnon") / 2**20, "MiB", 10)
    print(f"resident set with code and libraries: {daemon.resident_bytes() / 2**20:.1f} MiB")
    daemon.status()
    # Connected before anybody else can take its place.
    watcher = Watcher(daemon.socket)
    quiet, ticks = watcher.lateness(options.seconds)
    print(f"resident set after its status was read: {daemon.resident_bytes() / 2**20:.1f} MiB")
    bars.at_most(f"latest tick of {ticks} without an attack", quiet * 1e3, "ms", 20)
    stop = threading.Event()
    attacker = threading.Thread(target=attack, args=(daemon.socket, stop))
    attacker.start()
    try:
        attacked, ticks = watcher.lateness(options.seconds)
        resident = daemon.resident_bytes()
    finally:
        stop.set()
        attacker.join()
    print(f"resident set under attack: {resident / 2**20:.1f} MiB")
    bars.at_most(f"latest tick of {ticks} under attack", attacked * 1e3, "ms", 50)


if __name__ == "__main__":
    sys.exit(main())
