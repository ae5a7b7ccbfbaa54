//! Moving processes into the cgroups of tenants, and dropping them from the journal once they have ended.

use std::path::PathBuf;

use nix::errno::Errno;

use super::enforcer::Enforcer;
use super::error::EnforceError;
use super::remedy::lacks_rt_runtime;
use crate::cgroup::{Cgroup, Facet};
use crate::journal::Entry;
use crate::kernfs::{DirId, KernFs};
use crate::process::Claim;

impl<K: KernFs> Enforcer<'_, K> {
    /// Moves a claimed process into the tenant's cgroup, in every tree of it. A process that is in only some of
    /// the trees, and was not claimed, is a child of a claimed one: it is moved in the others, unless it is in
    /// the cgroup of another tenant. A process that ended meanwhile is no error.
    pub fn claim(&mut self, claim: &Claim, cgroup: &Cgroup) -> Result<(), EnforceError> {
        let layout = self.layout;
        let mut homes: Vec<(usize, DirId)> = cgroup.homes(layout).collect();
        // The tree that refuses real-time processes comes first, so that such a process stays in all trees.
        let cpu = layout.tree(Facet::Cpu);
        homes.sort_by_key(|(tree, _)| Some(*tree) != cpu);
        let is_inside = |tree: &usize| {
            let (from, root) = (&claim.from[*tree], &layout.trees[*tree].root);
            from.starts_with(root) && from != root
        };
        if claim.is_split {
            let is_home = |(tree, dir): &(usize, DirId)| {
                claim.from[*tree].starts_with(self.kernel.dir_path(*dir))
            };
            if homes.iter().any(|home| is_inside(&home.0) && !is_home(home)) {
                return Ok(());
            }
            homes.retain(|home| !is_inside(&home.0));
        }
        if homes.is_empty() {
            return Ok(());
        }
        let entry = Entry::Moved {
            pid: claim.pid,
            start_ticks: claim.start_ticks,
            from: homes.iter().map(|(tree, _)| claim.from[*tree].clone()).collect(),
            to: homes.iter().map(|(_, dir)| self.kernel.dir_path(*dir)).collect(),
        };
        // The process was claimed before and put outside since: that is its new origin.
        if !homes.iter().any(|(tree, _)| is_inside(tree)) {
            self.journal.supersede(&entry)?;
        }
        self.journal.record(entry)?;
        homes.into_iter().try_for_each(|(_, dir)| self.move_into(dir, claim.pid))
    }

    /// Moves a process to another directory of the same tree, which its tenant joined later.
    pub fn join(
        &mut self,
        pid: u32,
        start_ticks: u64,
        from: PathBuf,
        dir: DirId,
    ) -> Result<(), EnforceError> {
        let to = vec![self.kernel.dir_path(dir)];
        self.journal.record(Entry::Moved { pid, start_ticks, from: vec![from], to })?;
        self.move_into(dir, pid)
    }

    /// Moves a process; ignores one that ended meanwhile.
    pub fn move_into(&mut self, dir: DirId, pid: u32) -> Result<(), EnforceError> {
        match self.kernel.move_process(dir, pid) {
            Err(error) if error.errno == Errno::ESRCH => Ok(()),
            Err(error) if lacks_rt_runtime(self.kernel, dir, &error) => {
                Err(EnforceError::RealTime(self.kernel.dir_path(dir)))
            }
            outcome => Ok(outcome?),
        }
    }

    /// Drops records of processes that have ended, so that the journal does not grow with every login. `alive`
    /// are the pids of all processes, in ascending order, listed after the last record was made.
    ///
    /// A record whose pid was reused stays, and is void when it is restored. On an error the journal is
    /// unchanged.
    pub fn forget_ended(&mut self, alive: &[u32]) -> Result<(), EnforceError> {
        let is_alive = |entry: &Entry| match entry {
            Entry::Moved { pid, .. } => alive.binary_search(pid).is_ok(),
            _ => true,
        };
        if self.journal.entries().iter().all(is_alive) {
            return Ok(());
        }
        Ok(self.journal.retain(is_alive)?)
    }
}
