//! What the files hold, and who wins where someone else wrote there.
//!
//! The files of our own cgroups are read again every few ticks, those of units in every tick: a unit has an
//! administrator, whose `systemctl set-property` is to be noticed at once. A value that is neither what was
//! seen last nor what we asked for is *drift*: counted, logged once, and then, as `control.on_drift` says,
//! written over or left for good. What is left is theirs: it is not put back at the end either.

use tracing::warn;

use super::agent::Agent;
use super::tick::VERIFY_TICKS;
use crate::control::plan::{Knob, Value};
use crate::host::cgroup::ReadError;
use crate::host::journal::{Entry, JournalError};
use crate::host::kernfs::{ErrorKind, KernError, KernFs};
use crate::host::systemd::Property;
use crate::policy::model::OnDrift;

impl<K: KernFs> Agent<K> {
    /// Reads what the files hold where that is not known; counts what someone else wrote.
    pub(super) fn observe(&mut self, tick: u64, findings: &mut Vec<String>) -> u64 {
        let verify = tick.is_multiple_of(VERIFY_TICKS);
        let mut drifted = Vec::new();
        for index in 0..self.nodes.len() {
            if verify || self.slots[index].observed.is_empty() || self.units.owns(index) {
                self.observe_one(index, &mut drifted, findings);
            }
        }
        self.observe_top();
        self.check_arrivals(tick);
        if self.enforcing && self.policy.control.on_drift == OnDrift::Accept {
            for (index, knob) in &drifted {
                self.accept(*index, *knob, findings);
            }
        }
        self.say_whose(findings);
        drifted.len() as u64
    }

    fn observe_one(
        &mut self,
        index: usize,
        drifted: &mut Vec<(usize, Knob)>,
        findings: &mut Vec<String>,
    ) {
        let (node, slot) = (&self.nodes[index], &mut self.slots[index]);
        let Some(cgroup) = &slot.cgroup else { return };
        let mut observed = Vec::with_capacity(Knob::ALL.len());
        let mut gone = Vec::new();
        for knob in Knob::ALL.into_iter().filter(|knob| self.pins || *knob != Knob::Cpus) {
            match cgroup.observe(&mut self.kernel, &self.layout, knob) {
                Ok(value) => observed.push((knob, value)),
                Err(error) if error.is_gone() => gone.push(knob),
                Err(ReadError::Kernel(error)) if is_unsupported(&error) => {}
                Err(error) => findings.push(format!("{}: {error}", node.path)),
            }
        }
        for (knob, now) in &observed {
            let known = slot.observed.iter().find(|(known, _)| known == knob);
            if let Some((_, then)) = known
                && then != now
                && !slot.theirs.contains(knob)
                && !self.units.ordered(index, *knob, now)
            {
                drifted.push((index, *knob));
                let (resource, action) = (knob.resource(), "drift");
                let file = self.layout.dialect.file(*knob);
                warn!(
                    tenant = node.path,
                    resource,
                    action,
                    "someone else wrote here: {file} holds {now} instead of {then}"
                );
            }
        }
        let before: Vec<(Knob, Value)> = std::mem::replace(&mut slot.observed, observed);
        // A file that never was there was said when the cgroup was opened.
        if let Some(knob) = gone.iter().find(|gone| before.iter().any(|(knob, _)| knob == *gone)) {
            let file = self.layout.dialect.file(*knob);
            self.lose(index, &format!("its {file} went away"), findings);
        }
    }

    /// Leaves a knob to whoever has set it, for as long as this agent runs.
    fn accept(&mut self, index: usize, knob: Knob, findings: &mut Vec<String>) {
        match self.record_theirs(index, knob) {
            Ok(()) => self.slots[index].theirs.push(knob),
            // Written over until it can be recorded whose it is.
            Err(error) => findings.push(format!("{}: {error}", self.nodes[index].path)),
        }
    }

    fn record_theirs(&mut self, index: usize, knob: Knob) -> Result<(), JournalError> {
        if let Some(unit) = self.units.unit(index) {
            let (unit, property) = (unit.to_string(), Property::of(knob));
            return self.journal.record(Entry::UnitTheirs { unit, property });
        }
        let Some(cgroup) = &self.slots[index].cgroup else { return Ok(()) };
        let Ok(dir) = cgroup.knob_dir(&self.layout, knob) else { return Ok(()) };
        let Ok(inode) = self.kernel.inode(dir) else { return Ok(()) };
        let (path, file) = (self.kernel.dir_path(dir), self.layout.dialect.file(knob).to_string());
        self.journal.record(Entry::Theirs { path, inode, file })
    }

    fn say_whose(&self, findings: &mut Vec<String>) {
        for (node, slot) in self.nodes.iter().zip(&self.slots) {
            findings.extend(slot.theirs.iter().map(|knob| {
                let file = self.layout.dialect.file(*knob);
                format!(
                    "{}: its {file} was set by someone else and is left so (control.on_drift)",
                    node.path
                )
            }));
        }
    }
}

fn is_unsupported(error: &KernError) -> bool {
    error.kind() == ErrorKind::Unsupported
}
