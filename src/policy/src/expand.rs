//! A policy with its templates replaced by what they find: one tenant for each user, unit or cgroup.
//!
//! **Problem.** A template (`each`) stands for tenants that are not known before they are there. **Terms.** What is
//! *found* is what runs on the host ([`Found`]); it is *named* where a tenant claims it, by whatever name: `root` and
//! `0` are one user, and `user-0.slice` is that user's slice. **Rules.** What is named anywhere in the policy is no
//! template's. Of several templates the first in the policy takes what they find. A cgroup that lies in one that is
//! named is left out, and so is one that holds one: a tenant has no other inside. Of cgroups within each other that
//! fit a template the outermost is found. The tenants of a template come behind those that its group names, in the
//! order of their names.
//!
//! **Names.** A user's is the login name (the UID where there is none), a unit's its own, a cgroup's its path below the
//! directory with which all patterns of its template begin. Characters that a tenant's name cannot have are escaped as
//! `_xHH`, and so is a `_` that would read as such an escape. That can be undone, so two that are found never have
//! one name. Where a name is taken by a tenant, or is not safe as it is (`cpu.service`), its first character is escaped
//! as well, then the second, and so on, which can be undone in the same way. Where nothing is free, it is left out.
//!
//! **Properties** (`tests/policy/expand.rs`): names are safe and injective; what is named is not found; the order
//! follows from what is found and not from when; to expand again what was expanded changes nothing. The time is that of
//! sorting what is found, times the number of patterns.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;

use super::keys::{Matches, Policy, Tenant};
use super::pattern;
use super::read::MOST_TENANTS;
use super::rest::Claimed;
use super::unit_path::{slice_of_user, unit_at, units_of, user_of_slice};
pub use super::values::ALL_USERS;
use super::values::safe_characters;
use crate::accounts::explicit;
use crate::accounts::people::People;

/// Characters of the name of what was found. It may be a part of the name of a file.
const LONGEST_FOUND: usize = 200;

/// The unit of the agent.
const AGENT_UNIT: &str = "tenantd.service";

/// What runs on a host, as far as the templates of a policy look for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Users, by UID.
    pub users: BTreeMap<u32, FoundUser>,
    /// Units of systemd.
    pub units: BTreeSet<String>,
    /// Cgroups, by their paths from the mount.
    pub cgroups: BTreeSet<String>,
    /// The UIDs of people.
    pub people: People,
}

/// A user that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundUser {
    /// The login name, where the account is known.
    pub name: Option<String>,
    /// The GIDs of all groups.
    pub groups: Vec<u32>,
    /// Whether systemd keeps a slice for the user, which it does for users of the host only.
    pub has_slice: bool,
}

/// The numbers of users and of groups that a policy names, where they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// UIDs by name.
    pub users: BTreeMap<String, u32>,
    /// GIDs by name.
    pub groups: BTreeMap<String, u32>,
}

/// A policy with what was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expanded {
    /// The policy; it keeps its templates.
    pub policy: Policy,
    /// For each node, in pre-order, its number in the policy that was expanded; none if it was found.
    pub origins: Vec<Option<usize>>,
    /// How many were found and are no tenants, because they have no name that is free and short enough, or are too
    /// many, by group.
    pub left_out: BTreeMap<String, usize>,
    /// Users with slices who are no tenants, because they are not people ([`People`]), by group.
    pub outside: BTreeMap<String, Vec<u32>>,
}

impl Numbers {
    /// The numbers of all accounts that `policy` matches by name, each looked up once.
    pub fn of(
        policy: &Policy,
        find_user: impl Fn(&str) -> Option<u32>,
        find_group: impl Fn(&str) -> Option<u32>,
    ) -> Numbers {
        let (mut users, mut groups) = (BTreeSet::new(), BTreeSet::new());
        walk(&policy.tenants, &mut |matches| {
            users.extend(matches.users.iter().filter(|user| *user != ALL_USERS).cloned());
            groups.extend(matches.groups.iter().cloned());
        });
        let is_name = |name: &String| explicit(name).is_none();
        let numbered = |names: BTreeSet<String>, find: &dyn Fn(&str) -> Option<u32>| {
            let names = names.into_iter().filter(is_name);
            names.filter_map(|name| Some((name.clone(), find(&name)?))).collect()
        };
        Numbers { users: numbered(users, &find_user), groups: numbered(groups, &find_group) }
    }

    /// The UID of a user; of digits, that of the account with this name, or what was looked up for them.
    pub fn user(&self, name: &str) -> Option<u32> {
        explicit(name).or_else(|| self.users.get(name).copied())
    }

