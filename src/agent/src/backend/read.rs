//! Reading the cgroups of all nodes: counters, values, the machine's CPUs and the limits above.
//!
//! Nothing is written here. A cgroup that went away is closed, as in `attach`.

use super::access::HostAccess;
use super::backends::{Backends, Events};
use super::bounds;
use super::location::Location;
use super::place::Sampled;
use tenantd_control::measure::sample::{PidsSample, TenantSample};
use tenantd_control::state::Outcome;
use tenantd_control::state::drift::Observation;
use tenantd_control::state::step::Sampling;
use tenantd_control::tree::bounds::AncestorBounds;
use tenantd_control::tree::{Node, TreeNode};
use tenantd_control::words::finding::{Code, Finding};
use tenantd_control::words::knob::{Knob, Purpose, Value};
use tenantd_core::node::NodeId;
use tenantd_core::resource::MEMORY;
use tenantd_dop::Topology;
use tenantd_host::cgroup::{self, Facet};
use tenantd_host::kernfs::KernFs;

impl Backends {
    pub(crate) fn sample<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        node: Node<'_>,
        sampling: Sampling,
        last: Option<&TenantSample>,
        events: &mut Events,
    ) -> Option<Sampled> {
        if let Some(tenant) = self.unmoved_of(node) {
            return Some(self.unmoved.sample(host, tenant));
        }
        match self.places.get_mut(node.id())?.sample(host, sampling, last)? {
            Ok(mut sampled) => {
                let name = node.name();
                let gaps = sampled.gaps.drain(..);
                events
                    .findings
                    .extend(gaps.map(|gap| Finding::of(name, Code::Unreadable, gap.to_string())));
                Some(sampled)
            }
            Err(_) if self.may_be_missing(node) => {
                events.losses.push(self.give_up(host, node.id()));
                None
            }
            Err(error) => {
                let why = format!("it went away: {error}");
                self.lose(host, node, &why, events);
                None
            }
        }
    }

    /// Returns the tenant that claims processes for this cgroup, if the cgroup is missing because the agent
    /// only observes.
    pub(crate) fn unmoved_of(&self, node: Node<'_>) -> Option<NodeId> {
        let place = self.places.get(node.id())?;
        let is_missing = place.location.is_below_root()
            && place.cgroup.is_none()
            && self.root.is_none()
            && self.search.owed() == 0;
        let tenant = node.tenant().filter(|_| is_missing)?;
        let rules = self.claim_rules.all();
        let has_rule = rules.binary_search_by_key(&tenant.at(), |rule| rule.node).is_ok();
        has_rule.then(|| tenant.id())
    }

    pub(crate) fn pids<K: KernFs>(
        &self,
        host: &mut HostAccess<K>,
        node: Node<'_>,
        events: &mut Events,
    ) -> Option<PidsSample> {
        let cgroup = self.cgroup(node.id())?;
        let dir = cgroup.dir(&host.layout, Facet::Pids)?;
        match cgroup::pids_sample(&mut host.kernel, dir, cgroup.generation()) {
            Ok(pids) => pids,
            Err(gap) => {
                let gap = Finding::of(node.name(), Code::Unreadable, gap.to_string());
                events.findings.push(gap);
                None
            }
        }
    }

    /// True if the files of a node are read in every tick: another program writes them, or their values before
    /// the agent matter.
    pub(crate) fn is_watched(&self, id: NodeId) -> bool {
        matches!(self.location(id), Location::AboveInPlace(_)) || self.systemd.owns(id)
    }

    pub(crate) fn observe<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        node: Node<'_>,
        (known, is_bounded): (&[(Knob, Value)], bool),
        events: &mut Events,
    ) -> Option<Vec<Observation>> {
        let (pins, weighs_disks) = (host.pins, node.tree().weighs_disks());
        let (id, is_ancestor, policy) = (node.id(), node.is_ancestor(), node.policy());
        let is_promised = |node: &TreeNode| !node.is_leaf || node.guarantee[MEMORY].is_some();
        let is_needed = |knob: Knob| match knob.purpose() {
            Purpose::Weight | Purpose::Protection => true,
            Purpose::Guarantee => policy.is_none_or(is_promised),
            Purpose::Bound => is_bounded,
            // A limit of a divided resource bounds its demand, also one of another program.
            Purpose::Limit if knob.resource().is_some() => true,
            Purpose::Limit => policy.is_some_and(|policy| policy.limit_of(knob).is_some()),
            Purpose::Placement => pins,
            Purpose::Share => weighs_disks,
        };
        let layout = &host.layout;
        let is_asked = |knob: Knob| {
            is_needed(knob) && layout.has_file(knob) && (!is_ancestor || knob.is_above())
        };
        // An array, because a tenant at rest costs no allocation for what is asked of it.
        let knobs = Knob::ALL.map(|knob| is_asked(knob).then_some(knob));
        let mut observed = self.places.get(id)?.observe(host, knobs.into_iter().flatten())?;
        let gaps = std::mem::take(&mut observed.gaps);
        let name = node.name();
        events
            .findings
            .extend(gaps.iter().map(|gap| Finding::of(name, Code::Unreadable, gap.to_string())));
        // The files of a scheduler come and go with it.
        let is_kept = |gone: &Knob| gone.purpose() != Purpose::Share;
        // A cgroup that is not a unit may lack the controller; it existed a moment ago.
        if is_ancestor && observed.gone.iter().any(is_kept) && self.systemd.owns(id) {
            events.losses.push(self.give_up(host, node.id()));
            return None;
        }
        // A file that never existed was reported when the cgroup was opened.
        let was_there = |gone: &&Knob| is_kept(gone) && known.iter().any(|(knob, _)| knob == *gone);
        if let Some(gone) = observed.gone.iter().find(was_there) {
            let why = format!("its {} went away", host.file(*gone));
            self.lose(host, node, &why, events);
            return None;
        }
        let (systemd, journal) = (&self.systemd, &host.journal);
        let is_ours = |knob: Knob, value: &Value| {
            systemd.ordered(id, knob, value)
                || systemd.is_fallback(journal, id, knob, value)
                || systemd.is_compressed(journal, id, knob, value)
        };
        Some(observed.into_observations(is_ours))
    }

    pub(crate) fn arrivals<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        id: NodeId,
        observed: &[Observation],
    ) -> Vec<Outcome> {
        let Some(place) = self.places.get(id) else { return Vec::new() };
        self.systemd.arrivals(host, place, id, observed)
    }

    /// Takes the count of the unit's runs that ended by an OOM kill since the last tick.
    pub(crate) fn take_kills(&mut self, id: NodeId) -> u64 {
        self.systemd.take_kills(id)
    }

    /// Values of an ancestor before the agent; `now` are the present ones.
    pub(crate) fn held_before<K: KernFs>(
        &self,
        host: &mut HostAccess<K>,
        id: NodeId,
        now: &[Observation],
    ) -> Vec<(Knob, Value)> {
        let Some(place) = self.places.get(id) else { return Vec::new() };
        let mut before = |seen: &Observation| {
            let before = if self.systemd.owns(id) {
                self.systemd.held_before(host, id, (seen.knob, &seen.value))?
            } else {
                place.held_before(host, seen.knob).unwrap_or_else(|| seen.value.clone())
            };
            Some((seen.knob, before))
        };
        now.iter().filter_map(&mut before).collect()
    }

    /// Reads the machine's CPUs; `None` if they have not changed.
    pub(crate) fn topology<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
    ) -> Result<Option<Topology>, Finding> {
        let changed = self.inventory.refresh(host).map_err(|error| {
            Finding::of_host(Code::Unreadable, format!("no CPU is pinned: {error}"))
        })?;
        if changed.is_some() {
            // CPUs that came back to an ancestor of a tenant are handled as new.
            for place in self.places.values_mut() {
                (place.has_cpus, place.is_joined) = (false, false);
            }
        }
        Ok(changed)
    }

    /// Limits above the tenants, read again if `refreshes`. None if some tenants are outside the root, because
    /// each of those has its own.
    pub(crate) fn bounds_above<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        refreshes: bool,
    ) -> AncestorBounds {
        let has_outside = self.places.values().any(|place| place.location.is_outside());
        if refreshes && !has_outside {
            self.above = bounds::read(host);
        }
        if has_outside { AncestorBounds::default() } else { self.above }
    }
}
