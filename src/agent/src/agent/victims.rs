//! Marks of the work that ends first when memory runs out: `memory: { victims: share }`.
//!
//! [`tenantd_control::memory::victims`] has the rule. Here are the units of this host, and the marks of their
//! processes. In mode observe nothing is marked, and the status has the unit that would be first.
//!
//! **Swap** counts as held: the OOM killer counts it, and frees it. Otherwise a tenant above its share would be within it as soon as
//! reclaim has swapped the rest, and jobs of other tenants would end first. It is read only where the host has swap.
//!
//! **Work per tick.** A unit is listed, and its processes are looked at in that order, [`CHECKED_MAX`] in a tick, and
//! [`CHECKED_SETTLED`] once a whole list had nothing to change. Children inherit the mark of their parent, so a
//! tenant that forks does not outrun it. At most [`SCORED_MAX`] processes with a value of their own are marked,
//! because each takes a line of the journal. Processes below 0 are left alone: an administrator protects them.
//!
//! **Properties** (`tests/agent/victims.rs`): the rule picks the victim, also among tenants that fork; after a stop, a
//! kill, a reload and a change of mode no process has a mark.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use tracing::warn;

use crate::backend::access::HostAccess;
use crate::jobs::room::JobRoom;
use crate::recovery::processes::nested_up_to;
use crate::recovery::restored::Restored;
use crate::recovery::scores::{self, OldScores, old_scores, score, set, unmark};
use crate::tenants::state::Tenants;
use tenantd_admission::{JobId, Phase};
use tenantd_control::memory::victims::{Holding, SCORES, Unit, order};
use tenantd_control::report::status::VictimStatus;
use tenantd_control::tree::Node;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_core::kernel_text::proc_files::process_numbers;
use tenantd_core::node::NodeId;
use tenantd_core::resource::MEMORY;
use tenantd_host::cgroup::{Facet, parse};
use tenantd_host::enforce::with_causes;
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::{KernError, KernFs};
use tenantd_host::process;
use tenantd_policy::model::{Mode, Victims as Rule};

const CHECKED_MAX: usize = 512;
const CHECKED_SETTLED: usize = 64;
const SCORED_MAX: usize = 4096;
/// Cgroups inside that of a tenant that are searched for its processes.
const INSIDE_MAX: usize = 1000;
/// Length of a list of processes that is read: about 16,000 of them.
const LIST_BYTES: usize = 128 << 10;

/// A unit of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Job(JobId),
    /// The work of a tenant besides its jobs.
    Work(NodeId),
}

/// A unit whose processes have a mark, or may still have one.
#[derive(Debug)]
struct Marked {
    who: Who,
    /// `None` while the marks are removed.
    score: Option<i16>,
    /// Its processes when it was listed last.
    listed: Vec<u32>,
    /// Those of them that were not looked at.
    left: Vec<u32>,
    /// Changes since then.
    nr_changed: usize,
    /// True if nothing had to be changed in a whole list.
    is_settled: bool,
}

/// Marks of the agent.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    marked: Vec<Marked>,
    failure: Option<Finding>,
}

impl Victims {
    /// Chooses the units that end first, and marks some of their processes. Returns the first one.
    pub(super) fn tend<K: KernFs>(
        &mut self,
        tenants: &mut Tenants<K>,
        jobs: &JobRoom,
        divided_bytes: f64,
    ) -> Option<VictimStatus> {
        let is_wanted = tenants.base.written.memory.victims == Rule::Share;
        if !is_wanted && self.marked.is_empty() {
            return None;
        }
        if tenants.mode() == Mode::Observe {
            // Their marks were removed with everything else.
            self.marked.clear();
            self.failure = None;
        }
        let units = if is_wanted { self.units(tenants, jobs) } else { Vec::new() };
        let values: Vec<Unit> = units.iter().map(|(_, unit)| *unit).collect();
        let chosen = order(&values, divided_bytes);
        if tenants.mode() == Mode::Enforce {
            let first = chosen.iter().map(|at| units[*at].0);
            self.mark(tenants, jobs, first.zip(SCORES).collect());
        }
        let (who, unit) = units.get(*chosen.first()?)?;
        Some(status(tenants, jobs, *who, unit))
    }

    /// Removes all marks; what cannot be removed stays in the journal.
    pub(super) fn end<K: KernFs>(&mut self, host: &mut HostAccess<K>) {
        self.marked.clear();
        let (proc, mut restored) = (host.proc(), Restored::default());
        scores::put_back(&mut host.kernel, proc, host.journal.entries(), &mut restored);
        if restored.failures.is_empty()
            && let Err(error) = retract(host)
        {
            warn!("{error}: the next start looks for marks of processes once more");
        }
    }

