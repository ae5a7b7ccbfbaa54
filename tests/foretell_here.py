#!/usr/bin/env python3
"""How well `tenantctl plan --replay` foretells another policy, on the kernel of this machine (tests/vm/guest/foretelling.py).

Usage: tests/foretell_here.py [--minutes N] [--seed N] [--programs target/dist]

Needs root and legacy cgroups. Exit status 1: fewer than 90 % of the errors of entitlements are within 0.05.
"""

import argparse
import sys

import compare_here
from compare_here import Here, programs

import foretelling


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--minutes", type=int, default=6)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--programs", help="a folder with tenantd and tenantctl; built of the profile dist unless given")
    options = arguments.parse_args()
    compare_here.use_programs(options.programs)
    host = programs.Host(lambda line: print(line, flush=True))
    host.ground = Here()
    host.cleanup.callback(host.ground.clear_all)
    with host.cleanup:
        sums = foretelling.measure(host, options.minutes, options.seed)
    return 0 if sums["within"]["entitled"] >= foretelling.WITHIN_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
