//! The location of each node's cgroup, and its owner.
//!
//! | the tenant names | its location |
//! |---|---|
//! | one unit | that unit |
//! | one user | the slice of that user, if systemd keeps slices or is the owner |
//! | one cgroup | that cgroup in place; the agent writes it unless it is a unit |
//! | several of them, patterns, groups of users, or only pods | members ([`super::members`]) |
//! | anything else | a cgroup below the agent's root; with `owner: systemd` a slice of its own |
//!
//! A group is where its tenants are; a group of units only has no cgroup.
//!
//! [`super::on_host`] applies this to one host; [`super::ancestry`] finds the ancestors.

use tenantd_control::tree::Node;
use tenantd_host::systemd::slice_name::{BYTES_MAX, slice_name};
use tenantd_policy::expand::Numbers;
use tenantd_policy::model::{OwnerChoice, Policy, Tenant};
use tenantd_policy::pattern;
use tenantd_policy::unit_path::{USER_SLICES, slice_of_user, unit_at};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// Below the agent's root: made and written by the agent.
    Direct,
    /// The same for a member, by its path below the root.
    Made(String),
    /// A slice of systemd that is started if it is missing.
    Slice(String),
    Unit(String),
    /// A cgroup that exists without agent and systemd, by its path below the mount. The agent writes its files.
    InPlace(String),
    Above(String),
    Members(Sources),
    /// A cgroup above those of tenants that is not a unit, by its path below the mount. The agent writes its
    /// files.
    AboveInPlace(String),
    Nowhere,
    /// No cgroup, for this reason.
    Unknown(String),
}

impl Location {
    pub(crate) fn unit(&self) -> Option<&str> {
        match self {
            Location::Slice(unit) | Location::Unit(unit) | Location::Above(unit) => Some(unit),
            Location::Direct
            | Location::Made(_)
            | Location::InPlace(_)
            | Location::AboveInPlace(_)
            | Location::Members(_)
            | Location::Nowhere
            | Location::Unknown(_) => None,
        }
    }

    pub(crate) fn in_place(&self) -> Option<&str> {
        match self {
            Location::InPlace(path) | Location::AboveInPlace(path) => Some(path),
            _ => None,
        }
    }

    /// Units with processes of the tenant, by name or pattern.
    pub(crate) fn homes(&self) -> Vec<String> {
        match self {
            Location::Members(sources) => sources.units().map(str::to_string).collect(),
            other => other.unit().map(str::to_string).into_iter().collect(),
        }
    }

    /// True for a tenant or group that systemd owns partly or completely.
    pub(crate) fn is_of_systemd(&self) -> bool {
        match self {
            Location::Slice(_) | Location::Unit(_) => true,
            Location::Members(sources) => {
                sources.rest == Some(RestParts::Units) || sources.units().next().is_some()
            }
            _ => false,
        }
    }

    pub(crate) fn is_outside(&self) -> bool {
        self.is_of_systemd() || matches!(self, Location::InPlace(_) | Location::Members(_))
    }

    pub(crate) fn is_made(&self) -> bool {
        match self {
            Location::Members(sources) => sources.made.is_some(),
            other => other.is_below_root(),
        }
    }

    pub(crate) fn is_below_root(&self) -> bool {
        matches!(self, Location::Direct | Location::Made(_))
    }

    /// Path of its own cgroup below the root, if the agent makes one for the node at `path`.
    pub(crate) fn below_root<'a>(&'a self, path: &'a str) -> Option<&'a str> {
        match self {
            Location::Direct => Some(path),
            Location::Made(below) => Some(below),
            _ => None,
        }
    }

    /// Name as a member of the node at `path`.
    fn at(&self, path: &str) -> Option<String> {
        let below = self.below_root(path).map(|below| format!("{MADE}{below}"));
        below.or_else(|| Some(self.unit().or(self.in_place())?.to_string()))
    }

