"""Clients of the queue that do not behave: argv[1] is what to do, argv[2] the socket, argv[3] the tenant.

reuse: submits, ends while the connection stays open in another process, and lets a third process have its number. Says
  {"pid": N, "cgroup": …, "reply": …} once the daemon has answered; the queue has to have room for it only then.
chaos: argv[4] clients that are killed at a random point between their connection and their command."""

import array
import json
import os
import random
import signal
import socket
import sys
import time

NS_LAST_PID = "/proc/sys/kernel/ns_last_pid"


def connected(path):
    for _ in range(400):
        try:
            client = socket.socket(socket.AF_UNIX)
            client.connect(path)
            return client
        except (BlockingIOError, ConnectionRefusedError):
            time.sleep(0.01)
    os._exit(69)


def submission(tenant):
    call = {"method": "io.tenantd.Jobs.Submit", "parameters": {"tenant": tenant}, "more": True}
    return json.dumps(call).encode() + b"\0"


def message(client):
    held = b""
    while not held.endswith(b"\0"):
        received = client.recv(65536)
        if not received:
            return None
        held += received
    return [json.loads(part) for part in held.split(b"\0") if part][-1]


def with_number(number):
    """A child with this number, or None."""
    for _ in range(2000):
        with open(NS_LAST_PID, "w") as last:
            last.write(str(number - 1))
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        if child == number:
            return child
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return None


def reuse(path, tenant):
    here, there = socket.socketpair(socket.AF_UNIX)
    first = os.fork()
    if first == 0:
        client = connected(path)
        client.sendall(submission(tenant))
        reply = message(client)
        assert reply["parameters"]["waiting"], reply
        # The connection outlives its process.
        fds = array.array("i", [client.fileno()])
        here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        os._exit(0)
    _, ancillary, _, _ = there.recvmsg(1, socket.CMSG_SPACE(4))
    client = socket.socket(fileno=array.array("i", ancillary[0][2])[0])
    os.waitpid(first, 0)
    # The time of its start is told in hundredths of a second.
    time.sleep(0.05)
    second = with_number(first)
    print(json.dumps({"pid": second}), flush=True)
    if second is None:
        return
    reply = message(client)
    while reply and "error" not in reply and not reply["parameters"].get("started"):
        reply = message(client)
    with open(f"/proc/{second}/cgroup") as file:
        cgroup = file.read()
    print(json.dumps({"reply": reply, "cgroup": cgroup}), flush=True)
    os.kill(second, signal.SIGKILL)
    os.waitpid(second, 0)


def chaos(path, tenant, count):
    clients = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            random.seed(number)
            client = connected(path)
            call = submission(tenant)
            cut = random.choice([0, 1, len(call) // 2, len(call)])
            client.sendall(call[:cut])
            if cut == len(call):
                while True:
                    reply = message(client)
                    if reply is None or "error" in reply:
                        os._exit(1)
                    if reply["parameters"]["started"]:
                        os.execvp("sleep", ["sleep", "1000"])
            signal.pause()
        clients.append(child)
    random.seed(count)
    random.shuffle(clients)
    for child in clients:
        time.sleep(random.random() * 0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    print(json.dumps({"killed": count}), flush=True)


what, path, tenant = sys.argv[1:4]
reuse(path, tenant) if what == "reuse" else chaos(path, tenant, int(sys.argv[4]))
