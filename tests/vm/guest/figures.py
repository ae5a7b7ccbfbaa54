"""What is said of a way of sharing: figures of shares, of work, and of time.

Entitlements are computed here once more, without the program under test.
"""

import json
import math


def drf(weights, demands, capacity):
    """Weighted dominant resource fairness by progressive filling (Ghodsi et al., NSDI'11, §4.1, with the weights of §4.3).

    `demands` has what each tenant would use of each resource, which it uses in these proportions; what each is given
    comes back in the same shape. The weighted dominant shares of all rise together; a tenant stops at its demand, and
    where a resource that it uses is exhausted.
    """
    given = [[0.0] * len(capacity) for _ in demands]
    level = [0.0] * len(demands)  # of its demand, the part that a tenant has
    dominant = [max(d / c for d, c in zip(demand, capacity)) for demand in demands]
    open_ = {i for i, share in enumerate(dominant) if share > 0}
    left = list(capacity)
    while open_:
        # Of its demand, what a tenant gets while all weighted dominant shares rise by one.
        rise = {i: weights[i] / dominant[i] for i in open_}
        steps = [(1 - level[i]) / rise[i] for i in open_]
        for r in range(len(capacity)):
            rate = sum(rise[i] * demands[i][r] for i in open_)
            if rate > 0:
                steps.append(left[r] / rate)
        step = max(0.0, min(steps))
        for i in open_:
            level[i] += step * rise[i]
            for r, demand in enumerate(demands[i]):
                given[i][r] += step * rise[i] * demand
                left[r] -= step * rise[i] * demand
        full = {r for r in range(len(capacity)) if left[r] <= 1e-9 * capacity[r]}
        open_ = {
            i
            for i in open_
            if level[i] < 1 - 1e-9 and not any(demands[i][r] > 0 for r in full)
        }
    return given


def parts(amounts):
    """Of all that is used, what each uses."""
    total = sum(amounts)
    return [amount / total if total else 0.0 for amount in amounts]


def share_error(used, given):
    """The largest difference between what a tenant has of all that is used and what it is entitled to of that."""
    return max(abs(u - g) for u, g in zip(parts(used), parts(given)))


def jain(values):
    """Jain's index: 1 where all are alike, 1/n where one has all (DEC-TR-301)."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def percentile(values, percent):
    """The nearest-rank percentile; p00 is the least one."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(percent / 100 * len(ranked)) - 1)] if ranked else None


def rounded(value):
    """Four significant digits, in whatever holds numbers."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return value


def line(row):
    """A row of a table as a line of JSON."""
    return json.dumps(rounded(row), separators=(", ", ": "))