    /// Returns the member with the cgroup that the tenant had alone until now, if it has members in its tree.
    pub(super) fn as_member<'t>(&self, tenant: Node<'t>) -> Option<Node<'t>> {
        let at = self.at(tenant.name()).filter(|_| tenant.has_members())?;
        let mut members = tenant.tree().members();
        members.find(|(_, it)| it.tenant == tenant.at() && it.at == at).map(|(node, _)| node)
    }

    /// Location of the node at `path` after `attached` cgroups became members, with a cgroup of its own for
    /// attached processes.
    pub(crate) fn with_attached(
        self,
        path: &str,
        attached: Vec<String>,
        has_processes: bool,
    ) -> Location {
        let at = self.at(path);
        let mut sources = match self {
            Location::Members(sources) => sources,
            Location::Direct => Sources { made: at, ..Sources::default() },
            Location::Slice(unit) => Sources { slice: Some(unit), ..Sources::default() },
            Location::Unit(unit) => Sources { named: vec![unit], ..Sources::default() },
            Location::InPlace(path) => Sources { cgroups: vec![path], ..Sources::default() },
            other => return other,
        };
        if has_processes && sources.made.is_none() {
            sources.made = Some(made_apart(path));
        }
        sources.attached = attached;
        Location::Members(sources)
    }

    pub(super) fn may_be_in_place(&self) -> bool {
        match self {
            Location::Members(sources) => {
                let mut named = sources.cgroups.iter().chain(&sources.attached);
                named.any(|at| at.starts_with('/'))
                    || !sources.cgroup_patterns.is_empty()
                    || sources.rest == Some(RestParts::Cgroups)
            }
            other => other.in_place().is_some(),
        }
    }

    /// True for the tenant of all cgroups that no other tenant claims.
    pub(super) fn is_rest(&self) -> bool {
        matches!(self, Location::Members(sources) if sources.rest.is_some())
    }

    /// True if the tenant did not move: members may come and go.
    pub(crate) fn is_same_as(&self, other: &Location) -> bool {
        let have_members = matches!((self, other), (Location::Members(_), Location::Members(_)));
        have_members || self == other
    }

    pub(crate) fn is_governed(&self) -> bool {
        !matches!(self, Location::Nowhere | Location::Unknown(_))
    }
}

/// Prefix in the names of members that the agent made; the path below the root follows.
const MADE: &str = "./";

/// Member that the agent makes for the node at `path`, outside of its group, which may have no cgroup of the
/// agent's. No name has a colon.
fn made_apart(path: &str) -> String {
    format!("{MADE}{}", path.replace('/', ":"))
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    pub(crate) named: Vec<String>,
    pub(crate) patterns: Vec<String>,
    /// Groups of users, whose slices are members.
    pub(crate) groups: Vec<u32>,
    /// Cgroups in place, by path below the mount.
    pub(crate) cgroups: Vec<String>,
    /// Cgroups in place, by pattern.
    pub(crate) cgroup_patterns: Vec<String>,
    /// True if the agent writes the files of units as well (`owner: direct`).
    pub(crate) is_direct: bool,
    pub(crate) refused: Vec<String>,
    pub(crate) made: Option<String>,
    pub(crate) slice: Option<String>,
    pub(crate) attached: Vec<String>,
    /// Set for the tenant of all that no other tenant claims.
    pub(crate) rest: Option<RestParts>,
}

/// Kind of the parts of the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestParts {
    /// Units of systemd, and the cgroups beside them.
    Units,
    /// Cgroups in place, and one made for the processes in the root cgroup.
    Cgroups,
}

impl Sources {
    pub(super) fn units(&self) -> impl Iterator<Item = &str> {
        let of_groups = (!self.groups.is_empty()).then_some(USER_SLICES);
        let attached = self.attached.iter().filter(|at| !at.starts_with('/'));
        let named = self.named.iter().chain(&self.patterns).chain(&self.slice).chain(attached);
        named.map(String::as_str).chain(of_groups)
    }

    pub(super) fn location_of(&self, at: &str) -> Location {
        match at.strip_prefix(MADE) {
            Some(below) => Location::Made(below.to_string()),
            None if at.starts_with('/') => Location::InPlace(at.to_string()),
            None if self.slice.as_deref() == Some(at) => Location::Slice(at.to_string()),
            None => Location::Unit(at.to_string()),
        }
    }

    /// Name as a member of the part of the rest at `path`.
    pub(super) fn part_at<'a>(&self, path: &'a str) -> &'a str {
        let unit = unit_at(path).filter(|_| self.rest == Some(RestParts::Units));
        unit.unwrap_or(path)
    }

    /// Members that are always present.
    pub(super) fn by_name(&self) -> impl Iterator<Item = &str> {
        let own = self.made.iter().chain(&self.slice);
        own.chain(&self.named).chain(&self.cgroups).map(String::as_str)
    }

    pub(super) fn fits(&self, unit: &str, groups: &[u32]) -> bool {
        self.patterns.iter().any(|it| pattern::fits(it, unit))
            || self.groups.iter().any(|group| groups.contains(group))
    }
}

