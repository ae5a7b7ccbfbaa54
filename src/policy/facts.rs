//! What a policy has to fit: the machine, as far as the rules ask about it.

use std::io;
use std::path::Path;

use nix::unistd::{Group, User};
use procfs::Current;

use super::values::cpu_list;
use crate::units::{Bytes, MilliCpus};

/// The machine a policy is checked against. Plain values, so that a test can be any machine.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Numbers of the CPUs that are online, ascending.
    pub cpus: Vec<u32>,
    /// Memory of the machine.
    pub memory: Bytes,
    /// Whether the machine knows a user of this name.
    pub has_user: fn(&str) -> bool,
    /// Whether the machine knows a group of this name.
    pub has_group: fn(&str) -> bool,
}

impl HostFacts {
    /// The facts of this machine.
    ///
    /// # Errors
    /// What of sysfs or procfs could not be read, with its path.
    pub fn of_this_machine() -> io::Result<HostFacts> {
        Ok(HostFacts {
            cpus: online_cpus(Path::new("/sys/devices/system/cpu/online"))?,
            memory: Bytes(procfs::Meminfo::current().map_err(io::Error::other)?.mem_total),
            has_user,
            has_group,
        })
    }

    /// All CPUs.
    pub fn cpu_capacity(&self) -> MilliCpus {
        MilliCpus(self.cpus.len() as u64 * 1000)
    }
}

fn online_cpus(path: &Path) -> io::Result<Vec<u32>> {
    let with_path =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| with_path(&error))?;
    cpu_list(text.trim_end()).map_err(|help| with_path(&help))
}

/// A number is a user whether it has a name or not, and one that cannot be looked up counts as known: the
/// finding would be about the lookup and not about the policy.
fn has_user(name: &str) -> bool {
    name.parse::<u32>().is_ok() || User::from_name(name).map_or(true, |user| user.is_some())
}

fn has_group(name: &str) -> bool {
    name.parse::<u32>().is_ok() || Group::from_name(name).map_or(true, |group| group.is_some())
}
