//! The rules by which tenants claim processes, and the search for the processes that they claim.
//!
//! A process costs no read that no rule needs: its cgroup first (one small file), its user only
//! where a rule names users. Kernel threads, process 1 and the agent itself are never claimed. A process in a
//! service or scope of systemd is claimed by its cgroup only, never by its owner: systemd takes a process that
//! left its unit for one that has ended. Such processes are counted, so that they can be reported.
//!
//! The owner is the real user and group: a set-user-ID program is of the user who started it.
//!
//! On a host without systemd a claim by owner takes a process out of the cgroup of its session only. A cgroup is a
//! session's own where it is one of these, in every hierarchy that tenants live in:
//!
//! - the root cgroup, or the top of the mounted part of a hierarchy;
//! - the cgroup in which the agent was started, and those above it;
//! - the agent's root;
//! - in the unified hierarchy, a cgroup at the top that elogind made for a session: `/3`, `/c1`.
//!
//! Any other cgroup was made by a program that manages the processes in it: a container engine, a batch system, an init
//! that keeps services apart. Its processes stay, and are counted, unless the tenant says `move: true`.
//!
//! A legacy host has several trees, in which a process is moved one after the other. A child that it starts meanwhile
//! is in the tenant's cgroups in some of them only, and is claimed in the others by where it is there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::cgroup::Layout;
use super::kernfs::{DirId, KernError, KernFs};
use super::process::{Claim, Place, claimable_since, owner, place};
use tenantd_core::kernel_text::proc_files::Owner;
use tenantd_policy::pattern;

/// Which processes one tenant claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRule {
    /// Index of the tenant's node.
    pub node: usize,
    /// Cgroup paths from the mount, with `*` and `?` within one name; what is below them is claimed too.
    pub cgroups: Vec<String>,
    /// User numbers (real).
    pub uids: Vec<u32>,
    /// Group numbers (real or supplementary).
    pub gids: Vec<u32>,
    /// Whether processes are taken by owner out of cgroups that other programs made, too.
    pub moves: bool,
    /// Whether the tenant is that cgroup itself: no process is moved out of it, for whatever tenant.
    pub is_in_place: bool,
    /// The units that the tenant is, by name or pattern: their processes belong to the tenant already. Where there
    /// are any, none is moved.
    pub homes: Vec<String>,
    /// Whether the tenant has the processes in the root cgroup without another claim: the claims of others, as the
    /// policy writes them.
    pub rest_beside: Option<Vec<String>>,
}

impl ClaimRule {
    fn wants_cgroup(&self, path: &str) -> bool {
        self.cgroups.iter().any(|pattern| pattern::claims(pattern, path))
    }

    fn is_at_home(&self, unit: Option<&str>) -> bool {
        unit.is_some_and(|unit| self.homes.iter().any(|home| pattern::fits(home, unit)))
    }
}

/// The rules of all tenants, with the first for each owner.
#[derive(Clone, Debug, Default)]
pub struct ClaimRules {
    rules: Vec<ClaimRule>,
    /// The rules that name cgroups.
    of_cgroups: Vec<usize>,
    by_uid: HashMap<u32, usize>,
    by_gid: HashMap<u32, usize>,
    rest: Option<usize>,
    /// Whether users without a rule are looked for; with the child of the root whose processes have no tenant.
    pub finds_users: Option<&'static str>,
    /// The users of whom it is known whether they have a tenant, where users are looked for.
    pub known_users: BTreeSet<u32>,
}

impl ClaimRules {
    /// These rules; of those that name the same owner the first counts.
    pub fn new(rules: Vec<ClaimRule>) -> ClaimRules {
        let (mut by_uid, mut by_gid) = (HashMap::new(), HashMap::new());
        for (index, rule) in rules.iter().enumerate() {
            for uid in &rule.uids {
                by_uid.entry(*uid).or_insert(index);
            }
            for gid in &rule.gids {
                by_gid.entry(*gid).or_insert(index);
            }
        }
        let of_cgroups = (0..rules.len()).filter(|index| !rules[*index].cgroups.is_empty());
        let of_cgroups = of_cgroups.collect();
        let rest = rules.iter().position(|rule| rule.rest_beside.is_some());
        ClaimRules { rules, of_cgroups, by_uid, by_gid, rest, ..ClaimRules::default() }
    }

