//! State of the tenants in force: their policy, decisions, cgroups and journal.

use std::path::PathBuf;

use super::base::Base;
use super::recorded::Recorded;
use crate::backend::access::HostAccess;
use crate::backend::backends::{Backends, Events};
use crate::backend::found::Wants;
use crate::backend::on_host;
use crate::recovery::leftover::Keeper;
use crate::report::reporter::Reporter;
use tenantd_control::state::step::Settings;
use tenantd_control::tick::event::Event;
use tenantd_control::tree::{Node, TreeNode};
use tenantd_control::words::finding::Finding;
use tenantd_core::node::NodeId;
use tenantd_host::kernfs::KernFs;
use tenantd_policy::accounts::Accounts;
use tenantd_policy::accounts::people::People;
use tenantd_policy::model::{Mode, Policy};

/// Options from the command line or the unit file, beside the policy.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Write nothing, whatever the policy says.
    pub observe: bool,
    /// The root, instead of the policy's.
    pub root: Option<PathBuf>,
    /// Directory of the journal; `None` keeps it in memory, for a kernel that ends with the program.
    pub state_dir: Option<PathBuf>,
    /// State directory of another agent, whose stored credit counts instead of that in `state_dir`: for a plan.
    pub credits_of: Option<PathBuf>,
    /// The accounts of the host.
    pub accounts: Accounts,
    /// Reads the UIDs of people, at the start and with each policy; without it the defaults of any host apply.
    pub people: Option<fn() -> People>,
}

/// The tenants in force on a host. Jobs, attached work and transitions change them.
#[derive(Debug)]
pub(crate) struct Tenants<K> {
    pub(crate) host: HostAccess<K>,
    pub(crate) base: Base,
    pub(crate) options: Options,
    pub(crate) control: Recorded,
    pub(crate) backends: Backends,
    pub(crate) keeper: Keeper,
    pub(crate) reporter: Reporter,
}

impl<K> Tenants<K> {
    pub(crate) fn mode(&self) -> Mode {
        if self.control.settings().is_enforcing { Mode::Enforce } else { Mode::Observe }
    }

    pub(crate) fn nodes(&self) -> &[TreeNode] {
        self.control.tree().nodes()
    }

    /// Node of the policy with this path.
    pub(crate) fn id_of(&self, tenant: &str) -> Option<NodeId> {
        self.control.tree().named(tenant).map(Node::id)
    }

    /// Name of a node; empty if it has ended.
    pub(crate) fn name_of(&self, node: NodeId) -> String {
        self.control.tree().find(node).map_or_else(String::new, |node| node.name().to_string())
    }

    pub(crate) fn set(&mut self, settings: Settings) {
        self.host.leaves_drift = settings.leaves_drift();
        self.control.apply(Event::Set(settings));
    }

    /// Passes the results of reads and writes to the control loop.
    pub(crate) fn take_in(&mut self, events: Events, findings: &mut Vec<Finding>) {
        findings.extend(events.findings);
        for outcome in events.outcomes {
            self.control.apply(Event::settle(outcome));
        }
        for loss in events.losses {
            self.control.apply(Event::Lose(loss.node, loss.keeps_left));
        }
    }
}

impl<K: KernFs> Tenants<K> {
    pub(crate) fn wants(&self, policy: &Policy) -> Wants {
        Wants::of(policy, on_host::user_slices(&self.host.kernel, &self.host.layout))
    }

    /// Looks for `wants` from now on, among the people of the host as its files are now.
    pub(crate) fn want(&mut self, wants: Wants) {
        let former = self.backends.people();
        let people = self.options.people.map(|read| read().after(former)).unwrap_or_default();
        self.backends.want(wants, &self.options.accounts, people);
    }

    pub(crate) fn find_obstacles(&mut self) {
        let is_enforcing = self.mode() == Mode::Enforce;
        self.reporter.find_obstacles(&mut self.host, &self.backends, is_enforcing);
    }

    /// Closes every cgroup, so that the next tick makes and opens those needed by then. Samples stay.
    pub(crate) fn open_anew(&mut self) {
        self.backends.close_all(&mut self.host.kernel);
        self.control.apply(Event::ForgetObserved);
    }
}
