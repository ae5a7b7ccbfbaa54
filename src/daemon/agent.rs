//! An agent on one host: start, tick, stop.
//!
//! An [`Agent`] owns a kernel (real or simulated), a policy and a journal. It never asks what time it is:
//! [`Agent::tick`] is told. What a tick does stands in [`super::tick`], what one agent leaves to the next in
//! [`super::handover`]; here is how an agent comes to be, and how it goes.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use tracing::{info, warn};

use super::above::Above;
use super::effect;
use super::enforce::{EnforceError, Enforcer, with_causes};
use super::findings::FindingLog;
use super::handover::{end, give_back, put_back, report, take_up, told_in};
use super::patience::Patience;
use super::pinning::Ground;
use super::placement_store::PlacementStore;
use super::posts::Units;
use super::publish::Publisher;
use super::record;
use super::residents::ResidentStore;
use super::restore::Restored;
use super::root;
use super::seats::{self, Seat};
use crate::control::demand::{Context, Demand};
use crate::control::fairness::Spell;
use crate::control::place;
use crate::control::plan::{Knob, Value};
use crate::control::sample::{HostSample, TenantSample};
use crate::control::status::Status;
use crate::control::target::Target;
use crate::control::trace::{Spelling, Trace};
use crate::control::tree::{self, TreeNode};
use crate::control::usage::Tally;
use crate::control::width::Breadth;
use crate::dop::Topology;
use crate::host::cgroup::{Cgroup, Dialect, Facet, Layout, LayoutError, ReadError};
use crate::host::journal::{Entry, Journal, JournalError};
use crate::host::kernfs::{DirId, ErrorKind, KernError, KernFs};
use crate::host::machine::Machine;
use crate::host::notify::Notifier;
use crate::host::process::ClaimRule;
use crate::policy::model::{Mode, OnExit, Policy, RootChoice};

/// What a person or a unit file says beside the policy.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Write nothing, whatever the policy says.
    pub observe: bool,
    /// The root, instead of the policy's.
    pub root: Option<PathBuf>,
    /// Where the journal is kept; `None` keeps it in memory, for a kernel that ends with the program.
    pub state_dir: Option<PathBuf>,
}

/// Why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A kernel file.
    #[error(transparent)]
    Kernel(#[from] KernError),
    /// A kernel file that could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No hierarchy.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The root could not be made.
    #[error(transparent)]
    Enforce(#[from] EnforceError),
    /// Another agent works below the same root.
    #[error("{} is managed by another tenantd: stop it first, or name another root with --root", .0.display())]
    RootTaken(PathBuf),
    /// Nothing may be written.
    #[error(
        "not permitted to manage {}: {} ({errno:?}); run as root, in a delegated cgroup, or with --observe",
        path.display(), errno.desc()
    )]
    NotPermitted {
        /// Where it was tried.
        path: PathBuf,
        /// What the kernel answered.
        errno: Errno,
    },
    /// Nothing could be enforced.
    #[error(
        "neither the cpu nor the memory controller is available in {}: enable them for it \
         (on a systemd host: Delegate=yes), or run with --observe", .0.display()
    )]
    NoControllers(PathBuf),
}

impl StartError {
    /// Whether it was a matter of permission.
    pub fn is_denied(&self) -> bool {
        match self {
            StartError::NotPermitted { .. } => true,
            StartError::Kernel(error) | StartError::Read(ReadError::Kernel(error)) => {
                error.kind() == ErrorKind::Denied
            }
            StartError::Journal(JournalError::Io { source, .. }) => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            _ => false,
        }
    }
}

/// One node of the tree of tenants, as the agent holds it between ticks.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) cgroup: Option<Cgroup>,
    /// The sample before the newest, without threads.
    pub(super) before: Option<Box<TenantSample>>,
    pub(super) sample: Option<TenantSample>,
    pub(super) usage: Option<crate::control::usage::Usage>,
    pub(super) demand: Option<Demand>,
    /// What the demand was estimated from, where it was in this tick.
    pub(super) context: Option<Context>,
    pub(super) target: Target,
    pub(super) observed: Vec<(Knob, Value)>,
    pub(super) retries: Vec<Retry>,
    pub(super) breadth: Breadth,
    /// Whether its cpuset was seen to have CPUs and memory nodes, on a legacy host.
    pub(super) has_cpus: bool,
    /// What of the CPUs that are divided it was entitled to, wanted and did not get; `None` without rates.
    pub(super) share_error: Option<f64>,
    /// For how long it was starved, since the agent started.
    pub(super) starved: Duration,
    /// Processes of it that were killed for want of memory, since the agent started.
    pub(super) oom_kills: Tally,
    /// Knobs that someone else has set, and the policy leaves to them.
    pub(super) theirs: Vec<Knob>,
}

