//! Opening the tenants' cgroups, and noticing that one went.
//!
//! A cgroup that was removed answers on every kept descriptor that it is gone, whatever was made in its place
//! meanwhile, and so do the files of a controller that somebody disabled and enabled again. Either way the
//! remedy is to let go of all that is kept and to look again. A file that never was there says nothing; then
//! the directories are asked. The tenant keeps its demand and its width: whoever makes the cgroup again is
//! most likely the same one.

use super::agent::{Agent, Slot};
use super::seats::Seat;
use crate::host::cgroup::Cgroup;
use crate::host::kernfs::KernFs;

impl<K: KernFs> Agent<K> {
    /// Opens the cgroups of all nodes; makes those that are missing, where the agent may.
    pub(super) fn attach(&mut self, tick: u64, findings: &mut Vec<String>) {
        self.lose_groups_of_missing(findings);
        self.attend(tick, findings);
        for index in 0..self.nodes.len() {
            if self.slots[index].cgroup.is_some() {
                continue;
            }
            let path = self.nodes[index].path.clone();
            match &self.seats[index] {
                Seat::Direct => {}
                Seat::Unknown(why) => {
                    findings.push(format!("{path}: {why}"));
                    continue;
                }
                Seat::Slice(_) | Seat::Unit(_) | Seat::Nowhere => continue,
            }
            if self.enforcing
                && let Err(error) = self.enforcer().make_node(&path)
            {
                findings.push(format!("{path}: {error}"));
                continue;
            }
            match Cgroup::open(&mut self.kernel, &self.layout, &path) {
                Ok(cgroup) => self.slots[index].cgroup = Some(cgroup),
                Err(error) if error.is_gone() && !self.enforcing => {}
                Err(error) => findings.push(format!("{path}: {error}")),
            }
        }
    }

    /// A tenant may be missing because the group above it went, which nobody samples.
    fn lose_groups_of_missing(&mut self, findings: &mut Vec<String>) {
        for index in 0..self.nodes.len() {
            if self.slots[index].cgroup.is_none()
                && let Some(parent) = self.nodes[index].parent
            {
                self.lose_if_gone(parent, findings);
            }
        }
    }

    /// Gives up a node's cgroup if it is gone.
    pub(super) fn lose_if_gone(&mut self, index: usize, findings: &mut Vec<String>) {
        let Some(cgroup) = &self.slots[index].cgroup else { return };
        if !cgroup.is_there(&mut self.kernel, &self.layout) {
            self.lose(index, "its cgroup went away", findings);
        }
    }

    /// Gives up a node's cgroup: at the next tick it is opened anew, and made where it is missing.
    pub(super) fn lose(&mut self, index: usize, why: &str, findings: &mut Vec<String>) {
        findings.push(format!("{}: {why}", self.nodes[index].path));
        let slot = std::mem::take(&mut self.slots[index]);
        if let Some(cgroup) = slot.cgroup {
            cgroup.close(&mut self.kernel);
        }
        // What an administrator set of a unit outlives its cgroup.
        let theirs = if self.units.owns(index) { slot.theirs } else { Vec::new() };
        let (demand, breadth, target) = (slot.demand, slot.breadth, slot.target);
        let (starved, oom_kills) = (slot.starved, slot.oom_kills);
        let kept = Slot { demand, breadth, target, theirs, starved, oom_kills, ..Slot::default() };
        self.slots[index] = kept;
        self.units.lose(index);
    }
}
