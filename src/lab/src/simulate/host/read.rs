//! A scenario file, read: text in, a valid scenario or its first error out; of a policy in it, all findings.
//!
//! The policy is read and checked by [`tenantd_policy`], against the host of the scenario. Keys about a
//! real host (processes of a tenant, owner of its cgroup, the root) have no meaning on a simulated one and
//! are ignored: the scenario defines the work of a tenant.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::codes::{CONFLICT, FORMAT, NAME, TOO_LONG};
use super::scenario::{Scenario, Work};
use super::work::{Time, memory, works};
use crate::problem::parse;
use tenantd_core::units::Bytes;
use tenantd_policy::file::{Cause, Refusal, Whole, one_of};
use tenantd_policy::hint::{nearest, shortened};
use tenantd_policy::model::{
    HierarchyChoice, Matches, Mode, OwnerChoice, Policy, RootChoice, Tenant, Version,
};
use tenantd_policy::report::Source;
use tenantd_policy::tree::{Entry, Kind, Node};
use tenantd_policy::types::Words;
use tenantd_policy::{self as policy, HostFacts, Report, is_tenant_name};
use tenantd_sim::SimHost;

/// Simulated seconds times works: hours of computation are refused.
const WORK_SECONDS_MAX: f64 = 1e7;
/// Threads of all works at once, bounded for their memory.
const THREADS_MAX: u64 = 1_000_000;

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Version, D::Error> {
    one_of(deserializer, Version::WORDS)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "policies and maps with any keys are read from the tree")]
struct File {
    #[serde(deserialize_with = "version")]
    version: Version,
    host: HostKeys,
    policy: IgnoredAny,
    #[serde(default)]
    changes: Vec<Change>,
    duration: Option<Time<1>>,
    ticks: Option<Whole<1, 10_000_000>>,
    seed: Option<Whole<1, { u32::MAX as u64 }>>,
    tenants: IgnoredAny,
    outside: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "amounts of memory are read with their places")]
struct HostKeys {
    cpus: Whole<1, 1024>,
    /// There is no swap.
    memory: String,
    threads_per_core: Option<Whole<1, 8>>,
    numa_nodes: Option<Whole<1, 64>>,
}

/// Another policy from some time on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "policies are read from the tree")]
struct Change {
    at: Time<1>,
    policy: IgnoredAny,
}

/// Reads a scenario.
///
/// # Errors
/// The first error, or all findings of a policy.
pub(super) fn read(name: &str, text: Vec<u8>) -> Result<Scenario, Report> {
    parse(name, text, &FORMAT, scenario)
}

fn scenario(source: &Arc<Source>, tree: &Node) -> Result<Scenario, Refusal> {
    let file: File = tree.read()?;
    let host = host(&file.host, tree)?;
    let entry = |key: &str| tree.get(key).ok_or_else(|| Refusal::missing(tree, key));
    let tenants = entry("tenants")?.value.map()?;
    let names: Vec<&str> = tenants.iter().map(|entry| &*entry.key).collect();
    let policies = Policies { source, facts: facts(&host), names };
    let first = policies.read(&entry("policy")?.value)?;
    let interval = first.control.interval;
    let nr_ticks = nr_ticks(&file, tree, interval)?;
    let context = (interval.saturating_mul(nr_ticks), file.seed.map_or(1, |seed| seed.0));
    let leaves: Vec<String> = first.leaves().into_iter().map(|(path, _)| path).collect();
    let mut works_of = vec![Work::default(); leaves.len() + 1];
    for entry in tenants {
        let leaf = leaves.iter().position(|leaf| **leaf == *entry.key);
        let leaf = leaf.ok_or_else(|| unknown_tenant(entry, &leaves))?;
        works_of[leaf] = works(&entry.value, context, leaf)?;
    }
    if let Some(outside) = tree.get("outside") {
        works_of[leaves.len()] = works(&outside.value, context, leaves.len())?;
    }
    check_size(tree, context.0, &works_of)?;
    let mut all = vec![(Duration::ZERO, first)];
    let items = tree.get("changes").map_or(&[][..], |entry| entry.value.list());
    for (change, item) in file.changes.iter().zip(items) {
        all.push((change.at.0, policies.change(change, item, &all)?));
    }
    let mut scenario = Scenario { host, policies: all, nr_ticks, works: works_of };
    // A disk that no work reads needs no scheduler.
    scenario.host.divider.is_bfq = scenario.has_disk();
    Ok(scenario)
}

fn host(keys: &HostKeys, tree: &Node) -> Result<SimHost, Refusal> {
    let entry = tree.get("host").map_or(tree, |entry| &entry.value);
    let memory = Bytes(memory(entry, "memory")?.unwrap_or_default());
    if !(Bytes::mib(64)..=Bytes::gib(1 << 20)).contains(&memory) {
        let message = format!("a machine with {memory} of memory");
        return Err(
            Refusal::new(Cause::Number, entry.span(), message).help("from 64MiB to 1024TiB")
        );
    }
    Ok(SimHost {
        cpus: keys.cpus.0 as u32,
        memory_bytes: memory.0,
        threads_per_core: keys.threads_per_core.map_or(1, |threads| threads.0 as u32),
        numa_nodes: keys.numa_nodes.map_or(1, |nodes| nodes.0 as u32),
        ..SimHost::default()
    })
}

/// The surroundings of the policies of a scenario.
struct Policies<'s> {
    source: &'s Arc<Source>,
    facts: HostFacts,
    /// The tenants with work, as the scenario names them.
    names: Vec<&'s str>,
}

