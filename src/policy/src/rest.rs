//! Which cgroups are left when every tenant has what it claims (`match: rest`).
//!
//! **Problem.** What is left is a tenant like any other, and is weighed where it is: no service and no session is torn
//! apart, and none of their processes is moved. **Terms.** A cgroup is *claimed* where it is that of a tenant or of the
//! agent. **Rules.** The rest is the largest subtrees of cgroups in which nothing is claimed. A slice, or on a host
//! without systemd any cgroup, in which something is claimed is divided: what is beside that is the rest's. A service
//! or scope is not divided: what runs in it beside a tenant stays outside of every tenant. So do init.scope, on which
//! everything depends, and the cgroups that systemd has for mounts, swap and sockets: their files are systemd's, and they
//! are no units that a policy could name.
//!
//! **Properties** (`tests/policy/rest.rs`): no two parts of the rest are within each other; what is claimed is no part,
//! and neither holds the other; each cgroup is claimed, divided, left out by a rule above, or in exactly one part.

use std::collections::BTreeSet;

use super::unit_path::{unit_at, units_of};

/// What others have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Cgroups, by their paths from the mount.
    pub cgroups: BTreeSet<String>,
    /// Units, wherever they are.
    pub units: BTreeSet<String>,
    /// Cgroups that stay divided, whether or not anything is claimed in them now.
    pub divided: BTreeSet<String>,
    /// Whether systemd runs the host.
    pub has_systemd: bool,
}

/// How much of a cgroup is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// What is beside the claimed cgroups in it.
    Part,
    /// All of it.
    All,
}

impl Claimed {
    /// How much is left of the cgroup at `path`.
    pub fn left_of(&self, path: &str) -> Left {
        let unit = unit_at(path).filter(|_| self.has_systemd);
        let of_service = Some(units_of(path)).filter(|units| {
            self.has_systemd && [".service", ".scope"].iter().any(|kind| units.ends_with(kind))
        });
        let is_claimed = above(path).chain([path]).any(|up| self.has(up));
        match (of_service, self.is_divided(path)) {
            _ if is_claimed || self.is_left_out(path, unit) => Left::Nothing,
            (Some(service), is_divided) if is_divided || service != path => Left::Nothing,
            (_, false) => Left::All,
            (_, true) => Left::Part,
        }
    }

    /// Of `paths`, those of which all is left, and that are in no other of them.
    pub fn parts<'a>(&self, paths: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        let whole: BTreeSet<&str> = paths.filter(|it| self.left_of(it) == Left::All).collect();
        let is_outermost = |path: &&&str| !above(path).any(|up| whole.contains(up));
        whole.iter().filter(is_outermost).copied().collect()
    }

    fn has(&self, path: &str) -> bool {
        self.cgroups.contains(path) || unit_at(path).is_some_and(|unit| self.units.contains(unit))
    }

    fn is_left_out(&self, path: &str, unit: Option<&str>) -> bool {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_silent = [".mount", ".swap", ".socket"].iter().any(|kind| name.ends_with(kind));
        self.has_systemd && (unit == Some("init.scope") || unit.is_none() && is_silent)
    }

    fn is_divided(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let first = self.cgroups.range(below.clone()..).next();
        self.divided.contains(path) || first.is_some_and(|first| first.starts_with(&below))
    }
}

/// The paths of the cgroups above one, without the root.
fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at]).filter(|up| !up.is_empty())
}
