#!/usr/bin/env python3
"""Tables in Markdown of the rows that compare.sh has collected. Usage: tables.py [FILE], by default target/compare.jsonl.

A scenario is one table; where it was measured on several releases, the first column tells which. Where it was measured
several times on one of them, a cell has the median, and the least and the largest figure in parentheses. The standard
library only.
"""

import json
import statistics
import sys
from pathlib import Path


def least(values, key):
    """A figure of the only victim there is; of several, the least one."""
    found = [each[key] for each in values.values()] if values else []
    return min(found) if found else None


def largest(values, key):
    found = [each[key] for each in values.values()] if values else []
    return max(found) if found else None


def work(row):
    return sum(row["work_per_second"].values())


def base_work(ways):
    """The work of the first way, which that of all is told over."""
    return statistics.median(map(work, next(iter(ways.values()))))


def columns(base):
    """Each column with its figure of a row, which is None where it has none, and how that is written."""
    percent, ratio, plain = "{:.1%}", "{:.2f}", "{:.3g}"
    seconds = lambda row: None if "convergence_seconds" not in row else row["convergence_seconds"] or "never"
    victim = lambda key: lambda row: least(row.get("victim_per_second"), key)
    wait = lambda key: lambda row: largest(row.get("waits_ms"), key)
    return {
        "share error": (lambda row: row.get("share_error"), percent),
        "worst 5 s": (lambda row: row.get("share_error_worst_5s"), percent),
        "Jain": (lambda row: row.get("jain"), "{:.3f}"),
        "total work": (lambda row: work(row) / base if base else None, ratio),
        "one alone": (lambda row: row["alone"] / base if "alone" in row else None, ratio),
        "stream beside lookups": (lambda row: row["beside"] / base if "beside" in row else None, ratio),
        "victim p00": (victim("p00"), plain),
        "p01": (victim("p01"), plain),
        "p05": (victim("p05"), plain),
        "p50": (victim("p50"), plain),
        "wait p50": (wait("p50"), "{:.3g} ms"),
        "wait p99": (wait("p99"), "{:.3g} ms"),
        "converged": (seconds, "{:.1f} s"),
        "writes/min": (lambda row: row.get("writes_per_minute"), plain),
        "CPU of the way": (lambda row: row["way_cpu_percent"] / 100, percent),
        "OOM kills": (lambda row: row.get("oom_kills") or None, "{:.0f}"),
        "ticks": (lambda row: row["ticks_arrived"], "{:.0%}"),
    }


def cell(figures, form):
    """The median of the rounds, with the least and the largest where there are several."""
    found = [figure for figure in figures if figure is not None]
    numbers = [figure for figure in found if not isinstance(figure, str)]
    if not numbers:
        return found[0] if found else ""
    text = form.format(statistics.median(numbers))
    if len(numbers) > 1:
        text += f" ({form.format(min(numbers))}–{form.format(max(numbers))})"
    missed = len(found) - len(numbers)
    return f"{text}, {missed} never" if missed else text


def table(releases):
    """A scenario: the rows of each way on each release."""
    made = {}
    for ways in releases.values():
        for name, (figure, form) in columns(base_work(ways)).items():
            cells = made.setdefault(name, [])
            cells += [cell(list(map(figure, rows)), form) for rows in ways.values()]
    # What no way has is no column.
    kept = {name: cells for name, cells in made.items() if any(cells)}
    lines = [(release, way) for release, ways in releases.items() for way in ways]
    if len(releases) > 1:
        kept = {"way": [way for _, way in lines], **kept}
        first, names = "release", [release for release, _ in lines]
    else:
        first, names = "way", [way for _, way in lines]
    yield f"| {first} | " + " | ".join(kept) + " |"
    yield "|" + "---|" * (len(kept) + 1)
    for number, name in enumerate(names):
        yield f"| {name} | " + " | ".join(cells[number] for cells in kept.values()) + " |"


def circumstances(releases):
    """What it ran on and what ran."""
    rows = {release: next(iter(ways.values()))[0] for release, ways in releases.items()}
    first = next(iter(rows.values()))
    hosts = "; ".join(f"{release}, kernel {row['kernel']}, {row['memory_mib']} MiB" for release, row in rows.items())
    yield f"{hosts}; {first['cpus']} CPUs, swap {first['swap_mib']} MiB, disk {first['disk']}; {first['seconds']:.0f} s each"
    loads = {", ".join(row["load"]) for row in rows.values()}
    # Of what grows with the memory of the host there are as many loads as hosts.
    yield f"load: {' / '.join(sorted(loads))}"


def scenarios(file):
    """The rows of each way, by scenario and release."""
    found = {}
    for line in file.read_text().splitlines():
        row = json.loads(line)
        if "scenario" in row:
            ways = found.setdefault((row["scenario"], row["release"]), {})
            ways.setdefault(row["way"], []).append(row)
    return found


def main():
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "target/compare.jsonl")
    found = {}
    for (scenario, release), ways in scenarios(file).items():
        found.setdefault(scenario, {})[release] = ways
    for scenario, releases in found.items():
        print(f"\n**{scenario}** ({'; '.join(circumstances(releases))})\n")
        print("\n".join(table(releases)))


if __name__ == "__main__":
    main()