impl Policies<'_> {
    /// A policy in place, or from a file beside the scenario.
    fn read(&self, node: &Node) -> Result<Policy, Refusal> {
        let loaded = match &node.kind {
            Kind::Scalar { text, .. } => {
                let folder = Path::new(self.source.name()).parent().unwrap_or(Path::new(""));
                policy::load_with_host(&folder.join(&**text), &self.facts)
            }
            Kind::Map(_) => policy::load_value(self.source, node, &self.facts),
            _ => {
                let found = node.describe();
                let message = format!("expected a policy, or the path of one, found {found}");
                return Err(Refusal::new(Cause::WrongType, node.span(), message));
            }
        };
        let loaded = loaded.map_err(Refusal::of_policy)?;
        Ok(simulated(&loaded.policy, &self.names))
    }

    /// The policy of a change that follows `before`, the first policy and the changes.
    fn change(
        &self,
        change: &Change,
        item: &Node,
        before: &[(Duration, Policy)],
    ) -> Result<Policy, Refusal> {
        let Some(entry) = item.get("policy") else { return Err(Refusal::missing(item, "policy")) };
        let mut policy = self.read(&entry.value)?;
        let first = &before[0].1;
        let paths = |policy: &Policy| -> Vec<String> {
            policy.leaves().into_iter().map(|(path, _)| path).collect()
        };
        if paths(&policy) != paths(first) {
            let message = "this policy has other tenants than the first one";
            let help =
                "the tenants of a simulation stay: change their weights, guarantees and limits";
            return Err(Refusal::new(CONFLICT, entry.value.span(), message).help(help));
        }
        if before.last().is_some_and(|(at, _)| *at >= change.at.0) {
            let message = "changes are in the order of their times";
            return Err(Refusal::new(CONFLICT, item.span(), message));
        }
        policy.control.interval = first.control.interval;
        Ok(policy)
    }
}

fn nr_ticks(file: &File, tree: &Node, interval: Duration) -> Result<u32, Refusal> {
    if let (Some(ticks), Some(duration)) = (tree.get("ticks"), tree.get("duration")) {
        let message = "`ticks` and `duration` exclude each other";
        let both = Refusal::new(CONFLICT, ticks.span(), message);
        return Err(both
            .also(duration.span(), "the length is given here")
            .help("keep one of them"));
    }
    let of_duration = |duration: Time<1>| {
        let ticks = duration.0.as_secs_f64() / interval.as_secs_f64();
        (ticks.ceil() as u32).max(1)
    };
    let ticks = file.ticks.map(|ticks| ticks.0 as u32).or(file.duration.map(of_duration));
    ticks.ok_or_else(|| Refusal::missing(tree, "duration"))
}

fn unknown_tenant(entry: &Entry, leaves: &[String]) -> Refusal {
    let names = || leaves.iter().map(String::as_str);
    let help = match nearest(&entry.key, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names().any(|leaf| leaf.starts_with(&format!("{}/", entry.key))) => {
            "this is a group: name the tenants in it, as in `group/name`".to_string()
        }
        None => "add it to the policy".to_string(),
    };
    let message = format!("the policy has no tenant `{}`", shortened(&entry.key));
    Refusal::new(NAME, entry.span(), message).help(help)
}

/// Refuses a scenario that would take hours or all memory.
fn check_size(tree: &Node, end: Duration, works: &[Work]) -> Result<(), Refusal> {
    let refusal = |entry: Option<&Entry>, message: String| {
        let span = entry.map_or(tree.span(), |entry| entry.value.span());
        Refusal::new(TOO_LONG, span, message)
    };
    if end.as_secs_f64() * works.len() as f64 > WORK_SECONDS_MAX {
        let (seconds, tenants) = (end.as_secs(), works.len() - 1);
        let message =
            format!("{seconds} simulated seconds with {tenants} tenants would take hours");
        let help = format!("seconds times tenants are at most {WORK_SECONDS_MAX:.0}");
        return Err(refusal(tree.get("duration").or(tree.get("ticks")), message).help(help));
    }
    let most = |work: &Work| work.0.iter().map(|phase| u64::from(phase.threads())).max();
    let threads: u64 = works.iter().filter_map(most).sum();
    if threads > THREADS_MAX {
        let help = format!("at most {THREADS_MAX} can be simulated");
        return Err(refusal(tree.get("tenants"), format!("{threads} threads at once")).help(help));
    }
    Ok(())
}

/// The machine of a scenario, for the rules of the policy.
fn facts(host: &SimHost) -> HostFacts {
    HostFacts::of_size(host.cpus, Bytes(host.memory_bytes))
}

/// The policy of a simulated host, whose templates find the tenants of these paths.
fn simulated(policy: &Policy, paths: &[&str]) -> Policy {
    fn plain(tenants: &mut Vec<Tenant>) {
        for tenant in &mut *tenants {
            tenant.matches = Matches::default();
            tenant.owner = OwnerChoice::default();
            plain(&mut tenant.tenants);
        }
        // A group without a found tenant does not exist.
        tenants.retain_mut(|tenant| tenant.each.take().is_none() || !tenant.tenants.is_empty());
    }
    let found = |group: &str| {
        let names = paths.iter().filter_map(|path| path.strip_prefix(group)?.strip_prefix('/'));
        names.filter(|name| is_tenant_name(name)).map(str::to_string).collect()
    };
    let mut policy = policy.with_found(&found);
    plain(&mut policy.tenants);
    policy.mode = Mode::Enforce;
    policy.host.root = RootChoice::Auto;
    policy.host.hierarchy = HierarchyChoice::Auto;
    policy
}
