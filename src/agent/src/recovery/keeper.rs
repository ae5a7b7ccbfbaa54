//! Files of the state directory beside the journal, for the next agent and for the tenants.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use tracing::warn;

use super::attachments::Attachments;
use super::credit_store::CreditStore;
use super::dop_files::{DopFiles, dop_dir};
use super::placement_store::PlacementStore;
use super::residents::{self, Resident, ResidentStore};
use tenantd_control::share::credit::Credit;
use tenantd_control::state::NodeState;
use tenantd_control::tree::{Node, Tree, TreeNode};
use tenantd_control::words::finding::{Code, Finding};
use tenantd_core::node::NodeId;
use tenantd_dop::CpuSet;
use tenantd_host::cgroup::Layout;
use tenantd_host::kernfs::KernFs;
use tenantd_policy::model::CpusPolicy;

/// Files of one state directory. There are none without one, or while nothing is enforced.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    residents: Option<ResidentStore>,
    displaced: Vec<Resident>,
    lost: Option<Finding>,
    /// Lines of the last journal that are not understood.
    pub(super) damaged: Vec<Finding>,
    /// CPUs and widths handed to tenants.
    pub(crate) attachments: Attachments,
    placements: Option<PlacementStore>,
    credits: Option<CreditStore>,
    dop_files: Option<DopFiles>,
    /// True if systemd has loaded units with drop-ins that were removed.
    pub(crate) has_stale_units: bool,
}

impl Keeper {
    /// The keeper of `state_dir` for this boot; nothing is written yet.
    pub(super) fn new(state_dir: &Path, boot_id: &str) -> Keeper {
        let residents = ResidentStore::new(state_dir, boot_id);
        let displaced = residents.load();
        let attachments = Attachments::load(state_dir, boot_id);
        Keeper { residents: Some(residents), displaced, attachments, ..Keeper::default() }
    }

    pub(crate) fn begin(&mut self, state_dir: Option<&Path>, pins: bool) {
        self.dop_files = state_dir.map(|dir| DopFiles::new(dop_dir(dir)));
        self.placements = None;
        if pins {
            self.begin_placing(state_dir);
        }
    }

    pub(crate) fn begin_placing(&mut self, state_dir: Option<&Path>) {
        self.placements = state_dir.map(PlacementStore::new);
    }

    /// Stops writing: no tenant is managed any more.
    pub(crate) fn end(&mut self) {
        self.placements = None;
        if let Some(Err(error)) = self.dop_files.take().map(|mut files| files.remove()) {
            warn!("cannot remove the published DOP files: {error}");
        }
    }

    pub(crate) fn displaced(&self) -> &[Resident] {
        &self.displaced
    }

    pub(crate) fn keep_displaced(&mut self, displaced: &[Resident]) {
        if !displaced.is_empty() {
            residents::displace(&mut self.displaced, displaced);
            self.store_displaced();
        }
    }

    /// Replaces the list of displaced processes: the others are back in their cgroups, or have ended.
    pub(crate) fn replace_displaced(&mut self, displaced: Vec<Resident>) {
        if self.displaced != displaced {
            self.displaced = displaced;
            self.store_displaced();
        }
    }

    fn store_displaced(&self) {
        if let Some(residents) = &self.residents {
            residents.keep(&self.displaced);
        }
    }

    pub(crate) fn look_for_lost(&mut self, kernel: &mut impl KernFs, layout: &Layout) {
        self.lost = residents::finding(kernel, layout, &self.displaced);
    }

    pub(crate) fn lost(&self) -> Option<&Finding> {
        self.lost.as_ref()
    }

    /// Findings on lines of the last journal that are not understood.
    pub(crate) fn damaged(&self) -> &[Finding] {
        &self.damaged
    }

    /// The placement of an earlier agent on `usable` CPUs.
    pub(crate) fn placements(&self, usable: &CpuSet) -> BTreeMap<String, CpuSet> {
        self.placements.as_ref().map(|store| store.load(usable)).unwrap_or_default()
    }

    /// Writes the degree of parallelism of these `nodes` of the policy, at most `nr_max` of those that
    /// changed.
    pub(crate) fn tell_widths<'t>(
        &mut self,
        states: &[NodeState],
        nodes: impl IntoIterator<Item = Node<'t>>,
        nr_max: usize,
    ) -> (Vec<Finding>, bool) {
        let Some(files) = &mut self.dop_files else { return (Vec::new(), false) };
        let (mut findings, mut nr_told) = (Vec::new(), 0);
        for node in nodes {
            let path = node.name();
            let Some(dop) = states[node.at()].width.dop() else { continue };
            if files.holds(path, dop) {
                continue;
            }
            if nr_told == nr_max {
                return (findings, true);
            }
            match files.tell(path, dop) {
                Ok(()) => nr_told += 1,
                Err(error) => {
                    let what = format!("cannot tell it its width: {error}");
                    findings.push(Finding::of(path, Code::NotKept, what));
                }
            }
        }
        (findings, false)
    }

    pub(crate) fn keep_placement(
        &mut self,
        nodes: &[TreeNode],
        states: &[NodeState],
    ) -> Option<Finding> {
        let store = self.placements.as_mut()?;
        let placed = nodes.iter().zip(states).filter_map(|(node, state)| {
            let moves = matches!(node.cpus, CpusPolicy::Dop | CpusPolicy::Exclusive);
            Some((node.path.as_str(), state.width.cpus().filter(|_| moves && node.is_leaf)?))
        });
        store.keep(placed).err().map(|error| not_kept("the placement", error))
    }

    /// Keeps credit from now on, in either mode.
    pub(crate) fn with_credits(self, credits: CreditStore) -> Keeper {
        Keeper { credits: Some(credits), ..self }
    }

    /// Takes over the store of credit from the keeper before it.
    pub(crate) fn with_credits_of(self, former: &mut Keeper) -> Keeper {
        Keeper { credits: former.credits.take(), ..self }
    }

    /// Credit of an earlier agent for nodes that have not taken theirs yet.
    pub(crate) fn take_credits(&mut self, tree: &Tree) -> Vec<(NodeId, Credit)> {
        let nodes = tree.policy_nodes().map(|node| (node.id(), node.name()));
        self.credits.as_mut().map(|credits| credits.take(nodes)).unwrap_or_default()
    }

    /// Drops the credit of an earlier agent that no node of its policy has taken.
    pub(crate) fn drop_credits(&mut self) {
        if let Some(credits) = &mut self.credits {
            credits.drop_waiting();
        }
    }

    /// Stores credit for the next agent: once a minute in ticks, and at once without `now`, at a stop.
    pub(crate) fn keep_credits(
        &mut self,
        now: Option<Duration>,
        nodes: &[TreeNode],
        states: &[NodeState],
    ) -> Option<Finding> {
        let store = self.credits.as_mut()?;
        let all = nodes.iter().zip(states).map(|(node, it)| (node.path.as_str(), &it.credit));
        let stored = match now {
            Some(now) => store.keep(now, all),
            None => store.store(all),
        };
        stored.err().map(|error| not_kept("the credit of tenants", error))
    }

    pub(crate) fn forget(&mut self, tenant: &str) {
        if let Some(files) = &mut self.dop_files
            && let Err(error) = files.forget(tenant)
        {
            warn!(tenant, "cannot remove its published DOP files: {error}");
        }
    }
}

fn not_kept(what: &str, error: impl Display) -> Finding {
    Finding::of_host(Code::NotKept, format!("cannot keep {what} for the next start: {error}"))
}
