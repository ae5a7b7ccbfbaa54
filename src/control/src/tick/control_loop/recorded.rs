//! The whole loop as a value, so that a replay can begin at any tick.

use super::ControlLoop;
use tenantd_core::codec::coded;

coded!(struct ControlLoop {
    settings, tree, states, tick, last, topology, episode, nr_drift, nr_yields, alarm,
});
