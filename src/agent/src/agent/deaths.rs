//! Kills for lack of memory, with their victims and causes.
//!
//! **Problem.** The owner of a killed process should read the cause, and the cgroup with its counters is gone soon: systemd
//! removes that of a service within milliseconds, the agent that of a job.
//!
//! **Sources.**
//!
//! | source | shows |
//! |---|---|
//! | the kernel's log | each victim with its cgroup, and the limit that was reached; in every hierarchy |
//! | results of units (decision 37) | runs that ended by a kill; those without a kill in the log were ended by systemd-oomd |
//! | counters of cgroups | kills that the log does not have ([`tenantd_control::measure::death`]) |
//! | notices of systemd-oomd | the cgroup that it is about to end, with its memory ([`tenantd_varlink::prekill`]) |
//!
//! **Notices.** systemd-oomd may yet not kill. So a notice becomes a death when its cgroup is empty or gone, and is dropped after
//! [`RECENT_TICKS`]. At most [`NOTICED_MAX`] wait for that.
//!
//! **Order.** The kernel writes the log before it kills. So the log is read at the begin of a tick, while the nodes of removed
//! cgroups are still known; after the counters, so that they are never ahead; and before jobs are charged, because a job's
//! record is made then. No thread waits for the log: other messages would wake the daemon as often as they like.
//!
//! **Bounds.** At most [`KILLS_MAX`] kills per reading are attributed, and [`LINES_MAX`] per tick are logged; the others are counted.
//!
//! **Properties** (`tests/agent/deaths.rs`, `tests/kernel/deaths.rs`): each death is reported once, within two ticks, with the
//! limit or the host as its cause.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tracing::{debug, info, warn};

use crate::backend::access::HostAccess;
use crate::jobs::room::JobRoom;
use crate::tenants::state::Tenants;
use tenantd_admission::JobId;
use tenantd_control::measure::death::{Kill, Killer, LimitOf, Victim};
use tenantd_control::state::step::NodeInput;
use tenantd_control::tree::Node;
use tenantd_control::why::death::status;
use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::kernel_text::oom::{OomKill, OomLog};
use tenantd_core::node::NodeId;
use tenantd_core::resource::MEMORY;
use tenantd_core::units::Limit;
use tenantd_host::cgroup::{Facet, Tree, parse};
use tenantd_host::kernfs::{KernFs, KernelLog};
use tenantd_varlink::prekill::Notice;

const KILLS_MAX: usize = 64;
const LINES_MAX: usize = 20;
const NOTICED_MAX: usize = 64;
/// Systemd reports the result of a unit this many ticks after the kill at most.
const RECENT_TICKS: u64 = 30;
/// Longest text of a path that is kept, from its end.
const PATH_CHARS: usize = 200;

/// Kills that the next tick takes.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    log: Option<Box<dyn KernelLog>>,
    reader: OomLog,
    /// By tenant.
    found: BTreeMap<NodeId, Vec<Kill>>,
    /// Cgroups with kills in the log, and the tick of the last one.
    recent: HashMap<NodeId, u64>,
    /// True if kills are missing in what was read since the last tick.
    has_gaps: bool,
    /// Ends that systemd-oomd has announced.
    noticed: Vec<Noticed>,
    /// Number of the last logged death of each tenant.
    logged: HashMap<NodeId, u64>,
}

/// An end that systemd-oomd has announced.
#[derive(Debug)]
struct Noticed {
    kill: Kill,
    place: Place,
    cgroup: PathBuf,
    /// Tick of the notice.
    tick: u64,
}

/// Place of a kill: a tenant, and its cgroup or job that contains the victim.
#[derive(Debug)]
struct Place {
    tenant: NodeId,
    node: Option<NodeId>,
    job: Option<JobId>,
    dir: PathBuf,
}

impl Deaths {
    pub(super) fn new(kernel: &impl KernFs) -> Deaths {
        let log = kernel.kernel_log();
        match &log {
            // A simulation, or a container without the device.
            Err(error) if error.is_gone() => debug!("{error}"),
            Err(error) => {
                info!("{error}: kills for lack of memory are reported without their causes")
            }
            Ok(_) => {}
        }
        Deaths { log: log.ok(), ..Deaths::default() }
    }

