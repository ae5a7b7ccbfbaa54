//! What the host must hold, and who changed what.
//!
//! The model never asks the agent. It sees what every cgroup holds after each step, and knows whose step that was:
//! the first value that a turn of the agent replaced in a file is that file's original, cgroups that appear in a turn
//! are the agent's, and a process is at home where an administrator put it last. From this follow the rules:
//!
//! - the agent changes values of its tenants only, removes its own cgroups only, and ends no process;
//! - a file that does not hold its original has it in the journal, and what is in the journal was the original;
//! - every cgroup that is the agent's is in the journal;
//! - a process is at home as long as its home is there;
//! - once the journal is gone, every file holds its original, or what an administrator set since and the policy accepts;
//!   a legacy quota that others have bounded since holds that bound.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tenantd_host::journal::Entry;

use super::run::ROOT;
use super::spec::CLAIMED;
use crate::util::Snapshot;

/// A journal is smaller, whatever happens.
const JOURNAL_BYTES_MAX: u64 = 2 << 20;
/// The controllers that the agent enables for children.
const ENABLED: [&str; 3] = ["cpu", "memory", "cpuset"];
/// So many ticks after an administrator's write the agent has looked again: every tenth tick, unless that is void.
const TICKS_TO_LOOK: u64 = 45;
const CONTROL: &str = "cgroup.subtree_control";
const PROCS: &str = "cgroup.procs";
const QUOTA: &str = "cpu.cfs_quota_us";
const PERIOD: &str = "cpu.cfs_period_us";

/// A turn of the agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    pub(super) what: &'static str,
    /// The nodes of the policies before and after it.
    pub(super) paths: Vec<&'static str>,
    /// Whether one of these policies claims processes.
    pub(super) claims: bool,
    /// Whether a call failed or the agent died.
    pub(super) is_disturbed: bool,
    /// Whether no agent runs after it.
    pub(super) is_idle: bool,
}

impl Turn {
    pub(super) fn of(what: &'static str) -> Turn {
        Turn { what, ..Turn::default() }
    }
}

/// What a file held before the agent.
#[derive(Clone, Debug)]
struct Original {
    inode: String,
    value: String,
    /// The kernel itself has changed it since: a CPU went away.
    is_loose: bool,
}

/// What the journal says.
#[derive(Clone, Debug, Default)]
struct Recorded {
    held: BTreeMap<(String, String), String>,
    theirs: BTreeSet<(String, String)>,
    /// The last word on each cgroup: its inode where it was made.
    made: BTreeMap<String, Option<String>>,
}

#[derive(Debug)]
pub(super) struct Model {
    tops: Vec<String>,
    last: Snapshot,
    originals: BTreeMap<String, Original>,
    recorded: Recorded,
    /// The agent's cgroups, with their inode numbers.
    made: BTreeMap<String, String>,
    /// Where an administrator put each process last, in each tree: the cgroup and its inode number.
    homes: BTreeMap<(u32, usize), (String, String)>,
    /// Cgroups from which and to which the agent moved processes of a cgroup that it removed. A start moves a process back
    /// that is found there, also if an administrator moved it away and there again.
    displaced: BTreeMap<(u32, usize), (String, String)>,
    /// When an administrator changed a cgroup, in ticks.
    touched: BTreeMap<String, u64>,
    was_disturbed: bool,
}

impl Model {
    pub(super) fn new(tops: &[PathBuf], now: Snapshot) -> Model {
        Model {
            tops: tops.iter().map(|top| top.display().to_string()).collect(),
            last: now,
            originals: BTreeMap::new(),
            recorded: Recorded::default(),
            made: BTreeMap::new(),
            homes: BTreeMap::new(),
            displaced: BTreeMap::new(),
            touched: BTreeMap::new(),
            was_disturbed: false,
        }
    }

    // --- what happened ---

