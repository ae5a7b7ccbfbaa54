//! An agent on one host: its state, its start and its stop.
//!
//! An [`Agent`] owns a kernel (real or simulated), a policy and a journal. It reads no clock: [`Agent::tick`]
//! takes the time as an argument. The control loop decides, the backends find the cgroups of tenants, and the
//! reporter writes for readers. The agent passes values between them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{info, warn};

use super::base::{Base, Layer};
use super::names::Names;
use super::recorded::Recorded;
use crate::backend::access::HostAccess;
use crate::backend::ancestry;
use crate::backend::backends::Backends;
use crate::backend::claims;
use crate::backend::found::Wants;
use crate::backend::members;
use crate::backend::root;
use crate::jobs::record::Jobs;
use crate::jobs::store::Store;
use crate::recovery::deadline::Deadline;
use crate::recovery::leftover::{self, Keeper};
use crate::recovery::restored::Restored;
use crate::report::reporter::Reporter;
use crate::start_error::StartError;
use tenantd_control::report::status::{AgentStatus, Status};
use tenantd_control::report::trace::Trace;
use tenantd_control::state::NodeState;
use tenantd_control::state::step::Settings;
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::Witness;
use tenantd_control::tree::{Node, TreeNode};
use tenantd_control::words::finding::Finding;
use tenantd_control::words::knob::{Action, Knob, Value};
use tenantd_core::resource::MEMORY;
use tenantd_dop::Topology;
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_host::claiming::ClaimRule;
use tenantd_host::enforce::with_causes;
use tenantd_host::journal::{Entry, JournalError};
use tenantd_host::kernfs::{DirId, KernFs};
use tenantd_host::machine::Machine;
use tenantd_host::notify::Notifier;
use tenantd_policy::accounts::Accounts;
use tenantd_policy::accounts::people::People;
use tenantd_policy::expand::Found;
use tenantd_policy::model::{Mode, OnExit, Policy, RootChoice};

/// Options from the command line or the unit file, beside the policy.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Write nothing, whatever the policy says.
    pub observe: bool,
    /// The root, instead of the policy's.
    pub root: Option<PathBuf>,
    /// Directory of the journal; `None` keeps it in memory, for a kernel that ends with the program.
    pub state_dir: Option<PathBuf>,
    /// The accounts of the host.
    pub accounts: Accounts,
    /// Reads the UIDs of people, at the start and with each policy; without it the defaults of any host apply.
    pub people: Option<fn() -> People>,
}

/// The agent of one host.
#[derive(Debug)]
pub struct Agent<K> {
    pub(super) host: HostAccess<K>,
    pub(super) base: Base,
    pub(super) names: Names,
    pub(super) options: Options,
    pub(super) control: Recorded,
    pub(super) backends: Backends,
    pub(super) keeper: Keeper,
    pub(super) reporter: Reporter,
    pub(super) jobs: Jobs,
}

impl<K: KernFs> Agent<K> {
    /// Finds the hierarchy of the host, restores the leftovers of a crashed agent, and takes the root.
    ///
    /// It changes nothing of the tenants before the first tick. On an error nothing is left behind.
    pub fn start(
        mut kernel: K,
        policy: Policy,
        claim_rules: Vec<ClaimRule>,
        options: &Options,
    ) -> Result<Agent<K>, StartError> {
        let is_enforcing = policy.mode == Mode::Enforce && !options.observe;
        let limits_pids = policy.limits_pids();
        let machine = Machine::open(&mut kernel)?;
        let layout = layout(&mut kernel, machine.proc(), &policy, options)?;
        let numbers = claims::numbers(&policy, &options.accounts);
        let (base, expanded) = Base::new(policy, numbers, claim_rules, &Found::default());
        let layer = base.layer(
            &expanded,
            (&kernel, &layout),
            |_, at| at,
            |governs_above, nodes, locations| {
                let placed = (locations, members::named(locations));
                ancestry::tree((&layout, governs_above), nodes, placed, |_| None, None)
            },
        );
        let Layer { locations, claim_rules, governs_above, tree, pins } = layer;
        let notifier = Notifier::default();
        let deadline = Deadline::unlimited(&notifier);
        let state_dir = options.state_dir.as_deref();
        let (journal, mut keeper) =
            leftover::take_up(&mut kernel, &machine, state_dir, is_enforcing, deadline)?;
        let settings = Settings::of(&base.written, pins, is_enforcing);
        let leaves_drift = settings.leaves_drift();
        let mut host = HostAccess {
            kernel,
            layout,
            machine,
            journal,
            pins,
            governs_above,
            limits_pids,
            leaves_drift,
            notifier: Arc::new(notifier),
        };
        let mut backends = Backends::new(&host.kernel, &tree, &locations, claim_rules);
        // If the agent makes no cgroup, no root is needed.
        if is_enforcing
            && backends.has_direct()
            && let Err(error) = take_root(&mut host, &mut backends, tree.nodes(), &mut keeper)
        {
            leftover::give_back(&mut host.kernel, &host.machine, host.journal, &mut keeper);
            return Err(error);
        }
        if is_enforcing {
            keeper.begin(state_dir, pins);
        }
        let mut reporter = Reporter::new(&host);
        reporter.find_obstacles(&mut host, &backends, is_enforcing);
        let control = Recorded::new(ControlLoop::new(settings, tree));
        let mut agent = Agent {
            jobs: Jobs::new(job_store(state_dir, &mut host)),
            host,
            names: Names::of(&base.written),
            base,
            options: options.clone(),
            control,
            backends,
            keeper,
            reporter,
        };
        agent.want_found();
        info!(action = "start", "{}", agent.first_words());
        agent.take_up_attached();
        Ok(agent)
    }

