//! The root of the agent's cgroups, and the cgroups of members as members come and go.

use std::sync::Arc;

use super::state::Tenants;
use crate::backend::location::Location;
use crate::backend::release::Release;
use crate::backend::root;
use crate::recovery::deadline::Deadline;
use crate::start_error::StartError;
use tenantd_control::tick::event::Event;
use tenantd_control::tree::{Tree, TreeNode};
use tenantd_control::words::finding::{Code, Finding};
use tenantd_host::kernfs::KernFs;
use tenantd_policy::model::Mode;

impl<K: KernFs> Tenants<K> {
    /// Takes the root, unless it is taken already or the agent makes no cgroup for any node. On an error all
    /// writes so far are in the journal.
    pub(crate) fn take_root_for(
        &mut self,
        nodes: &[TreeNode],
        locations: &[Location],
        pins: bool,
    ) -> Result<(), StartError> {
        if self.backends.has_root() || !locations.iter().any(Location::is_made) {
            return Ok(());
        }
        let pinned_before = std::mem::replace(&mut self.host.pins, pins);
        let taken = root::take(&mut self.host, nodes, self.keeper.displaced());
        self.host.pins = pinned_before;
        let (root, waiting) = taken?;
        self.backends.hold_root(root);
        self.keeper.replace_displaced(waiting);
        Ok(())
    }

    /// Gives nodes that are new the credit that they had under an earlier agent.
    pub(crate) fn take_up_credits(&mut self) {
        let credits = self.keeper.take_credits(self.control.tree());
        if !credits.is_empty() {
            self.control.apply(Event::TakeCredits(credits));
        }
    }

    /// Exchanges the tree if members came or went.
    pub(crate) fn grow(&mut self, findings: &mut Vec<Finding>) {
        if self.backends.has_grown() {
            let locations = self.backends.locations(self.control.tree());
            self.settle_members(&locations, findings);
        }
    }

    /// Exchanges the tree for one with the nodes at `locations`.
    pub(super) fn settle_members(&mut self, locations: &[Location], findings: &mut Vec<Finding>) {
        let tree = self.control.tree();
        let Some((new, handed)) = self.backends.grown(&self.host, tree, locations) else { return };
        let has_ended = tree.all().any(|node| new.find(node.id()).is_none());
        let tree = new;
        if self.mode() == Mode::Enforce && has_ended {
            let failures = self.let_go_of_ended(&tree);
            findings
                .extend(failures.iter().map(|why| Finding::of_host(Code::NotKept, why.as_str())));
        }
        self.backends.take_grown(&mut self.host.kernel, &tree, locations, &handed);
        self.reporter.follow(&tree, &handed);
        self.control.take_tree(tree, handed, |_| false);
    }

    /// Restores the units and cgroups of members that have ended. Returns the values that could not be
    /// restored.
    fn let_go_of_ended(&mut self, tree: &Tree) -> Vec<String> {
        let Tenants { host, backends, control, keeper, .. } = self;
        let notifier = Arc::clone(&host.notifier);
        let deadline = Deadline::between_ticks(&notifier);
        let mut release = Release::new((host, backends, keeper), control, tree);
        let claim_rules = release.backends.claim_rules().to_vec();
        release.let_go_of_cgroups(&claim_rules);
        release.let_go_of_units(&[], deadline);
        release.failures
    }
}
