"""No strategy of a tenant pays, with credits and without."""

import os

import strategies
from marks import long, newer

TURNS = {
    "seed": int(os.environ.get("SCENARIO_SEED", "1")),
    "count": int(os.environ.get("SCENARIO_STRATEGIES", "10")),
    "seconds": int(os.environ.get("SCENARIO_WATCH", "20")),
}


def judge(host, credits):
    host.cleanup.callback(host.ground.clear, strategies.WEIGHTS)
    for name in strategies.WEIGHTS:
        host.ground.group(name)
    host.ground.sleepers(host, strategies.WEIGHTS)()
    sums = strategies.measure(host, credits=credits, **TURNS)
    assert sums["best"] <= strategies.GAIN_MAX[credits], sums


@long
@newer
def test_no_strategy_pays(host):
    judge(host, credits=False)


@long
@newer
def test_no_strategy_pays_with_credits(host):
    judge(host, credits=True)