/// A write that failed, and when it is tried again.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    pub(super) knob: Knob,
    pub(super) nr_failures: u32,
    pub(super) at_tick: u64,
    /// Whether it was not tried, because it would have done harm.
    pub(super) deferred: bool,
    /// What went wrong, said until it succeeds.
    pub(super) message: Option<String>,
}

/// The agent of one host.
#[derive(Debug)]
pub struct Agent<K> {
    pub(super) kernel: K,
    pub(super) policy: Arc<Policy>,
    pub(super) enforcing: bool,
    pub(super) layout: Layout,
    pub(super) machine: Machine,
    pub(super) nodes: Arc<[TreeNode]>,
    pub(super) slots: Vec<Slot>,
    pub(super) claim_rules: Vec<ClaimRule>,
    pub(super) journal: Journal,
    pub(super) last: Option<(Duration, HostSample)>,
    pub(super) status: Arc<Status>,
    pub(super) standing: Vec<String>,
    /// What was found of the cgroups above the tenants when they were looked at last.
    pub(super) above: Above,
    /// Why CPU weights may be ignored.
    pub(super) foreign_scheduler: Option<String>,
    pub(super) topology: Option<Topology>,
    pub(super) ground: Option<Ground>,
    pub(super) pins: bool,
    pub(super) publisher: Option<Publisher>,
    pub(super) placements: Option<PlacementStore>,
    pub(super) residents: Option<ResidentStore>,
    pub(super) said: FindingLog,
    /// Something to be told with the findings of each tick.
    pub(super) notice: Option<String>,
    pub(super) spell: Spell,
    pub(super) trace: Arc<Trace>,
    pub(super) spelling: Spelling,
    pub(super) nr_reloads: u64,
    pub(super) options: Options,
    /// Whoever wants to hear that all is well while a change takes long.
    pub(super) notifier: Arc<Notifier>,
    pub(super) seats: Vec<Seat>,
    pub(super) units: Units,
    pub(super) root: Option<DirId>,
}

impl<K: KernFs> Agent<K> {
    /// Takes up a host: finds its hierarchy, puts back what a crashed agent left, takes the root.
    ///
    /// Nothing of the tenants is touched before the first tick.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing is left behind then.
    pub fn start(
        mut kernel: K,
        policy: Policy,
        claim_rules: Vec<ClaimRule>,
        options: &Options,
    ) -> Result<Agent<K>, StartError> {
        let enforcing = policy.mode == Mode::Enforce && !options.observe;
        let nodes: Arc<[TreeNode]> = tree::flatten(&policy).into();
        let pins = place::pins(&nodes);
        let machine = Machine::open(&mut kernel)?;
        let layout = layout(&mut kernel, machine.proc(), &policy, options)?;
        let seats = seats_on(&layout, &policy);
        // Where nothing is made by us there is no root to be taken, and none is needed.
        let needs_root = seats.contains(&Seat::Direct);
        let nobody = Notifier::default();
        let patience = Patience::endless(&nobody);
        let (mut journal, residents) =
            take_up(&mut kernel, &machine, options, enforcing, patience)?;
        let root = match enforcing && needs_root {
            true => {
                let mut enforcer =
                    Enforcer { kernel: &mut kernel, journal: &mut journal, layout: &layout, pins };
                let homeless = residents.as_ref().map(ResidentStore::load).unwrap_or_default();
                match root::take(&mut enforcer, machine.proc(), &nodes, &homeless) {
                    Ok(root) => Some(root),
                    Err(error) => {
                        give_back(&mut kernel, &machine, journal, residents.as_ref());
                        return Err(error);
                    }
                }
            }
            false => None,
        };
        if let Some(residents) = residents.as_ref().filter(|_| enforcing) {
            residents.forget();
        }
        let state_dir = options.state_dir.as_deref().filter(|_| enforcing);
        let publisher = state_dir.map(|dir| Publisher::new(told_in(dir)));
        let placements = state_dir.filter(|_| pins).map(PlacementStore::new);
        let slots = nodes.iter().map(|_| Slot::default()).collect();
        let standing = effect::standing(&mut kernel, &machine, &layout, enforcing && needs_root);
        let foreign_scheduler = effect::foreign_scheduler(&mut kernel).filter(|_| enforcing);
        let spelling = record::spelling(&layout, HashMap::new());
        let units = Units::new(&kernel, &seats);
        let mode = if enforcing { Mode::Enforce } else { Mode::Observe };
        info!(action = "start", "{}", first_words(&layout, &nodes, &seats, mode));
        Ok(Agent {
            kernel,
            policy: Arc::new(policy),
            enforcing,
            layout,
            machine,
            nodes,
            slots,
            claim_rules,
            journal,
            last: None,
            status: Arc::default(),
            standing,
            above: Above::default(),
            foreign_scheduler,
            topology: None,
            ground: None,
            pins,
            publisher,
            placements,
            residents,
            said: FindingLog::default(),
            notice: None,
            spell: Spell::default(),
            trace: Arc::default(),
            spelling,
            nr_reloads: 0,
            options: options.clone(),
            notifier: Arc::default(),
            seats,
            units,
            root,
        })
    }

