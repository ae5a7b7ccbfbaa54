"""Units of systemd, as scenarios start them and ask about them."""

from host import finish, run


def show(unit, property):
    return run("systemctl", "show", "-p", property, "--value", unit).strip()


def start(host, unit, *command, slice=None, **more):
    """A unit of systemd-run's that runs `command`; stopped when the scenario is over."""
    options = [f"--slice={slice}"] if slice else []
    for key, value in more.items():
        options += ["-p", f"{key}={value}"]
    run("systemd-run", "--quiet", "--collect", f"--unit={unit}", *options, *command)
    host.cleanup.callback(finish, ["systemctl", "stop", unit])
    return unit