    /// Takes a notice of systemd-oomd before a kill.
    pub(super) fn note<K: KernFs>(
        &mut self,
        tenants: &mut Tenants<K>,
        jobs: &JobRoom,
        notice: Notice,
    ) {
        let Notice { cgroup, held_bytes } = notice;
        let index = tenants.host.layout.tree(Facet::Memory);
        let tree = index.map(|index| &tenants.host.layout.trees[index]);
        let dir = tree.and_then(|tree| Some(tree.dir_of(&tree.from_mount(&cgroup)?)));
        let Some(dir) = dir.filter(|_| self.noticed.len() < NOTICED_MAX) else { return };
        let killed = OomKill { cgroup, nr_kills: 1, ..OomKill::default() };
        // Work of no tenant is reported by systemd-oomd alone.
        let Some((place, kill)) = attribute(tenants, jobs, killed) else { return };
        let kill = Kill { victim: None, held_bytes, killer: Killer::Oomd, ..kill };
        let tick = tenants.control.tick();
        self.noticed.push(Noticed { kill, place, cgroup: dir, tick });
    }

    /// Finds the announced ends that have come.
    fn confirm<K: KernFs>(&mut self, tenants: &mut Tenants<K>, jobs: &mut JobRoom) {
        let tick = tenants.control.tick();
        for noticed in std::mem::take(&mut self.noticed) {
            if !is_empty(&mut tenants.host, &noticed.cgroup) {
                if noticed.tick + RECENT_TICKS >= tick {
                    self.noticed.push(noticed);
                }
                continue;
            }
            self.add(noticed.place, noticed.kill, tick, jobs);
        }
    }

    /// Reads the kernel's log.
    pub(super) fn collect<K: KernFs>(&mut self, tenants: &mut Tenants<K>, jobs: &mut JobRoom) {
        self.confirm(tenants, jobs);
        let Some(log) = &mut self.log else { return };
        let reader = &mut self.reader;
        let is_whole = log.read(&mut |record: &[u8]| reader.note(record));
        let (kills, nr_unknown) = reader.take();
        self.has_gaps |= !is_whole || nr_unknown > 0 || kills.len() > KILLS_MAX;
        for kill in kills.into_iter().take(KILLS_MAX) {
            // Work of no tenant is reported by the kernel alone.
            let Some((place, kill)) = attribute(tenants, jobs, kill) else { continue };
            self.add(place, kill, tenants.control.tick(), jobs);
        }
    }

    fn add(&mut self, place: Place, kill: Kill, tick: u64, jobs: &mut JobRoom) {
        if let Some(node) = place.node {
            self.recent.insert(node, tick);
        }
        if let Some(record) = place.job.and_then(|job| jobs.records.get_mut(&job)) {
            record.seen.killer = Some(kill.killer.clone());
            let logged = &mut record.seen.nr_logged_kills;
            *logged = logged.saturating_add(kill.nr_kills);
        }
        self.found.entry(place.tenant).or_default().push(kill);
    }

    /// Passes the kills to the inputs of their tenants.
    pub(super) fn pass_on<K: KernFs>(&mut self, tenants: &Tenants<K>, nodes: &mut [NodeInput]) {
        let (tree, tick) = (tenants.control.tree(), tenants.control.tick());
        self.recent.retain(|_, last| *last + RECENT_TICKS >= tick);
        let can_tell = self.log.is_some() && !std::mem::take(&mut self.has_gaps);
        for node in tree.tenants_and_members().filter(|_| can_tell) {
            let nr_kills = nodes.get(node.at()).map_or(0, |input| input.nr_killed_runs);
            let Some(tenant) = node.tenant().filter(|_| nr_kills > 0) else { continue };
            if self.recent.contains_key(&node.id()) {
                continue;
            }
            let cgroup =
                tenants.backends.home_outside(node.id()).map(shortened).unwrap_or_default();
            let kill = Kill { cgroup, nr_kills, killer: Killer::Oomd, ..Kill::default() };
            self.found.entry(tenant.id()).or_default().push(kill);
        }
        for (tenant, kills) in std::mem::take(&mut self.found) {
            let at = tree.find(tenant).map(Node::at);
            if let Some(input) = at.and_then(|at| nodes.get_mut(at)) {
                input.kills = kills;
            }
        }
    }

