//! Finds of the policy's templates on this host: users, units and cgroups, as they come and go.
//!
//! **Algorithm.** A user with a slice is found by the directory of that slice. The slices are listed in every
//! tick, in one read for any number of users and without the bus. On hosts without slices a user is found by
//! any process in the search for claims, and stays while the cgroup made for that user has processes. Units are
//! those that systemd lists ([`super::members`]).
//!
//! **Accounts** may be late ([`tenantd_policy::accounts`]). If the account is still unknown in the tick after
//! the user was found, the user has no name and no groups: a template of all users makes a tenant named by
//! number. The name changes at most once, when the account becomes known, and then stays while the user is
//! there: the identity of a tenant does not flap. Groups follow the database. A failed lookup changes nothing.
//!
//! **Ends.** Ended units and slices stay for [`LINGER_TICKS`], and then leave together, because restoring units
//! takes a reload of systemd. Users found by processes stay for [`PROCESS_TICKS`], longer than a search of all
//! processes takes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::access::HostAccess;
use super::discovery::{LINGER_TICKS, list};
use super::location::{Sources, UserSlices, finds_users, makes};
use tenantd_control::words::finding::{Code, Finding};
use tenantd_host::kernfs::KernFs;
use tenantd_policy::accounts::people::People;
use tenantd_policy::accounts::{Accounts, Answer, Need, User};
use tenantd_policy::expand::FoundUser;
use tenantd_policy::model::{OwnerChoice, Policy, Tenant};
use tenantd_policy::unit_path::user_of_slice;

/// Ticks that a user without any process stays.
const PROCESS_TICKS: u64 = 10;
/// The slice of all users (systemd.special(7)).
const ALL_USERS_SLICE: &str = "/user.slice";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    pub(super) slices: bool,
    pub(super) processes: bool,
    pub(super) units: BTreeSet<String>,
    pub(super) cgroups: Vec<(String, Sources)>,
}

impl Wants {
    pub(crate) fn of(policy: &Policy, slices: UserSlices) -> Wants {
        let mut wants = Wants::default();
        for tenant in &policy.tenants {
            wants.add(tenant, "", OwnerChoice::Auto, slices);
        }
        wants
    }

    fn add(&mut self, tenant: &Tenant, above: &str, owner: OwnerChoice, slices: UserSlices) {
        let path = format!("{above}{}", tenant.name);
        let owner = match tenant.owner {
            OwnerChoice::Auto => owner,
            said => said,
        };
        for template in tenant.template() {
            let is_made = makes(template, owner, slices);
            self.processes |= is_made;
            self.slices |= finds_users(template) && !is_made && slices == UserSlices::Kept;
            if slices == UserSlices::Kept {
                self.units.extend(template.matches.units.iter().cloned());
            }
            let cgroup_patterns = template.matches.cgroups.clone();
            if !cgroup_patterns.is_empty() {
                let is_direct = template.owner == OwnerChoice::Direct;
                let sources = Sources { cgroup_patterns, is_direct, ..Sources::default() };
                self.cgroups.push((path.clone(), sources));
            }
        }
        let below = format!("{path}/");
        tenant.tenants.iter().for_each(|it| self.add(it, &below, owner, slices));
    }
}

const LOOK_UP_TICKS: u64 = 1;
/// Time after which answers about accounts may have expired.
const REVIEW: Duration = Duration::from_secs(20);

/// A user, with the ticks in which the slice and a process were last seen.
#[derive(Debug, Default)]
struct Seen {
    account: FoundUser,
    /// True once templates see the user: the account is known, or the wait is over.
    is_there: bool,
    found_at: u64,
    slice_at: Option<u64>,
    process_at: Option<u64>,
}

impl Seen {
    fn take(&mut self, answer: Answer<User>) -> bool {
        let was_there = std::mem::replace(&mut self.is_there, true);
        let (name, groups) = match answer {
            Answer::Known(user) => (Some(user.name), user.groups),
            Answer::Missing => (None, Vec::new()),
            Answer::Unknown(_) | Answer::Pending => return !was_there,
        };
        let name = self.account.name.clone().or(name);
        let account = FoundUser { name, groups, has_slice: false };
        let is_other = account != self.account;
        self.account = account;
        is_other || !was_there
    }
}

