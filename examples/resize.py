#!/usr/bin/env python3
"""Prints how wide a tenant should run, now and whenever that changes.

Usage: resize.py /run/tenantd/tenants/NAME
"""

import ctypes
import os
import sys

IN_MOVED_TO = 0x80  # inotify(7): a new file was renamed into the folder
libc = ctypes.CDLL(None, use_errno=True)


def widths(folder):
    """Yields the width at once and after every change; ends when tenantd stops."""
    inotify = libc.inotify_init1(os.O_CLOEXEC)
    # The watch comes first, so that no change falls between reading and watching.
    if inotify < 0 or libc.inotify_add_watch(inotify, os.fsencode(folder), IN_MOVED_TO) < 0:
        raise OSError(ctypes.get_errno(), "cannot watch", folder)
    told = None
    while True:
        try:
            with open(os.path.join(folder, "dop")) as file:
                width = int(file.read())
        except FileNotFoundError:
            return
        if width != told:
            yield width
            told = width
        os.read(inotify, 4096)  # sleeps until something changes


if __name__ == "__main__":
    for width in widths(sys.argv[1]):
        print(width, flush=True)  # here a program resizes its pool of workers