    /// Logs the deaths of a tick.
    pub(super) fn log_new<K: KernFs>(&mut self, tenants: &Tenants<K>) {
        let (mut nr_lines, mut nr_left) = (0, 0);
        let tree = tenants.control.tree();
        for (node, state) in tree.policy_nodes().zip(tenants.control.states()) {
            if state.deaths.nr_all() == 0 {
                continue;
            }
            let known = self.logged.insert(node.id(), state.deaths.nr_all()).unwrap_or(0);
            for death in state.deaths.after(known) {
                if nr_lines == LINES_MAX {
                    nr_left += 1;
                    continue;
                }
                nr_lines += 1;
                let death = status(&tenants.nodes()[node.at()], death, death.at);
                warn!(
                    tenant = %node.name(),
                    action = "death",
                    cause = death.cause.word(),
                    job = death.job,
                    uid = death.uid,
                    pid = death.pid,
                    program = death.program.as_deref(),
                    cgroup = death.cgroup.as_deref(),
                    "{death}"
                );
            }
        }
        if nr_left > 0 {
            warn!("{nr_left} more deaths: see tenantctl status");
        }
        self.logged.retain(|node, _| tree.find(*node).is_some());
    }
}

/// Finds the tenant of a kill; `None` if the victim was in no tenant.
fn attribute<K: KernFs>(
    tenants: &mut Tenants<K>,
    jobs: &JobRoom,
    kill: OomKill,
) -> Option<(Place, Kill)> {
    let tree = &tenants.host.layout.trees[tenants.host.layout.tree(Facet::Memory)?];
    let below = |cgroup: &str| Some(tree.dir_of(&tree.from_mount(cgroup)?));
    let (victim, limit) = (below(&kill.cgroup)?, kill.limit.as_deref().map(below));
    let cgroup = shortened(&tree.path_to(&victim));
    let of_node = node_at(tenants, &victim);
    let place = match (job_at(tenants, jobs, tree, &victim), of_node) {
        (Some(of_job), of_node) => Place { node: of_node.and_then(|it| it.node), ..of_job },
        // A job without declared memory may be charged to the cgroup of its tenant.
        (None, Some(of_node)) => {
            let job = jobs.records.of_pid(kill.pid).and_then(|job| jobs.admission.job(job));
            let job =
                job.filter(|view| tenants.id_of(&view.request.tenant) == Some(of_node.tenant));
            Place { job: job.map(|view| view.job), ..of_node }
        }
        (None, None) => return None,
    };
    let killer = match limit {
        None => Killer::Host,
        // Above the mounted part: the limit of a container around the agent.
        Some(None) => {
            let cgroup = shortened(kill.limit.as_deref().unwrap_or_default());
            Killer::Limit { of: LimitOf::Above, cgroup, bytes: None }
        }
        Some(Some(limit)) => of_limit(tenants, jobs, &place, &limit),
    };
    let found = Kill {
        job: place.job.map(|job| job.0),
        cgroup,
        victim: Some(Victim { pid: kill.pid, uid: kill.uid, program: kill.program }),
        nr_kills: kill.nr_kills,
        held_bytes: Some(kill.held_bytes),
        killer,
        is_more: kill.is_more,
    };
    Some((place, found))
}

/// True if a cgroup has no processes, or is gone.
fn is_empty<K: KernFs>(host: &mut HostAccess<K>, dir: &Path) -> bool {
    let dir = match host.kernel.open_dir(dir) {
        Ok(dir) => dir,
        Err(error) => return error.is_gone(),
    };
    let events = host.kernel.read_once(dir, "cgroup.events");
    let populated = |text: &[u8]| parse::keyed(text, ["populated"]).ok()?[0];
    let is_empty = events.is_ok_and(|text| populated(text) == Some(0));
    host.kernel.close_dir(dir);
    is_empty
}

fn job_at<K: KernFs>(
    tenants: &Tenants<K>,
    jobs: &JobRoom,
    tree: &Tree,
    victim: &Path,
) -> Option<Place> {
    jobs.homes().find_map(|(job, home)| {
        let dir = match &home.cgroup.unit {
            Some(_) if home.path.is_empty() => return None,
            Some(_) => tree.dir_of(&home.path),
            None => tree.root.join(&home.cgroup.below),
        };
        let tenant = &jobs.admission.job(job)?.request.tenant;
        let tenant = tenants.id_of(tenant).filter(|_| victim.starts_with(&dir))?;
        Some(Place { tenant, node: None, job: Some(job), dir })
    })
}

