//! Checks that the processes of a cgroup belong to the user who attaches it. Bounded, because users call it.

use std::path::{Path, PathBuf};

use super::attach::{AttachError, refused};
use super::start::Agent;
use crate::recovery::processes::{listed_up_to, nested_up_to};
use tenantd_core::kernel_text::text_of_path;
use tenantd_host::kernfs::KernFs;
use tenantd_host::process;

/// Bounds on cgroups below, and processes in, a cgroup that a user attaches. Beyond them nothing is read.
const NESTED_MAX: usize = 1000;
const CHECKED_MAX: usize = 4096;

impl<K: KernFs> Agent<K> {
    /// Fails unless all processes in the cgroup at `path` from the mounts are of this user, and the tree that divides the
    /// CPUs has one. Each legacy tree may have other processes there.
    pub(crate) fn check_processes(&mut self, path: &str, user: u32) -> Result<(), AttachError> {
        let cpu = self.cpu_dir(path);
        let mut dirs: Vec<PathBuf> =
            self.host.layout.trees.iter().map(|tree| tree.dir_of(path)).collect();
        dirs.sort();
        dirs.dedup();
        let mut left = CHECKED_MAX;
        for dir in &dirs {
            let before = left;
            self.check_processes_in(dir, user, &mut left)?;
            if *dir == cpu && left == before {
                return refused(format!(
                    "{} has no process: only an administrator hands it over",
                    text_of_path(dir)
                ));
            }
        }
        Ok(())
    }

    /// The same for one tree, in which `left` processes are looked at.
    fn check_processes_in(
        &mut self,
        dir: &Path,
        user: u32,
        left: &mut usize,
    ) -> Result<(), AttachError> {
        let (proc, kernel) = (self.host.proc(), &mut self.host.kernel);
        let Some(below) = nested_up_to(kernel, dir, NESTED_MAX)? else {
            return refused(format!(
                "{} has more than {NESTED_MAX} cgroups below: only an administrator hands it over",
                text_of_path(dir)
            ));
        };
        for dir in std::iter::once(dir).chain(below.iter().map(PathBuf::as_path)) {
            let Some(pids) = listed_up_to(kernel, dir, "cgroup.procs", *left)? else {
                return refused(format!(
                    "{} has more than {CHECKED_MAX} processes: only an administrator hands it over",
                    text_of_path(dir)
                ));
            };
            *left -= pids.len();
            for pid in pids {
                if let Some(why) = process::why_not_of(kernel, proc, pid, user) {
                    let why = format!("{why} (in {})", text_of_path(dir));
                    return Err(AttachError::NotPermitted(why));
                }
            }
        }
        Ok(())
    }
}