    pub(super) fn after_administrator(&mut self, now: Snapshot, tick: u64) {
        for (key, value) in &now {
            if self.last.get(key) != Some(value) {
                self.touched.insert(below_of(key, &self.tops).to_string(), tick);
            }
        }
        for key in self.last.keys().filter(|key| !now.contains_key(*key)) {
            self.touched.insert(below_of(key, &self.tops).to_string(), tick);
        }
        let (before, after) = (self.places(&self.last), self.places(&now));
        for (process, place) in &after {
            if before.get(process) != Some(place) {
                let inode = now.get(place).cloned().unwrap_or_default();
                self.homes.insert(*process, (place.clone(), inode));
            }
        }
        self.homes.retain(|process, _| after.contains_key(process));
        self.made.retain(|dir, inode| now.get(dir) == Some(inode));
        self.last = now;
    }

    /// Time passed on the host; nothing that is watched here depends on it.
    pub(super) fn time_passed(&self, pids: &[u32]) {
        for (pid, _) in self.homes.keys() {
            assert!(pids.contains(pid), "process {pid} ended by itself");
        }
    }

    pub(super) fn cpus_changed(&mut self) {
        for (file, original) in &mut self.originals {
            original.is_loose |= file.ends_with("/cpuset.cpus");
        }
    }

    pub(super) fn after_agent(&mut self, now: Snapshot, journal: &Path, turn: &Turn) {
        self.was_disturbed = turn.is_disturbed;
        let recorded = read(journal);
        self.check_cgroups(&now, turn);
        self.check_values(&now, turn);
        self.check_processes(&now, turn);
        self.check_recorded(&now, &recorded, turn);
        self.check_originals(&now, &recorded, turn);
        for (dir, inode) in &self.made {
            let known = recorded.made.get(dir);
            // One that was announced, and not confirmed before the agent died, is removed while it is empty.
            let is_made =
                known.is_some_and(|known| known.as_ref().is_none_or(|known| known == inode));
            // One in which processes stood aside goes when the list is given back for which they did.
            let is_aside = beside(dir, &now).is_some_and(|(home, inode)| {
                recorded.held.contains_key(&(format!("{home}/cpuset.cpus"), inode))
            });
            let is_known = is_made || is_aside;
            assert!(
                is_known,
                "{}: {dir} is the agent's, and the journal says {known:?}",
                turn.what
            );
        }
        self.recorded = recorded;
        self.last = now;
    }

    fn check_cgroups(&mut self, now: &Snapshot, turn: &Turn) {
        let made_before = self.made.clone();
        for (dir, inode) in now.iter().filter(|(key, _)| is_dir(key)) {
            if self.last.get(dir) == Some(inode) {
                continue;
            }
            let below = below_of(dir, &self.tops);
            let is_own =
                ["tenantd.rest", "tenantd.agent"].contains(&below.trim_start_matches("t/"));
            let is_node = below.strip_prefix("t/").is_some_and(|path| turn.paths.contains(&path));
            // The tree of cpusets may lack the top.
            let is_root = below == ROOT || below.is_empty();
            let is_aside = turn.is_disturbed && beside(dir, &self.last).is_some();
            assert!(is_root || is_own || is_node || is_aside, "{}: {dir} was made", turn.what);
            self.made.insert(dir.clone(), inode.clone());
        }
        for (dir, inode) in self.last.iter().filter(|(key, _)| is_dir(key)) {
            if now.get(dir) != Some(inode) {
                // Empty cgroups in one that the agent made are removed with it.
                let was_made = made_before.get(dir) == Some(inode)
                    || Path::new(dir)
                        .ancestors()
                        .skip(1)
                        .any(|up| up.to_str().is_some_and(|up| made_before.contains_key(up)));
                assert!(was_made, "{}: {dir} was removed, which was not the agent's", turn.what);
            }
        }
        self.made.retain(|dir, inode| now.get(dir) == Some(inode));
    }

