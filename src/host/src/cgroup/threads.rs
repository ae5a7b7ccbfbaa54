//! Threads of a cgroup and of those inside it.
//!
//! **Problem.** The counters of a cgroup cover everything inside it, but its thread list only its own threads.
//! The list of a systemd slice is empty, because its work is in services and scopes. A tenant may have such a
//! slice, and may make ten thousand cgroups.
//!
//! **Algorithm.** A depth-first search of at most [`VISITS`] cgroups inside, until there are more threads than
//! requested. The result tells if the search ended early, because a part of the threads tells nothing about
//! all. A directory is listed only if its link count shows subdirectories, and not more than can be visited.
//!
//! **Properties** (`tests/agent/threads.rs`): all threads inside are found; a tenant with many cgroups costs no
//! more than [`VISITS`].

use std::path::{Path, PathBuf};

use crate::kernfs::{DirId, KernError, KernFs};
use tenantd_core::kernel_text::proc_files::process_numbers;

/// Most cgroups visited inside one: a visit takes as long as reading the times of three threads.
const VISITS: usize = 16;

/// Threads of a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// Thread ids, in order.
    pub tids: Vec<u32>,
    /// True if these are all.
    pub is_whole: bool,
}

/// Finds the threads in the cgroup `dir` and below, from files named `list`; all of them if there are at most
/// `nr_max`. Fails with EOPNOTSUPP if some threads belong to a process elsewhere.
pub(super) fn find(
    kernel: &mut impl KernFs,
    dir: DirId,
    list: &str,
    nr_max: usize,
) -> Result<Threads, KernError> {
    let mut search = Search { kernel, list, left: Vec::new(), tids: Vec::new(), is_whole: true };
    search.look(dir)?;
    for _ in 0..VISITS {
        if search.tids.len() > nr_max {
            break;
        }
        let Some(path) = search.left.pop() else { break };
        match search.visit(&path) {
            // The cgroup ended since it was listed, and its threads with it.
            Err(error) if error.is_gone() => {}
            visited => visited?,
        }
    }
    let Search { left, mut tids, is_whole, .. } = search;
    tids.sort_unstable();
    // A thread that was moved meanwhile is in two lists.
    tids.dedup();
    Ok(Threads { tids, is_whole: is_whole && left.is_empty() })
}

struct Search<'a, K> {
    kernel: &'a mut K,
    list: &'a str,
    left: Vec<PathBuf>,
    tids: Vec<u32>,
    is_whole: bool,
}

impl<K: KernFs> Search<'_, K> {
    fn visit(&mut self, path: &Path) -> Result<(), KernError> {
        let dir = self.kernel.open_dir(path)?;
        let looked = self.look(dir);
        self.kernel.close_dir(dir);
        looked
    }

    /// Adds the threads of the cgroup `dir`, and queues the cgroups inside.
    fn look(&mut self, dir: DirId) -> Result<(), KernError> {
        self.tids.extend(process_numbers(self.kernel.read_once(dir, self.list)?));
        match self.kernel.nr_dirs(dir)? {
            0 => {}
            // A list of ten thousand takes longer than a tick of a hundred tenants.
            nr if nr > VISITS as u64 => self.is_whole = false,
            _ => {
                let (path, names) = (self.kernel.dir_path(dir), self.kernel.list_dirs(dir)?);
                self.left.extend(names.into_iter().map(|name| path.join(name)));
            }
        }
        Ok(())
    }
}
