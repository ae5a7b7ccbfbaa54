//! The threads of a cgroup and of those inside it.
//!
//! **Problem.** The counters of a cgroup are those of everything inside it, but its list of threads has its own alone:
//! that of a slice of systemd is empty, because its work is in the services and scopes in it. A tenant may have such a
//! slice, and it may make ten thousand cgroups of its own.
//!
//! **Algorithm.** Depth first, of no more than [`VISITS`] cgroups inside, and until there are more threads than anybody
//! asked for. Where that ends the search it is said, because some of the threads tell nothing of all. A directory is
//! listed only where its links say that there are others in it, and no more than can be visited.
//!
//! **Properties** (`tests/agent/threads.rs`). The threads of all that is inside are found. A tenant with many cgroups costs
//! no more than this.

use std::path::{Path, PathBuf};

use crate::kernfs::{DirId, KernError, KernFs};
use tenantd_core::kernel_text::proc_files::process_numbers;

/// Cgroups inside one that are visited at most: a visit takes as long as the times of three threads.
const VISITS: usize = 16;

/// Threads of a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// Their numbers, in order.
    pub tids: Vec<u32>,
    /// Whether these are all.
    pub is_whole: bool,
}

/// The threads in the cgroup `dir`, whose files of the name `list` name them, and in those inside it: all of them where
/// they are at most `nr_max`.
///
/// # Errors
/// The cgroup is gone, or a file in it or inside it cannot be read. EOPNOTSUPP where some of them are threads of a
/// process that is elsewhere.
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
            // It ended since it was listed, and its threads with it.
            Err(error) if error.is_gone() => {}
            visited => visited?,
        }
    }
    let Search { left, mut tids, is_whole, .. } = search;
    tids.sort_unstable();
    // One that was moved meanwhile is in two lists.
    tids.dedup();
    Ok(Threads { tids, is_whole: is_whole && left.is_empty() })
}

/// A search under way.
struct Search<'a, K> {
    kernel: &'a mut K,
    /// The name of the lists of threads.
    list: &'a str,
    /// Cgroups that are not visited yet.
    left: Vec<PathBuf>,
    tids: Vec<u32>,
    /// Whether no cgroup was left out.
    is_whole: bool,
}

impl<K: KernFs> Search<'_, K> {
    fn visit(&mut self, path: &Path) -> Result<(), KernError> {
        let dir = self.kernel.open_dir(path)?;
        let looked = self.look(dir);
        self.kernel.close_dir(dir);
        looked
    }

    /// Takes the threads of the cgroup `dir`; those inside it are left to be visited.
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
