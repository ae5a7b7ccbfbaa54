//! One tick as a trace, from which every value of it can be explained.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::competition::Competition;
use crate::backend::access::HostAccess;
use crate::backend::backends::Backends;
use tenantd_control::report::trace::{
    Counters, Outcome, Places, Record, Seen, Spelling, Trace, ValueRecord,
};
use tenantd_control::state::step::Decision;
use tenantd_control::state::{NodeState, Retry, without_threads};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tree::Node;
use tenantd_control::words::finding::Finding;
use tenantd_control::words::knob::{Knob, Purpose, Value, Wanted};
use tenantd_core::kernel_text::proc_files::CgroupLine;
use tenantd_core::kernel_text::text_of_path;
use tenantd_core::node::NodeId;
use tenantd_core::units::Limit;
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_host::process;

#[derive(Debug)]
pub(super) struct Scene<'a, K> {
    pub(super) host: &'a HostAccess<K>,
    pub(super) backends: &'a Backends,
    pub(super) control: &'a ControlLoop,
    pub(super) competition: &'a Competition,
    pub(super) foreign_scheduler: Option<&'a Finding>,
    pub(super) unwritten: BTreeSet<(NodeId, Knob)>,
}

impl<K> Scene<'_, K> {
    pub(super) fn record(&self, decision: &mut Decision, trace: &mut Trace) {
        let mut planned: Vec<(NodeId, Knob)> =
            decision.actions.iter().map(|action| (action.node, action.knob)).collect();
        planned.sort_unstable();
        let states = self.control.states();
        let wanted = std::mem::take(&mut decision.wanted);
        trace.values = Vec::with_capacity(wanted.len());
        trace.records = Vec::with_capacity(states.len());
        let nr_populated = states.iter().filter(|state| is_populated(state)).count();
        trace.counters = Vec::with_capacity(nr_populated);
        let mut wanted = wanted.into_iter().peekable();
        for (node, state) in self.control.tree().all().zip(states) {
            let first = trace.values.len();
            while let Some(value) = wanted.next_if(|value| value.node == node.id()) {
                trace.values.push(self.value(node, value, &planned));
            }
            trace.records.push(Record {
                seen: if node.has_members() {
                    trace.usages.extend(state.usage);
                    let index = state.usage.and(trace.usages.len().checked_sub(1));
                    Some(Seen::Members(index))
                } else {
                    seen(state, &mut trace.counters)
                },
                demand: state.demand,
                target: state.target.clone(),
                credit: state.credit,
                values: first..trace.values.len(),
                width: state.width.status(),
            });
        }
    }

    /// Record of a value. Its reason is left out, because it follows from the rest.
    fn value(&self, of: Node<'_>, value: Wanted, planned: &[(NodeId, Knob)]) -> ValueRecord {
        let Wanted { node, knob, held, value: wanted, is_settled, reason: _ } = value;
        let is_planned = planned.binary_search(&(node, knob)).is_ok();
        let (outcome, detail) = match self.obstacle(of, knob, &wanted) {
            Some(obstacle) => obstacle,
            None => self.outcome(is_planned, is_settled),
        };
        let detail = detail.map(String::into_boxed_str);
        let held_at = self.control.states()[of.at()].observed_at[knob as usize];
        ValueRecord { knob, held, held_at, wanted, outcome, detail }
    }

    fn obstacle(
        &self,
        node: Node<'_>,
        knob: Knob,
        wanted: &Value,
    ) -> Option<(Outcome, Option<String>)> {
        let id = node.id();
        if self.backends.is_pending(node) {
            let why = "its cgroup is not opened yet: those of other tenants come first";
            return Some((Outcome::Deferred, Some(why.to_string())));
        }
        if !self.backends.is_present(id) {
            return Some((Outcome::Missing, None));
        }
        if self.unwritten.contains(&(id, knob)) {
            let why = "many values change: it is written after others, before the next tick";
            return Some((Outcome::Deferred, Some(why.to_string())));
        }
        let state = &self.control.states()[node.at()];
        if let Some(retry) = state.retries.iter().find(|retry| retry.knob == knob) {
            return Some(refused(retry, self.control.tick()));
        }
        if !self.backends.has(self.host, id, knob) {
            return Some((Outcome::Missing, None));
        }
        let protects = !matches!(wanted, Value::Amount(_, Limit::Finite(0)));
        let why = match knob.purpose() {
            Purpose::Protection | Purpose::Guarantee
                if protects && self.competition.leaves_unprotected() =>
            {
                let dir = self.backends.dir_of(self.host, node, Facet::Memory)?;
                self.competition.void_protection(id, &dir)
            }
            Purpose::Weight => self.foreign_scheduler.or_else(|| self.competition.void_weight(id)),
            _ => None,
        };
        Some((Outcome::Ineffective, Some(why?.to_string())))
    }

    fn outcome(&self, is_planned: bool, is_settled: bool) -> (Outcome, Option<String>) {
        match (is_planned, is_settled) {
            (true, _) if self.control.settings().is_enforcing => (Outcome::Written, None),
            (true, _) => (Outcome::Planned, None),
            (false, true) => (Outcome::Settled, None),
            (false, false) => {
                let why = "nothing is taken away before its demand is known";
                (Outcome::Deferred, Some(why.to_string()))
            }
        }
    }
}