    /// The GID of a group of users, likewise.
    pub fn group(&self, name: &str) -> Option<u32> {
        explicit(name).or_else(|| self.groups.get(name).copied())
    }
}

/// Calls `visit` for each match, those of templates included.
fn walk(tenants: &[Tenant], visit: &mut impl FnMut(&Matches)) {
    for tenant in tenants {
        visit(&tenant.matches);
        walk(&tenant.tenants, visit);
        walk(tenant.template(), visit);
    }
}

/// Replaces the templates of `policy` by tenants for what they find.
pub fn expand(policy: &Policy, numbers: &Numbers, found: &Found) -> Expanded {
    let mut named = Named::default();
    named.add(&policy.tenants, numbers);
    let nr_named = count(&policy.tenants);
    let mut expansion = Expansion {
        numbers,
        found,
        named,
        taken: HashSet::new(),
        nr_left: MOST_TENANTS.saturating_sub(nr_named),
        next: 0,
        expanded: Expanded { policy: policy.clone(), ..Expanded::default() },
    };
    let mut tenants = std::mem::take(&mut expansion.expanded.policy.tenants);
    expansion.all(&mut tenants, "");
    expansion.expanded.policy.tenants = tenants;
    expansion.expanded
}

/// The cgroups that are left of what was `found`, where the tenants of an expanded `policy` have theirs.
pub fn left(policy: &Policy, numbers: &Numbers, found: &Found) -> Vec<String> {
    let mut named = Named::default();
    named.add(&policy.tenants, numbers);
    let is_in_group = |name: &str| {
        let user = user_of_slice(name).and_then(|uid| Some((uid, found.users.get(&uid)?)));
        user.is_some_and(|(uid, user)| named.touches_user(uid, &user.groups))
    };
    let is_claimed =
        |path: &&String| named.claims_cgroup(path) || units_of(path).split('/').any(is_in_group);
    let claimed = Claimed {
        cgroups: found.cgroups.iter().filter(is_claimed).cloned().collect(),
        units: BTreeSet::from([AGENT_UNIT.to_string()]),
        has_systemd: !found.units.is_empty(),
        ..Claimed::default()
    };
    let cgroups = found.cgroups.iter().map(String::as_str).filter(|path| *path != "/");
    claimed.parts(cgroups).into_iter().map(str::to_string).collect()
}

fn count(tenants: &[Tenant]) -> usize {
    tenants.iter().map(|tenant| 1 + count(&tenant.tenants)).sum()
}

/// What tenants claim by name.
#[derive(Debug, Default)]
struct Named {
    users: HashSet<u32>,
    groups: HashSet<u32>,
    units: HashSet<String>,
    unit_patterns: Vec<String>,
    cgroups: Vec<String>,
    /// The slices that hold a unit that is named.
    holders: HashSet<String>,
    /// The cgroups in place, to look for those that a cgroup holds.
    in_place: BTreeSet<String>,
}

impl Named {
    fn add(&mut self, tenants: &[Tenant], numbers: &Numbers) {
        for tenant in tenants {
            let matches = &tenant.matches;
            let users = || matches.users.iter().filter_map(|user| numbers.user(user));
            self.users.extend(users());
            self.units.extend(users().map(slice_of_user));
            self.groups.extend(matches.groups.iter().filter_map(|group| numbers.group(group)));
            for unit in &matches.units {
                self.add_unit(unit);
            }
            for cgroup in &matches.cgroups {
                if let Some(unit) = unit_at(cgroup) {
                    self.add_unit(unit);
                }
                let prefix = pattern::literal_prefix(cgroup);
                let fixed = &prefix[..prefix.rfind('/').unwrap_or(0)];
                let is_plain = prefix.len() == cgroup.len();
                self.in_place.insert(if is_plain { cgroup.clone() } else { fixed.to_string() });
                self.cgroups.push(cgroup.clone());
            }
            self.add(&tenant.tenants, numbers);
        }
    }

    fn add_unit(&mut self, unit: &str) {
        if pattern::has_wildcard(unit) {
            self.unit_patterns.push(unit.to_string());
        } else {
            self.users.extend(user_of_slice(unit));
            self.holders.extend(slices_above(unit));
            self.units.insert(unit.to_string());
        }
    }

    fn has_unit(&self, unit: &str) -> bool {
        self.units.contains(unit) || self.unit_patterns.iter().any(|it| pattern::fits(it, unit))
    }

