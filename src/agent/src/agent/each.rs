//! Tenants that the templates (`each`) of the policy find.
//!
//! The agent keeps the policy as written, for reloads and for readers. In force is its expansion with the units
//! found ([`tenantd_policy::expand`]). When a unit comes or goes, the agent exchanges the tree as in a reload:
//! tenants that stay are not written, moved or recreated, and all values of departed tenants are restored. A
//! tenant whose unit stays keeps its state under a new name. If the exchange fails, the old tree stays in force
//! and the next tick tries again.
//!
//! **Properties** (`tests/agent/each.rs`): a tenant exists from the tick after its user arrives until its last
//! process ends; a thousand users that log in and out at random leave nothing in the tree, the journal, the
//! states and the findings.

use super::base::{Layer, identified};
use super::mode::ChangeError;
use super::start::Agent;
use crate::backend::ancestry;
use crate::backend::found::Wants;
use crate::backend::location::Location;
use crate::backend::on_host;
use tenantd_control::tree::TreeNode;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_host::enforce::with_causes;
use tenantd_host::kernfs::KernFs;
use tenantd_policy::expand::expand;
use tenantd_policy::model::{Mode, Policy};

impl<K: KernFs> Agent<K> {
    pub(super) fn wants(&self, policy: &Policy) -> Wants {
        Wants::of(policy, on_host::user_slices(&self.host.kernel, &self.host.layout))
    }

    /// Applies the units found by templates if they changed; returns true if the set of tenants changed.
    pub(super) fn take_found(&mut self) -> bool {
        self.base.has_templates
            && (self.backends.has_found() || self.base.failure.is_some())
            && match self.expand() {
                Ok(has_changed) => has_changed,
                Err(error) => {
                    let what = format!("what `each` found is not in force: {error}");
                    self.base.failure = Some(Finding::of_host(Code::NotAttached, what).as_error());
                    false
                }
            }
    }

    fn expand(&mut self) -> Result<bool, ChangeError> {
        let expanded = expand(
            &self.base.written,
            &self.base.numbers,
            &self.backends.found(self.control.tree()),
        );
        if expanded.policy == self.base.expanded {
            self.base.note(&expanded);
            return Ok(false);
        }
        let (old, host) = (self.control.tree(), &self.host);
        let attached = |nodes: &[TreeNode], at| self.with_attached(nodes, at);
        let on = (&host.kernel, &host.layout);
        let layer = self.base.layer(&expanded, on, attached, |above, nodes, at| {
            let cgroup_of = |location: &Location| self.backends.cgroup_of(location);
            let placed = (at, self.backends.members_at(at, Some(old)));
            // The governed ancestors stay, as when members come and go.
            ancestry::tree((&host.layout, above), nodes, placed, cgroup_of, Some(old))
        });
        let old_locations = self.backends.locations(old);
        let Layer { locations, claim_rules, governs_above, tree, pins } = layer;
        let tree = identified((old, &old_locations), (tree, &locations));
        let has_ended = old.all().any(|node| tree.find(node.id()).is_none());
        let mut failures = Vec::new();
        if self.mode() == Mode::Enforce {
            self.make_ready(tree.nodes(), &locations, pins)?;
            if has_ended {
                failures = self.release(&tree, &claim_rules);
            }
        }
        (self.host.pins, self.host.governs_above) = (pins, governs_above);
        self.forget_gone(&tree);
        let kernel = &mut self.host.kernel;
        self.backends.take_nodes(kernel, &tree, &locations, claim_rules);
        self.reporter.follow(&tree, &[]);
        self.control.take_tree(tree, Vec::new(), |_| false);
        self.base.note(&expanded);
        if self.mode() == Mode::Enforce {
            failures.extend(self.bring_home().err().map(|error| with_causes(&error)));
        }
        self.reporter.note_late_findings(
            failures.iter().map(|why| Finding::of_host(Code::NotKept, why.as_str())).collect(),
        );
        Ok(true)
    }
}
