//! A scenario file, read: text in, a valid scenario or every finding out.
//!
//! The policy is read and checked by [`tenantd_policy`], against the host of the scenario. Keys about a
//! real host (processes of a tenant, owner of its cgroup, the root) have no meaning on a simulated one and
//! are ignored: the scenario defines the work of a tenant.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::codes::{BAD_NUMBER, CODES, CONFLICT, NAME, TEXT, TOO_LONG};
use super::scenario::{STEP, Scenario, Work};
use super::work::{Steps, works};
use crate::problem;
use tenantd_core::resource::MEMORY;
use tenantd_core::units::Bytes;
use tenantd_policy::bounds::Absolute;
use tenantd_policy::forms::{Count, Keys, Structure, Word};
use tenantd_policy::hint::{nearest, shortened};
use tenantd_policy::key::Flag::Needed;
use tenantd_policy::key::{Fields, section, table};
use tenantd_policy::model::{
    HierarchyChoice, Matches, Mode, OwnerChoice, Policy, RootChoice, Tenant, Version,
};
use tenantd_policy::parse::Budget;
use tenantd_policy::reader::Reader;
use tenantd_policy::report::Source;
use tenantd_policy::tree::{Entry, Kind, Node};
use tenantd_policy::{self as policy, HostFacts, Report, is_tenant_name};
use tenantd_sim::SimHost;

/// Simulated seconds times works: hours of computation are refused.
const WORK_SECONDS_MAX: f64 = 1e7;
/// Threads of all works at once, bounded for their memory.
const THREADS_MAX: u64 = 1_000_000;

section! {
    /// A scenario file.
    struct File, FILE {
        /// The version of the format.
        "version" => version: Option<Version>, Word, [Needed("say `version: 1`")];
        /// The machine.
        "host" => host: HostKeys, Keys(HOST), [Needed("say what there is: `host: { cpus: 4, memory: 8GiB }`")];
        /// The policy, or the path of one, relative to this file.
        "policy" => policy: (), Structure,
            [Needed("name a policy file, or write the policy here: `policy: { version: 1, tenants: { … } }`")];
        /// Other policies, each from some time on.
        "changes" => changes: (), Structure;
        /// How long.
        "duration" => duration: Option<Duration>, Steps { least: STEP };
        /// How many ticks, instead of a duration.
        "ticks" => ticks: Option<u32>, Count { most: 10_000_000, auto: false };
        /// For what is random.
        "seed" => seed: Option<u32>, Count { most: u32::MAX, auto: false };
        /// The work of each tenant.
        "tenants" => tenants: (), Structure,
            [Needed("say what the tenants do: `tenants: { web: { threads: 4 } }`")];
        /// Work that belongs to no tenant.
        "outside" => outside: (), Structure;
    }
}

section! {
    /// `host:` the machine.
    struct HostKeys, HOST {
        /// CPUs.
        "cpus" => cpus: Option<u32>, Count { most: 1024, auto: false }, [Needed("say how many: `cpus: 4`")];
        /// Memory; there is no swap.
        "memory" => memory: Option<u64>, Absolute(MEMORY), [Needed("say how much: `memory: 8GiB`")];
        /// Hardware threads that share a core.
        "threads_per_core" => threads_per_core: Option<u32>, Count { most: 8, auto: false };
        /// Memory nodes.
        "numa_nodes" => numa_nodes: Option<u32>, Count { most: 64, auto: false };
    }
}

/// A policy from some time on.
#[derive(Debug, Default)]
struct Change {
    at: Duration,
    policy: (),
}

table! {
    CHANGE: Change {
        /// From when on.
        "at" => at: Duration, Steps { least: STEP }, [Needed("say when: `at: 60s`")];
        /// The policy, or the path of one.
        "policy" => policy: (), Structure, [Needed("name a policy file, or write the policy here")];
    }
}

/// Reads a scenario.
///
/// # Errors
/// All findings; only the first one if it makes the rest unreadable.
pub(super) fn read(name: &str, text: Vec<u8>) -> Result<Scenario, Report> {
    let (source, tree) = problem::tree(name, text, Budget::PROBLEM.depth, &TEXT)?;
    let mut report = Report::default();
    let reader = Reader::new(&mut report, &source, &CODES, "");
    let mut scenarios = Scenarios { reader, source: Arc::clone(&source), names: Vec::new() };
    let scenario = scenarios.read(&tree);
    report.sort(&[source]);
    match (report.has_errors(), scenario) {
        (false, Some(scenario)) => Ok(scenario),
        _ => Err(report),
    }
}