    /// Whether a unit is named, or lies in a slice that is, or holds a unit that is.
    fn touches_unit(&self, unit: &str) -> bool {
        self.has_unit(unit)
            || self.holders.contains(unit)
            || slices_above(unit).any(|slice| self.has_unit(&slice))
    }

    fn touches_user(&self, uid: u32, groups: &[u32]) -> bool {
        self.users.contains(&uid)
            || groups.iter().any(|group| self.groups.contains(group))
            || self.touches_unit(&slice_of_user(uid))
    }

    fn claims_cgroup(&self, path: &str) -> bool {
        self.cgroups.iter().any(|pattern| pattern::claims(pattern, path))
            || units_of(path).split('/').any(|name| self.has_unit(name))
    }

    fn touches_cgroup(&self, path: &str) -> bool {
        self.claims_cgroup(path)
            || holds(&self.in_place, path)
            || self.in_place.contains(path)
            || unit_at(path).is_some_and(|unit| self.holders.contains(unit))
    }
}

/// The paths of the cgroups above one.
fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at]).filter(|up| !up.is_empty())
}

/// Whether any of `paths` lies within the cgroup at `path`.
fn holds(paths: &BTreeSet<String>, path: &str) -> bool {
    let below = format!("{path}/");
    paths.range(below.clone()..).next().is_some_and(|first| first.starts_with(&below))
}

/// The slices in which a slice lies by its name (systemd.slice(5)); none for other units.
fn slices_above(unit: &str) -> impl Iterator<Item = String> {
    let stem = unit.strip_suffix(".slice").unwrap_or_default();
    stem.match_indices('-').map(|(dash, _)| format!("{}.slice", &stem[..dash]))
}

#[derive(Debug)]
struct Expansion<'a> {
    numbers: &'a Numbers,
    found: &'a Found,
    named: Named,
    /// The units and the cgroups that are tenants of earlier templates.
    taken: HashSet<String>,
    nr_left: usize,
    /// The number of the next node of the policy.
    next: usize,
    expanded: Expanded,
}

