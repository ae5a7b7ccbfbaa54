//! Process limits that stop a tenant or a group from starting processes.
//!
//! The kernel counts a refused fork in the cgroup at its limit and above (since 6.11), or only in the
//! forking process's cgroup (before, and on legacy hosts). So the process count is also compared with the
//! limit: if a tenant's processes are in nested cgroups, older kernels report nothing else.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::measure::sample::PidsSample;
use crate::measure::usage::Tally;
use crate::tree::Node;
use crate::words::finding::{Code, Finding, Severity};
use crate::words::knob::Value;
use tenantd_core::units::Limit;

const REPORTED_TIME: Duration = Duration::from_secs(60);

/// Processes of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidsState {
    /// Newest reading.
    pub last: Option<PidsSample>,
    /// Refused forks since the agent started.
    pub refused: Tally,
    refused_ago: Option<Duration>,
}

impl PidsState {
    /// Adds a reading, `elapsed` after the last one.
    pub(crate) fn note(&mut self, sample: Option<PidsSample>, elapsed: Option<Duration>) {
        self.refused_ago = self.refused_ago.zip(elapsed).map(|(ago, elapsed)| ago + elapsed);
        let before = self.refused.total();
        if let Some(PidsSample { generation, nr_refused: Some(count), .. }) = sample {
            self.refused.note(generation, count);
        }
        if self.refused.total().unwrap_or(0) > before.unwrap_or(0) {
            self.refused_ago = Some(Duration::ZERO);
        }
        self.last = sample;
    }

    pub(crate) fn and(self, other: PidsState) -> PidsState {
        let mut refused = Tally::default();
        refused.follow(self.refused.total().unwrap_or(0) + other.refused.total().unwrap_or(0));
        let last = match (self.last, other.last) {
            (Some(a), Some(b)) => Some(PidsSample {
                generation: 0,
                nr_current: a.nr_current + b.nr_current,
                nr_refused: None,
            }),
            (a, b) => a.or(b),
        };
        let ago = [self.refused_ago, other.refused_ago].into_iter().flatten().min();
        PidsState { last, refused, refused_ago: ago }
    }

    pub(crate) fn follow(&mut self, members: PidsState) {
        self.refused.follow(members.refused.total().unwrap_or(0));
        (self.last, self.refused_ago) = (members.last, members.refused_ago);
    }

    pub(crate) fn without_sample(self) -> PidsState {
        PidsState { last: None, ..self }
    }
}

/// True if the policy limits the processes of this node or of a group above it.
pub fn is_limited(node: Node<'_>) -> bool {
    let ups = node.tenant().into_iter().flat_map(Node::upwards).filter_map(Node::policy);
    ups.into_iter().any(|policy| policy.written.limit.pids.is_some())
}

/// Finding if the node cannot start more processes, or could not recently. `held` is its last observed limit.
pub(crate) fn finding(name: &str, pids: &PidsState, held: Option<&Value>) -> Option<Finding> {
    let most = match held {
        Some(Value::Count(Limit::Finite(most))) => Some(*most),
        _ => None,
    };
    let full = most.filter(|most| pids.last.is_some_and(|pids| pids.nr_current >= *most));
    let what = match (full, pids.refused_ago.is_some_and(|ago| ago < REPORTED_TIME)) {
        (Some(most), _) => {
            format!("it has as many processes and threads as its pids.max, {most}: none can start")
        }
        (None, true) => {
            "processes or threads of it could not start within the last minute, because of \
                         the pids.max of its cgroup or of one above"
                .to_string()
        }
        (None, false) => return None,
    };
    let finding = Finding::of(name, Code::LimitReached, what);
    let remedy = "see which processes it has, or raise limit.pids in the policy";
    Some(Finding { severity: Severity::Note, ..finding }.with_remedy(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_forks_are_reported_for_a_while() {
        let mut pids = PidsState::default();
        let mut note = |nr_current, nr_refused, seconds| {
            let sample = PidsSample { generation: 1, nr_current, nr_refused };
            pids.note(Some(sample), Some(Duration::from_secs(seconds)));
            finding("web", &pids, None).map(|finding| finding.message)
        };
        assert_eq!(note(3, Some(7), 1), None, "those before the agent");
        assert!(note(3, Some(8), 1).is_some_and(|what| what.contains("within the last minute")));
        assert!(note(3, None, 59).is_some(), "not read");
        assert_eq!(note(3, Some(8), 1), None, "a minute later");
        assert_eq!(pids.refused.total(), Some(1));
    }

    #[test]
    fn a_full_cgroup_is_reported_without_a_counter() {
        let mut pids = PidsState::default();
        let mut full = |most, nr_current| {
            let sample = PidsSample { generation: 1, nr_current, nr_refused: None };
            pids.note(Some(sample), None);
            finding("web", &pids, Some(&Value::Count(most))).is_some()
        };
        assert!(!full(Limit::Finite(4), 3));
        assert!(full(Limit::Finite(4), 4));
        assert!(full(Limit::Finite(4), 5), "lowered below what was there");
        assert!(!full(Limit::Max, 5));
    }
}
