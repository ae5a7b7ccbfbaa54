//! Where each tenant's cgroup is, and who owns it.
//!
//! A tenant that names a unit is that unit; one whose user is named and whose owner is systemd is the slice
//! of that user; any other has a cgroup made for it, by us below the agent's root or as a slice by systemd.
//! A group has a cgroup only where one was made for something below it: units stay where they are, so a
//! group of nothing but units exists in the policy alone.

use nix::unistd::User;

use crate::host::systemd::slice_name::{BYTES_MAX, slice_name};
use crate::policy::model::{OwnerChoice, Policy, Tenant};

/// Where one node of the policy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    /// A cgroup of ours, below the root.
    Direct,
    /// A slice that is started where it is missing.
    Slice(String),
    /// A unit that is there without us.
    Unit(String),
    /// In the policy alone.
    Nowhere,
    /// Nowhere, and this is why.
    Unknown(String),
}

impl Seat {
    /// The unit, where systemd owns it.
    pub(super) fn unit(&self) -> Option<&str> {
        match self {
            Seat::Slice(unit) | Seat::Unit(unit) => Some(unit),
            Seat::Direct | Seat::Nowhere | Seat::Unknown(_) => None,
        }
    }
}

/// The seats of all nodes, in pre-order.
pub(super) fn seats(policy: &Policy) -> Vec<Seat> {
    let mut seats = Vec::new();
    for tenant in &policy.tenants {
        take_seat(tenant, "", OwnerChoice::Auto, &mut seats);
    }
    seats
}

fn take_seat(tenant: &Tenant, above: &str, owner: OwnerChoice, seats: &mut Vec<Seat>) {
    let path = match above {
        "" => tenant.name.clone(),
        _ => format!("{above}/{}", tenant.name),
    };
    let owner = match tenant.owner {
        OwnerChoice::Auto => owner,
        said => said,
    };
    let index = seats.len();
    seats.push(Seat::Nowhere);
    tenant.tenants.iter().for_each(|below| take_seat(below, &path, owner, seats));
    let below = &seats[index + 1..];
    seats[index] = match tenant.is_group() {
        true if below.iter().any(|seat| matches!(seat, Seat::Slice(_))) => slice_of(&path),
        true if below.contains(&Seat::Direct) => Seat::Direct,
        true => Seat::Nowhere,
        false => seat_of(tenant, &path, owner),
    };
}

fn seat_of(tenant: &Tenant, path: &str, owner: OwnerChoice) -> Seat {
    if let Some(unit) = tenant.matches.units.first() {
        return Seat::Unit(unit.clone());
    }
    match (owner, tenant.matches.users.first()) {
        (OwnerChoice::Systemd, Some(user)) => match number(user) {
            Some(uid) => Seat::Unit(format!("user-{uid}.slice")),
            None => {
                Seat::Unknown(format!("this host has no user `{user}`, and so no slice of his"))
            }
        },
        (OwnerChoice::Systemd, None) => slice_of(path),
        (OwnerChoice::Auto | OwnerChoice::Direct, _) => Seat::Direct,
    }
}

fn slice_of(path: &str) -> Seat {
    slice_name(path).map_or_else(
        || {
            let why = "the name of its slice would be longer than a unit's can be";
            Seat::Unknown(format!("{why} ({BYTES_MAX} bytes): shorten the names above it"))
        },
        Seat::Slice,
    )
}

fn number(user: &str) -> Option<u32> {
    let named = || User::from_name(user).ok().flatten().map(|user| user.uid.as_raw());
    user.parse().ok().or_else(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy;

    #[test]
    fn everyone_has_a_seat() {
        let text = "
version: 1
tenants:
  web: { match: { unit: nginx.service } }
  own:
  made: { owner: systemd }
  ana: { owner: systemd, match: { users: 1000 } }
  ci:
    owner: systemd
    tenants:
      nightly:
      db: { match: { unit: postgresql.service } }
  services:
    tenants:
      a: { match: { unit: a.service } }
  mixed:
    tenants:
      b: { match: { unit: b.service } }
      jobs:
";
        let policy = policy::load_text("policy.yaml", text).unwrap().policy;
        let slice = |name: &str| Seat::Slice(name.into());
        let unit = |name: &str| Seat::Unit(name.into());
        assert_eq!(
            seats(&policy),
            [
                unit("nginx.service"),
                Seat::Direct,
                slice("tenants-made.slice"),
                unit("user-1000.slice"),
                slice("tenants-ci.slice"),
                slice("tenants-ci-nightly.slice"),
                unit("postgresql.service"),
                Seat::Nowhere,
                unit("a.service"),
                Seat::Direct,
                unit("b.service"),
                Seat::Direct,
            ]
        );
    }

    #[test]
    fn who_cannot_be_seated_learns_why() {
        let text = "
version: 1
tenants:
  nobody: { owner: systemd, match: { users: no-such-user-here } }
";
        let policy = policy::load_text("policy.yaml", text).unwrap().policy;
        assert!(
            matches!(&seats(&policy)[..], [Seat::Unknown(why)] if why.contains("no-such-user"))
        );
    }
}