/// Reads one file.
struct Scenarios<'r> {
    reader: Reader<'r>,
    source: Arc<Source>,
    /// The tenants with work, as the scenario names them.
    names: Vec<String>,
}

impl Scenarios<'_> {
    /// The scenario; with findings, it may have defaults instead of wrong values.
    fn read(&mut self, tree: &Node) -> Option<Scenario> {
        let fields = self.reader.fields(FILE, tree)?;
        let mut file = File::default();
        self.reader.values(&fields, &mut file);
        let host = self.host(&file.host, &fields);
        let facts = facts(&host);
        if let Some(Kind::Map(entries)) = fields.get("tenants").map(|entry| &entry.value.kind) {
            self.names = entries.iter().map(|entry| entry.key.to_string()).collect();
        }
        let first = fields.get("policy").and_then(|entry| self.policy(&entry.value, &facts));
        let mut policies: Vec<(Duration, Policy)> =
            first.into_iter().map(|policy| (Duration::ZERO, policy)).collect();
        if let (Some(changes), Some((_, first))) =
            (fields.get("changes"), policies.first().cloned())
        {
            policies.extend(self.changes(&changes.value, &facts, &first));
        }
        let interval = policies.first()?.1.control.interval;
        let nr_ticks = self.nr_ticks(&file, &fields, tree, interval);
        let end = interval.saturating_mul(nr_ticks);
        let leaves: Vec<String> =
            policies[0].1.leaves().into_iter().map(|(path, _)| path).collect();
        let mut works_of = vec![Work::default(); leaves.len() + 1];
        let seed = u64::from(file.seed.unwrap_or(1));
        if let Some(tenants) = fields.get("tenants") {
            self.tenants(&tenants.value, &leaves, (end, seed), &mut works_of);
        }
        if let Some(outside) = fields.get("outside") {
            works_of[leaves.len()] =
                works(&mut self.reader, &outside.value, (end, seed), leaves.len());
        }
        self.check_size(&fields, tree, end, &works_of);
        Some(Scenario { host, policies, nr_ticks, works: works_of })
    }

    fn host(&mut self, keys: &HostKeys, fields: &Fields<'_, File>) -> SimHost {
        let default = SimHost::default();
        let memory = Bytes(keys.memory.unwrap_or(default.memory_bytes));
        if !(Bytes::mib(64)..=Bytes::gib(1 << 20)).contains(&memory)
            && let Some(entry) = fields.get("host")
        {
            let message = format!("a machine with {memory} of memory");
            let help = "from 64MiB to 1024TiB";
            self.reader.find(&BAD_NUMBER, &entry.value, message, help);
        }
        SimHost {
            cpus: keys.cpus.unwrap_or(default.cpus),
            memory_bytes: memory.0,
            threads_per_core: keys.threads_per_core.unwrap_or(1),
            numa_nodes: keys.numa_nodes.unwrap_or(1),
            ..default
        }
    }

    /// A policy in place, or from a file beside the scenario.
    fn policy(&mut self, node: &Node, facts: &HostFacts) -> Option<Policy> {
        let loaded = match &node.kind {
            Kind::Scalar { text, .. } => {
                let folder = Path::new(self.source.name()).parent().unwrap_or(Path::new(""));
                policy::load_with_host(&folder.join(&**text), facts)
            }
            Kind::Map(_) => policy::load_value(&self.source, node, facts),
            _ => {
                self.reader.wrong_type(node, "a policy, or the path of one", "");
                return None;
            }
        };
        match loaded {
            Ok(loaded) => Some(simulated(&loaded.policy, &self.names)),
            Err(report) => {
                let findings = report.findings().iter().cloned();
                findings.for_each(|finding| self.reader.report.push(finding));
                None
            }
        }
    }

    fn changes(
        &mut self,
        node: &Node,
        facts: &HostFacts,
        first: &Policy,
    ) -> Vec<(Duration, Policy)> {
        let Kind::List(items) = &node.kind else {
            let expected = "a list such as `[{ at: 60s, policy: other.yaml }]`";
            self.reader.wrong_type(node, expected, "");
            return Vec::new();
        };
        let names = |policy: &Policy| -> Vec<String> {
            policy.leaves().into_iter().map(|(path, _)| path).collect()
        };
        let mut policies: Vec<(Duration, Policy)> = Vec::new();
        for item in items {
            let Some(fields) = self.reader.fields(CHANGE, item) else { continue };
            let mut change = Change::default();
            self.reader.values(&fields, &mut change);
            let Some(entry) = fields.get("policy") else { continue };
            let Some(mut policy) = self.policy(&entry.value, facts) else { continue };
            if names(&policy) != names(first) {
                let help =
                    "the tenants of a simulation stay: change their weights, guarantees and limits";
                let message = "this policy has other tenants than the first one";
                self.reader.find(&CONFLICT, &entry.value, message, help);
            }
            policy.control.interval = first.control.interval;
            if policies.last().is_some_and(|(at, _)| *at >= change.at) {
                let message = "changes are in the order of their times";
                self.reader.find(&CONFLICT, item, message, "");
            }
            policies.push((change.at, policy));
        }
        policies
    }

    fn nr_ticks(
        &mut self,
        file: &File,
        fields: &Fields<'_, File>,
        tree: &Node,
        interval: Duration,
    ) -> u32 {
        if let (Some(ticks), Some(duration)) = (fields.get("ticks"), fields.get("duration")) {
            let other = self.reader.key_place(duration).label("the length is given here");
            let finding = CONFLICT.at(
                &self.reader.key_place(ticks),
                "`ticks` and `duration` exclude each other",
                "",
            );
            self.reader.report.push(finding.also(other).help("keep one of them"));
        }
        match (file.ticks, file.duration) {
            (Some(ticks), _) => ticks,
            (None, Some(duration)) => {
                let ticks = duration.as_secs_f64() / interval.as_secs_f64();
                (ticks.ceil() as u32).max(1)
            }
            (None, None) => {
                if fields.get("ticks").or(fields.get("duration")).is_none() {
                    self.reader.missing_key(
                        tree,
                        "duration",
                        "say how long: `duration: 60s`, or `ticks: 60`",
                    );
                }
                1
            }
        }
    }

    fn tenants(
        &mut self,
        node: &Node,
        leaves: &[String],
        context: (Duration, u64),
        into: &mut [Work],
    ) {
        let Kind::Map(entries) = &node.kind else {
            self.reader.wrong_type(node, "a map such as `{ web: { threads: 4 } }`", "");
            return;
        };
        self.reader.duplicates(entries);
        for entry in entries {
            match leaves.iter().position(|leaf| **leaf == *entry.key) {
                Some(leaf) => into[leaf] = works(&mut self.reader, &entry.value, context, leaf),
                None => self.unknown_tenant(entry, leaves),
            }
        }
    }

    fn unknown_tenant(&mut self, entry: &Entry, leaves: &[String]) {
        let names = || leaves.iter().map(String::as_str);
        let help = match nearest(&entry.key, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if names().any(|leaf| leaf.starts_with(&format!("{}/", entry.key))) => {
                "this is a group: name the tenants in it, as in `group/name`".to_string()
            }
            None => "add it to the policy".to_string(),
        };
        let message = format!("the policy has no tenant `{}`", shortened(&entry.key));
        let finding = NAME.at(&self.reader.key_place(entry), message, "");
        self.reader.report.push(finding.help(help));
    }

    /// Refuses a scenario that would take hours or all memory.
    fn check_size(
        &mut self,
        fields: &Fields<'_, File>,
        tree: &Node,
        end: Duration,
        works: &[Work],
    ) {
        let length = fields.get("duration").or(fields.get("ticks"));
        let length = length.map_or(tree, |entry| &entry.value);
        if end.as_secs_f64() * works.len() as f64 > WORK_SECONDS_MAX {
            let message = format!(
                "{} simulated seconds with {} tenants would take hours",
                end.as_secs(),
                works.len() - 1
            );
            let help = format!("seconds times tenants are at most {WORK_SECONDS_MAX:.0}");
            self.reader.find(&TOO_LONG, length, message, help);
        }
        let most = |work: &Work| work.0.iter().map(|phase| u64::from(phase.threads())).max();
        let threads: u64 = works.iter().filter_map(most).sum();
        if threads > THREADS_MAX {
            let message = format!("{threads} threads at once");
            let help = format!("at most {THREADS_MAX} can be simulated");
            let tenants = fields.get("tenants").map_or(tree, |entry| &entry.value);
            self.reader.find(&TOO_LONG, tenants, message, help);
        }
    }
}

/// The machine of a scenario, for the rules of the policy.
fn facts(host: &SimHost) -> HostFacts {
    HostFacts::of_size(host.cpus, Bytes(host.memory_bytes))
}

/// The policy of a simulated host, whose templates find the tenants of these paths.
fn simulated(policy: &Policy, paths: &[String]) -> Policy {
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
