//! Emptying the CPU list of a cgroup with processes.
//!
//! **Problem.** An empty `cpuset.cpus` means "those of the parent". Once set, the kernel does not empty it
//! while processes are in the cgroup (ENOSPC, `validate_change` in `kernel/cgroup/cpuset.c`). A cgroup that
//! existed before the agent and was pinned by it could not be restored.
//!
//! **Algorithm.**
//!
//! - *cgroup v2*: its processes move to a sibling for the time of the write, and back. They keep running, and
//!   their memory stays charged. The sibling is named after the cgroup's inode number, so that the next try
//!   finds the processes if an agent died in between.
//! - *cgroup v1*: no process can have been there before the agent, because an empty list accepts none. Present
//!   processes were started there, and move to the parent.
//!
//! A cgroup with populated children cannot be emptied in this way: moving a whole tree aside is more than
//! restoring. Its list then names all possible CPUs, which confines no process, and the error reports it.

use nix::errno::Errno;

use super::all_cpus::unconfine;
use super::processes::{evacuate, move_all};
use super::wait_budget::WaitBudget;
use tenantd_host::kernfs::{DirId, KernError, KernFs};

/// Tries to move processes and write: they may fork meanwhile.
const TRIES: usize = 16;

/// Writes the empty list to `file` of the cgroup in `dir`, after a plain write failed with ENOSPC. On an error
/// every process returns to its cgroup, if the kernel allows it.
pub(crate) fn unpin(kernel: &mut impl KernFs, dir: DirId, file: &str) -> Result<(), KernError> {
    let Some(Aside { above, name }) = Aside::of(kernel, dir)? else {
        let path = kernel.dir_path(dir);
        evacuate(kernel, dir, path.parent().as_slice(), &mut |_, _, _| ())?;
        return kernel.write(dir, file, "\n");
    };
    let outcome = match kernel.make_dir(above, &name) {
        Err(error) if error.errno != Errno::EEXIST => Err(error),
        _ => step_aside(kernel, dir, file, above, &name),
    };
    kernel.close_dir(above);
    outcome
}

/// Moves back the processes that were moved aside for the cgroup in `dir` when an agent died.
pub(crate) fn bring_back(kernel: &mut impl KernFs, dir: DirId) -> Result<(), KernError> {
    let Some(Aside { above, name }) = Aside::of(kernel, dir)? else { return Ok(()) };
    let path = kernel.dir_path(above).join(&name);
    let outcome = match kernel.open_dir(&path) {
        Ok(aside) => {
            let back = return_all(kernel, aside, dir, above, &name);
            kernel.close_dir(aside);
            back
        }
        Err(error) if error.is_gone() => Ok(()),
        Err(error) => Err(error),
    };
    kernel.close_dir(above);
    outcome
}

/// Sibling to which the processes of a v2 cgroup are moved.
struct Aside {
    above: DirId,
    name: String,
}

impl Aside {
    fn of(kernel: &mut impl KernFs, dir: DirId) -> Result<Option<Aside>, KernError> {
        // Only v2 cgroups have a type.
        if kernel.read_once(dir, "cgroup.type").is_err() {
            return Ok(None);
        }
        let path = kernel.dir_path(dir);
        let Some(parent) = path.parent() else { return Ok(None) };
        let name = format!("tenantd.aside.{}", kernel.inode(dir)?);
        Ok(Some(Aside { above: kernel.open_dir(parent)?, name }))
    }
}

fn step_aside(
    kernel: &mut impl KernFs,
    dir: DirId,
    file: &str,
    above: DirId,
    name: &str,
) -> Result<(), KernError> {
    let path = kernel.dir_path(above).join(name);
    let aside = kernel.open_dir(&path)?;
    let mut outcome = Ok(());
    for _ in 0..TRIES {
        outcome = move_all(kernel, dir, aside).and_then(|()| kernel.write(dir, file, "\n"));
        if outcome.as_ref().err().is_none_or(|error| error.errno != Errno::ENOSPC) {
            break;
        }
    }
    let back = return_all(kernel, aside, dir, above, name);
    kernel.close_dir(aside);
    if outcome.as_ref().is_err_and(|error| error.errno == Errno::ENOSPC) {
        unconfine(kernel, dir)?;
    }
    outcome.and(back)
}

fn return_all(
    kernel: &mut impl KernFs,
    aside: DirId,
    dir: DirId,
    above: DirId,
    name: &str,
) -> Result<(), KernError> {
    let mut budget = WaitBudget::default();
    loop {
        move_all(kernel, aside, dir)?;
        match kernel.remove_dir(above, name) {
            Err(error) if error.errno == Errno::EBUSY && budget.wait(kernel) => {}
            outcome => return outcome,
        }
    }
}
