//! Cgroups that no tenant claims (`match: rest`).
//!
//! **Problem.** The rest is a tenant like any other, in place: no service or session is torn apart, and no
//! process is moved. **Terms.** A cgroup is *claimed* if it belongs to a tenant or to the agent. **Rules.** The
//! rest consists of the largest subtrees without a claim. A slice with a claim in it is divided (without
//! systemd, any cgroup): the unclaimed part belongs to the rest. A service or scope is not divided: its other
//! processes stay outside every tenant. So do init.scope, on which everything depends, and systemd's cgroups
//! for mounts, swap and sockets, whose files belong to systemd and which a policy cannot name.
//!
//! **Properties** (`tests/policy/rest.rs`): parts of the rest are not nested; no part contains a claim or is
//! inside one; each cgroup is claimed, divided, left out by a rule above, or in exactly one part.

use std::collections::BTreeSet;

use super::unit_path::{unit_at, units_of};

/// Claims of all other tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Cgroups, by their paths from the mount.
    pub cgroups: BTreeSet<String>,
    /// Units, in any place.
    pub units: BTreeSet<String>,
    /// Cgroups that stay divided even without a claim in them.
    pub divided: BTreeSet<String>,
    /// True if systemd runs the host.
    pub has_systemd: bool,
}

/// Unclaimed part of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// None of it.
    Nothing,
    /// The part beside the claimed cgroups in it.
    Part,
    /// All of it.
    All,
}

impl Claimed {
    /// Unclaimed part of the cgroup at `path`.
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

    /// Outermost of the wholly unclaimed `paths`.
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

fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at]).filter(|up| !up.is_empty())
}