    /// A value that could not be written in the last tick.
    pub(super) fn finding(&self) -> Option<&Finding> {
        self.failure.as_ref()
    }

    fn units<K: KernFs>(&self, tenants: &mut Tenants<K>, jobs: &JobRoom) -> Vec<(Who, Unit)> {
        let has_swap = has_swap(&mut tenants.host);
        let swapped = if has_swap { swapped(tenants) } else { HashMap::new() };
        let tree = tenants.control.tree();
        let is_marked =
            |who: Who| self.marked.iter().any(|marked| marked.who == who && marked.score.is_some());
        let (mut units, mut places) = (Vec::new(), HashMap::new());
        for node in tree.policy_nodes().filter(|node| tenants.nodes()[node.at()].is_leaf) {
            let state = &tenants.control.states()[node.at()];
            let held = state.usage.as_ref().and_then(|usage| usage.unreclaimable_bytes);
            let Some(held_bytes) = held else { continue };
            let Some(swapped) = swapped.get(&node.id()).copied().unwrap_or(Some(0.0)) else {
                continue;
            };
            let held_bytes = held_bytes + swapped;
            let target = &state.target;
            let tenant = Holding {
                held_bytes,
                share_bytes: target.burst[MEMORY],
                guarantee_bytes: target.guarantee[MEMORY].unwrap_or(0.0),
            };
            let who = Who::Work(node.id());
            places.insert(node.id(), units.len());
            units
                .push((who, Unit { tenant, held_bytes, started: None, is_marked: is_marked(who) }));
        }
        for (job, home) in jobs.homes().filter(|(_, home)| home.cgroup.is_there()) {
            let Some(view) = jobs.admission.job(job) else { continue };
            let (Phase::Running { since, .. } | Phase::Lingering { since }) = view.phase else {
                continue;
            };
            let held = jobs.records.get(&job).and_then(|record| record.seen.held_bytes);
            let (Some(held), Some(node)) = (held, tenants.id_of(&view.request.tenant)) else {
                continue;
            };
            let Some(at) = places.get(&node).copied() else { continue };
            let swapped =
                if has_swap { swapped_below(&mut tenants.host, &home.path) } else { Some(0.0) };
            let Some(swapped) = swapped else { continue };
            let held_bytes = held as f64 + swapped;
            units[at].1.held_bytes = (units[at].1.held_bytes - held_bytes).max(0.0);
            let (who, tenant) = (Who::Job(job), units[at].1.tenant);
            let started = Some(since);
            units.push((who, Unit { tenant, held_bytes, started, is_marked: is_marked(who) }));
        }
        units
    }

    fn mark<K: KernFs>(
        &mut self,
        tenants: &mut Tenants<K>,
        jobs: &JobRoom,
        wanted: Vec<(Who, i16)>,
    ) {
        self.failure = None;
        for marked in &mut self.marked {
            let score = wanted.iter().find(|(who, _)| *who == marked.who).map(|(_, score)| *score);
            if marked.score != score {
                (marked.score, marked.is_settled) = (score, false);
                marked.left.clear();
            }
        }
        for (who, score) in wanted {
            if !self.marked.iter().any(|marked| marked.who == who) {
                self.marked.push(Marked::new(who, score));
            }
        }
        if self.marked.is_empty() {
            return;
        }
        let mut outcome =
            tenants.host.journal.record(Entry::Marking).map_err(|it| with_causes(&it));
        if outcome.is_ok() {
            let mut budget = CHECKED_MAX;
            let old = old_scores(tenants.host.journal.entries());
            let mut is_done = vec![false; self.marked.len()];
            for (marked, is_done) in self.marked.iter_mut().zip(&mut is_done) {
                let checked = marked.check(tenants, jobs, &old, &mut budget);
                *is_done = matches!(checked, Ok(true));
                outcome = outcome.and(checked.map(|_| ()));
            }
            let mut is_done = is_done.into_iter();
            self.marked.retain(|_| !is_done.next().unwrap_or(false));
        }
        if self.marked.is_empty() {
            outcome = outcome.and(retract(&mut tenants.host));
        }
        self.failure = outcome.err().map(|error| {
            let what = format!(
                "which work ends first when memory runs out is left to the kernel: {error}; tenantd needs root and \
                 CAP_SYS_RESOURCE for `memory: {{ victims: share }}`"
            );
            Finding::of_host(Code::Ineffective, what)
        });
    }
}

