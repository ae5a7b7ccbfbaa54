#!/usr/bin/env python3
"""Makes the pictures of docs/papers.md, and prints the figures of its tables.

Usage: docs/papers.py [TENANTCTL], by default target/release/tenantctl. The standard library only.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SCENARIOS = HERE.parent / "scenarios" / "queue"
PICTURES = HERE / "papers"
KINDS = {"Schedule": "schedule", "Share over time": "share", "Lag against GPS": "lag", "Latency": "latency"}


def simulate(tenantctl, text):
    """One scenario's answer, and its pictures by kind."""
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "page.html"
        done = subprocess.run(
            [tenantctl, "simulate", "queue", "-", "--json", "--report", page],
            input=text, capture_output=True, text=True, check=True,
        )
        html = page.read_text()
    style = re.search(r"<style>(.*?)</style>", html, re.S).group(1)
    # Of the page's style sheet, what colours pictures.
    rules = re.findall(r":root \{.*?\}|@media \(prefers[^{]*\{ :root \{.*?\} \}|svg \[[^}]*\}", style, re.S)
    css = "".join(rules).replace("svg [", "[")
    found = re.findall(r"<h2>([^<]*)</h2><figure>(<svg.*?</svg>)", html, re.S)
    pictures = {}
    for heading, svg in found:
        cut = svg.index(">") + 1
        pictures[KINDS[heading]] = f"{svg[:cut]}<style>{css}</style><rect width='100%' height='100%' fill='var(--paper)'/>{svg[cut:]}\n"
    return json.loads(done.stdout), pictures


def main():
    tenantctl = sys.argv[1] if len(sys.argv) > 1 else HERE.parent / "target" / "release" / "tenantctl"
    PICTURES.mkdir(exist_ok=True)
    for name in ["2dfq-figure-1a", "2dfq-figure-1b", "2dfq-figure-5c", "2dfq-figure-5d", "2dfq-figure-6b",
                 "bennett-zhang-wfq", "bennett-zhang-wf2q"]:
        _, pictures = simulate(tenantctl, (SCENARIOS / f"{name}.yaml").read_text())
        (PICTURES / f"{name}-schedule.svg").write_text(pictures["schedule"])
    figure_8 = (SCENARIOS / "2dfq-figure-8.yaml").read_text()
    for discipline in ["wfq", "wf2q", "2dfq"]:
        answer, pictures = simulate(tenantctl, figure_8.replace("discipline: 2dfq", f"discipline: {discipline}"))
        (PICTURES / f"2dfq-figure-8-{discipline}-lag.svg").write_text(pictures["lag"])
        small = answer["tenants"]["small-1"]
        print(discipline, {key: small[key] for key in ["lag_mean", "lag_stddev", "lag_max", "longest_gap"]})
    unpredictable = (SCENARIOS / "unpredictable.yaml").read_text()
    for seed in ["1", "2", "3"]:
        for discipline in ["wfq-e", "wf2q-e", "2dfq-e"]:
            text = unpredictable.replace("discipline: 2dfq-e", f"discipline: {discipline}")
            answer, _ = simulate(tenantctl, text.replace("seed: 1", f"seed: {seed}"))
            small = answer["tenants"]["t1"]
            print("seed", seed, discipline, {key: small[key] for key in ["latency_p50", "latency_p99"]})
    answer, _ = simulate(tenantctl, (SCENARIOS / "multilevel-shares.yaml").read_text())
    print("levels", answer["levels"])


if __name__ == "__main__":
    main()
