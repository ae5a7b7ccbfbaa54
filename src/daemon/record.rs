//! From the slots of a tick to the [`Trace`] that explains it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::agent::{Agent, Retry, Slot};
use crate::control::explain::Outcome;
use crate::control::plan::{Action, Knob, NodeKnobs, Value};
use crate::control::sample::{HostSample, TenantSample};
use crate::control::trace::{Counters, Record, Seen, Spelling, Trace, ValueRecord};
use crate::control::tree::TreeNode;
use crate::host::cgroup::{Dialect, Layout};
use crate::host::kernfs::KernFs;
use crate::units::{Bytes, Limit};

/// What of a tick is known nowhere else.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) tick: u64,
    pub(super) now: Duration,
    pub(super) elapsed: Option<Duration>,
    pub(super) capacity: [f64; 2],
    pub(super) host: HostSample,
}

impl<K: KernFs> Agent<K> {
    /// Remembers the tick that ends, with what was planned from `knobs`.
    pub(super) fn record(&mut self, moment: &Moment, knobs: Vec<NodeKnobs>, actions: &[Action]) {
        let mut planned: Vec<(usize, Knob)> = actions.iter().map(|a| (a.node, a.knob)).collect();
        planned.sort_unstable();
        let nr_slots = self.nr_slots(moment.host.nr_cpus);
        let mut seen: Vec<Option<Seen>> = self.slots.iter_mut().map(Slot::seen).collect();
        let records = knobs.into_iter().enumerate().map(|(index, knobs)| {
            let slot = &self.slots[index];
            let NodeKnobs { desired, observed, .. } = knobs;
            // The reasons are not kept: they follow from the rest of the record.
            let values = desired.into_iter().map(|(knob, wanted, _)| {
                let held =
                    observed.iter().find(|(known, _)| *known == knob).map(|(_, v)| v.clone());
                let is_planned = planned.binary_search(&(index, knob)).is_ok();
                let is_settled = held.as_ref().is_some_and(|held| held.settles(&wanted, knob));
                let (outcome, detail) =
                    self.outcome(index, knob, &wanted, is_planned, is_settled, moment.tick);
                let detail = detail.map(String::into_boxed_str);
                ValueRecord { knob, held, wanted, outcome, detail }
            });
            Record {
                seen: seen[index].take(),
                demand: slot.demand,
                target: slot.target.clone(),
                stance: slot.breadth.stance(),
                values: values.collect(),
            }
        });
        let records = records.collect();
        self.trace = Arc::new(Trace {
            now: moment.now,
            elapsed: moment.elapsed,
            machine: [f64::from(moment.host.nr_cpus), moment.host.memory_total_bytes as f64],
            capacity: moment.capacity,
            rule: self.policy.control.allocation,
            slots: nr_slots,
            nodes: Arc::clone(&self.nodes),
            records,
            spelling: self.spelling.clone(),
        });
    }

    /// Notes where the units are by now; one that is not found yet has only its name.
    pub(super) fn name_units(&mut self) {
        let tree = &self.layout.trees[0];
        let home = |(index, node): (usize, &TreeNode)| {
            let unit = self.units.unit(index)?;
            let cgroup = self.units.cgroup(index).map(|cgroup| tree.dir_of(cgroup));
            Some((node.path.clone(), cgroup.unwrap_or_else(|| PathBuf::from(unit))))
        };
        let homes: HashMap<_, _> = self.nodes.iter().enumerate().filter_map(home).collect();
        if !homes.is_empty() {
            self.spelling = spelling(&self.layout, homes);
        }
    }

    /// What came of a value, and what there is to say about it.
    fn outcome(
        &self,
        index: usize,
        knob: Knob,
        wanted: &Value,
        is_planned: bool,
        is_settled: bool,
        tick: u64,
    ) -> (Outcome, Option<String>) {
        let slot = &self.slots[index];
        let Some(cgroup) = &slot.cgroup else { return (Outcome::Missing, None) };
        if let Some(retry) = slot.retries.iter().find(|retry| retry.knob == knob) {
            return refused(retry, tick);
        }
        if !cgroup.has(&self.layout, knob) {
            return (Outcome::Missing, None);
        }
        let protects = *wanted != Value::Memory(Limit::Finite(Bytes(0)));
        match (knob, self.void_protection(index), &self.foreign_scheduler) {
            (Knob::MemoryLow, Some(why), _) if protects => {
                return (Outcome::Ineffective, Some(why.clone()));
            }
            (Knob::CpuWeight, _, Some(why)) => return (Outcome::Ineffective, Some(why.clone())),
            (Knob::CpuWeight, ..) => {
                if let Some(why) = self.above.void_weight(&self.nodes[index].path) {
                    return (Outcome::Ineffective, Some(why.clone()));
                }
            }
            _ => {}
        }
        match (is_planned, is_settled) {
            (true, _) if self.enforcing => (Outcome::Written, None),
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
    let message = retry.message.as_deref().unwrap_or("there is no such file");
    let again = match retry.at_tick.saturating_sub(tick) {
        0 | 1 => "tried again at the next tick".to_string(),
        ticks => format!("tried again in {ticks} ticks"),
    };
    let outcome = match (retry.deferred, &retry.message) {
        (true, _) => Outcome::Deferred,
        (false, Some(_)) => Outcome::Failed,
        (false, None) => Outcome::Missing,
    };
    (outcome, Some(format!("{message}; {again}")))
}

/// A sample to keep: threads are many, and speak only to the next one.
pub(super) fn without_threads(sample: &TenantSample) -> TenantSample {
    TenantSample { threads: None, ..*sample }
}

/// How files are named and values spelled on a host with `layout`, where `homes` are the cgroups of the nodes
/// that live elsewhere than below the root.
pub(super) fn spelling(layout: &Layout, homes: HashMap<String, PathBuf>) -> Spelling {
    let dialect = layout.dialect;
    let roots: Vec<PathBuf> = Knob::ALL
        .iter()
        .map(|knob| {
            let tree = layout.tree(dialect.facet(*knob));
            tree.map(|tree| layout.trees[tree].root.clone()).unwrap_or_default()
        })
        .collect();
    let path = move |knob: Knob, node: &str| {
        let dir = homes.get(node).cloned().unwrap_or_else(|| roots[knob as usize].join(node));
        dir.join(dialect.file(knob)).display().to_string()
    };
    Spelling {
        path: Arc::new(path),
        text: match dialect {
            Dialect::Unified => |knob, value| spell(Dialect::Unified, knob, value),
            Dialect::Legacy => |knob, value| spell(Dialect::Legacy, knob, value),
        },
    }
}

/// A value as its file spells it.
fn spell(dialect: Dialect, knob: Knob, value: &Value) -> String {
    dialect.spell(knob, value).pop().map_or_else(|| value.to_string(), |last| last.text)
}

impl Slot {
    /// Takes the sample that was the newest until now out of the way.
    pub(super) fn retire_sample(&mut self) {
        self.before = self.sample.as_ref().map(without_threads).map(Box::new);
    }

    /// What was seen of it in this tick.
    fn seen(&mut self) -> Option<Seen> {
        let now = self.sample.as_ref()?;
        if now.populated == Some(false) {
            return Some(Seen::Nobody);
        }
        let now = without_threads(now);
        let before = self.before.take().map(|before| *before);
        let (usage, context) = (self.usage, self.context);
        Some(Seen::Counters(Box::new(Counters { before, now, usage, context })))
    }
}