/// Drops the entries of the journal about marks.
fn retract<K>(host: &mut HostAccess<K>) -> Result<(), String> {
    let is_of_marks = |it: &Entry| matches!(it, Entry::Marking | Entry::Scored { .. });
    if !host.journal.entries().iter().any(is_of_marks) {
        return Ok(());
    }
    host.journal.retain(|entry| !is_of_marks(entry)).map_err(|error| with_causes(&error))
}

impl Marked {
    fn new(who: Who, score: i16) -> Marked {
        let (listed, left) = (Vec::new(), Vec::new());
        Marked { who, score: Some(score), listed, left, nr_changed: 0, is_settled: false }
    }

    /// Lists the unit. Processes that have left it alive lose their marks.
    fn list<K: KernFs>(&mut self, tenants: &mut Tenants<K>, jobs: &JobRoom, old: &OldScores) {
        let listed = processes(tenants, jobs, self.who);
        // The processes of a tenant that was removed are elsewhere.
        if listed.is_empty() && self.score.is_none() {
            self.left.clone_from(&self.listed);
        } else {
            let is_in: HashSet<u32> = listed.iter().copied().collect();
            let left = self.listed.iter().filter(|pid| !is_in.contains(pid));
            let (proc, kernel) = (tenants.host.proc(), &mut tenants.host.kernel);
            for pid in left.take(CHECKED_MAX) {
                // One that the kernel refuses is tried again at the stop.
                let _ = unmark(kernel, proc, *pid, old);
            }
            self.left.clone_from(&listed);
            self.listed = listed;
        }
        self.nr_changed = 0;
    }

    /// Looks at some processes of the unit. Returns true if no mark is wanted, and none is left.
    fn check<K: KernFs>(
        &mut self,
        tenants: &mut Tenants<K>,
        jobs: &JobRoom,
        old: &OldScores,
        budget: &mut usize,
    ) -> Result<bool, String> {
        if self.left.is_empty() {
            self.list(tenants, jobs, old);
        }
        let most = if self.is_settled { CHECKED_SETTLED } else { CHECKED_MAX };
        let nr_checked = most.min(*budget).min(self.left.len());
        *budget -= nr_checked;
        for pid in self.left.drain(..nr_checked).collect::<Vec<_>>() {
            let changed = match self.score {
                Some(score) => mark(&mut tenants.host, pid, score, old.len()),
                None => {
                    let proc = tenants.host.proc();
                    unmark(&mut tenants.host.kernel, proc, pid, old).map_err(|it| it.to_string())
                }
            };
            self.nr_changed += usize::from(changed?);
        }
        if self.left.is_empty() {
            self.is_settled = self.nr_changed == 0;
        }
        Ok(self.score.is_none() && self.is_settled)
    }
}

/// Marks a process; returns true if it had no mark, or another one. `nr_scored` processes with a value of their own had
/// marks before this tick.
fn mark<K: KernFs>(
    host: &mut HostAccess<K>,
    pid: u32,
    wanted: i16,
    nr_scored: usize,
) -> Result<bool, String> {
    let proc = host.proc();
    let old = match score(&mut host.kernel, proc, pid) {
        Some(old) if old != wanted && old >= 0 => old,
        _ => return Ok(false),
    };
    if old != 0 && !SCORES.contains(&old) {
        let started = process::start_ticks(&mut host.kernel, proc, pid);
        let Some(start_ticks) = started.map_err(|error| error.to_string())? else {
            return Ok(false);
        };
        if nr_scored >= SCORED_MAX {
            return Ok(false);
        }
        let entry = Entry::Scored { pid, start_ticks, score: old };
        host.journal.record(entry).map_err(|error| with_causes(&error))?;
    }
    set(&mut host.kernel, proc, pid, wanted).map_err(|error| error.to_string())?;
    Ok(true)
}