/// The innermost cgroup of a tenant that contains the victim.
fn node_at<K: KernFs>(tenants: &Tenants<K>, victim: &Path) -> Option<Place> {
    let (tree, mut dir) = (tenants.control.tree(), PathBuf::new());
    let mut best: Option<Place> = None;
    for node in tree.tenants_and_members().filter(|node| node.has_work()) {
        let Some(tenant) = node.tenant() else { continue };
        if !dir_of(tenants, node, &mut dir) && !unseen_dir_of(tenants, node, victim, &mut dir) {
            continue;
        }
        let is_inner = best.as_ref().is_none_or(|best| dir.starts_with(&best.dir));
        if is_inner && victim.starts_with(&dir) {
            let (tenant, node, dir) = (tenant.id(), Some(node.id()), dir.clone());
            best = Some(Place { tenant, node, job: None, dir });
        }
    }
    best
}

/// Writes the present or last cgroup of a node into `dir`; false if none is known.
fn dir_of<K: KernFs>(tenants: &Tenants<K>, node: Node<'_>, dir: &mut PathBuf) -> bool {
    let (host, backends) = (&tenants.host, &tenants.backends);
    if backends.dir_into(host, node, Facet::Memory, dir) {
        return true;
    }
    let index = host.layout.tree(Facet::Memory);
    let last = backends.last_home(node.id()).zip(index);
    if let Some((last, index)) = last {
        *dir = host.layout.trees[index].dir_of(last);
    }
    last.is_some()
}

/// Writes the cgroup of a unit that no tick has seen running into `dir`, if the victim was in it. Only slices of the system
/// are above such a unit: users name cgroups inside their own units as they like.
fn unseen_dir_of<K: KernFs>(
    tenants: &Tenants<K>,
    node: Node<'_>,
    victim: &Path,
    dir: &mut PathBuf,
) -> bool {
    let layout = &tenants.host.layout;
    let tree = layout.tree(Facet::Memory).map(|index| &layout.trees[index]);
    let below = tree.and_then(|tree| Some((tree, victim.strip_prefix(&tree.mount).ok()?)));
    let Some((tree, below)) = below else { return false };
    let nr_slices = below.iter().take_while(|name| name.as_bytes().ends_with(b".slice")).count();
    let unit = tenants.backends.unit_name(node.id());
    let at = below.iter().take(nr_slices + 1).position(|name| unit.is_some_and(|it| name == it));
    if let Some(at) = at {
        dir.clone_from(&tree.mount);
        dir.extend(below.iter().take(at + 1));
    }
    at.is_some()
}

fn of_limit<K: KernFs>(
    tenants: &mut Tenants<K>,
    jobs: &JobRoom,
    place: &Place,
    limit: &Path,
) -> Killer {
    let bytes = limit_at(&mut tenants.host, limit);
    let layout = &tenants.host.layout;
    let tree = layout.tree(Facet::Memory).map(|index| &layout.trees[index]);
    let cgroup = tree.map(|tree| shortened(&tree.path_to(limit))).unwrap_or_default();
    let job = place.job.and_then(|job| jobs.admission.job(job));
    if limit == place.dir && job.is_some_and(|view| view.request.memory_bytes > 0) {
        return Killer::Limit { of: LimitOf::Job, cgroup, bytes };
    }
    let (tree, mut dir) = (tenants.control.tree(), PathBuf::new());
    let mut limited = tree.tenants_and_members().filter_map(|node| {
        let policy = node.policy().filter(|policy| policy.limit[MEMORY].is_some())?;
        (dir_of(tenants, node, &mut dir) && dir == limit).then_some(policy)
    });
    if let Some(policy) = limited.next() {
        return Killer::Limit { of: LimitOf::Policy, cgroup: policy.path.to_string(), bytes };
    }
    let of = if limit.starts_with(&place.dir) { LimitOf::Inside } else { LimitOf::Above };
    Killer::Limit { of, cgroup, bytes }
}

/// Limit of the cgroup at `dir` now; `None` if it is gone, or has none any more.
fn limit_at<K: KernFs>(host: &mut HostAccess<K>, dir: &Path) -> Option<u64> {
    let file = host.file(Knob::MemoryMax);
    let dir = host.kernel.open_dir(dir).ok()?;
    let text = host.kernel.read_once(dir, file).map(<[u8]>::to_vec);
    host.kernel.close_dir(dir);
    match host.layout.read(Knob::MemoryMax, &text.ok()?) {
        Ok(Value::Amount(_, Limit::Finite(bytes))) => Some(bytes),
        _ => None,
    }
}

fn shortened(path: &str) -> String {
    let nr_chars = path.chars().count();
    if nr_chars <= PATH_CHARS {
        return path.to_string();
    }
    path.chars().skip(nr_chars - PATH_CHARS).collect()
}
