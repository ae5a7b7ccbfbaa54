"""Units of systemd, as scenarios start them and ask about them."""

import re

from host import finish, run


def show(unit, property):
    return run("systemctl", "show", "-p", property, "--value", unit).strip()


def systemd_run(*arguments):
    """Before version 258 systemd looks for the file of a transient slice that has gone, and does not find the slice,
    until it reads its configuration again (github.com/systemd/systemd/issues/35190)."""
    command = ["systemd-run", "--quiet", *arguments]
    try:
        run(*command)
    except AssertionError as error:
        if not re.search(r"Unit \S+\.slice not found", str(error)):
            raise
        run("systemctl", "daemon-reload")
        run(*command)


def start(host, unit, *command, slice=None, **more):
    """A unit of systemd-run's that runs `command`; stopped when the scenario is over."""
    options = [f"--slice={slice}"] if slice else []
    for key, value in more.items():
        options += ["-p", f"{key}={value}"]
    systemd_run("--collect", f"--unit={unit}", *options, *command)
    host.cleanup.callback(finish, ["systemctl", "stop", unit])
    return unit