pub(super) fn rest_of(locations: &[Location]) -> Option<(usize, &Sources)> {
    locations.iter().enumerate().find_map(|(number, location)| match location {
        Location::Members(sources) if sources.rest.is_some() => Some((number, sources)),
        _ => None,
    })
}

/// Tells if users have slices that can be controlled in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserSlices {
    /// On a cgroup v2 host with systemd.
    Kept,
    /// On any other host, or on an unknown one.
    Unknown,
}

pub(crate) fn locations(policy: &Policy, numbers: &Numbers, slices: UserSlices) -> Vec<Location> {
    let mut locations = Vec::new();
    for tenant in &policy.tenants {
        locate(tenant, "", OwnerChoice::Auto, (numbers, slices), &mut locations);
    }
    locations
}

fn locate(
    tenant: &Tenant,
    above: &str,
    owner: OwnerChoice,
    host: (&Numbers, UserSlices),
    locations: &mut Vec<Location>,
) {
    let path = match above {
        "" => tenant.name.clone(),
        _ => format!("{above}/{}", tenant.name),
    };
    let owner = match tenant.owner {
        OwnerChoice::Auto => owner,
        said => said,
    };
    let index = locations.len();
    locations.push(Location::Nowhere);
    tenant.tenants.iter().for_each(|below| locate(below, &path, owner, host, locations));
    let below = &locations[index + 1..];
    let may_make = tenant.template().iter().any(|template| makes(template, owner, host.1));
    locations[index] = if !tenant.is_group() {
        location_of(tenant, &path, owner, host)
    } else if below.iter().any(|location| matches!(location, Location::Slice(_))) {
        slice_of(&path)
    } else if may_make || below.contains(&Location::Direct) {
        Location::Direct
    } else {
        Location::Nowhere
    };
}

/// True if the agent makes cgroups for the finds of a template. Its group is located with them, even before any
/// find.
pub(super) fn makes(template: &Tenant, owner: OwnerChoice, slices: UserSlices) -> bool {
    finds_users(template)
        && match (template.owner, owner) {
            (OwnerChoice::Auto, OwnerChoice::Auto) => slices == UserSlices::Unknown,
            (OwnerChoice::Auto, above) => above == OwnerChoice::Direct,
            (said, _) => said == OwnerChoice::Direct,
        }
}

pub(super) fn finds_users(template: &Tenant) -> bool {
    !(template.matches.users.is_empty() && template.matches.groups.is_empty())
}

fn location_of(
    tenant: &Tenant,
    path: &str,
    owner: OwnerChoice,
    (numbers, slices): (&Numbers, UserSlices),
) -> Location {
    if tenant.matches.is_rest {
        let (rest, made) = match slices {
            UserSlices::Kept => (RestParts::Units, None),
            UserSlices::Unknown => (RestParts::Cgroups, Some(made_apart(path))),
        };
        return Location::Members(Sources { rest: Some(rest), made, ..Sources::default() });
    }
    match (&tenant.matches.units[..], tenant.matches.in_place()) {
        ([], []) => {}
        ([unit], []) if !pattern::has_wildcard(unit) => return Location::Unit(unit.clone()),
        ([], [path]) if !pattern::has_wildcard(path) => return Location::InPlace(path.clone()),
        (units, cgroups) => {
            let is_direct = tenant.owner == OwnerChoice::Direct;
            return Location::Members(Sources { is_direct, ..by_name(units, cgroups) });
        }
    }
    if owner == OwnerChoice::Auto && is_of_pods(tenant) {
        return Location::Members(Sources::default());
    }
    if owner == OwnerChoice::Auto && slices == UserSlices::Kept && are_several_users(tenant) {
        return Location::Members(of_users(tenant, numbers));
    }
    match (owner, tenant.matches.users.first()) {
        (OwnerChoice::Systemd, Some(user)) => match numbers.user(user) {
            Some(uid) => Location::Unit(slice_of_user(uid)),
            None => {
                let why = format!("this host has no user `{user}`, and so no such slice");
                Location::Unknown(why)
            }
        },
        (OwnerChoice::Auto, Some(user)) if slices == UserSlices::Kept && is_one_user(tenant) => {
            let slice = |uid: u32| Location::Unit(slice_of_user(uid));
            numbers.user(user).map_or(Location::Direct, slice)
        }
        (OwnerChoice::Systemd, None) => slice_of(path),
        (OwnerChoice::Auto | OwnerChoice::Direct, _) => Location::Direct,
    }
}