    fn want_found(&mut self) {
        let wants = self.wants(&self.base.written);
        self.want(wants);
    }

    /// Looks for `wants` from now on, among the people of the host as its files are now.
    pub(super) fn want(&mut self, wants: Wants) {
        let former = self.backends.people();
        let people = self.options.people.map(|read| read().after(former)).unwrap_or_default();
        self.backends.want(wants, &self.options.accounts, people);
    }

    fn first_words(&self) -> String {
        let host = nix::unistd::gethostname().unwrap_or_default();
        let layout = &self.host.layout;
        format!(
            "started on {}: {}, {} tenants below {}, owner {}, mode {}",
            host.to_string_lossy(),
            layout.describe(),
            self.nodes().iter().filter(|node| node.is_leaf).count(),
            layout.trees[layout.tree(Facet::Cpu).unwrap_or(0)].root.display(),
            self.backends.owners(),
            self.mode().word(),
        )
    }

    /// Reports every change of the control loop to `witness`; `None` stops that.
    pub fn record(&mut self, witness: Option<Box<dyn Witness>>) {
        self.control.record(witness);
    }

    /// The status of the last tick.
    pub fn status(&self) -> &Status {
        self.reporter.status()
    }

    /// The status of the last tick, shared.
    pub fn shared_status(&self) -> Arc<Status> {
        Arc::clone(self.reporter.status())
    }

    /// Sets the wall-clock time (RFC 3339 in UTC) and the host name in the status of the last tick.
    pub fn stamp(&mut self, time: String, host_name: &str) {
        self.reporter.amend(|status| {
            status.time = Some(time);
            host_name.clone_into(&mut status.host.name);
        });
    }

    /// Inputs and steps of the last tick, enough to explain any of its values.
    pub fn trace(&self) -> &Arc<Trace> {
        self.reporter.trace()
    }

    /// Records the agent's own cost, published with the status of the last tick.
    pub fn note_cost(&mut self, cost: AgentStatus) {
        self.reporter.note_cost(cost);
    }

    /// The accounts of the host.
    pub fn accounts(&self) -> &Accounts {
        &self.options.accounts
    }

    /// The kernel, for a simulation that moves its time.
    pub fn kernel_mut(&mut self) -> &mut K {
        &mut self.host.kernel
    }

    pub(crate) fn set_notice(&mut self, notice: Option<Finding>) {
        self.reporter.set_notice(notice);
    }

    /// Sends watchdog notifications through `notifier` during long restorations.
    pub fn supervised_by(&mut self, notifier: Arc<Notifier>) {
        self.host.notifier = notifier;
    }

    /// Mounts and roots of the cgroup trees.
    pub fn layout(&self) -> &Layout {
        &self.host.layout
    }

    /// The nodes of the policy, in pre-order.
    pub fn nodes(&self) -> &[TreeNode] {
        self.control.tree().nodes()
    }

    /// The machine's CPUs; `None` if they could not be read.
    pub fn topology(&self) -> Option<&Topology> {
        self.control.topology()
    }

    /// `Enforce` if values are written.
    pub fn mode(&self) -> Mode {
        if self.control.settings().is_enforcing { Mode::Enforce } else { Mode::Observe }
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.base.written
    }

    /// The policy in force, shared.
    pub fn shared_policy(&self) -> Arc<Policy> {
        Arc::clone(&self.base.written)
    }

