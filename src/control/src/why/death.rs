//! Deaths for readers: the victim, and a sentence with the cause, the figures of its tenant and a remedy.

use std::time::Duration;

use crate::measure::death::{Death, Kill, Killer, LimitOf};
use crate::report::status::{DeathCause, DeathStatus};
use crate::state::NodeState;
use crate::tree::TreeNode;
use tenantd_core::units::Bytes;

/// Deaths of a tenant for its status.
pub fn deaths(node: &TreeNode, state: &NodeState) -> Vec<DeathStatus> {
    let now = state.deaths.now();
    state.deaths.last().iter().map(|death| status(node, death, now)).collect()
}

/// A death in the tenant of `node` for its status at time `now`.
pub fn status(node: &TreeNode, death: &Death, now: Duration) -> DeathStatus {
    let Kill { job, cgroup, victim, nr_kills, held_bytes, killer, .. } = &death.kill;
    DeathStatus {
        age_seconds: now.saturating_sub(death.at).as_secs_f64(),
        job: *job,
        uid: victim.as_ref().map(|victim| victim.uid),
        pid: victim.as_ref().map(|victim| victim.pid),
        program: victim.as_ref().map(|victim| victim.program.clone()),
        nr_processes: *nr_kills,
        held_bytes: *held_bytes,
        cause: cause(killer),
        cgroup: (!cgroup.is_empty()).then(|| cgroup.clone()),
        text: text(node, death),
    }
}

/// Kind of a cause.
pub fn cause(killer: &Killer) -> DeathCause {
    match killer {
        Killer::Host => DeathCause::Host,
        Killer::Limit { of: LimitOf::Job, .. } => DeathCause::Declared,
        Killer::Limit { .. } => DeathCause::Limit,
        Killer::Oomd => DeathCause::Oomd,
        Killer::Unknown => DeathCause::Unknown,
    }
}

/// Cause, figures and remedy of a death in the tenant of `node`.
fn text(node: &TreeNode, death: &Death) -> String {
    let (what, remedy) = match &death.kill.killer {
        Killer::Host => ("the host had no memory left".to_string(), of_host(node, death)),
        Killer::Limit { of, cgroup, bytes } => {
            let limit = bytes.map(|bytes| format!(" of {}", rounded(bytes as f64)));
            let limit = limit.unwrap_or_default();
            let name = cgroup.rsplit('/').next().unwrap_or_default();
            let is_unit = [".service", ".scope", ".slice"].iter().any(|it| name.ends_with(it));
            match of {
                LimitOf::Job => (
                    format!("the job reached its declared memory{limit}"),
                    "run it with a larger --memory".to_string(),
                ),
                LimitOf::Policy => (
                    format!("{cgroup} reached its limit{limit}"),
                    format!("raise limit.memory of {cgroup}, or start less at once"),
                ),
                _ => (
                    format!("the memory limit{limit} of {cgroup} was reached"),
                    if is_unit {
                        format!("raise MemoryMax= of {name}")
                    } else {
                        "raise it, or start less at once".to_string()
                    },
                ),
            }
        }
        Killer::Oomd => (
            "systemd reports an end by systemd-oomd".to_string(),
            "see `journalctl -u systemd-oomd`; ManagedOOMPreference=avoid spares a unit"
                .to_string(),
        ),
        Killer::Unknown => (
            "the kernel ended it for lack of memory".to_string(),
            "`journalctl -k -g oom-kill` may have the cause".to_string(),
        ),
    };
    let share = format!("share if busy {}", rounded(death.share_bytes));
    let used = death.used_bytes.map(|used| format!("{} used {}, ", node.path, rounded(used)));
    format!("{what}; {}{share}; {remedy}", used.unwrap_or_default())
}

fn of_host(node: &TreeNode, death: &Death) -> String {
    if death.used_bytes.is_some_and(|used| used > death.share_bytes) {
        return "use less than the share, or give the host memory or swap".to_string();
    }
    format!(
        "guarantee.memory of {} protects its share; with `memory: {{ victims: share }}` work above its share ends first",
        node.path
    )
}

fn rounded(bytes: f64) -> String {
    Bytes(bytes.max(0.0) as u64).rounded()
}
