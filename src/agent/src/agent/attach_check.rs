//! Checks that the processes of a cgroup belong to the user who attaches it. Bounded, because users call it.

use std::path::{Path, PathBuf};

use super::attach::{AttachError, refused};
use super::start::Agent;
use crate::recovery::processes::{nested_up_to, processes_at};
use tenantd_core::kernel_text::text_of_path;
use tenantd_host::kernfs::KernFs;
use tenantd_host::process;

/// Bounds on cgroups below, and processes in, a cgroup that a user attaches. Beyond them nothing is read.
const NESTED_MAX: usize = 1000;
const CHECKED_MAX: usize = 4096;

impl<K: KernFs> Agent<K> {
    /// Fails unless the cgroup at `dir` has processes and all of them belong to this user.
    pub(super) fn check_processes(&mut self, dir: &Path, user: u32) -> Result<(), AttachError> {
        let (proc, kernel) = (self.host.proc(), &mut self.host.kernel);
        let Some(below) = nested_up_to(kernel, dir, NESTED_MAX)? else {
            return refused(format!(
                "{} has more than {NESTED_MAX} cgroups below: only an administrator hands it over",
                text_of_path(dir)
            ));
        };
        let mut nr_processes = 0;
        for dir in std::iter::once(dir).chain(below.iter().map(PathBuf::as_path)) {
            for pid in processes_at(kernel, dir)? {
                nr_processes += 1;
                if nr_processes > CHECKED_MAX {
                    return refused(format!(
                        "{} has more than {CHECKED_MAX} processes: only an administrator hands it over",
                        text_of_path(dir)
                    ));
                }
                if let Some(why) = process::why_not_of(kernel, proc, pid, user) {
                    let why = format!("{why} (in {})", text_of_path(dir));
                    return Err(AttachError::NotPermitted(why));
                }
            }
        }
        match nr_processes {
            0 => refused(format!(
                "{} has no process: only an administrator hands it over",
                text_of_path(dir)
            )),
            _ => Ok(()),
        }
    }
}
