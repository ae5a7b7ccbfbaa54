#!/usr/bin/env python3
"""Tables in Markdown of the rows that compare.sh has collected. Usage: tables.py [FILE], by default target/compare.jsonl.

Of a scenario that was measured several times on one release, the last measurement of each way counts. The standard
library only.
"""

import json
import sys
from pathlib import Path


def percent(value):
    return "" if value is None else f"{100 * value:.1f} %"


def number(value, unit=""):
    return "" if value is None else f"{value:.3g}{unit}"


def one(values, key):
    """A figure of the only victim there is; of several, the least one."""
    found = [each[key] for each in values.values()] if values else []
    return min(found) if found else None


def worst(values, key):
    found = [each[key] for each in values.values()] if values else []
    return max(found) if found else None


def work(row):
    return sum(row["work_per_second"].values())


def table(rows):
    """The rows of one scenario on one release, by way."""
    base = work(next(iter(rows.values())))
    columns = {
        "way": lambda row: row["way"],
        "share error": lambda row: percent(row["share_error"]),
        "worst 5 s": lambda row: percent(row["share_error_worst_5s"]),
        "Jain": lambda row: f"{row['jain']:.3f}",
        "total work": lambda row: number(work(row) / base) if base else "",
        "victim p00": lambda row: number(one(row.get("victim_per_second"), "p00")),
        "p01": lambda row: number(one(row.get("victim_per_second"), "p01")),
        "p05": lambda row: number(one(row.get("victim_per_second"), "p05")),
        "p50": lambda row: number(one(row.get("victim_per_second"), "p50")),
        "wait p50": lambda row: number(worst(row.get("waits_ms"), "p50"), " ms"),
        "wait p99": lambda row: number(worst(row.get("waits_ms"), "p99"), " ms"),
        "converged": lambda row: number(row.get("convergence_seconds"), " s") or ("never" if "convergence_seconds" in row else ""),
        "writes/min": lambda row: number(row["writes_per_minute"]),
        "CPU of the way": lambda row: f"{row['way_cpu_percent']:.1f} %",
        "OOM kills": lambda row: str(row["oom_kills"]) if any(each["oom_kills"] for each in rows.values()) else "",
        "ticks": lambda row: f"{100 * row['ticks_arrived']:.0f} %",
    }
    cells = [[cell(row) for cell in columns.values()] for row in rows.values()]
    # What no way has is no column.
    kept = [i for i in range(len(columns)) if any(line[i] for line in cells)]
    names = list(columns)
    yield "| " + " | ".join(names[i] for i in kept) + " |"
    yield "|" + "---|" * len(kept)
    for line in cells:
        yield "| " + " | ".join(line[i] for i in kept) + " |"


def main():
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "target/compare.jsonl")
    scenarios = {}
    for line in file.read_text().splitlines():
        row = json.loads(line)
        if "scenario" in row:
            scenarios.setdefault((row["scenario"], row["release"]), {})[row["way"]] = row
    for (scenario, release), rows in scenarios.items():
        first = next(iter(rows.values()))
        print(f"\n**{scenario}** ({release}, kernel {first['kernel']}, {first['cpus']} CPUs, {first['memory_mib']} MiB, ", end="")
        print(f"swap {first['swap_mib']} MiB, disk {first['disk']}; {first['seconds']:.0f} s each; load: {', '.join(first['load'])})\n")
        print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
