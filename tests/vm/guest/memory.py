"""What scenarios about memory are made of: a file that is read, a hog beside it, and what the guest says of its own."""

import contextlib
import ctypes
import os
import re
from pathlib import Path

MIB = 1 << 20
# Of Linux: all that is mapped now or later, once it was touched.
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4

# Reads the blocks of a file in random order at a fixed pace, in MiB/s, and keeps count of them.
PACED_READ = """
import mmap, os, random, sys, time
file, nowhere = os.open(sys.argv[1], os.O_RDONLY), os.open("/dev/null", os.O_WRONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
count = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
os.ftruncate(count, 4096)
told = mmap.mmap(count, 4096)
blocks = list(range(os.fstat(file).st_size >> 20))
chosen = random.Random(1)
done, pace = 0, 0.0
def one_pass():
    global done
    chosen.shuffle(blocks)
    began, first = time.monotonic(), done
    for block in blocks:
        at, end = block << 20, block + 1 << 20
        while at < end and (got := os.sendfile(nowhere, file, at, end - at)):
            at += got
        done += 1
        told[:8] = done.to_bytes(8, "little")
        if pace:
            # What was late stays late: a second that was lost is lost.
            due = began + (done - first) / pace
            now = time.monotonic()
            if due > now:
                time.sleep(due - now)
            elif now > due + 0.1:
                began += now - due
for _ in range(2):
    one_pass()
pace = float(sys.argv[3])
told[8:16] = int(pace).to_bytes(8, "little")
while True:
    one_pass()
"""
# Time in which memory comes back from one that holds more than its part, where it does.
GIVE_BACK_SECONDS = 30
# Holds so many MiB, at so many a second, and then reads a file without end; each amount may be 0, or endless (-1).
PACED_TAKE = """
import mmap, os, sys, time
most, pace, stream = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
count = os.open(sys.argv[4], os.O_RDWR | os.O_CREAT)
os.ftruncate(count, 4096)
told = mmap.mmap(count, 4096)
tell = lambda at, value: told.__setitem__(slice(at, at + 8), value.to_bytes(8, "little"))
began = time.monotonic()
block = bytes(1 << 20).replace(b"\\0", b"x")
held = []
before = int.from_bytes(told[:8], "little")
while most < 0 or len(held) < most:
    held.append(bytearray(block))
    tell(0, before + len(held))
    if pace:
        time.sleep(max(0, began + len(held) / pace - time.monotonic()))
file, nowhere = os.open(stream, os.O_RDONLY), os.open("/dev/null", os.O_WRONLY)
read, slot = 0, 16 if os.fork() else 8
while True:
    at = 0
    while got := os.sendfile(nowhere, file, at, 1 << 20):
        at += got
        read += 1
        tell(slot, read)
"""


@contextlib.contextmanager
def own_memory_locked():
    """Keeps what this process touches in memory meanwhile, so that it neither measures itself nor waits where the memory
    is short for everybody else (mlockall(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    locked = libc.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)
    assert locked == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        libc.munlockall()


def meminfo(key):
    return int(re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M)[1]) << 10