    fn check_values(&mut self, now: &Snapshot, turn: &Turn) {
        for (key, value) in now.iter().filter(|(key, _)| !is_dir(key) && !key.ends_with(PROCS)) {
            let (dir, file) = split(key);
            // A file that comes or goes belongs to a controller that was enabled or disabled.
            let Some(before) = self.last.get(key).filter(|before| *before != value) else {
                continue;
            };
            if self.last.get(dir) != now.get(dir) || self.made.contains_key(dir) {
                continue;
            }
            let below = below_of(key, &self.tops);
            let is_node = below.strip_prefix("t/").is_some_and(|path| turn.paths.contains(&path));
            let is_root = below == ROOT && (file == CONTROL || file.starts_with("cpuset."));
            let is_above = below.is_empty() && file == CONTROL;
            let is_known = self.originals.contains_key(key);
            assert!(
                is_node || is_root || is_above || is_known,
                "{}: {key}: {before:?} became {value:?}",
                turn.what
            );
            let inode = now[dir].clone();
            let original =
                Original { inode, value: before.trim_end().to_string(), is_loose: false };
            self.originals.entry(key.clone()).or_insert(original);
        }
    }

    /// What the journal holds was there before the agent.
    fn check_recorded(&mut self, now: &Snapshot, recorded: &Recorded, turn: &Turn) {
        for ((file, inode), value) in &recorded.held {
            let (dir, name) = split(file);
            if now.get(dir) != Some(inode) || self.made.contains_key(dir) || name == PROCS {
                continue;
            }
            match self.originals.get(file).filter(|original| original.inode == *inode) {
                Some(original) => assert!(
                    original.value == *value || original.is_loose,
                    "{}: the journal says that {file} held {value:?}, which was {:?}",
                    turn.what,
                    original.value
                ),
                None => {
                    // It was recorded, and not written then.
                    // A file of a controller that was enabled in this turn is new.
                    let before = self.last.get(file).map_or(value.as_str(), |text| text.trim_end());
                    assert_eq!(before, value, "{}: {file} is recorded", turn.what);
                    let original =
                        Original { inode: inode.clone(), value: value.clone(), is_loose: false };
                    self.originals.insert(file.clone(), original);
                }
            }
        }
    }

    /// What is not in the journal any more holds its original.
    fn check_originals(&mut self, now: &Snapshot, recorded: &Recorded, turn: &Turn) {
        let mut released = Vec::new();
        for (file, original) in &self.originals {
            let (dir, name) = split(file);
            let Some(value) = now.get(file).filter(|_| now.get(dir) == Some(&original.inode))
            else {
                // The cgroup, or its controller, went away.
                released.push(file.clone());
                continue;
            };
            let key = (file.clone(), original.inode.clone());
            if recorded.held.contains_key(&key) {
                continue;
            }
            released.push(file.clone());
            let value = value.trim_end();
            let is_theirs = self.recorded.theirs.contains(&key);
            let is_back = match name {
                CONTROL => is_control_back(&original.value, value),
                _ if is_theirs => self.last.get(file).map(|text| text.trim_end()) == Some(value),
                QUOTA | PERIOD if value != original.value => self.is_fitted(dir, now),
                _ => value == original.value || original.is_loose,
            };
            assert!(
                is_back,
                "{}: {file} holds {value:?}, held {:?} before the agent, and is not in the journal",
                turn.what, original.value
            );
        }
        for file in released {
            self.originals.remove(&file);
        }
    }

    /// Whether the quota of `dir` is that of a cgroup above or below it, with which the kernel does not take what `dir` held
    /// before the agent.
    fn is_fitted(&self, dir: &str, now: &Snapshot) -> bool {
        let value = |file: &str| now.get(file).map(|text| text.trim_end().to_string());
        let pair = |dir: &str| {
            Some((value(&format!("{dir}/{QUOTA}"))?, value(&format!("{dir}/{PERIOD}"))?))
        };
        let held = |file: &str| {
            let file = format!("{dir}/{file}");
            self.originals
                .get(&file)
                .map(|original| original.value.clone())
                .or_else(|| value(&file))
        };
        let part = |(quota, period): (String, String)| {
            let (quota, period) = (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
            Some(if quota < 0.0 { f64::INFINITY } else { quota / period })
        };
        let own = pair(dir).and_then(part);
        let (Some(own), Some(held)) = (own, held(QUOTA).zip(held(PERIOD)).and_then(part)) else {
            return false;
        };
        let is_inside = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
        };
        // A quota is whole microseconds.
        let is_own = |bound: &f64| (bound - own).abs() < 1e-3;
        now.keys().filter(|key| is_dir(key)).any(|other| {
            pair(other).and_then(part).filter(is_own).is_some_and(|bound| {
                is_inside(dir, other) && held > bound || is_inside(other, dir) && held < bound
            })
        })
    }