fn refused(retry: &Retry, tick: u64) -> (Outcome, Option<String>) {
    let message = retry.refusal.message.as_deref();
    let again = match retry.at_tick.saturating_sub(tick) {
        0 | 1 => "tried again at the next tick".to_string(),
        ticks => format!("tried again in {ticks} ticks"),
    };
    let outcome = match (retry.refusal.is_deferred, message) {
        (true, _) => Outcome::Deferred,
        (false, Some(_)) => Outcome::Failed,
        (false, None) => Outcome::Missing,
    };
    (outcome, Some(format!("{}; {again}", message.unwrap_or("there is no such file"))))
}

fn is_populated(state: &NodeState) -> bool {
    state.sample.as_ref().is_some_and(|now| now.populated != Some(false))
}

fn seen(state: &NodeState, counters: &mut Vec<Counters>) -> Option<Seen> {
    let now = without_threads(state.sample.as_ref()?);
    if !is_populated(state) {
        return Some(Seen::Empty);
    }
    let before = state.before.as_deref().cloned();
    let (usage, context) = (state.usage, state.context);
    counters.push(Counters { before, now, usage, context });
    Some(Seen::Counters(counters.len() - 1))
}

/// File names and spelling of values on a host with `layout`. `homes` are the cgroups, below the mount, of the
/// nodes outside the root, or the names of units that are not found.
pub(super) fn spelling(layout: &Layout, homes: HashMap<String, String>) -> Spelling {
    let homes = Arc::new(homes);
    let places = places(layout, Arc::clone(&homes));
    let tree = |knob| layout.tree_of(knob).map(|tree| layout.trees[tree].clone());
    let (trees, files) = (Knob::ALL.map(tree), Knob::ALL.map(|knob| layout.file(knob)));
    let path = move |knob: Knob, node: &str| {
        let tree = trees[knob as usize].as_ref();
        let dir = match homes.get(node) {
            Some(home) if home.starts_with('/') => tree.map(|tree| tree.dir_of(home)),
            Some(name) => Some(PathBuf::from(name)),
            None => tree.map(|tree| tree.root.join(node)),
        };
        let dir = dir.unwrap_or_else(|| PathBuf::from(node));
        text_of_path(&dir.join(files[knob as usize]))
    };
    Spelling { places, path: Arc::new(path), text: layout.text_of() }
}

fn places(layout: &Layout, homes: Arc<HashMap<String, String>>) -> Places {
    let cpu = layout.tree(Facet::Cpu).map(|index| layout.trees[index].clone());
    // Made on the first use: most ticks are over before any user asks.
    let by_home: OnceLock<HashMap<String, String>> = OnceLock::new();
    Arc::new(move |lines: &[CgroupLine]| {
        let Some(tree) = &cpu else { return Vec::new() };
        let Some(path) = process::path_in(tree, lines) else { return Vec::new() };
        let by_home = by_home.get_or_init(|| {
            let found = homes.iter().filter(|(_, home)| home.starts_with('/'));
            found.map(|(node, home)| (home.clone(), node.clone())).collect()
        });
        let mut names = Vec::new();
        for dir in tree.dir_of(&path).ancestors().take_while(|dir| dir.starts_with(&tree.mount)) {
            names.extend(by_home.get(&tree.path_to(dir)).cloned());
            let below = dir.strip_prefix(&tree.root).ok().map(text_of_path);
            names.extend(below.filter(|below| !below.is_empty()));
        }
        names
    })
}