    /// The rules themselves.
    pub fn all(&self) -> &[ClaimRule] {
        &self.rules
    }

    /// Whether nothing is claimed or looked for.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.finds_users.is_none()
    }

    /// Whether this user has a rule.
    pub fn has_user(&self, uid: u32) -> bool {
        self.by_uid.contains_key(&uid)
    }

    fn of_place(&self, place: &Place) -> Option<&ClaimRule> {
        let is_wanted = |rule: &&ClaimRule| match place.is_split() {
            true => place.outside.iter().any(|path| rule.wants_cgroup(path)),
            false => rule.wants_cgroup(&place.cpu_path),
        };
        self.of_cgroups.iter().map(|index| &self.rules[*index]).find(is_wanted)
    }

    /// The rule for a process that no rule for owners claims.
    fn of_rest(&self, place: &Place, owner: &Owner) -> Option<&ClaimRule> {
        let is_known = |uid: u32| self.finds_users.is_none() || self.known_users.contains(&uid);
        let is_left = place.is_at_top && is_known(owner.ruid);
        self.rest.filter(|_| is_left).map(|index| &self.rules[index])
    }

    fn of_owner(&self, owner: &Owner) -> Option<&ClaimRule> {
        let of_user = self.by_uid.get(&owner.ruid);
        let gids = owner.groups.iter().chain([&owner.rgid]);
        let of_groups = gids.filter_map(|gid| self.by_gid.get(gid));
        of_groups.chain(of_user).min().map(|index| &self.rules[*index])
    }

    fn looks_at_owners(&self) -> bool {
        self.finds_users.is_some()
            || self.rest.is_some()
            || !(self.by_uid.is_empty() && self.by_gid.is_empty())
    }
}

/// The result of `rules` for the processes that are not below the agent's root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The processes to be moved, in ascending order of their numbers.
    pub moves: Vec<Claim>,
    /// What is claimed by owner and stays where it is, by node and place.
    pub stays: Vec<Stay>,
    /// The processes that are in tenants already: below the agent's root, or in a cgroup in place.
    pub inside: Vec<u32>,
    /// The users of processes that are in no tenant, where users are looked for: with the process, where no rule
    /// claims it.
    pub users: Vec<(u32, Option<u32>)>,
    /// How many processes could not be read, with the first error.
    pub unread: Option<(usize, KernError)>,
}

impl Claims {
    fn note_unread(&mut self, error: KernError) {
        let (nr, first) = self.unread.take().unwrap_or((0, error));
        self.unread = Some((nr + 1, first));
    }
}

/// Processes of one place that are claimed by owner and are not moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    /// Index of the tenant's node.
    pub node: usize,
    /// Where they are.
    pub place: StayPlace,
    /// Their number.
    pub nr_processes: usize,
}

/// A place where processes stay.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StayPlace {
    /// In this unit of systemd, which a policy can name.
    Unit(String),
    /// In this cgroup, which is no unit, while the tenant is one.
    Cgroup(String),
    /// In this cgroup, which a program other than systemd made.
    Managed(String),
    /// Out of this cgroup of the tenant, which has no time for the real-time tasks that they have.
    RealTime(String),
    /// In this cgroup, a path from the root of a hierarchy of which only another part is mounted.
    Unmounted(String),
}