    fn check_processes(&mut self, now: &Snapshot, turn: &Turn) {
        let (places, places_before) = (self.places(now), self.places(&self.last));
        let mut settled = Vec::new();
        for (process, place) in &places {
            let before = places_before.get(process).filter(|before| *before != place);
            if let Some(before) = before.filter(|before| Path::new(before).starts_with(place)) {
                self.displaced.insert(*process, (before.clone(), place.clone()));
            }
        }
        self.displaced.retain(|process, _| places.contains_key(process));
        for (process, (from, to)) in &self.displaced {
            let Some(home) = self.homes.get_mut(process) else { continue };
            let is_there = home.0 == *to && now.get(to) == Some(&home.1);
            if is_there && places.get(process) == Some(from) {
                *home = (from.clone(), now.get(from).cloned().unwrap_or_default());
            }
        }
        for ((pid, tree), (home, inode)) in &self.homes {
            // Above the top, where nothing is watched, are those that nothing below takes.
            let place = places.get(&(*pid, *tree)).map_or("", String::as_str);
            let top = &self.tops[*tree];
            let below = place.strip_prefix(top.as_str()).unwrap_or(place).trim_start_matches('/');
            let was_below = home.strip_prefix(top.as_str()).unwrap_or(home).trim_start_matches('/');
            let was_claimed =
                turn.claims && was_below.starts_with(CLAIMED) || self.last.get(home) != Some(inode);
            let is_home = place == home;
            let is_above = home.starts_with(place);
            let is_there = now.get(home) == Some(inode);
            let in_tenant = below.starts_with("t/") || below.starts_with(CLAIMED);
            // What a tenant claimed out of a cgroup that is gone goes to the nearest one above the tenant's.
            let is_displaced = was_below.starts_with(CLAIMED)
                && places_before
                    .get(&(*pid, *tree))
                    .is_some_and(|before| Path::new(before).starts_with(place));
            // Until the list is given back for which it stood aside.
            let is_aside = self.made.contains_key(place)
                && beside(place, now) == Some((home.clone(), inode.clone()));
            // A cgroup of the agent's is emptied before it is removed. In between the agent may die, or a call may fail: then
            // the removal is tried again later.
            let has_left = places_before.get(&(*pid, *tree)).is_some_and(|before| before == place);
            let is_outside = is_above || below == "t/tenantd.rest";
            let is_leaving =
                is_outside && (turn.is_disturbed || has_left) && self.made.get(home) == Some(inode);
            let allowed = if is_there {
                is_home
                    || is_aside
                    || is_leaving
                    || (was_claimed || was_below.starts_with(CLAIMED)) && in_tenant
            } else {
                is_home
                    || is_outside
                    || is_displaced
                    || in_tenant && was_below.starts_with(CLAIMED)
                    || below.starts_with(CLAIMED)
            };
            assert!(
                allowed,
                "{}: process {pid} is in {place}, and not at home in {home}",
                turn.what
            );
            // What was started in a tenant's cgroup that is gone is put where the tenant's processes came from.
            if !is_there && below.starts_with(CLAIMED) {
                settled.push(((*pid, *tree), place.to_string()));
            }
            let is_back =
                is_home || !is_there || !turn.is_idle || turn.is_disturbed || turn.what == "start";
            let is_owed = !self.recorded.held.is_empty() && turn.what == "crash";
            assert!(
                is_back || is_owed,
                "{}: process {pid} is in {place} for good, and was in {home}",
                turn.what
            );
        }
        for (process, place) in settled {
            let inode = now.get(&place).cloned().unwrap_or_default();
            self.homes.insert(process, (place, inode));
        }
    }

