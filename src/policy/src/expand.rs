//! Expansion of templates: one tenant for each user, unit, cgroup, and namespace or label of pods found.
//!
//! **Problem.** A template (`each`) stands for tenants that are not known in advance.
//!
//! **Terms.** [`Found`] things run on the host. A found thing is *named* if a tenant claims it, by any
//! name: `root` and `0` are one user, and `user-0.slice` is that user's slice.
//!
//! **Rules.**
//! - Named things belong to no template. Among several templates the first in the policy takes a thing.
//! - A cgroup inside a named one is left out, and so is one that contains a named one. Of nested cgroups
//!   that fit a template the outermost is found.
//! - Pods are chosen by facts, not by cgroup: [`super::pods`].
//! - The tenants of a template follow the named ones of its group, in the order of their names.
//!
//! **Names.** A user has the login name (or the UID), a unit its own, a cgroup its path below the common
//! directory of its template's patterns, pods their namespace or the value of their label. Characters that a
//! tenant's name cannot have are escaped as `_xHH`, and so is a `_` that would read as such an escape. This is
//! reversible, so two found things never share a name. If the name is taken or unsafe (`cpu.service`), its first
//! character is escaped as well, then the second, and so on. If no name is free, the thing is left out.
//!
//! **Properties** (`tests/policy/expand.rs`): names are safe and injective; named things are not found; the
//! order depends only on the found things; expanding twice changes nothing. The time is that of sorting the
//! found things, times the number of patterns.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;

use super::keys::{Matches, Policy, Tenant};
use super::pattern;
use super::pods::{Choice, Pod, choice};
use super::read::MOST_TENANTS;
use super::rest::Claimed;
use super::unit_path::{slice_of_user, unit_at, units_of, user_of_slice};
pub use super::values::ALL_USERS;
use super::values::safe_characters;
use crate::accounts::explicit;
use crate::accounts::people::People;

/// Longest name of a found tenant, in characters. It may be a part of a file name.
const LONGEST_FOUND: usize = 200;

const AGENT_UNIT: &str = "tenantd.service";

/// Found things on a host, for the templates of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Users, by UID.
    pub users: BTreeMap<u32, FoundUser>,
    /// Units of systemd.
    pub units: BTreeSet<String>,
    /// Cgroups, by their paths from the mount.
    pub cgroups: BTreeSet<String>,
    /// Pods whose tenant the policy chooses.
    pub pods: BTreeSet<Pod>,
    /// UIDs of people.
    pub people: People,
}

/// A found user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundUser {
    /// Login name, if the account is known.
    pub name: Option<String>,
    /// GIDs of all groups.
    pub groups: Vec<u32>,
    /// True if systemd keeps a slice for the user, which it does only for users of the host.
    pub has_slice: bool,
}

/// Numbers of the users and groups named in a policy, where known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// UIDs by name.
    pub users: BTreeMap<String, u32>,
    /// GIDs by name.
    pub groups: BTreeMap<String, u32>,
}

/// An expanded policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expanded {
    /// The policy; it keeps its templates.
    pub policy: Policy,
    /// For each node, in pre-order, its number in the original policy; `None` if it was found.
    pub origins: Vec<Option<usize>>,
    /// Number of found things that are not tenants, because no short name is free or there are too many, by
    /// group.
    pub left_out: BTreeMap<String, usize>,
    /// Users with slices who are not people ([`People`]) and so not tenants, by group.
    pub outside: BTreeMap<String, Vec<u32>>,
}

impl Numbers {
    /// Looks up all accounts that `policy` matches by name, each once.
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

    /// UID of a user name; a plus sign marks a number.
    pub fn user(&self, name: &str) -> Option<u32> {
        explicit(name).or_else(|| self.users.get(name).copied())
    }

    /// GID of a group name, likewise.
    pub fn group(&self, name: &str) -> Option<u32> {
        explicit(name).or_else(|| self.groups.get(name).copied())
    }
}

fn walk(tenants: &[Tenant], visit: &mut impl FnMut(&Matches)) {
    for tenant in tenants {
        visit(&tenant.matches);
        walk(&tenant.tenants, visit);
        walk(tenant.template(), visit);
    }
}

/// Replaces the templates of `policy` by tenants for the found things.
pub fn expand(policy: &Policy, numbers: &Numbers, found: &Found) -> Expanded {
    let mut named = Named::default();
    named.add(&policy.tenants, numbers);
    let nr_named = count(&policy.tenants);
    let mut expansion = Expansion {
        numbers,
        found,
        named,
        taken: HashSet::new(),
        pods: names_of_pods(policy, found),
        nr_left: MOST_TENANTS.saturating_sub(nr_named),
        next: 0,
        expanded: Expanded { policy: policy.clone(), ..Expanded::default() },
    };
    let mut tenants = std::mem::take(&mut expansion.expanded.policy.tenants);
    expansion.all(&mut tenants, "");
    expansion.expanded.policy.tenants = tenants;
    expansion.expanded
}

/// Path of the tenant that a policy has for a pod, and that its expansion with this pod among the finds has.
pub fn tenant_of_pod(policy: &Policy, pod: &Pod) -> Option<String> {
    match choice(&policy.tenants, pod)? {
        Choice::Named(path) => Some(path),
        Choice::Found(group, name, _) => {
            let level = &group_at(policy, &group)?.tenants;
            let taken = level.iter().filter(|it| !it.is_found).map(|it| it.name.as_str());
            let name = free_name(name, &taken.collect())?;
            Some(format!("{group}/{name}"))
        }
    }
}

