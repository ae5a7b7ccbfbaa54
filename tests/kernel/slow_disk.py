"""A disk of a fixed speed: a FUSE file system with the file `disk`, to put a loop device on.

    slow_disk.py MOUNTPOINT MIB BYTES_PER_SECOND [CHANNELS REQUESTS_PER_SECOND]

It prints a line once it is mounted, and unmounts at SIGTERM. Reads give zeros, and nothing is kept. A disk of one head
answers a request when the head has moved its bytes, one after another. Of several channels each is such a head, a process,
and serves at most so many requests in a second. A scheduler above it decides who is next."""

import ctypes
import os
import signal
import struct
import sys
import time

mount, mib, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
channels, per_second = (int(sys.argv[4]), float(sys.argv[5])) if len(sys.argv) > 4 else (1, float("inf"))
SIZE = mib << 20
MOST = 1 << 20
INIT, LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE = 26, 1, 2, 3, 4, 14, 15, 16
STATFS, RELEASE, FSYNC, FLUSH, OPENDIR, RELEASEDIR = 17, 18, 20, 25, 27, 29
INTERRUPT, BATCH_FORGET = 36, 42
ASYNC_READ, BIG_WRITES, ASYNC_DIO, MAX_PAGES = 1, 1 << 5, 1 << 15, 1 << 22
ENOENT, ENOSYS, ENODEV = 2, 38, 19

libc = ctypes.CDLL(None, use_errno=True)
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,max_read={MOST}"
if libc.mount(b"slow_disk", mount.encode(), b"fuse", 0, options.encode()):
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
# Python notes a signal and calls the handler later: one that comes just before a read of requests would wait for the next
# request. So requests are served by other processes, and this one waits for the signal.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
try:
    # Other work of the machine must not change the rate.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(40))
except OSError:
    pass
print("mounted", flush=True)
heads = []
for _ in range(channels):
    heads.append(os.fork())
    if heads[-1] == 0:
        break
if heads[-1]:
    # Requests fail, instead of waiting, where no head is left.
    os.close(fuse)
    signal.sigwait({signal.SIGTERM})
    libc.umount2(mount.encode(), 2)
    for head in heads:
        os.kill(head, signal.SIGKILL)
    sys.exit()
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def attributes(node):
    is_dir = node == 1
    size, kind = (0, 0o40755) if is_dir else (SIZE, 0o100644)
    return struct.pack("<6Q10I", node, size, size >> 9, 0, 0, 0, 0, 0, 0, kind, 1, 0, 0, 0, 4096, 0)


def answer(unique, data=b"", error=0):
    try:
        os.writev(fuse, [struct.pack("<IiQ", 16 + len(data), -error, unique), data])
    except OSError:
        pass  # the request was given up


def serve(operation, unique, node, body, free):
    if operation == INIT:
        flags = ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES
        answer(unique, struct.pack("<4I2H2I2H8I", 7, 31, MOST, flags, 256, 256, MOST, 1, 256, 0, *[0] * 8))
    elif operation == LOOKUP and body.rstrip(b"\0") == b"disk":
        answer(unique, struct.pack("<4Q2I", 2, 0, 3600, 3600, 0, 0) + attributes(2))
    elif operation == LOOKUP:
        answer(unique, error=ENOENT)
    elif operation in (GETATTR, SETATTR):
        answer(unique, struct.pack("<Q2I", 3600, 0, 0) + attributes(node))
    elif operation in (OPEN, OPENDIR):
        answer(unique, struct.pack("<Q2I", 1, 1, 0))  # direct: nothing is cached above the disk
    elif operation in (READ, WRITE):
        offset, count = struct.unpack_from("<QI", body, 8)
        free = max(free, time.monotonic()) + max(count / rate, 1 / per_second)
        time.sleep(max(0.0, free - time.monotonic()))
        left = max(0, min(count, SIZE - offset))
        answer(unique, bytes(left) if operation == READ else struct.pack("<2I", count, 0))
    elif operation == STATFS:
        answer(unique, struct.pack("<5Q3I", 1 << 20, 1 << 19, 1 << 19, 10, 5, 4096, 255, 4096) + bytes(28))
    elif operation in (RELEASE, RELEASEDIR, FLUSH, FSYNC):
        answer(unique)
    elif operation not in (FORGET, BATCH_FORGET, INTERRUPT):
        answer(unique, error=ENOSYS)
    return free


free = 0.0
while True:
    try:
        request = os.read(fuse, MOST + 65536)
    except OSError as error:
        if error.errno == ENODEV:
            break
        continue
    _, operation, unique, node = struct.unpack_from("<2I2Q", request)
    free = serve(operation, unique, node, request[40:], free)
