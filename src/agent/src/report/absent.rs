//! Findings on devices of counted resources that do not exist.
//!
//! A job that gets the index of such a device starts and cannot open it. The devices are looked up once in [`PERIOD_TICKS`], and
//! at once after a change of the policy: a driver may be loaded, or a device removed, while the agent runs.

use std::sync::Arc;

use tenantd_control::words::finding::{Code, Finding};
use tenantd_host::devices::Device;
use tenantd_policy::model::{Counted, Policy};

/// Ticks from one look to the next.
const PERIOD_TICKS: u64 = 10;
/// Most devices that a finding names.
const NAMED_MAX: usize = 3;

/// The devices that were missing.
#[derive(Debug, Default)]
pub(super) struct Absent {
    policy: Option<Arc<Policy>>,
    findings: Vec<Finding>,
}

impl Absent {
    /// Findings on the devices of a policy, which are looked up where it is time.
    pub(super) fn look(&mut self, policy: &Arc<Policy>, tick: u64) -> &[Finding] {
        let is_same = self.policy.as_ref().is_some_and(|known| Arc::ptr_eq(known, policy));
        if !is_same || tick % PERIOD_TICKS == 1 {
            self.findings = policy.host.resources.iter().filter_map(missing).collect();
            self.policy = Some(Arc::clone(policy));
        }
        &self.findings
    }
}

fn missing(counted: &Counted) -> Option<Finding> {
    let (name, mut paths, mut indices) = (&counted.name, Vec::new(), Vec::new());
    for index in 0..if counted.devices.is_empty() { 0 } else { counted.count } {
        let nr_before = paths.len();
        paths.extend(counted.devices_of(index).filter(|path| Device::at(path).is_err()));
        indices.extend((paths.len() > nr_before).then(|| index.to_string()));
    }
    if paths.is_empty() {
        return None;
    }
    let more = |count: usize| match count.saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown: Vec<String> =
        paths.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect();
    let is = if paths.len() == 1 { "device is" } else { "devices are" };
    let missing = format!("{}{}", shown.join(", "), more(paths.len()));
    let indices_shown = indices[..indices.len().min(NAMED_MAX)].join(", ");
    let index = if indices.len() == 1 { "index" } else { "one of the indices" };
    let message = format!(
        "{} {is} missing of resource `{name}`: {missing}; a job that gets {index} {indices_shown}{} starts without it",
        paths.len(),
        more(indices.len())
    );
    let remedy = format!(
        "load the driver, or correct `count` and `devices` of `host.resources.{name}` in the policy"
    );
    Some(Finding::of_host(Code::Ineffective, message).with_remedy(remedy))
}
