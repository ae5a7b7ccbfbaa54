//! Rules by which tenants claim processes, and the search for those processes.
//!
//! The search reads only the files that a rule needs: first the cgroup of a process, and its user only if a
//! rule names users. Kernel threads, process 1 and the agent itself are never claimed. *Owner* means the real
//! user and group: a set-user-ID program belongs to the user who started it.
//!
//! **Units.** A process in a service or scope of systemd is claimed by its cgroup only, never by its owner:
//! systemd treats a process that left its unit as ended. Such processes are counted for a report.
//!
//! **Sessions.** On a host without systemd a claim by owner takes a process only out of the cgroup of its
//! session. That is, in every hierarchy of tenants, one of these:
//!
//! - the root cgroup, or the top of the mounted part of a hierarchy;
//! - the cgroup in which the agent was started, and its ancestors;
//! - the agent's root;
//! - in the unified hierarchy, a cgroup at the top that elogind made for a session: `/3`, `/c1`.
//!
//! Any other cgroup was made by a program that manages its processes (a container engine, a batch system, an
//! init). Its processes stay, and are counted, unless the tenant says `move: true`.
//!
//! **Split processes.** In cgroup v1 a process is moved in one tree after the other. A child started meanwhile
//! is in the tenant's cgroups in only some trees, and is claimed in the others by those.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::cgroup::Layout;
use super::kernfs::{DirId, KernError, KernFs};
use super::process::{Claim, Place, claimable_since, owner, place};
use tenantd_core::kernel_text::proc_files::Owner;
use tenantd_policy::pattern;

/// Claims of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRule {
    /// Index of the tenant's node.
    pub node: usize,
    /// Cgroup paths below the mount, with `*` and `?` within one name; descendants are claimed too.
    pub cgroups: Vec<String>,
    /// UIDs (real).
    pub uids: Vec<u32>,
    /// GIDs (real or supplementary).
    pub gids: Vec<u32>,
    /// True if processes are also taken by owner out of cgroups that other programs made.
    pub moves: bool,
    /// True if the tenant is that cgroup itself: no tenant's claim moves a process out of it.
    pub is_in_place: bool,
    /// Units of the tenant, by name or pattern: their processes belong to the tenant already. With any unit, no
    /// process is moved.
    pub homes: Vec<String>,
    /// Set if the tenant gets unclaimed processes in the root cgroup: the claims of others, as written in the
    /// policy.
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
    of_cgroups: Vec<usize>,
    by_uid: HashMap<u32, usize>,
    by_gid: HashMap<u32, usize>,
    rest: Option<usize>,
    /// Set if users without a rule are looked for: the child of the root for processes without a tenant.
    pub finds_users: Option<&'static str>,
    /// Users known to have or not to have a tenant, if users are looked for.
    pub known_users: BTreeSet<u32>,
}

impl ClaimRules {
    /// Indexes the rules; the first rule for an owner counts.
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

    /// True if nothing is claimed or looked for.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.finds_users.is_none()
    }

    /// True if this user has a rule.
    pub fn has_user(&self, uid: u32) -> bool {
        self.by_uid.contains_key(&uid)
    }

    fn of_place(&self, place: &Place) -> Option<&ClaimRule> {
        let is_wanted = |rule: &&ClaimRule| {
            if place.is_split() {
                place.outside.iter().any(|path| rule.wants_cgroup(path))
            } else {
                rule.wants_cgroup(&place.cpu_path)
            }
        };
        self.of_cgroups.iter().map(|index| &self.rules[*index]).find(is_wanted)
    }

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

/// Result of `rules` for the processes that are not below the agent's root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Processes to move, in ascending order of pid.
    pub moves: Vec<Claim>,
    /// Processes that are claimed by owner and stay, by node and place.
    pub stays: Vec<Stay>,
    /// Processes in tenants already: below the agent's root, or in a cgroup in place.
    pub inside: Vec<u32>,
    /// Users of processes in no tenant, if users are looked for; with the pid if no rule claims the process.
    pub users: Vec<(u32, Option<u32>)>,
    /// Number of unreadable processes, with the first error.
    pub unread: Option<(usize, KernError)>,
}

impl Claims {
    fn note_unread(&mut self, error: KernError) {
        let (nr, first) = self.unread.take().unwrap_or((0, error));
        self.unread = Some((nr + 1, first));
    }
}

/// Processes of one place that are claimed by owner and not moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    /// Index of the tenant's node.
    pub node: usize,
    /// Their place.
    pub place: StayPlace,
    /// Number of processes.
    pub nr_processes: usize,
}

/// A place where processes stay.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StayPlace {
    /// This unit of systemd, which a policy can name.
    Unit(String),
    /// This cgroup, which is not a unit, while the tenant is one.
    Cgroup(String),
    /// This cgroup, which a program other than systemd made.
    Managed(String),
    /// Out of this cgroup of the tenant, which has no time for the real-time tasks that they have.
    RealTime(String),
    /// In this cgroup, a path from the root of a hierarchy of which only another part is mounted.
    Unmounted(String),
}

/// Claims of `rules` on the processes `pids` that are not below the agent's root. Skips processes that end
/// meanwhile, and counts unreadable ones. Stops taking from `pids` at `nr_max` moves.
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

enum Found {
    Move(Claim),
    Stay(usize, StayPlace),
}

/// Returns process `pid` if a rule claims it and it is not in its tenant. Adds processes in tenants, and users,
/// to `claims`.
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

enum Stays {
    Home,
    At(StayPlace),
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
