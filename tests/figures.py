#!/usr/bin/env python3
"""Measures again what SPECIFICATION.md promises, row by row, and compares it with the bars and with the figures that stand there.

    sudo tests/figures.py [--only PATTERN] [--guests] [--hours]

A row is `held`, `missed`, `missed, as the document says`, or `not run`, with the reason. Below it stand the figures of the
last measurement that no figure of this run comes near (a third more or less): times depend on the machine, so these are for
the reader. Rows that name a guest are run with --guests, those that name a target of make that takes hours with --hours.
The figures of README.md and of docs/ are compared as well, by the tests that know them.

Exit status 0: every row that was run is held or missed as the document says, and the other documents are true; 1: not so.
The standard library only.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
# A figure of this run is the one that stands in the document if they differ by no more.
NEAR = 4 / 3
# Why a target of make is not run.
HOURS = "takes hours: --hours"
# Beside SPECIFICATION.md: what README.md states, what the pages print, and the figures of the five sources.
DOCUMENTS = ["face::documents::", "face::blocks::", "cli::seeds", "cli::queue::"]


def rows(text):
    """Promise, bar, check and last measurement of each row."""
    tables = text.split("## Cost", 1)[1]
    for line in tables.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and not set(cells[0]) <= {"-"} and cells[0] != "promise":
            yield cells


def command(check, options):
    """The command of a check, or why it is not run."""
    kind, _, name = check.strip("`").partition(" ")
    if kind == "bench":
        return [CARGO, "bench", "--locked", "--quiet", "--bench", name]
    if kind == "test":
        first, _, rest = name.partition("::")
        is_of_a_crate = not (ROOT / "tests" / f"{first}.rs").exists()
        target, name = (first, rest) if is_of_a_crate else ("tests", name)
        # Not `--exact`: a name may stand for the tests that it begins.
        return [CARGO, "test", "--locked", "--quiet", "--test", target, "--", "--nocapture", "--include-ignored", name]
    if kind == "vm":
        return ["tests/vm/run.sh", "--only", f"^{re.escape(name)}$"] if options.guests else "wants a guest: --guests"
    if kind == "make":
        return ["make", name] if options.hours else HOURS
    return [kind]


def run(words):
    """The output of a command, and why it cannot be judged or has failed, if so."""
    done = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        # A program that ends before it has judged anything has failed, whatever the document says. Targets of make are tests.
        is_judged = words[0] == "make" or re.search(r"^figure: .*: missed$", done.stdout, re.M)
        return done.stdout, "missed" if is_judged else f"failed with {done.returncode}"
    if "test" in words and not re.search(r"^test result: ok\. [1-9]", done.stdout, re.M):
        return done.stdout, "no such test"
    skipped = re.search(r"(?:^|\s)skip(?:ped)? \S+: (.*)", done.stdout)
    return done.stdout, f"skipped: {skipped.group(1)}" if skipped else ""


def numbers(text):
    """The numbers of a text. Thousands are separated by commas."""
    return [float(found.replace(",", "")) for found in re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", text)]


def measured(output):
    """The lines of an output that are figures: of a benchmark, of a guest or of tests/cost.py."""
    return [line for line in output.splitlines() if re.match(r"figure: |#   |[a-z][^:]*: .*\d", line)]


def far(last, output):
    """The numbers of a last measurement that no figure of this run comes near."""
    found = [number for line in measured(output) for number in numbers(line)]
    is_near = lambda number: any(number <= other * NEAR and other <= number * NEAR for other in found)
    return [number for number in numbers(last) if not is_near(number)]


def judge(row, outcome, missed):
    """Whether the row is as the document says, and its line. `missed`: the checks of which some row says that it is missed."""
    promise, _, check, last = row
    _, why = outcome
    if why == "missed" and check in missed:
        of = "as the document says" if "**missed**" in last else "as the document says of another row of its check"
        return True, f"missed, {of}   {promise}"
    if why.startswith(("missed", "failed", "no such test")):
        return False, f"MISSED ({check})   {promise}: {why}"
    if why:
        return True, f"not run, {why}   {promise}"
    return True, f"held   {promise}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", default="", metavar="PATTERN", help="rows in whose check this regular expression is found")
    parser.add_argument("--guests", action="store_true", help="also the scenarios in QEMU, an hour")
    parser.add_argument("--hours", action="store_true", help="also make compare, scenarios, soak and fuzz")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("figures.py: cgroups and benchmarks want root: sudo tests/figures.py")

    outcomes, is_true = {}, True
    promises = list(rows((ROOT / "SPECIFICATION.md").read_text()))
    missed = {check for _, _, check, last in promises if "**missed**" in last}
    for row in promises:
        check = row[2]
        if not re.search(options.only, check):
            continue
        words = command(check, options)
        is_first = check not in outcomes
        if is_first:
            since = time.monotonic()
            outcomes[check] = ("", words) if isinstance(words, str) else run(words)
            for line in measured(outcomes[check][0]):
                print(f"    {line}")
            if time.monotonic() - since > 60:
                print(f"    {check} took {time.monotonic() - since:.0f} s")
        is_good, line = judge(row, outcomes[check], missed)
        is_true &= is_good
        print(line)
        # Of a check that fails, the end of its output stands below the first of its rows.
        if is_first and not is_good:
            print("".join(f"    {line}\n" for line in outcomes[check][0].splitlines()[-12:]), end="")
        if outcomes[check][0] and (differing := far(row[3], outcomes[check][0])):
            print(f"    differs from {row[3]!r}: {', '.join(f'{number:g}' for number in differing)}")
        sys.stdout.flush()
    for name in DOCUMENTS:
        if re.search(options.only, name):
            output, why = run([CARGO, "test", "--locked", "--quiet", "--test", "tests", "--", name])
            print(f"held   documents: {name}" if not why else f"MISSED   documents: {name}\n{output[-2000:]}")
            is_true &= not why
    return 0 if is_true else 1


if __name__ == "__main__":
    sys.exit(main())
