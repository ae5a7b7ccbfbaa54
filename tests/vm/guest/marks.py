"""In which guests a scenario runs, and whether `make test` runs it.

Without a mark it runs on Debian 12 alone. What it shows must not depend on the version of systemd or of the kernel
then; where it does, it is marked `both`.
"""

OLDER, NEWER = "bookworm", "trixie"


def core(scenario):
    """One of those that matter most: `make test` runs it, on Debian 13."""
    scenario.core = True
    return scenario


def both(scenario):
    """What it shows depends on the version of systemd or of the kernel: Debian 12 and Debian 13."""
    scenario.releases = (OLDER, NEWER)
    return scenario


def newer(scenario):
    """It needs something that Debian 12 does not have: Debian 13 alone."""
    scenario.releases = (NEWER,)
    return scenario


def newest(scenario):
    """Also on the newest kernels and systemd (`--tier newest`): what these have changed before."""
    scenario.newest = True
    return scenario


def numa(scenario):
    """It needs the guest with 8 CPUs on 2 nodes, which is a Debian 13."""
    scenario.shape = "numa"
    scenario.releases = (NEWER,)
    return scenario


def alone(scenario):
    """It measures shares or times: no other guest runs beside its own."""
    scenario.alone = True
    return scenario


def long(scenario):
    """It measures for many minutes: only when it is named, or with `--tier long`."""
    scenario.long = True
    return scenario


def compared(scenario):
    """It compares ways to share, in tables: only when it is named, or with `--tier compare`."""
    scenario.compared = True
    return scenario


def runs(scenario, shape, release, tier, pace):
    """Whether `scenario` runs in a guest of this shape and release.

    `tier` is `core`, `newest`, `rest` (what `core` leaves), `all` (both of them), `once` (what `core` leaves, each on one
    release), `long` or `compare` (what none of these has time for), or `any`: every scenario of this shape, whatever its
    other marks. `pace` is `beside` (another guest runs, too), `alone` (only what is marked so is left to run), or `any`.
    """
    if getattr(scenario, "shape", "flat") != shape:
        return False
    is_alone = getattr(scenario, "alone", False)
    if pace != "any" and is_alone != (pace == "alone"):
        return False
    return is_of(scenario, release, tier)


def is_of(scenario, release, tier):
    """Whether it runs on this release in this tier."""
    if tier == "any":
        return True
    if tier == "newest":
        return getattr(scenario, "newest", False)
    is_core = getattr(scenario, "core", False)
    releases = getattr(scenario, "releases", ())
    # A core scenario without another mark needs no second run on Debian 12.
    fallback = () if is_core else (OLDER,)
    is_due = (is_core and release == NEWER) or release in (releases or fallback)
    # In a tier of its own, and in no other one.
    for own, mark in (("long", "long"), ("compare", "compared")):
        if getattr(scenario, mark, False) or tier == own:
            return is_due and tier == own and getattr(scenario, mark, False)
    if tier == "once":
        # One guest is enough for all that run alone.
        is_newer = NEWER in releases or getattr(scenario, "alone", False)
        return not is_core and release == (NEWER if is_newer else OLDER)
    is_for_core = is_core and release == NEWER
    return {"core": is_for_core, "rest": is_due and not is_for_core, "all": is_due}[tier]
