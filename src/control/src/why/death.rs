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
        text: text(&node.path, death),
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

/// Cause, figures and remedy of a death in this tenant.
fn text(tenant: &str, death: &Death) -> String {
    let (what, remedy) = match &death.kill.killer {
        Killer::Host => ("the host had no memory left".to_string(), of_host(death).to_string()),
        Killer::Limit { of, cgroup, bytes } => {
            let limit = bytes.map(|bytes| format!(" of {}", rounded(bytes as f64)));
            let limit = limit.unwrap_or_default();
            match of {
                LimitOf::Job => (
                    format!("the job reached its declared memory{limit}"),
                    "run it with a larger --memory".to_string(),
                ),
                LimitOf::Policy => (
                    format!("{cgroup} reached its limit{limit}"),
                    format!("raise limit.memory of {cgroup}, or start less at once"),
                ),
                LimitOf::Inside | LimitOf::Above => (
                    format!("the memory limit{limit} of {cgroup} was reached"),
                    of_cgroup(*of, cgroup, death),
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
    let used = death.used_bytes.map(|used| format!("{tenant} used {}, ", rounded(used)));
    format!("{what}; {}{share}; {remedy}", used.unwrap_or_default())
}

/// True if the tenant used more than its share; `None` if that is not known. A cgroup that is gone with its counters leaves
/// the memory of the killed processes, which is a part of the use.
fn is_above_share(death: &Death) -> Option<bool> {
    let killed = || death.kill.held_bytes.map(|bytes| bytes as f64);
    let killed_alone = || killed().filter(|bytes| *bytes > death.share_bytes);
    Some(death.used_bytes.or_else(killed_alone)? > death.share_bytes)
}

fn of_host(death: &Death) -> &'static str {
    match is_above_share(death) {
        Some(true) => "use less than the share, or give the host memory or swap",
        Some(false) => {
            "with `memory: { victims: share }` work above its share ends first, and none within its guarantee.memory"
        }
        None => {
            "give the host memory or swap; with `memory: { victims: share }` work above its share ends first"
        }
    }
}

/// Remedy for a limit that is not in the policy. One above the tenant is shared with others.
fn of_cgroup(of: LimitOf, cgroup: &str, death: &Death) -> String {
    let name = cgroup.rsplit('/').next().unwrap_or_default();
    let is_unit = [".service", ".scope", ".slice"].iter().any(|it| name.ends_with(it));
    let raise = if is_unit {
        format!("raise MemoryMax= of {name}")
    } else {
        "raise that limit".to_string()
    };
    match (of, is_above_share(death)) {
        (LimitOf::Above, Some(true)) => format!("use less than the share, or {raise}"),
        _ => format!("{raise}, or start less at once"),
    }
}

fn rounded(bytes: f64) -> String {
    Bytes(bytes.max(0.0) as u64).rounded()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: f64 = (100_u64 << 20) as f64;

    fn remedy(killer: Killer, used_ratio: Option<f64>, killed_ratio: f64) -> String {
        let held_bytes = Some((killed_ratio * SHARE) as u64);
        let kill = Kill { killer, held_bytes, nr_kills: 1, ..Kill::default() };
        let used_bytes = used_ratio.map(|ratio| ratio * SHARE);
        let death = Death { kill, used_bytes, share_bytes: SHARE, ..Death::default() };
        let text = text("a", &death);
        text.split_once("share if busy 100MiB; ").unwrap().1.to_string()
    }

    fn limit(of: LimitOf, cgroup: &str) -> Killer {
        Killer::Limit { of, cgroup: cgroup.to_string(), bytes: Some(1 << 30) }
    }

    #[test]
    fn on_a_full_host_the_remedy_depends_on_the_share() {
        let of = |used, killed| remedy(Killer::Host, used, killed);
        let less = "use less than the share, or give the host memory or swap";
        assert_eq!(of(Some(1.5), 0.2), less);
        // The process alone held more, and the use is not known.
        assert_eq!(of(None, 1.2), less);
        let within = of(Some(0.8), 0.5);
        assert!(within.contains("none within its guarantee.memory"), "{within}");
        assert!(!within.contains("use less"), "{within}");
        let unknown = of(None, 0.5);
        assert!(!unknown.contains("guarantee") && !unknown.contains("use less"), "{unknown}");
        assert!(unknown.contains("give the host memory or swap"), "{unknown}");
    }

    #[test]
    fn at_a_limit_the_remedy_names_the_limit() {
        for (killer, used_ratio, expected) in [
            (limit(LimitOf::Job, "/a/job-1"), 3.0, "run it with a larger --memory"),
            (
                limit(LimitOf::Policy, "ci/a"),
                3.0,
                "raise limit.memory of ci/a, or start less at once",
            ),
            (
                limit(LimitOf::Inside, "/a/web.service"),
                3.0,
                "raise MemoryMax= of web.service, or start less at once",
            ),
            (limit(LimitOf::Inside, "/a/own"), 3.0, "raise that limit, or start less at once"),
            (
                limit(LimitOf::Above, "/tenants.slice"),
                3.0,
                "use less than the share, or raise MemoryMax= of tenants.slice",
            ),
            (
                limit(LimitOf::Above, "/tenants.slice"),
                0.5,
                "raise MemoryMax= of tenants.slice, or start less at once",
            ),
        ] {
            assert_eq!(remedy(killer, Some(used_ratio), 0.2), expected);
        }
    }

    #[test]
    fn other_causes_name_the_log_of_their_program() {
        assert!(remedy(Killer::Oomd, Some(3.0), 0.2).contains("journalctl -u systemd-oomd"));
        assert!(remedy(Killer::Unknown, Some(3.0), 0.2).contains("journalctl -k -g oom-kill"));
    }
}