/// True if a template for units or cgroups may make a tenant of this path once it finds one. An escaped name fits every
/// template.
pub fn may_make(policy: &Policy, path: &str) -> bool {
    let parts = path.rsplit_once('/').filter(|_| policy.may_find(path));
    let Some((group, name)) = parts else { return false };
    let is_escaped = (0..name.len()).any(|at| is_escape(&name.as_bytes()[at..]));
    let fits = |template: &Tenant| {
        let Matches { units, cgroups, .. } = &template.matches;
        let at = format!("{}{name}", common_directory(cgroups));
        units.iter().any(|pattern| is_escaped || pattern::fits(pattern, name))
            || cgroups.iter().any(|pattern| is_escaped || pattern::is_at(pattern, &at))
    };
    group_at(policy, group).is_some_and(|group| group.template().iter().any(fits))
}

fn group_at<'p>(policy: &'p Policy, path: &str) -> Option<&'p Tenant> {
    let (mut level, mut group) = (&policy.tenants, None);
    for name in path.split('/') {
        let found = level.iter().find(|tenant| tenant.name == name)?;
        (level, group) = (&found.tenants, Some(found));
    }
    group
}

/// Names found in pods, by the path of the group whose template finds them, with the keys of their labels.
type NamesOfPods = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn names_of_pods(policy: &Policy, found: &Found) -> NamesOfPods {
    let mut all = NamesOfPods::new();
    for pod in &found.pods {
        if let Some(Choice::Found(group, name, label)) = choice(&policy.tenants, pod) {
            let keys = all.entry(group).or_default().entry(name.to_string()).or_default();
            keys.extend(label.map(str::to_string));
        }
    }
    all
}

/// Cgroups of `found` that no tenant of an expanded `policy` claims.
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

#[derive(Debug, Default)]
struct Named {
    users: HashSet<u32>,
    groups: HashSet<u32>,
    units: HashSet<String>,
    unit_patterns: Vec<String>,
    cgroups: Vec<String>,
    holders: HashSet<String>,
    /// Cgroups in place, to look for those inside another cgroup.
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

    /// True if a unit is named, is in a named slice, or contains a named unit.
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

fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at]).filter(|up| !up.is_empty())
}

fn holds(paths: &BTreeSet<String>, path: &str) -> bool {
    let below = format!("{path}/");
    paths.range(below.clone()..).next().is_some_and(|first| first.starts_with(&below))
}

/// Slices above a slice, by its name (systemd.slice(5)); none for other units.
fn slices_above(unit: &str) -> impl Iterator<Item = String> {
    let stem = unit.strip_suffix(".slice").unwrap_or_default();
    stem.match_indices('-').map(|(dash, _)| format!("{}.slice", &stem[..dash]))
}

#[derive(Debug)]
struct Expansion<'a> {
    numbers: &'a Numbers,
    found: &'a Found,
    named: Named,
    /// Units and cgroups that earlier templates have taken.
    taken: HashSet<String>,
    pods: NamesOfPods,
    nr_left: usize,
    next: usize,
    expanded: Expanded,
}

impl Expansion<'_> {
    fn all(&mut self, tenants: &mut [Tenant], above: &str) {
        for tenant in tenants {
            // Things found by an earlier expansion are found again.
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

    fn of_template(&mut self, template: &Tenant, named: &[Tenant], group: &str) -> Vec<Tenant> {
        let names: HashSet<&str> = named.iter().map(|tenant| tenant.name.as_str()).collect();
        let all = if template.matches.pods.is_empty() {
            self.matches(&template.matches)
        } else {
            self.of_pods(&template.matches, group)
        };
        let mut tenants = Vec::new();
        let mut nr_left_out = 0;
        for (original, matches) in &all {
            match free_name(original, &names).filter(|_| self.nr_left > tenants.len()) {
                Some(name) => tenants.push(Tenant {
                    name,
                    is_found: true,
                    matches: Matches {
                        // Found cgroups stay in place.
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

    /// Things found by a template: the host's name of each, and a match for it alone.
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

    /// A slice shows that a UID belongs to the host, not to a container.
    fn is_person(&self, uid: u32, user: &FoundUser) -> bool {
        self.found.people.includes(uid, user.name.is_some() || user.has_slice)
    }

    /// Records users with slices that a template of all users leaves out, except root.
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

    fn of_pods(&mut self, template: &Matches, group: &str) -> Vec<(String, Matches)> {
        let found = self.pods.remove(group).unwrap_or_default().into_iter();
        let matches = |(name, keys): (String, BTreeSet<String>)| {
            let pods = template.pods.of_found(&name, keys);
            (name, Matches { pods, ..Matches::default() })
        };
        found.map(matches).collect()
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

/// Common directory of these patterns, with the slash behind it.
fn common_directory(patterns: &[String]) -> &str {
    let Some(first) = patterns.first() else { return "" };
    let is_common = |end: &usize| {
        patterns.iter().all(|it| pattern::literal_prefix(it).starts_with(&first[..=*end]))
    };
    let slashes = first.match_indices('/').map(|(at, _)| at);
    slashes.take_while(is_common).last().map_or("", |end| &first[..=end])
}

/// Safe name for `original` that is not `taken`; `None` if it would be too long.
fn free_name(original: &str, taken: &HashSet<&str>) -> Option<String> {
    let names = (0..=original.len()).map(|nr_escaped| escaped(original, nr_escaped));
    let mut short = names.take_while(|name| name.len() <= LONGEST_FOUND);
    short.find(|name| safe_characters(name).is_ok() && !taken.contains(name.as_str()))
}

fn escaped(text: &str, nr_escaped: usize) -> String {
    let bytes = text.as_bytes();
    let mut name = String::with_capacity(text.len());
    for (at, byte) in bytes.iter().enumerate() {
        let reads_as_escape = *byte == b'_' && is_escape(&bytes[at..]);
        let is_plain = byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
        if at < nr_escaped || !is_plain || reads_as_escape {
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
