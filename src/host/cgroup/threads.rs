//! The threads of a cgroup and of those inside it.
//!
//! **Problem.** The counters of a cgroup are those of everything inside it, but its list of threads has its own alone:
//! that of a slice of systemd is empty, because its work is in the services and scopes in it. A tenant may have such a
//! slice, and it may make ten thousand cgroups of its own.
//!
//! **Algorithm.** Depth first, of no more than [`VISITS`] cgroups inside, and until there are more threads than anybody
//! asked for. Where that ends the search it is said, because some of the threads tell nothing of all. A directory is
//! listed only where its links say that there are others in it.
//!
//! **Properties** (`tests/agent/threads.rs`). The threads of all that is inside are found. A tenant with many cgroups costs
//! no more than this.

use std::path::{Path, PathBuf};

use crate::host::kernfs::{DirId, KernError, KernFs};

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
    let mut left = Vec::new();
    let top = kernel.dir_path(dir);
    let mut tids = look(kernel, (dir, &top), list, &mut left)?;
    for _ in 0..VISITS {
        if tids.len() > nr_max {
            break;
        }
        let Some(path) = left.pop() else { break };
        match visit(kernel, &path, list, &mut left) {
            Ok(inside) => tids.extend(inside),
            // It ended since it was listed, and its threads with it.
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    tids.sort_unstable();
    // One that was moved meanwhile is in two lists.
    tids.dedup();
    Ok(Threads { tids, is_whole: left.is_empty() })
}

/// The threads of the cgroup at `path`; those inside it are `left` to be visited.
fn visit(
    kernel: &mut impl KernFs,
    path: &Path,
    list: &str,
    left: &mut Vec<PathBuf>,
) -> Result<Vec<u32>, KernError> {
    let dir = kernel.open_dir(path)?;
    let seen = look(kernel, (dir, path), list, left);
    kernel.close_dir(dir);
    seen
}

fn look(
    kernel: &mut impl KernFs,
    (dir, path): (DirId, &Path),
    list: &str,
    left: &mut Vec<PathBuf>,
) -> Result<Vec<u32>, KernError> {
    let tids = String::from_utf8_lossy(kernel.read_once(dir, list)?);
    let tids = tids.lines().filter_map(|line| line.parse().ok()).collect();
    if kernel.has_dirs(dir)? {
        left.extend(kernel.list_dirs(dir)?.into_iter().map(|name| path.join(name)));
    }
    Ok(tids)
}