    /// The status of the last tick.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// The kernel, for whoever moves its time.
    pub fn kernel_mut(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// Has the agent tell `notifier` that all is well while it puts back what takes long.
    pub fn supervised_by(&mut self, notifier: Arc<Notifier>) {
        self.notifier = notifier;
    }

    /// Where the trees are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The nodes of the policy, in pre-order.
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }

    /// The machine's CPUs; `None` where they could not be read.
    pub fn topology(&self) -> Option<&Topology> {
        self.topology.as_ref()
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The policy in force, for whoever keeps it.
    pub fn shared_policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy)
    }

    /// Puts everything back and hands out the kernel.
    ///
    /// With `on_exit: keep` the values stay, and so does the journal, which says so: what runs after every stop
    /// of a service leaves them ([`super::handover::restore_unless_kept`]), and a `--restore` that somebody asks
    /// for still works.
    ///
    /// # Errors
    /// The journal could not be removed. What could not be put back is in [`Restored::failures`], and stays
    /// in the journal.
    pub fn stop(mut self) -> Result<(Restored, K), JournalError> {
        for slot in &mut self.slots {
            if let Some(cgroup) = slot.cgroup.take() {
                cgroup.close(&mut self.kernel);
            }
        }
        if let Some(Err(error)) = self.publisher.as_mut().map(Publisher::remove) {
            warn!("cannot remove what the tenants were told: {error}");
        }
        if self.enforcing && self.policy.control.on_exit == OnExit::Keep {
            match self.journal.record(Entry::Kept) {
                Ok(()) => info!("stopped; the written values stay in force, as the policy says"),
                Err(error) => {
                    warn!("{}: as after a kill, the values may be put back", with_causes(&error))
                }
            }
            return Ok((Restored::default(), self.kernel));
        }
        let units = self.units.take_manager();
        let patience = Patience::endless(&self.notifier);
        let entries = self.journal.entries();
        let restored = put_back(&mut self.kernel, &self.machine, units, entries, patience);
        report(&restored, self.residents.as_ref());
        if let Some(root) = self.root {
            self.kernel.close_dir(root);
        }
        end(self.journal, &restored)?;
        Ok((restored, self.kernel))
    }

    pub(super) fn enforcer(&mut self) -> Enforcer<'_, K> {
        Enforcer {
            kernel: &mut self.kernel,
            journal: &mut self.journal,
            layout: &self.layout,
            pins: self.pins,
        }
    }
}

/// Where everybody is. Systemd sets the files of one tree only, where it has one.
pub(super) fn seats_on(layout: &Layout, policy: &Policy) -> Vec<Seat> {
    let mut seats = seats::seats(policy);
    if layout.dialect == Dialect::Legacy {
        for seat in seats.iter_mut().filter(|seat| seat.unit().is_some()) {
            let why = "tenants that are units need the unified hierarchy: boot with \
                       systemd.unified_cgroup_hierarchy=1, or say `owner: direct`";
            *seat = Seat::Unknown(why.into());
        }
    }
    seats
}

/// Who begins where, and to do what.
fn first_words(layout: &Layout, nodes: &[TreeNode], seats: &[Seat], mode: Mode) -> String {
    let has_units = seats.iter().any(|seat| seat.unit().is_some());
    let owner = match (seats.contains(&Seat::Direct), has_units) {
        (true, true) => "direct and systemd",
        (false, true) => "systemd",
        (_, false) => "direct",
    };
    let host = nix::unistd::gethostname().unwrap_or_default();
    format!(
        "started on {}: {}, {} tenants below {}, owner {owner}, mode {}",
        host.to_string_lossy(),
        layout.describe(),
        nodes.iter().filter(|node| node.is_leaf).count(),
        layout.trees[layout.tree(Facet::Cpu).unwrap_or(0)].root.display(),
        mode.word(),
    )
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
    Ok(Layout::detect(&mountinfo, &own, policy.host.hierarchy, &root)?)
}