fn processes<K: KernFs>(tenants: &mut Tenants<K>, jobs: &JobRoom, who: Who) -> Vec<u32> {
    let id = match who {
        Who::Job(job) => {
            let home = jobs.records.get(&job).and_then(|record| record.home.as_ref());
            let host = &mut tenants.host;
            let listed = home.map(|home| home.cgroup.processes(&mut host.kernel, &host.layout));
            return listed.unwrap_or_default();
        }
        Who::Work(id) => id,
    };
    let Tenants { host, backends, control, .. } = tenants;
    let facet = [Facet::Memory, Facet::Cpu].into_iter().find(|it| host.layout.tree(*it).is_some());
    let Some(facet) = facet else { return Vec::new() };
    let is_of =
        |node: &Node<'_>| node.has_work() && node.tenant().is_some_and(|tenant| tenant.id() == id);
    let nodes = control.tree().tenants_and_members().filter(is_of);
    let dirs: Vec<PathBuf> = nodes.filter_map(|node| backends.dir_of(host, node, facet)).collect();
    let tree = &host.layout.trees[host.layout.tree(facet).unwrap_or(0)];
    let of_jobs: Vec<PathBuf> = jobs.homes().map(|(_, home)| tree.dir_of(&home.path)).collect();
    let is_of_job = |dir: &PathBuf| of_jobs.iter().any(|job| dir.starts_with(job));
    let mut pids = Vec::new();
    for dir in dirs {
        let inside = nested_up_to(&mut host.kernel, &dir, INSIDE_MAX).ok().flatten();
        let all = std::iter::once(dir).chain(inside.unwrap_or_default());
        for dir in all.filter(|dir| !is_of_job(dir)) {
            // One that is gone or unreadable has no processes to be marked.
            pids.extend(listed(&mut host.kernel, &dir).unwrap_or_default());
        }
    }
    pids
}

/// True unless the host is known to have no swap.
fn has_swap<K: KernFs>(host: &mut HostAccess<K>) -> bool {
    let proc = host.proc();
    // Its first line is a heading.
    let has_line = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count() > 1;
    host.kernel.read_once(proc, "swaps").map_or(true, has_line)
}

/// Swapped memory of each tenant, in bytes; `None` for one with a cgroup that could not be read.
fn swapped<K: KernFs>(tenants: &mut Tenants<K>) -> HashMap<NodeId, Option<f64>> {
    let Tenants { host, backends, control, .. } = tenants;
    let (mut swapped, mut dir) = (HashMap::new(), PathBuf::new());
    for node in control.tree().tenants_and_members().filter(|node| node.has_work()) {
        let Some(tenant) = node.tenant() else { continue };
        if backends.dir_into(host, node, Facet::Memory, &mut dir) {
            let sum = swapped.entry(tenant.id()).or_insert(Some(0.0));
            *sum = sum.zip(swapped_at(host, &dir)).map(|(sum, bytes)| sum + bytes);
        }
    }
    swapped
}

/// Swapped memory of the cgroup at this path below the mount, in bytes; `None` if it could not be read.
fn swapped_below<K: KernFs>(host: &mut HostAccess<K>, path: &str) -> Option<f64> {
    let index = host.layout.tree(Facet::Memory)?;
    let dir = host.layout.trees[index].dir_of(path);
    swapped_at(host, &dir)
}

/// The same for a directory; 0 for one that is gone, or whose kernel does not count swap.
fn swapped_at<K: KernFs>(host: &mut HostAccess<K>, dir: &Path) -> Option<f64> {
    let is_unified = host.layout.is_unified();
    let unless_gone = |error: KernError| error.is_gone().then_some(0.0);
    let dir = match host.kernel.open_dir(dir) {
        Ok(dir) => dir,
        Err(error) => return unless_gone(error),
    };
    let file = if is_unified { "memory.swap.current" } else { "memory.stat" };
    let bytes = match host.kernel.read_once(dir, file) {
        Ok(text) if is_unified => parse::single(text, "a number").ok().map(|it: u64| it as f64),
        Ok(text) => {
            let swapped = parse::keyed(text, ["total_swap"]).ok();
            swapped.map(|[bytes]| bytes.unwrap_or(0) as f64)
        }
        Err(error) => unless_gone(error),
    };
    host.kernel.close_dir(dir);
    bytes
}

/// The first processes of a cgroup.
fn listed(kernel: &mut impl KernFs, dir: &Path) -> Result<Vec<u32>, KernError> {
    let dir = kernel.open_dir(dir)?;
    let text = kernel.read_start(dir, "cgroup.procs", LIST_BYTES);
    // A last line that is cut off is another process.
    let whole = text.map(|text| match text.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => process_numbers(&text[..end]).filter(|pid| *pid > 0).collect(),
        None => Vec::new(),
    });
    kernel.close_dir(dir);
    whole
}

fn status<K: KernFs>(tenants: &Tenants<K>, jobs: &JobRoom, who: Who, unit: &Unit) -> VictimStatus {
    let (tenant, job) = match who {
        Who::Work(node) => (tenants.name_of(node), None),
        Who::Job(job) => {
            let view = jobs.admission.job(job);
            (view.map(|view| view.request.tenant.clone()).unwrap_or_default(), Some(job.0))
        }
    };
    VictimStatus {
        tenant,
        job,
        held_bytes: unit.held_bytes as u64,
        tenant_held_bytes: unit.tenant.held_bytes as u64,
        tenant_share_bytes: unit.tenant.share_bytes as u64,
    }
}
