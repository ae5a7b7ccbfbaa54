//! A tick of a recording as a [`Status`]: the decision and its tenants, without the state of the agent.

use super::charged::Charged;
use super::status::{decided, host_status};
use tenantd_control::measure::sample::HostSample;
use tenantd_control::report::status::{Status, Thresholds};
use tenantd_control::state::step::Decision;
use tenantd_control::tick::control_loop::ControlLoop;

/// Status of the tick that made `decision`, on the host `name` with the sample `host`.
pub fn status(
    name: String,
    control: &ControlLoop,
    decision: &Decision,
    host: HostSample,
) -> Status {
    let host = host_status(name, "from a recording", host, decision.capacity);
    let decided = decided(control, decision, host, &Charged::default());
    Status {
        // It is as old as its reader wants it.
        thresholds: Thresholds { stale_seconds: f64::INFINITY, ..decided.thresholds },
        findings: decision.findings.iter().map(ToString::to_string).collect(),
        finding_records: decision.findings.clone(),
        ..decided
    }
}
