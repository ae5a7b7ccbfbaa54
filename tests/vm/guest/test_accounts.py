"""Accounts that are late: a service that hangs, a user who is made after the start, and modules that the sandbox blocks."""

import os
import socket
import threading
from pathlib import Path

from cgroups import MOUNT, Cgroup, wait_until
from host import Skip, finish, run
from marks import alone, both
from test_units import SERVICE, install, log, settle
from units import show, start

USERDB = Path("/run/systemd/userdb")
NSSWITCH = Path("/etc/nsswitch.conf")


class Hanging:
    """A service of systemd's user database that takes connections and never answers."""

    def __init__(self, host):
        USERDB.mkdir(parents=True, exist_ok=True)
        self.path = USERDB / "io.test.Slow"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        os.chmod(self.path, 0o666)
        self.listener.listen(64)
        self.clients = []
        threading.Thread(target=self.take, daemon=True).start()
        host.cleanup.callback(self.end)

    def take(self):
        while True:
            try:
                self.clients.append(self.listener.accept()[0])
            except OSError:
                return

    def end(self):
        self.path.unlink(missing_ok=True)
        # Wakes the accept as well, which a close alone does not.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for client in self.clients:
            client.close()


def asks_systemd(host):
    """Has the C library ask systemd's user database after the files; false where the guest has no such module."""
    if not list(Path("/usr/lib").glob("*/libnss_systemd.so.2")):
        return False
    kept = NSSWITCH.read_text()
    host.cleanup.callback(NSSWITCH.write_text, kept)
    lines = [line for line in kept.splitlines() if line.split(":")[0] not in ("passwd", "group")]
    NSSWITCH.write_text("\n".join(lines + ["passwd: files systemd", "group: files systemd", ""]))
    return True


def status():
    return run("tenantctl", "status")


@alone
@both
def test_a_service_that_hangs_delays_no_tick(host):
    if not asks_systemd(host):
        raise Skip("no libnss_systemd: nothing of the C library hangs")
    install(host, {"people": {"each": {"match": {"users": "*"}}}})
    settle()
    Hanging(host)
    run("systemctl", "start", SERVICE)
    wait_until(lambda: show(SERVICE, "ActiveState") == "active", "the service to be ready")
    first = show(SERVICE, "MainPID")
    start(host, "stranger.service", "sleep", "600", User="4242", slice="user-4242.slice")
    wait_until(lambda: "people/4242" in status(), "the user to be a tenant under the number")
    wait_until(lambda: "accounts do not answer" in status(), "the finding")
    # Ready again while it hangs.
    run("systemctl", "restart", SERVICE)
    second = show(SERVICE, "MainPID")
    assert second not in (first, "0")
    wait_until(lambda: "people/4242" in status(), "the tenant after the restart")
    assert show(SERVICE, "NRestarts") == "0", log()


@both
def test_a_user_who_is_made_after_the_start_is_taken_up(host):
    install(host, {"a": {"weight": 300, "match": {"users": ["late-ana"]}}})
    settle()
    assert "nss-user-lookup.target" in show(SERVICE, "After")
    run("systemctl", "start", SERVICE)
    wait_until(lambda: "no user `late-ana`" in status(), "the finding")
    run("useradd", "-u", "1777", "late-ana")
    host.cleanup.callback(finish, ["userdel", "late-ana"])
    start(host, "late.service", "sleep", "600", User="late-ana", slice="user-1777.slice")
    wait_until(lambda: "no user `late-ana`" not in status(), "the name to be known")
    slice = Cgroup(MOUNT / "user.slice/user-1777.slice")
    wait_until(lambda: slice.read("memory.low") != "0", "the memory of the slice to be protected")


def test_an_account_that_a_failed_look_up_hid_comes_back(host):
    run("groupadd", "-g", "7070", "students")
    host.cleanup.callback(finish, ["groupdel", "students"])
    run("useradd", "-u", "1778", "-G", "students", "-M", "eva")
    host.cleanup.callback(finish, ["userdel", "eva"])
    passwd = Path("/etc/passwd")
    whole = passwd.read_text()
    install(host, {"students": {"each": {"match": {"groups": ["students"]}}}})
    settle()
    # A service starts only for an account that exists.
    start(host, "eva.service", "sleep", "600", User="eva", slice="user-1778.slice")
    wait_until(lambda: Path("/sys/fs/cgroup/user.slice/user-1778.slice").exists(), "the slice")
    passwd.write_text("".join(line for line in whole.splitlines(True) if not line.startswith("eva:")))
    host.cleanup.callback(passwd.write_text, whole)
    run("systemctl", "start", SERVICE)
    wait_until(lambda: "tick" in status(), "the first tick")
    assert "students/eva" not in status(), status()
    passwd.write_text(whole)
    wait_until(lambda: "students/eva" in status(), "the account to be looked up again")
