"""Submits itself as a job (argv[2], JSON), says each reply in a line, and executes argv[3:] once it has started.

With `--each N` before the command, N processes do so at once, and only what is refused is said. The command
`burn S LOG TENANT PATH...` uses S seconds of CPU time in this process, and adds a line to LOG: TENANT, when it began and
ended, and what the files said then that count CPU time."""

import json
import os
import socket
import sys
import time


def submit(path, parameters):
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    call = {"method": "io.tenantd.Jobs.Submit", "parameters": parameters, "more": True}
    client.sendall(json.dumps(call).encode() + b"\0")
    held = b""
    while True:
        while b"\0" in held:
            message, held = held.split(b"\0", 1)
            yield json.loads(message)
        received = client.recv(65536)
        if not received:
            return
        held += received


def used(path):
    with open(path) as file:
        words = file.read().split()
    return int(words[0]) / 1e9 if len(words) == 1 else int(words[1]) / 1e6


def burn(seconds, log, tenant, *paths):
    begin, until = time.monotonic(), time.process_time() + float(seconds)
    numbers = [used(path) for path in paths]
    while time.process_time() < until:
        pass
    line = " ".join(map(str, [tenant, begin, time.monotonic(), *numbers]))
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{line}\n".encode())
    os._exit(0)


def execute(command):
    if command[0] == "burn":
        burn(*command[1:])
    os.execvp(command[0], command)


def run(path, parameters, command, says_all=True):
    # One user has so many connections at a time whose call was not read yet: others are closed.
    for _ in range(200):
        answered = False
        try:
            for reply in submit(path, parameters):
                answered = True
                if says_all or "error" in reply:
                    os.write(1, (json.dumps(reply) + "\n").encode())
                if "error" in reply:
                    os._exit(75)
                if reply["parameters"]["started"]:
                    execute(command)
        except (BrokenPipeError, ConnectionResetError, BlockingIOError):
            pass
        if answered:
            break
        time.sleep(0.05)
    os._exit(69)


def main():
    path, parameters = sys.argv[1], json.loads(sys.argv[2])
    if sys.argv[3] != "--each":
        run(path, parameters, sys.argv[3:])
    # Those that burn may come when they are ready.
    go = time.monotonic() + (sys.argv[5] != "burn")
    for _ in range(int(sys.argv[4])):
        if os.fork() == 0:
            time.sleep(max(0, go - time.monotonic()))
            run(path, parameters, sys.argv[5:], says_all=False)
    failed = 0
    while True:
        try:
            failed += os.wait()[1] != 0
        except ChildProcessError:
            break
    print("failed", failed)


main()
