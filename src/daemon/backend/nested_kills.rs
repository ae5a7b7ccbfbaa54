//! Processes of nested cgroups that were killed for want of memory, on a legacy host.
//!
//! The unified hierarchy counts a kill in every cgroup above the victim, the legacy one in the victim's own alone.
//! So the counters of the cgroups that a tenant made inside its own are added up, and those of one that was removed
//! stay in the sum as they were read last. Cgroups inside are looked for now and then, and read in every tick once
//! there are any.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::daemon::recovery::processes::nested;
use crate::host::cgroup::parse;
use crate::host::kernfs::{DirId, KernFs};

/// The kills inside one cgroup.
#[derive(Debug, Default)]
pub(super) struct NestedKills {
    was_looked: bool,
    /// The inode number and the counter of each cgroup inside.
    known: HashMap<PathBuf, (u64, u64)>,
    /// The counters of those that were removed.
    nr_of_removed: u64,
}

impl NestedKills {
    /// The kills inside the cgroup `dir` of the memory hierarchy; `looks` says whether new cgroups are looked for.
    pub(super) fn count(&mut self, kernel: &mut impl KernFs, dir: DirId, looks: bool) -> u64 {
        if looks || !self.was_looked || !self.known.is_empty() {
            let path = kernel.dir_path(dir);
            if let Ok(inside) = nested(kernel, &path) {
                self.take(kernel, inside);
            }
        }
        self.nr_of_removed + self.known.values().map(|(_, kills)| kills).sum::<u64>()
    }

    fn take(&mut self, kernel: &mut impl KernFs, inside: Vec<PathBuf>) {
        let mut found = HashMap::new();
        for path in inside {
            // What cannot be read now stands as it was.
            let last = self.known.get(&path).copied();
            if let Some(read) = read(kernel, &path).or(last) {
                found.insert(path, read);
            }
        }
        for (path, (inode, kills)) in &self.known {
            if found.get(path).is_none_or(|(now, _)| now != inode) {
                self.nr_of_removed += kills;
            }
        }
        (self.known, self.was_looked) = (found, true);
    }
}

fn read(kernel: &mut impl KernFs, path: &Path) -> Option<(u64, u64)> {
    let dir = kernel.open_dir(path).ok()?;
    let inode = kernel.inode(dir).ok();
    let text = kernel.read_once(dir, "memory.oom_control").ok();
    let kills = text.and_then(|text| parse::keyed(text, ["oom_kill"]).ok()?[0]);
    kernel.close_dir(dir);
    inode.zip(kills)
}
