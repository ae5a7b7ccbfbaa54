//! Start and stop of an agent.

use std::path::Path;
use std::sync::Arc;

use tracing::{info, warn};

use super::deaths::Deaths;
use super::names::Names;
use super::state::Agent;
use crate::backend::access::HostAccess;
use crate::backend::ancestry;
use crate::backend::backends::Backends;
use crate::backend::claims;
use crate::backend::members;
use crate::jobs::room::JobRoom;
use crate::jobs::store::Store;
use crate::recovery::credit_store::CreditStore;
use crate::recovery::deadline::Deadline;
use crate::recovery::leftover;
use crate::recovery::restored::Restored;
use crate::report::reporter::Reporter;
use crate::start_error::StartError;
use crate::tenants::base::{Base, Layer};
use crate::tenants::recorded::Recorded;
use crate::tenants::state::{Options, Tenants};
use tenantd_control::state::NodeState;
use tenantd_control::state::step::Settings;
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tree::Node;
use tenantd_control::words::knob::{Action, Knob, Value};
use tenantd_core::resource::MEMORY;
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_host::claiming::ClaimRule;
use tenantd_host::enforce::with_causes;
use tenantd_host::journal::{Entry, JournalError};
use tenantd_host::kernfs::{DirId, KernFs};
use tenantd_host::machine::Machine;
use tenantd_host::notify::Notifier;
use tenantd_policy::expand::{Found, tenant_of_pod};
use tenantd_policy::model::{Mode, OnExit, Policy, RootChoice};

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
        let (limits_pids, inside) = (policy.limits_pids(), policy.limits_disks_inside());
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
        let (journal, keeper) =
            leftover::take_up(&mut kernel, &machine, state_dir, is_enforcing, deadline)?;
        let settings = Settings::of(&base.written, pins, is_enforcing);
        let leaves_drift = settings.leaves_drift();
        let host = HostAccess {
            kernel,
            layout,
            machine,
            journal,
            pins,
            governs_above,
            limits_pids,
            limits_disks_inside: inside,
            leaves_drift,
            notifier: Arc::new(notifier),
        };
        let nodes = tree.shared_nodes();
        let mut keeper = keeper.with_credits(credit_store(options, &base.written));
        keeper.attachments.choose(|pod| tenant_of_pod(&base.written, pod));
        let mut tenants = Tenants {
            backends: Backends::new(&host.kernel, &tree, &locations, claim_rules),
            reporter: Reporter::new(&host),
            control: Recorded::new(ControlLoop::new(settings, tree)),
            options: options.clone(),
            host,
            base,
            keeper,
        };
        if is_enforcing {
            if let Err(error) = tenants.take_root_for(&nodes, &locations, pins) {
                let Tenants { mut host, mut keeper, .. } = tenants;
                leftover::give_back(&mut host.kernel, &host.machine, host.journal, &mut keeper);
                return Err(error);
            }
            tenants.keeper.begin(state_dir, pins);
        }
        tenants.find_obstacles();
        let jobs = JobRoom::new(job_store(state_dir, &mut tenants.host));
        let wants = tenants.wants(&tenants.base.written);
        tenants.want(wants);
        info!(action = "start", "{}", first_words(&tenants));
        tenants.take_up_attached();
        let ((victims, disks), deaths) = (Default::default(), Deaths::new(&tenants.host.kernel));
        Ok(Agent { names: Names::of(&tenants.base.written), tenants, jobs, victims, deaths, disks })
    }

    /// Restores all values and returns the kernel.
    ///
    /// With `on_exit: keep` the values stay, and the journal stays with a note of it. The command that runs
    /// after every stop of a service then leaves them ([`leftover::restore_unless_kept`]); an explicit
    /// `--restore` still works. Fails if the journal could not be removed. Values that could not be restored
    /// are in [`Restored::failures`], and stay in the journal.
    pub fn stop(mut self) -> Result<(Restored, K), JournalError> {
        lift_bounds(&mut self.tenants);
        // Also with `on_exit: keep`: a frozen job would stay frozen.
        self.jobs.thaw_all(&mut self.tenants.host);
        self.jobs.clear_ended(&mut self.tenants.host);
        // Also with `on_exit: keep`: no agent would move the marks with the memory.
        self.victims.end(&mut self.tenants.host);
        let is_enforcing = self.mode() == Mode::Enforce;
        let Tenants { mut host, base, mut backends, mut keeper, control, .. } = self.tenants;
        backends.close_all(&mut host.kernel);
        if let Some(finding) = keeper.keep_credits(None, control.tree().nodes(), control.states()) {
            warn!("{finding}");
        }
        keeper.end();
        if is_enforcing && base.written.control.on_exit == OnExit::Keep {
            match host.journal.record(Entry::Kept) {
                Ok(()) => {
                    info!("stopped; the written values stay in force (control.on_exit: keep)");
                }
                Err(error) => {
                    warn!(
                        "{}: the next start may restore the values, as after a kill",
                        with_causes(&error)
                    );
                }
            }
            return Ok((Restored::default(), host.kernel));
        }
        let units = backends.take_manager();
        let HostAccess { kernel, machine, journal, notifier, .. } = &mut host;
        let deadline = Deadline::unlimited(notifier);
        keeper.attachments.gather(kernel, machine.proc(), journal.entries());
        let owed = (journal.entries(), keeper.has_stale_units);
        let restored = leftover::put_back(kernel, machine, units, owed, deadline);
        leftover::report(&restored, &mut keeper);
        backends.close_root(&mut host.kernel);
        leftover::end(host.journal, &restored)?;
        Ok((restored, host.kernel))
    }
}

fn first_words<K>(tenants: &Tenants<K>) -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let layout = &tenants.host.layout;
    format!(
        "started on {}: {}, {} tenants below {}, owner {}, mode {}",
        host.to_string_lossy(),
        layout.describe(),
        tenants.nodes().iter().filter(|node| node.is_leaf).count(),
        layout.trees[layout.tree(Facet::Cpu).unwrap_or(0)].root.display(),
        tenants.backends.owners(),
        tenants.mode().word(),
    )
}

/// Removes all memory bounds, even if the other values stay: without an agent they would never be lifted.
fn lift_bounds<K: KernFs>(tenants: &mut Tenants<K>) {
    let Tenants { host, backends, control, .. } = tenants;
    let of = |(node, state): (Node<'_>, &NodeState)| {
        let node = node.id();
        let to = Value::Amount(MEMORY, state.squeeze.as_ref()?.held?);
        let (knob, reason) = (Knob::MemoryHigh, "the agent stops".to_string());
        Some(Action { node, knob, from: None, to, reason })
    };
    let actions: Vec<Action> = control.tree().all().zip(control.states()).filter_map(of).collect();
    let (tree, tick, nr_all) = (control.tree(), control.tick(), actions.len());
    if nr_all > 0 {
        // A refused value is in the journal, and is restored from there.
        backends.apply(host, tree, tick, actions, nr_all);
    }
}

fn credit_store(options: &Options, policy: &Policy) -> CreditStore {
    let half_life = policy.control.credits.unwrap_or_default().half_life;
    CreditStore::open(options.state_dir.as_deref(), options.credits_of.as_deref(), half_life)
}

fn job_store<K: KernFs>(state_dir: Option<&Path>, host: &mut HostAccess<K>) -> Store {
    match (state_dir, host.machine.boot_id(&mut host.kernel)) {
        (Some(state_dir), Ok(boot_id)) => Store::new(state_dir, &boot_id),
        _ => Store::default(),
    }
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
    Ok(if policy.limits_pids() { layout } else { layout.without(Facet::Pids) })
}
