//! OOM kills in nested cgroups of cgroup v1.
//!
//! Cgroup v2 counts a kill in every ancestor of the victim, cgroup v1 only in the victim's own cgroup. So the
//! counters of the cgroups inside a tenant's are summed, and the sum keeps the last value of removed ones. The
//! search for cgroups inside runs now and then, and in every tick once there are any. It visits a few cgroups a
//! tick, because a tenant may make ten thousand.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tenantd_host::cgroup::parse;
use tenantd_host::kernfs::{DirId, KernError, KernFs};

const VISITS_A_TICK: usize = 64;

#[derive(Debug, Default)]
pub(super) struct NestedKills {
    left: Vec<PathBuf>,
    round: u64,
    has_nested: bool,
    /// Cgroups with a kill.
    known: HashMap<PathBuf, Counter>,
    nr_of_removed: u64,
}

#[derive(Debug)]
struct Counter {
    inode: u64,
    nr_kills: u64,
    round: u64,
}

impl NestedKills {
    /// Returns the kills inside the cgroup `dir` of the memory hierarchy; looks for new cgroups if `looks`.
    pub(super) fn count(&mut self, kernel: &mut impl KernFs, dir: DirId, looks: bool) -> u64 {
        if self.left.is_empty() {
            if !(looks || self.round == 0 || self.has_nested) {
                return self.sum();
            }
            self.round += 1;
            self.has_nested = false;
            // Most have no children, and the link count tells that without a list.
            if kernel.nr_dirs(dir).is_ok_and(|nr_dirs| nr_dirs == 0) {
                self.forget_removed();
                return self.sum();
            }
            self.left.push(kernel.dir_path(dir));
        }
        let top = kernel.dir_path(dir);
        for _ in 0..VISITS_A_TICK {
            let Some(path) = self.left.pop() else { break };
            let visited = self.visit(kernel, &path, path == top);
            if visited.is_err_and(|error| !error.is_gone()) {
                // The cgroups below are unknown: the counters stay until the next round.
                self.left.clear();
                self.has_nested = true;
                return self.sum();
            }
            if self.left.is_empty() {
                self.forget_removed();
            }
        }
        self.sum()
    }

    fn sum(&self) -> u64 {
        self.nr_of_removed + self.known.values().map(|counter| counter.nr_kills).sum::<u64>()
    }

    fn visit(
        &mut self,
        kernel: &mut impl KernFs,
        path: &Path,
        is_top: bool,
    ) -> Result<(), KernError> {
        let dir = kernel.open_dir(path)?;
        let names = kernel.list_dirs(dir);
        let read = (!is_top).then(|| read(kernel, dir)).flatten();
        kernel.close_dir(dir);
        let names = names?;
        self.has_nested |= !names.is_empty();
        self.left.extend(names.into_iter().map(|name| path.join(name)));
        if let Some(counter) = self.known.get_mut(path) {
            counter.round = self.round;
        }
        // An unreadable counter keeps its value.
        if let Some((inode, nr_kills)) = read {
            self.note(path, Counter { inode, nr_kills, round: self.round });
        }
        Ok(())
    }

    fn note(&mut self, path: &Path, counter: Counter) {
        if let Some(known) = self.known.get_mut(path) {
            if known.inode != counter.inode {
                self.nr_of_removed += known.nr_kills;
            }
            *known = counter;
        } else if counter.nr_kills > 0 {
            self.known.insert(path.to_path_buf(), counter);
        }
    }

    fn forget_removed(&mut self) {
        let is_there = |counter: &Counter| counter.round == self.round;
        let removed = self.known.values().filter(|counter| !is_there(counter));
        self.nr_of_removed += removed.map(|counter| counter.nr_kills).sum::<u64>();
        self.known.retain(|_, counter| is_there(counter));
    }
}

fn read(kernel: &mut impl KernFs, dir: DirId) -> Option<(u64, u64)> {
    let inode = kernel.inode(dir).ok()?;
    let text = kernel.read_once(dir, "memory.oom_control").ok()?;
    let nr_kills = parse::keyed(text, ["oom_kill"]).ok()?[0]?;
    Some((inode, nr_kills))
}