impl Expansion<'_> {
    fn all(&mut self, tenants: &mut [Tenant], above: &str) {
        for tenant in tenants {
            // What an earlier expansion found is found again.
            self.expanded.origins.push(Some(self.next));
            self.next += 1;
            let path = format!("{above}{}", tenant.name);
            self.all(&mut tenant.tenants, &format!("{path}/"));
            let Some(template) = tenant.each.take() else { continue };
            let found = self.of_template(&template, &tenant.tenants, &path);
            self.note_outside(&template.matches, &path);
            self.expanded.origins.extend(found.iter().map(|_| None));
            tenant.tenants.extend(found);
            tenant.each = Some(template);
        }
    }

    /// The tenants for what a template finds, by name.
    fn of_template(&mut self, template: &Tenant, named: &[Tenant], group: &str) -> Vec<Tenant> {
        let names: HashSet<&str> = named.iter().map(|tenant| tenant.name.as_str()).collect();
        let all = self.matches(&template.matches);
        let mut tenants = Vec::new();
        let mut nr_left_out = 0;
        for (original, matches) in &all {
            match free_name(original, &names).filter(|_| self.nr_left > tenants.len()) {
                Some(name) => tenants.push(Tenant {
                    name,
                    is_found: true,
                    matches: Matches {
                        // Cgroups that are found are weighed where they are.
                        moves: template.matches.moves && !matches.users.is_empty(),
                        ..matches.clone()
                    },
                    ..template.clone()
                }),
                None => nr_left_out += 1,
            }
        }
        self.nr_left -= tenants.len();
        if nr_left_out > 0 {
            self.expanded.left_out.insert(group.to_string(), nr_left_out);
        }
        tenants.sort_by(|a, b| a.name.cmp(&b.name));
        tenants
    }

    /// What a template finds: the name of each as it is on the host, and a match for it alone.
    fn matches(&mut self, template: &Matches) -> Vec<(String, Matches)> {
        let by_owner = !template.users.is_empty() || !template.groups.is_empty();
        if by_owner {
            return self.users(template);
        }
        if template.cgroups.is_empty() {
            return self.units(template);
        }
        self.cgroups(template)
    }

    /// A slice shows that a UID is a user of the host, and not of a container.
    fn is_person(&self, uid: u32, user: &FoundUser) -> bool {
        self.found.people.includes(uid, user.name.is_some() || user.has_slice)
    }

    /// Notes users with slices whom a template of all users leaves out. Root is meant to be.
    fn note_outside(&mut self, template: &Matches, group: &str) {
        if !template.users.iter().any(|user| user == ALL_USERS) {
            return;
        }
        let is_outside = |(uid, user): &(&u32, &FoundUser)| {
            let slice = slice_of_user(**uid);
            **uid != 0
                && user.has_slice
                && !self.is_person(**uid, user)
                && !self.named.touches_user(**uid, &user.groups)
                && !self.taken.contains(&slice)
        };
        let outside: Vec<u32> =
            self.found.users.iter().filter(is_outside).map(|it| *it.0).collect();
        if !outside.is_empty() {
            self.expanded.outside.insert(group.to_string(), outside);
        }
    }

    fn users(&mut self, template: &Matches) -> Vec<(String, Matches)> {
        let has_all = template.users.iter().any(|user| user == ALL_USERS);
        let users = template.users.iter().filter_map(|user| self.numbers.user(user));
        let users: HashSet<u32> = users.collect();
        let groups = template.groups.iter().filter_map(|group| self.numbers.group(group));
        let groups: HashSet<u32> = groups.collect();
        let mut all = Vec::new();
        for (uid, user) in &self.found.users {
            let is_meant = has_all && self.is_person(*uid, user)
                || users.contains(uid)
                || user.groups.iter().any(|group| groups.contains(group));
            if is_meant
                && !self.named.touches_user(*uid, &user.groups)
                && self.taken.insert(slice_of_user(*uid))
            {
                let matches = Matches { users: vec![format!("+{uid}")], ..Matches::default() };
                all.push((user.name.clone().unwrap_or_else(|| uid.to_string()), matches));
            }
        }
        all
    }

    fn units(&mut self, template: &Matches) -> Vec<(String, Matches)> {
        let mut all = Vec::new();
        for unit in &self.found.units {
            let is_meant = template.units.iter().any(|pattern| pattern::fits(pattern, unit));
            if is_meant && !self.named.touches_unit(unit) && self.taken.insert(unit.clone()) {
                let matches = Matches { units: vec![unit.clone()], ..Matches::default() };
                all.push((unit.clone(), matches));
            }
        }
        all
    }

    fn cgroups(&mut self, template: &Matches) -> Vec<(String, Matches)> {
        let is_meant = |path: &&String| template.cgroups.iter().any(|it| pattern::is_at(it, path));
        let fitting: BTreeSet<String> =
            self.found.cgroups.iter().filter(is_meant).cloned().collect();
        let begin = common_directory(&template.cgroups).len();
        let mut all = Vec::new();
        for path in &fitting {
            // A name with these characters would be a pattern.
            let is_one =
                !pattern::has_wildcard(path) && !above(path).any(|up| fitting.contains(up));
            let known = unit_at(path).unwrap_or(path);
            if is_one && !self.named.touches_cgroup(path) && self.taken.insert(known.to_string()) {
                let matches = Matches { cgroups: vec![path.clone()], ..Matches::default() };
                all.push((path[begin..].to_string(), matches));
            }
        }
        all
    }
}

/// The directory with which all of these patterns begin, with the slash behind it.
fn common_directory(patterns: &[String]) -> &str {
    let Some(first) = patterns.first() else { return "" };
    let is_common = |end: &usize| {
        patterns.iter().all(|it| pattern::literal_prefix(it).starts_with(&first[..=*end]))
    };
    let slashes = first.match_indices('/').map(|(at, _)| at);
    slashes.take_while(is_common).last().map_or("", |end| &first[..=end])
}

/// A safe name for what is called `original`, other than `taken`; none where it would be too long.
fn free_name(original: &str, taken: &HashSet<&str>) -> Option<String> {
    let names = (0..=original.len()).map(|nr_escaped| escaped(original, nr_escaped));
    let mut short = names.take_while(|name| name.len() <= LONGEST_FOUND);
    short.find(|name| safe_characters(name).is_ok() && !taken.contains(name.as_str()))
}

/// A text with its first bytes escaped, and of the others those that a name cannot have.
fn escaped(text: &str, nr_escaped: usize) -> String {
    let bytes = text.as_bytes();
    let mut name = String::with_capacity(text.len());
    for (at, byte) in bytes.iter().enumerate() {
        let reads_as_escape = *byte == b'_' && is_escape(&bytes[at..]);
        let is_plain = byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
        if at < nr_escaped || !is_plain || reads_as_escape {
            // Writing to a text does not fail.
            let _ = write!(name, "_x{byte:02x}");
        } else {
            name.push(char::from(*byte));
        }
    }
    name
}

fn is_escape(bytes: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    matches!(bytes, [b'_', b'x', high, low, ..] if is_digit(high) && is_digit(low))
}