    /// Restores all values and returns the kernel.
    ///
    /// With `on_exit: keep` the values stay, and the journal stays with a note of it. The command that runs
    /// after every stop of a service then leaves them ([`leftover::restore_unless_kept`]); an explicit
    /// `--restore` still works. Fails if the journal could not be removed. Values that could not be restored
    /// are in [`Restored::failures`], and stay in the journal.
    pub fn stop(mut self) -> Result<(Restored, K), JournalError> {
        self.lift_bounds();
        // Also with `on_exit: keep`: a frozen job would stay frozen.
        self.thaw_all_jobs();
        self.clear_ended_jobs();
        self.backends.close_all(&mut self.host.kernel);
        self.keeper.end();
        if self.mode() == Mode::Enforce && self.base.written.control.on_exit == OnExit::Keep {
            match self.host.journal.record(Entry::Kept) {
                Ok(()) => {
                    info!("stopped; the written values stay in force (control.on_exit: keep)")
                }
                Err(error) => {
                    warn!(
                        "{}: the next start may restore the values, as after a kill",
                        with_causes(&error)
                    );
                }
            }
            return Ok((Restored::default(), self.host.kernel));
        }
        let units = self.backends.take_manager();
        let HostAccess { kernel, machine, journal, notifier, .. } = &mut self.host;
        let deadline = Deadline::unlimited(notifier);
        self.keeper.attachments.gather(kernel, machine.proc(), journal.entries());
        let owed = (journal.entries(), self.keeper.has_stale_units);
        let restored = leftover::put_back(kernel, machine, units, owed, deadline);
        leftover::report(&restored, &mut self.keeper);
        self.backends.close_root(&mut self.host.kernel);
        leftover::end(self.host.journal, &restored)?;
        Ok((restored, self.host.kernel))
    }

    /// Removes all memory bounds, even if the other values stay: without an agent they would never be lifted.
    fn lift_bounds(&mut self) {
        let Agent { host, backends, control, .. } = self;
        let of = |(node, state): (Node<'_>, &NodeState)| {
            let node = node.id();
            let to = Value::Amount(MEMORY, state.squeeze.as_ref()?.held?);
            let (knob, reason) = (Knob::MemoryHigh, "the agent stops".to_string());
            Some(Action { node, knob, from: None, to, reason })
        };
        let actions: Vec<Action> =
            control.tree().all().zip(control.states()).filter_map(of).collect();
        let (tree, tick, nr_all) = (control.tree(), control.tick(), actions.len());
        if nr_all > 0 {
            // A refused value is in the journal, and is restored from there.
            backends.apply(host, tree, tick, actions, nr_all);
        }
    }
}

fn job_store<K: KernFs>(state_dir: Option<&Path>, host: &mut HostAccess<K>) -> Store {
    match (state_dir, host.machine.boot_id(&mut host.kernel)) {
        (Some(state_dir), Ok(boot_id)) => Store::new(state_dir, &boot_id),
        _ => Store::default(),
    }
}

fn take_root<K: KernFs>(
    host: &mut HostAccess<K>,
    backends: &mut Backends,
    nodes: &[TreeNode],
    keeper: &mut Keeper,
) -> Result<(), StartError> {
    let (root, waiting) = root::take(host, nodes, keeper.displaced())?;
    backends.hold_root(root);
    keeper.replace_displaced(waiting);
    Ok(())
}

/// State of the multi-generational LRU; empty if the kernel has none.
fn generations(kernel: &mut impl KernFs) -> Vec<u8> {
    let Ok(dir) = kernel.open_dir(Path::new("/sys/kernel/mm/lru_gen")) else { return Vec::new() };
    let text = kernel.read_once(dir, "enabled").map(<[u8]>::to_vec);
    kernel.close_dir(dir);
    text.unwrap_or_else(|error| {
        warn!("{error}: file cache counts as in use where the kernel says that it is active");
        Vec::new()
    })
}

fn layout(
    kernel: &mut impl KernFs,
    proc: DirId,
    policy: &Policy,
    options: &Options,
) -> Result<Layout, StartError> {
    let mountinfo = kernel.read_once(proc, "self/mountinfo")?.to_vec();
    let own = kernel.read_once(proc, "self/cgroup")?.to_vec();
    let root = match &options.root {
        Some(path) => RootChoice::Path(path.clone()),
        None => policy.host.root.clone(),
    };
    let layout = Layout::detect(&mountinfo, &own, policy.host.hierarchy, &root)?;
    let layout = layout.with_generations(&generations(kernel));
    // Tenants need not be in a legacy tree in which nothing is limited.
    match policy.limits_pids() {
        true => Ok(layout),
        false => Ok(layout.without(Facet::Pids)),
    }
}
