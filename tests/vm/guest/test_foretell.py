"""Another policy is foretold by a recording, and then put in force."""

import os

import foretelling
from marks import long, newer

MINUTES = int(os.environ.get("SCENARIO_MINUTES", "6"))
SEED = int(os.environ.get("SCENARIO_SEED", "1"))


@long
@newer
def test_what_a_replay_foretells_comes_true(host):
    host.cleanup.callback(host.ground.clear, foretelling.WEIGHTS)
    sums = foretelling.measure(host, MINUTES, SEED)
    assert sums["within"]["entitled"] >= foretelling.WITHIN_MIN, sums