    // --- what is asked ---

    pub(super) fn was_disturbed(&self) -> bool {
        self.was_disturbed
    }

    pub(super) fn has(&self, file: &Path) -> bool {
        self.last.contains_key(&file.display().to_string())
    }

    /// All that is held, but for processes.
    pub(super) fn values(&self) -> Snapshot {
        let keys = self.last.iter().filter(|(key, _)| !key.ends_with(PROCS));
        keys.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Whether a cgroup that has to give its children controllers holds processes.
    pub(super) fn is_root_in_use(&self) -> bool {
        let is_inner = |key: &String| ["", ROOT, "t/g", "t/h"].contains(&below_of(key, &self.tops));
        let procs = self.last.iter().filter(|(key, _)| key.ends_with(PROCS) && is_inner(key));
        procs.into_iter().any(|(_, text)| !text.trim().is_empty())
    }

    /// Cgroups and files that are still as the agent left them after a restore: those that there is no reason for
    /// fail; the others are returned, to be tried.
    pub(super) fn not_put_back(&self, what: &str, failures: &[String]) -> Vec<(PathBuf, String)> {
        for dir in self.made.keys() {
            assert!(self.is_divided(dir, &self.last), "{what}: {dir} is left: {failures:?}");
        }
        let is_off = |(file, original): &(&String, &Original)| {
            let (dir, name) = split(file);
            let is_same = self.last.get(dir) == Some(&original.inode);
            let value = self.last.get(*file).map(|text| text.trim_end());
            is_same
                && name != CONTROL
                && !original.is_loose
                && value != Some(original.value.as_str())
        };
        let off = self.originals.iter().filter(is_off);
        off.map(|(file, original)| (PathBuf::from(file), original.value.clone())).collect()
    }

    /// Whether `dir` is the agent's, and holds cgroups that are not.
    fn is_divided(&self, dir: &str, now: &Snapshot) -> bool {
        let inside = format!("{dir}/");
        let is_foreign =
            |key: &String| is_dir(key) && key.starts_with(&inside) && !self.made.contains_key(key);
        now.keys().any(is_foreign) && self.made.contains_key(dir)
    }

    /// The weight that the cgroup `below` the tops holds, in the unit of `cpu.weight`; `None` where an administrator
    /// was there since the agent looked.
    pub(super) fn weight_of(&self, below: &str, tick: u64) -> Option<f64> {
        let is_recent = |(of, then): (&String, &u64)| {
            (below.starts_with(of.as_str()) || of.starts_with(below)) && then + TICKS_TO_LOOK > tick
        };
        if self.touched.iter().any(is_recent) {
            return None;
        }
        self.tops.iter().find_map(|top| {
            let number = |file: &str| {
                self.last.get(&format!("{top}/{below}/{file}"))?.trim().parse::<f64>().ok()
            };
            number("cpu.weight").or_else(|| Some(number("cpu.shares")? * 100.0 / 1024.0))
        })
    }

    /// Fails unless the files of the tenant `below` hold these limits: thousandths of a CPU, and MiB.
    pub(super) fn check_limits(&self, below: &str, (millis, mib): (Option<u32>, Option<u32>)) {
        for top in &self.tops {
            let read = |file: &str| {
                self.last.get(&format!("{top}/{below}/{file}")).map(|text| text.trim())
            };
            let quota = |quota: &str, period: &str| {
                let (quota, period) = (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
                (quota > 0.0).then_some(1000.0 * quota / period)
            };
            let pair = read("cpu.max").and_then(|text| text.split_once(' '));
            let pair = pair.or_else(|| read("cpu.cfs_quota_us").zip(read("cpu.cfs_period_us")));
            if let (Some(millis), Some((held, period))) = (millis, pair) {
                let held = quota(held, period);
                let is_held = held.is_some_and(|held| (held - f64::from(millis)).abs() < 1.0);
                assert!(is_held, "{below} is limited to {millis}m of a CPU, and holds {held:?}");
            }
            let limit = read("memory.max").or_else(|| read("memory.limit_in_bytes"));
            if let (Some(mib), Some(limit)) = (mib, limit) {
                assert_eq!(
                    limit,
                    (u64::from(mib) << 20).to_string(),
                    "{below} is limited to {mib} MiB"
                );
            }
        }
    }

    /// The cgroup of each process in each tree; a cpuset tree of its own is joined by the tenants that are pinned.
    fn places(&self, of: &Snapshot) -> BTreeMap<(u32, usize), String> {
        let mut places = BTreeMap::new();
        for (key, text) in of.iter().filter(|(key, _)| key.ends_with(PROCS)) {
            let (dir, _) = split(key);
            let tree =
                self.tops.iter().position(|top| dir == top || dir.starts_with(&format!("{top}/")));
            let Some(tree) = tree.filter(|_| !dir.contains("/cpuset/")) else { continue };
            for pid in text.lines() {
                places.insert((pid.parse().unwrap(), tree), dir.to_string());
            }
        }
        places
    }
}

/// The cgroup beside `dir`, and its inode number, whose processes stand aside in `dir` while its list of CPUs is
/// emptied (`src/agent/src/recovery/unpin.rs`).
fn beside(dir: &str, of: &Snapshot) -> Option<(String, String)> {
    let (above, name) = split(dir);
    let inode = name.strip_prefix("tenantd.aside.")?;
    let is_beside = |key: &str| is_dir(key) && split(key).0 == above;
    let mut beside = of.iter().filter(|(key, held)| *held == inode && is_beside(key));
    beside.next().map(|(home, inode)| (home.clone(), inode.clone()))
}

/// Whether controllers of children are what they were, or what an administrator wants beside.
fn is_control_back(original: &str, now: &str) -> bool {
    let of = |text: &str| -> BTreeSet<String> {
        text.split(' ').filter(|word| ENABLED.contains(word)).map(String::from).collect()
    };
    of(now).is_subset(&of(original))
}

/// Whether `key` of a snapshot is a cgroup, not a file of it.
fn is_dir(key: &str) -> bool {
    let name = key.rsplit('/').next().unwrap_or_default();
    !["cpu.", "cpuset.", "memory.", "cgroup.", "pids.", "io.", "blkio."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn split(file: &str) -> (&str, &str) {
    file.rsplit_once('/').unwrap_or(("", file))
}

/// The cgroup of `key` (a cgroup or a file of one), from the top of its tree.
fn below_of<'a>(key: &'a str, tops: &[String]) -> &'a str {
    let dir = if is_dir(key) { key } else { split(key).0 };
    let below = tops.iter().find_map(|top| dir.strip_prefix(top.as_str()));
    below.unwrap_or(dir).trim_start_matches('/')
}

fn read(journal: &Path) -> Recorded {
    let text = std::fs::read_to_string(journal).unwrap_or_default();
    assert!(text.len() as u64 <= JOURNAL_BYTES_MAX, "the journal has {} bytes", text.len());
    let mut recorded = Recorded::default();
    let key = |path: &Path, file: &str, inode: u64| {
        (path.join(file).display().to_string(), inode.to_string())
    };
    for line in text.lines().skip(1) {
        match serde_json::from_str::<Entry>(line).unwrap() {
            Entry::Held { path, inode, file, value } => {
                recorded.held.entry(key(&path, &file, inode)).or_insert(value.to_string());
            }
            Entry::Theirs { path, inode, file } => {
                recorded.theirs.insert(key(&path, &file, inode));
            }
            Entry::Making { path } => drop(recorded.made.insert(path.display().to_string(), None)),
            Entry::Made { path, inode } => {
                recorded.made.insert(path.display().to_string(), Some(inode.to_string()));
            }
            Entry::NotMade { path } => drop(recorded.made.remove(&path.display().to_string())),
            _ => {}
        }
    }
    recorded
}
