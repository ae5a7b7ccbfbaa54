//! Finds for the templates of the policy, from the search of processes and the lists of systemd.

use std::collections::BTreeSet;

use super::access::HostAccess;
use super::backends::Backends;
use super::found::Wants;
use super::location::Location;
use super::place::Place;
use crate::recovery::residents::REST_CGROUP;
use tenantd_control::tree::Tree;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_host::cgroup::Facet;
use tenantd_host::claiming::ClaimRule;
use tenantd_host::kernfs::KernFs;
use tenantd_host::process::cgroup_dir;
use tenantd_policy::accounts::Accounts;
use tenantd_policy::accounts::people::People;
use tenantd_policy::expand::Found;
use tenantd_policy::unit_path::slice_of_user;

impl Backends {
    pub(crate) fn want(&mut self, wants: Wants, accounts: &Accounts, people: People) {
        self.finds.people = people;
        // Processes without a tenant may belong to a user who is found now.
        self.claim_rules.finds_users = wants.processes.then_some(REST_CGROUP);
        self.members.discovery.restart();
        self.finds.want(wants, accounts.clone());
        self.members.ask(accounts.clone());
    }

    /// The UIDs of people.
    pub(crate) fn people(&self) -> &People {
        &self.finds.people
    }

    /// True if process `pid` of a user is in the user's slice, and no tick has seen that slice: a template may make a tenant of
    /// this user with the next one.
    pub(crate) fn awaits_user<K: KernFs>(
        &self,
        host: &mut HostAccess<K>,
        uid: u32,
        pid: u32,
    ) -> bool {
        if !self.finds.wants.slices || self.finds.has_user(uid) {
            return false;
        }
        let (slice, proc) = (slice_of_user(uid), host.proc());
        let dir = cgroup_dir(&mut host.kernel, proc, &host.layout, pid, Facet::Cpu);
        dir.is_some_and(|dir| dir.iter().any(|name| name == slice.as_str()))
    }

    /// Files of the host that could not be read, where a template finds users.
    pub(crate) fn people_findings(&self) -> impl Iterator<Item = Finding> + '_ {
        let finds_users = self.finds.wants.slices || self.finds.wants.processes;
        self.finds.people.failures().filter(move |_| finds_users).map(|failure| {
            let remedy = "make the file readable for root, then `tenantctl reload`";
            Finding::of_host(Code::Unreadable, failure).with_remedy(remedy)
        })
    }

    /// Looks for units and cgroups that come and go, without a search of processes and of cgroups; returns what keeps
    /// anything from being found.
    pub(crate) fn find<K: KernFs>(&mut self, host: &mut HostAccess<K>, tick: u64) -> Vec<Finding> {
        let unread = self.finds.look_for_slices(host, tick);
        self.finds.review(tick);
        self.members.review();
        let templates = self.finds.wants.cgroups.iter();
        let untaken =
            templates.flat_map(|(group, from)| self.members.discovery.findings(group, from));
        unread.into_iter().chain(untaken).collect()
    }

    pub(crate) fn find_users(&mut self, tree: &Tree, tick: u64) {
        if !self.finds.wants.processes {
            return;
        }
        let rules = self.claim_rules.all().iter();
        let place = |rule: &ClaimRule| self.places.get(tree.at(rule.node).id());
        let at_home = rules.filter(|rule| place(rule).is_some_and(Place::is_populated));
        let uids: Vec<u32> = at_home.flat_map(|rule| rule.uids.iter().copied()).collect();
        self.finds.see_processes(uids, tick);
        self.finds.see_processes(self.search.take_users(), tick);
        self.finds.end_processes(tick);
        self.finds.review(tick);
        self.claim_rules.known_users = self.finds.users().into_keys().collect();
    }

    pub(crate) fn look_again(&mut self) {
        self.search.look_again(|uid| self.claim_rules.has_user(uid));
    }

    /// Present finds, except pods. A unit in the slice of a tenant belongs to that tenant, whatever patterns it matches.
    pub(crate) fn found(&self, tree: &Tree) -> Found {
        let units = self.locations_of(tree).filter_map(Location::unit);
        let slices: BTreeSet<&str> = units.filter(|unit| unit.ends_with(".slice")).collect();
        let units = self.members.running(&slices).cloned().collect();
        let discovery = &self.members.discovery;
        let sources = self.finds.wants.cgroups.iter().map(|(_, sources)| sources);
        let patterns = sources.flat_map(|sources| &sources.cgroup_patterns);
        let cgroups = patterns.flat_map(|it| discovery.of_template(it)).map(str::to_string);
        let people = self.finds.people.clone();
        Found {
            users: self.finds.users(),
            units,
            cgroups: cgroups.collect(),
            people,
            ..Found::default()
        }
    }

    pub(crate) fn has_found(&mut self) -> bool {
        let has_units = std::mem::take(&mut self.members.has_changed_for_each);
        std::mem::take(&mut self.finds.has_changed) | has_units
    }
}