#[derive(Debug, Default)]
pub(super) struct Finds {
    pub(super) wants: Wants,
    users: BTreeMap<u32, Seen>,
    accounts: Accounts,
    pub(super) people: People,
    /// Time of the next look at the accounts, and generation of the answers at the last look.
    look_at: (Duration, u64),
    /// True if users came or went since the last call of
    /// [`Backends::has_found`](super::backends::Backends::has_found).
    pub(super) has_changed: bool,
}

impl Finds {
    pub(super) fn want(&mut self, wants: Wants, accounts: Accounts) {
        (self.accounts, self.look_at) = (accounts, Default::default());
        for user in self.users.values_mut() {
            user.slice_at = user.slice_at.filter(|_| wants.slices);
            user.process_at = user.process_at.filter(|_| wants.processes);
        }
        self.wants = wants;
        self.drop_ended();
        self.has_changed = true;
    }

    /// True if a tick has found this user, and the account is known or does not exist.
    pub(super) fn has_user(&self, uid: u32) -> bool {
        self.users.get(&uid).is_some_and(|user| user.is_there)
    }

    pub(super) fn users(&self) -> BTreeMap<u32, FoundUser> {
        let users = self.users.iter().filter(|(_, user)| user.is_there);
        let found =
            |user: &Seen| FoundUser { has_slice: user.slice_at.is_some(), ..user.account.clone() };
        users.map(|(uid, user)| (*uid, found(user))).collect()
    }

    fn user(&mut self, uid: u32, tick: u64) -> &mut Seen {
        let look_at = &mut self.look_at;
        self.users.entry(uid).or_insert_with(|| {
            *look_at = Default::default();
            Seen { found_at: tick, ..Seen::default() }
        })
    }

    /// Looks at the accounts of users again if an answer may have changed.
    pub(super) fn review(&mut self, tick: u64) {
        let (now, generation) = (self.accounts.now(), self.accounts.generation());
        let (look_at, seen) = self.look_at;
        if self.users.is_empty() || now < look_at && generation == seen {
            return;
        }
        self.look_at = (now + REVIEW, generation);
        for (uid, user) in &mut self.users {
            let answer = self.accounts.owner(*uid, Need::Identity);
            if answer == Answer::Pending && !user.is_there && tick < user.found_at + LOOK_UP_TICKS {
                // The next tick looks again.
                self.look_at = Default::default();
                continue;
            }
            self.has_changed |= user.take(answer);
        }
    }

    /// Lists the slices of users. On a failure the finds stay.
    pub(super) fn look_for_slices<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tick: u64,
    ) -> Option<Finding> {
        if !self.wants.slices {
            return None;
        }
        let names = match list(host, ALL_USERS_SLICE) {
            Ok(names) => names,
            Err(error) if error.is_gone() => Vec::new(),
            Err(error) => {
                let what = format!("users that come and go are not seen: {error}");
                return Some(Finding::of_host(Code::Unreadable, what));
            }
        };
        for uid in names.iter().filter_map(|name| user_of_slice(name)) {
            self.user(uid, tick).slice_at = Some(tick);
        }
        let have_ended = |user: &Seen| user.slice_at.is_some_and(|at| at + LINGER_TICKS < tick);
        if self.users.values().any(have_ended) {
            for user in self.users.values_mut() {
                user.slice_at = user.slice_at.filter(|at| *at == tick);
            }
            self.drop_ended();
        }
        None
    }

    pub(super) fn see_processes(&mut self, uids: impl IntoIterator<Item = u32>, tick: u64) {
        for uid in uids {
            self.user(uid, tick).process_at = Some(tick);
        }
    }

    /// Forgets users whose last process ended [`PROCESS_TICKS`] ago.
    pub(super) fn end_processes(&mut self, tick: u64) {
        for user in self.users.values_mut() {
            user.process_at = user.process_at.filter(|at| at + PROCESS_TICKS >= tick);
        }
        self.drop_ended();
    }

    fn drop_ended(&mut self) {
        let nr_users = self.users.len();
        self.users.retain(|_, user| user.slice_at.is_some() || user.process_at.is_some());
        self.has_changed |= self.users.len() != nr_users;
    }
}
