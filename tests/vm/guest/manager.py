"""How long systemd's manager takes to answer, asked directly over D-Bus (D-Bus specification, "Message Protocol")."""

import contextlib
import os
import socket
import struct
import threading
import time

from memory import own_memory_locked

METHOD_CALL, METHOD_RETURN, ERROR = 1, 2, 3
PATH, INTERFACE, MEMBER = 1, 2, 3
EVERY_SECONDS = 0.05


class Manager:
    """A connection to process 1 itself: no bus is between, which may wait for memory on its own."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect("/run/systemd/private")
        self.socket.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
        answer = self.socket.recv(1024)
        assert answer.startswith(b"OK"), answer
        self.socket.sendall(b"BEGIN\r\n")
        self.stream = self.socket.makefile("rb")
        self.serial = 0

    def ping(self):
        """Seconds until it has answered."""
        self.serial += 1
        fields = b""
        for code, kind, text in (
            (PATH, b"o", "/org/freedesktop/systemd1"),
            (INTERFACE, b"s", "org.freedesktop.DBus.Peer"),
            (MEMBER, b"s", "Ping"),
        ):
            fields = padded(fields) + struct.pack("<B3sI", code, b"\x01" + kind + b"\0", len(text)) + text.encode() + b"\0"
        began = time.monotonic()
        header = struct.pack("<cBBBIII", b"l", METHOD_CALL, 0, 1, 0, self.serial, len(fields))
        self.socket.sendall(padded(header + fields))
        # It tells whoever is connected what units do as well.
        while self.message() not in (METHOD_RETURN, ERROR):
            pass
        return time.monotonic() - began

    def message(self):
        """Reads one; returns its type."""
        _, kind, _, _, body, _, fields = struct.unpack("<cBBBIII", self.stream.read(16))
        self.stream.read(-(-fields // 8) * 8 + body)
        return kind


def padded(data):
    return data + bytes(-len(data) % 8)


@contextlib.contextmanager
def asked_all_the_time():
    """Pings the manager again and again; yields the list that the seconds of each are in. What measures is kept in
    memory meanwhile: it would measure itself otherwise."""
    manager, seconds, end = Manager(), [], threading.Event()

    def ask():
        while not end.wait(EVERY_SECONDS):
            seconds.append(manager.ping())

    thread = threading.Thread(target=ask)
    with own_memory_locked():
        thread.start()
        try:
            yield seconds
        finally:
            end.set()
            thread.join()
            manager.socket.close()