fn by_name(units: &[String], cgroups: &[String]) -> Sources {
    let is_pattern = |name: &String| pattern::has_wildcard(name);
    let (patterns, named) = units.iter().cloned().partition(is_pattern);
    let (cgroup_patterns, cgroups) = cgroups.iter().cloned().partition(is_pattern);
    Sources { named, patterns, cgroups, cgroup_patterns, ..Sources::default() }
}

/// Slices of users and of members of groups. Unknown names are reported with the claims.
fn of_users(tenant: &Tenant, numbers: &Numbers) -> Sources {
    let matches = &tenant.matches;
    let slices = matches.users.iter().filter_map(|user| Some(slice_of_user(numbers.user(user)?)));
    let groups = matches.groups.iter().filter_map(|group| numbers.group(group));
    Sources { named: slices.collect(), groups: groups.collect(), ..Sources::default() }
}

fn are_several_users(tenant: &Tenant) -> bool {
    let matches = &tenant.matches;
    let is_some = matches.users.len() > 1 || !matches.groups.is_empty();
    is_some && matches.cgroups.is_empty()
}

fn is_of_pods(tenant: &Tenant) -> bool {
    let matches = &tenant.matches;
    !matches.pods.is_empty() && matches.users.is_empty() && matches.groups.is_empty()
}

fn is_one_user(tenant: &Tenant) -> bool {
    let matches = &tenant.matches;
    matches.users.len() == 1 && matches.groups.is_empty() && matches.cgroups.is_empty()
}

fn slice_of(path: &str) -> Location {
    slice_name(path).map_or_else(
        || {
            let why = "the name of its slice would be longer than a unit's can be";
            Location::Unknown(format!("{why} ({BYTES_MAX} bytes): shorten the names above it"))
        },
        Location::Slice,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_policy as policy;

    #[test]
    fn every_node_has_a_location() {
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
        let slice = |name: &str| Location::Slice(name.into());
        let unit = |name: &str| Location::Unit(name.into());
        assert_eq!(
            locations(&policy, &Numbers::default(), UserSlices::Unknown),
            [
                unit("nginx.service"),
                Location::Direct,
                slice("tenants-made.slice"),
                unit("user-1000.slice"),
                slice("tenants-ci.slice"),
                slice("tenants-ci-nightly.slice"),
                unit("postgresql.service"),
                Location::Nowhere,
                unit("a.service"),
                Location::Direct,
                unit("b.service"),
                Location::Direct,
            ]
        );
    }

    #[test]
    fn users_are_their_slices_where_systemd_keeps_some() {
        let text = "
version: 1
tenants:
  ana: { match: { users: 1000 } }
  two: { match: { users: [1004, 1001] } }
  also: { match: { users: 1002, groups: 50 } }
  ours: { owner: direct, match: { users: 1003 } }
  missing: { match: { users: no-such-user-here } }
";
        let policy = policy::load_text("policy.yaml", text).unwrap().policy;
        let slice = Location::Unit("user-1000.slice".into());
        let direct = || Location::Direct;
        let members = |uids: &[u32], groups: &[u32]| {
            let named = uids.iter().map(|uid| slice_of_user(*uid)).collect();
            Location::Members(Sources { named, groups: groups.to_vec(), ..Sources::default() })
        };
        let kept =
            [slice, members(&[1004, 1001], &[]), members(&[1002], &[50]), direct(), direct()];
        assert_eq!(locations(&policy, &Numbers::default(), UserSlices::Kept), kept);
        let unknown = locations(&policy, &Numbers::default(), UserSlices::Unknown);
        assert!(unknown.iter().all(|location| *location == Location::Direct));
    }

    #[test]
    fn a_tenant_without_a_location_has_a_reason() {
        let text = "
version: 1
tenants:
  nobody: { owner: systemd, match: { users: no-such-user-here } }
";
        let policy = policy::load_text("policy.yaml", text).unwrap().policy;
        let [location] = &locations(&policy, &Numbers::default(), UserSlices::Kept)[..] else {
            panic!("one tenant")
        };
        assert!(matches!(location, Location::Unknown(why) if why.contains("no-such-user")));
    }
}
