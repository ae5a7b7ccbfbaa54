//! What the files hold, and who wins where someone else wrote there.
//!
//! The files of our own cgroups are read again every few ticks, those of units in every tick: a unit has an
//! administrator, whose `systemctl set-property` is to be noticed at once. A value that is neither what was
//! seen last nor what we asked for is *drift*: counted, logged once, and then, as `control.on_drift` says,
//! written over or left for good. What is left is theirs: it is not put back at the end either. The slice above
//! the slices of tenants is no tenant, but has an administrator as well.

use tracing::warn;

use super::agent::{Agent, Slot};
use super::tick::VERIFY_TICKS;
use super::units::name_of;
use crate::control::plan::{Knob, Value};
use crate::host::cgroup::ReadError;
use crate::host::journal::{Entry, JournalError};
use crate::host::kernfs::{ErrorKind, KernError, KernFs};
use crate::host::systemd::Property;
use crate::host::systemd::slice_name::TOP;
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
        self.observe_top(&mut drifted);
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
            if let Some(then) = slot.before_drift(*knob, now)
                && !self.units.ordered(index, *knob, now)
            {
                drifted.push((index, *knob));
                say_drift(&node.path, self.layout.dialect.file(*knob), *knob, now, then);
            }
        }
        let before: Vec<(Knob, Value)> = std::mem::replace(&mut slot.observed, observed);
        // A file that never was there was said when the cgroup was opened.
        if let Some(knob) = gone.iter().find(|gone| before.iter().any(|(knob, _)| knob == *gone)) {
            let file = self.layout.dialect.file(*knob);
            self.lose(index, &format!("its {file} went away"), findings);
        }
    }

    /// Reads what the top slice holds.
    fn observe_top(&mut self, drifted: &mut Vec<(usize, Knob)>) {
        let (index, knob) = (self.nodes.len(), Knob::MemoryLow);
        let Some(cgroup) = self.units.top.cgroup.take() else { return };
        let now = match cgroup.observe(&mut self.kernel, &self.layout, knob) {
            Err(error) if error.is_gone() && !cgroup.is_there(&mut self.kernel, &self.layout) => {
                cgroup.close(&mut self.kernel);
                let theirs = std::mem::take(&mut self.units.top.theirs);
                self.units.top = Slot { theirs, ..Slot::default() };
                self.units.lose(index);
                return;
            }
            now => now.ok(),
        };
        self.units.top.cgroup = Some(cgroup);
        if let Some(now) = &now
            && let Some(then) = self.units.top.before_drift(knob, now)
            && !self.units.ordered(index, knob, now)
        {
            drifted.push((index, knob));
            say_drift(TOP, self.layout.dialect.file(knob), knob, now, then);
        }
        self.units.top.observed = now.map(|now| (knob, now)).into_iter().collect();
    }

    /// Leaves a knob to whoever has set it, for as long as this agent runs.
    fn accept(&mut self, index: usize, knob: Knob, findings: &mut Vec<String>) {
        match self.record_theirs(index, knob) {
            Ok(()) => self.slot_of(index).theirs.push(knob),
            // Written over until it can be recorded whose it is.
            Err(error) => {
                let name = name_of(&self.nodes, index);
                findings.push(format!("{name}: {error}"));
            }
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
        let (path, file) = (self.kernel.dir_path(dir), self.layout.dialect.file(knob).into());
        self.journal.record(Entry::Theirs { path, inode, file })
    }

    fn say_whose(&self, findings: &mut Vec<String>) {
        for (name, slot) in self.named_slots() {
            findings.extend(slot.theirs.iter().map(|knob| {
                let file = self.layout.dialect.file(*knob);
                format!(
                    "{name}: its {file} was set by someone else and is left so (control.on_drift)"
                )
            }));
        }
    }
}

impl Slot {
    /// What a knob of ours held when it was seen last, where it holds something else `now`.
    fn before_drift(&self, knob: Knob, now: &Value) -> Option<&Value> {
        let (_, then) = self.observed.iter().find(|(known, _)| *known == knob)?;
        (then != now && !self.theirs.contains(&knob)).then_some(then)
    }
}

fn say_drift(tenant: &str, file: &str, knob: Knob, now: &Value, then: &Value) {
    let (resource, action) = (knob.resource(), "drift");
    warn!(
        tenant,
        resource, action, "someone else wrote here: {file} holds {now} instead of {then}"
    );
}

fn is_unsupported(error: &KernError) -> bool {
    error.kind() == ErrorKind::Unsupported
}
