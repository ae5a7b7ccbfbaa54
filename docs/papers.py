#!/usr/bin/env python3
"""Makes the pictures of docs/papers.md and docs/seeds.md and prints the figures of their tables.

Usage: docs/papers.py [TENANTCTL], by default target/release/tenantctl. The standard library only.
With --outputs as the first argument it makes only the outputs of the commands in docs/*.md again.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SCENARIOS = HERE.parent / "scenarios" / "queue"
SEEDS = HERE.parent / "scenarios" / "seeds"
PICTURES = HERE / "papers"
KINDS = {"Schedule": "schedule", "Share over time": "share", "Lag against GPS": "lag", "Latency": "latency", "Costs": "costs"}


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


def remake_outputs(tenantctl, page):
    """Runs each command of the fenced blocks of a page and writes its output below it."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "tenantctl").symlink_to(pathlib.Path(tenantctl).resolve())
        environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "COLUMNS": "80", "TZ": "UTC"}

        def output(command):
            done = subprocess.run(["sh", "-c", command], cwd=HERE.parent, env=environment, capture_output=True, text=True)
            if done.stderr:
                sys.exit(f"{command}: {done.stderr}")
            return f"$ {command}\n" + "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())

        def block(found):
            commands = re.findall(r"^\$ (.*)$", found.group(), re.M)
            return "```console\n" + "\n".join(map(output, commands)) + "```\n"

        page.write_text(re.sub(r"^```console\n.*?^```\n", block, page.read_text(), flags=re.M | re.S))


def slots(tenantctl):
    """Tasks under slots, beside DRF."""
    text = (SEEDS / "001-slots-3.yaml").read_text()
    for number in [3, 4, 5, 6]:
        done = subprocess.run([tenantctl, "solve", "-", "--json"], input=text.replace("slots: 3", f"slots: {number}"),
                              capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
        total = {key: sum(tenant[key] for tenant in answer["tenants"].values()) for key in ["fraction", "useful"]}
        print("slots", number, total, answer["utilization"], "overcommitted", answer["overcommitted_nodes"])


def decay(tenantctl, alpha):
    """Cheap requests after which the estimate of an expensive tenant has fallen to a tenth."""
    low, high = 0, 4096
    while high - low > 1:
        count = (low + high) // 2
        arrivals = ", ".join(["[0, A, 1000]"] + ["[0, A, 1]"] * count)
        text = f"discipline: 2dfq-e\nworkers: 1\nhorizon: 9000\nlist_dispatches: false\n" \
               f"estimator: {{ alpha: {alpha}, initial: 1 }}\narrivals: [{arrivals}]\n"
        answer, _ = simulate(tenantctl, text)
        low, high = (low, count) if answer["tenants"]["A"]["estimate"] <= 100 else (count, high)
    return high


def unknown_costs(tenantctl, unpredictable):
    """The estimate's decay, and when running requests are charged: the latency of t1."""
    charges = [("refresh 10 ms", "refresh: 0.01"), ("refresh 100 ms", "refresh: 0.1"), ("timer", "charge: timer"), ("end", "charge: end")]
    for alpha in ["0.9", "0.99", "0.999"]:
        text = unpredictable.replace("alpha: 0.99", f"alpha: {alpha}")
        answer, _ = simulate(tenantctl, text)
        print("alpha", alpha, "p99", answer["tenants"]["t1"]["latency_p99"], "a tenth after", decay(tenantctl, alpha))
    for name, charge in charges:
        for seed in ["1", "2", "3"]:
            text = unpredictable.replace("refresh: 0.01", charge).replace("seed: 1", f"seed: {seed}")
            answer, _ = simulate(tenantctl, text)
            print("charge", name, "seed", seed, "p99", answer["tenants"]["t1"]["latency_p99"], "charged", answer["nr_charged"])


def without_backlog(tenantctl):
    """The latency of small requests on a machine that is not full, with and without a worker for them."""
    large = "{ name: large, count: 4, cost: { uniform: [5, 15] }, arrive: { load: LOAD } }"
    small = "{ name: small, cost: 0.1, arrive: { poisson: 2 } }"
    for load in [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]:
        # Small requests use a twentieth of a worker; large ones, which would get 4 of 5 parts, the rest of the load.
        part = (4 * load - 0.2) / (4 * 4 / 5)
        text = f"discipline: 2dfq\nworkers: 4\nhorizon: 20000\nwarmup: 1000\nlist_dispatches: false\n" \
               f"generators: [{large.replace('LOAD', str(part))}, {small}]\n"
        figures = []
        for reserve in ["", "reserve: { workers: 1, below: 1 }\n"]:
            tenants = simulate(tenantctl, text + reserve)[0]["tenants"]
            large_mean = sum(tenants[f"large-{i}"]["latency_mean"] for i in range(1, 5)) / 4
            figures += [tenants["small"]["latency_p99"], large_mean]
        print("load", load, "small p99, large mean without and with reserve", figures)


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--outputs"]
    tenantctl = arguments[0] if arguments else HERE.parent / "target" / "release" / "tenantctl"
    for page in sorted(HERE.glob("*.md")):
        remake_outputs(tenantctl, page)
    if "--outputs" in sys.argv:
        return
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
    slots(tenantctl)
    unknown_costs(tenantctl, unpredictable)
    without_backlog(tenantctl)
    for name, kind in [("002-costs", "costs"), ("004-ten-levels", "schedule")]:
        _, pictures = simulate(tenantctl, (SEEDS / f"{name}.yaml").read_text())
        (PICTURES / f"{name}-{kind}.svg").write_text(pictures[kind])
    answer, _ = simulate(tenantctl, (SCENARIOS / "multilevel-shares.yaml").read_text())
    print("levels", answer["levels"])


if __name__ == "__main__":
    main()
