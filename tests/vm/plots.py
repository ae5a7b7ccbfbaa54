#!/usr/bin/env python3
"""A picture (SVG) of rows that compare.sh or compare_here.py has collected: a row of bars for each scenario, a bar for each way.

Usage: plots.py FILE.jsonl OUT.svg

On the left how far shares are from those of weighted DRF, on the right the work of all tenants over that of the first way. A
bar is the median of the rounds, the thin line from the least to the largest. The standard library only.
"""

import statistics
import sys
from html import escape
from pathlib import Path

from tables import base_work, scenarios, work

COLOURS = {
    "nothing": "#9aa0a6", "static": "#5b8ff9", "static and oomd": "#2f4b7c", "arbiter": "#e8a33d",
    "tenantd": "#2a9d6f", "tenantd, trim": "#8bc34a", "tenantd, credits": "#c2185b",
}
LABEL, PANEL, GAP, BAR, SPACE, HEAD = 230, 250, 60, 11, 16, 56


def measures(ways):
    """Both figures of each way: a list of rounds, empty where the scenario has none."""
    base = base_work(ways)
    for way, rows in ways.items():
        errors = [100 * row["share_error"] for row in rows if "share_error" in row]
        yield way, errors, [work(row) / base for row in rows]


def bar(x, y, width, figures, most, colour, form):
    """One bar with its spread and its figure."""
    if not figures:
        return
    scale = lambda value: x + width * min(value, most) / most
    middle = statistics.median(figures)
    yield f'<rect x="{x}" y="{y}" width="{scale(middle) - x:.1f}" height="{BAR - 2}" fill="{colour}"/>'
    if len(figures) > 1:
        line = y + (BAR - 2) / 2
        ends = f'x1="{scale(min(figures)):.1f}" x2="{scale(max(figures)):.1f}"'
        yield f'<line {ends} y1="{line}" y2="{line}" stroke="currentColor"/>'
    right = scale(max(figures)) + 4
    beyond = ", cut off" if middle > most else ""
    yield f'<text x="{right:.1f}" y="{y + BAR - 3}" font-size="9">{form.format(middle)}{beyond}</text>'


def picture(found):
    """The whole picture, line by line."""
    panels = (("share error, %", "{:.1f}"), ("total work, × that of nothing", "{:.2f}"))
    lefts = [LABEL + number * (PANEL + GAP) for number in range(2)]
    made = [(name, list(measures(ways))) for (name, _), ways in found.items()]
    errors = [error for _, ways in made for _, of_way, _ in ways for error in of_way]
    # A way that does many times as much would leave nothing to be seen of the others.
    mosts = [max(errors, default=1), min(3.0, max(w for _, ways in made for *_, works in ways for w in works))]
    y, body = HEAD, []
    for name, ways in made:
        body.append(f'<text x="0" y="{y + BAR}" font-size="11">{escape(name)}</text>')
        for way, *figures in ways:
            for left, most, rounds, (_, form) in zip(lefts, mosts, figures, panels):
                body += bar(left, y, PANEL - 60, rounds, most, COLOURS.get(way, "#000"), form)
            y += BAR
        y += SPACE
    width = lefts[1] + PANEL
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {width + 16} {y}" font-family="sans-serif" fill="currentColor">'
    yield "<style>svg { background: #fff; color: #222 }</style>"
    names = list(dict.fromkeys(way for _, ways in made for way, *_ in ways))
    for number, way in enumerate(names):
        x = width // max(len(names), 7) * number
        yield f'<rect x="{x}" y="6" width="10" height="10" fill="{COLOURS.get(way, "#000")}"/>'
        yield f'<text x="{x + 14}" y="15" font-size="11">{escape(way)}</text>'
    for left, (title, _) in zip(lefts, panels):
        yield f'<text x="{left}" y="{HEAD - 12}" font-size="11" font-weight="bold">{title}</text>'
    yield from body
    yield "</svg>"


def main():
    if len(sys.argv) != 3:
        raise SystemExit("usage: plots.py FILE.jsonl OUT.svg")
    Path(sys.argv[2]).write_text("\n".join(picture(scenarios(Path(sys.argv[1])))) + "\n")


if __name__ == "__main__":
    main()