/// What `rules` claim, of those of the processes `pids` that are not below the agent's root yet. A process
/// that ends meanwhile is left out; one that cannot be read is counted. When `nr_max` are to be moved, the rest of
/// `pids` is not taken.
pub fn claims(
    kernel: &mut impl KernFs,
    proc: DirId,
    layout: &Layout,
    rules: &ClaimRules,
    pids: &mut impl Iterator<Item = u32>,
    nr_max: usize,
) -> Claims {
    let mut claims = Claims::default();
    let mut stays: BTreeMap<(usize, StayPlace), usize> = BTreeMap::new();
    while claims.moves.len() < nr_max
        && let Some(pid) = pids.next()
    {
        match look(kernel, proc, layout, rules, pid, &mut claims) {
            Ok(Some(Found::Move(claim))) => claims.moves.push(claim),
            Ok(Some(Found::Stay(node, place))) => *stays.entry((node, place)).or_default() += 1,
            Ok(None) => {}
            Err(error) => claims.note_unread(error),
        }
    }
    let stay = |((node, place), nr_processes)| Stay { node, place, nr_processes };
    claims.stays = stays.into_iter().map(stay).collect();
    claims
}

/// A process that a rule claims.
enum Found {
    Move(Claim),
    Stay(usize, StayPlace),
}

/// Process `pid`, if a rule claims it and it is not in its tenant. Notes in `claims` the processes in tenants, and users.
fn look(
    kernel: &mut impl KernFs,
    proc: DirId,
    layout: &Layout,
    rules: &ClaimRules,
    pid: u32,
    claims: &mut Claims,
) -> Result<Option<Found>, KernError> {
    let Some(place) = place(kernel, proc, layout, pid)? else { return Ok(None) };
    if place.below_root {
        let is_lost = |name: &str| {
            layout.trees.iter().zip(&place.dirs).any(|(tree, dir)| *dir == tree.root.join(name))
        };
        if rules.finds_users.is_some_and(is_lost) {
            claims.users.extend(owner(kernel, proc, pid)?.map(|owner| (owner.ruid, None)));
        } else {
            claims.inside.push(pid);
        }
        return Ok(None);
    }
    let node = match rules.of_place(&place) {
        Some(rule) if rule.is_in_place => {
            claims.inside.push(pid);
            return Ok(None);
        }
        Some(rule) => rule.node,
        None if rules.looks_at_owners() => {
            let Some(owner) = owner(kernel, proc, pid)? else { return Ok(None) };
            let rule = rules.of_owner(&owner);
            if rules.finds_users.is_some() {
                claims.users.push((owner.ruid, rule.is_none().then_some(pid)));
            }
            let rule = rule.or_else(|| rules.of_rest(&place, &owner));
            match rule.map(|rule| (rule.node, stays_at(rule, &place))) {
                None | Some((_, Stays::Home)) => return Ok(None),
                Some((node, Stays::Moved)) => node,
                Some((node, Stays::At(stay))) => {
                    let is_process = matches!(stay, StayPlace::Unit(_))
                        || claimable_since(kernel, proc, pid)?.is_some();
                    return Ok(is_process.then_some(Found::Stay(node, stay)));
                }
            }
        }
        None => return Ok(None),
    };
    let Some(start_ticks) = claimable_since(kernel, proc, pid)? else { return Ok(None) };
    let is_split = place.is_split();
    Ok(Some(match place.unmounted {
        Some(path) => Found::Stay(node, StayPlace::Unmounted(path)),
        None => Found::Move(Claim { node, pid, start_ticks, from: place.dirs, is_split }),
    }))
}

/// The result for a process that is claimed by owner.
enum Stays {
    /// It is where the tenant is.
    Home,
    /// It stays where it is.
    At(StayPlace),
    /// It is moved.
    Moved,
}

fn stays_at(rule: &ClaimRule, place: &Place) -> Stays {
    match &place.unit {
        unit if rule.is_at_home(unit.as_deref()) => Stays::Home,
        Some(_) if place.is_split() => Stays::Home,
        Some(unit) => Stays::At(StayPlace::Unit(unit.clone())),
        None if !rule.homes.is_empty() => Stays::At(StayPlace::Cgroup(place.cpu_path.clone())),
        None => match &place.managed {
            Some(path) if !rule.moves => Stays::At(StayPlace::Managed(path.clone())),
            _ => Stays::Moved,
        },
    }
}
