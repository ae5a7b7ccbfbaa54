//! Results of a replay: integrals over time, and the episodes of tenants.
//!
//! An *episode* of a tenant is a time with a shortfall ([`tenantd_control::why::shortfall`]); breaks of up to
//! [`BREAK_MAX`] do not end it. Its reason is the one that held longest, in the words of its worst moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use tenantd_control::report::reason::SEEN_CORES_MIN;
use tenantd_control::report::reason::{Reason, ReasonKind};
use tenantd_control::report::status::DeathStatus;
use tenantd_control::state::NodeState;
use tenantd_control::tick::control_loop::{ControlLoop, disks_of};
use tenantd_control::tree::TreeNode;
use tenantd_control::why::death;
use tenantd_core::resource::{CPU, MEMORY, PerResource, Resource, wire};
use tenantd_host::recording::tape::{Damage, Played, Tape};
use tenantd_lab::time;

/// Longest break within an episode.
const BREAK_MAX: Duration = Duration::from_secs(5);
/// Shortest time between two ticks that is a gap in the recording.
const GAP_MIN: Duration = Duration::from_secs(60);
const ROWS: u32 = 20;
/// Least part of a disk that counts as use.
const SEEN_DISK_RATIO: f64 = 0.01;
/// Deaths of one tenant that are kept.
const DEATHS_MAX: usize = 1000;

/// Requested time, since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) since: Duration,
    pub(crate) until: Duration,
}

#[derive(Debug)]
pub(crate) struct Past {
    pub(crate) window: Window,
    pub(crate) host: String,
    pub(crate) nr_ticks: u64,
    pub(crate) first: Duration,
    pub(crate) last: Duration,
    pub(crate) gaps: Vec<(Duration, Duration)>,
    pub(crate) tenants: BTreeMap<String, Course>,
    pub(crate) nr_other_versions: usize,
    /// Files that cannot be read completely.
    pub(crate) damaged: Vec<Damage>,
    pub(crate) only: Option<String>,
    /// Tenants beside the one that was asked for.
    pub(crate) others: BTreeSet<String>,
    /// Length of the steps of a course; `None` for the sums of all time alone.
    pub(crate) step: Option<Duration>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) time: Duration,
    used: PerResource<f64>,
    entitled: PerResource<f64>,
    wanted: PerResource<f64>,
    pub(crate) lacking: Duration,
    pub(crate) starved: Duration,
    pub(crate) throttled: Duration,
    /// Time under a policy with credits.
    with_credits: Duration,
    credit_seconds: f64,
    credit_factor: f64,
    /// Time in which its requests were counted, and integral of the part of its busiest disk.
    with_disks: Duration,
    disk_seconds: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Course {
    pub(crate) all: Sums,
    pub(crate) episodes: Vec<Episode>,
    /// Sums of each [`Past::step`].
    pub(crate) ticks: Vec<(Duration, Sums)>,
    kills: Option<u64>,
    pub(crate) nr_kills: u64,
    /// The first deaths, each with its time.
    pub(crate) deaths: Vec<(Duration, DeathStatus)>,
    pub(crate) nr_deaths: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Episode {
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
    pub(crate) missing: PerResource<f64>,
    pub(crate) is_starved: bool,
    /// By kind: duration, largest amount, and the words at that moment.
    reasons: Vec<(ReasonKind, Duration, f64, String)>,
}

impl Sums {
    /// True if the tenant used or lacked anything that a table shows.
    pub(crate) fn has_use(&self) -> bool {
        let used = self.used();
        used[CPU] >= SEEN_CORES_MIN
            || used[MEMORY] >= 1.0
            || self.disk_ratio().is_some_and(|ratio| ratio >= SEEN_DISK_RATIO)
            || !(self.lacking + self.starved).is_zero()
    }

    fn add(&mut self, state: &NodeState, elapsed: Duration, control: &ControlLoop) {
        let seconds = elapsed.as_secs_f64();
        if let Some(usage) = state.usage.as_ref().filter(|usage| !usage.disks.is_empty()) {
            let first = disks_of(control).of(usage).into_iter().next();
            self.with_disks += elapsed;
            self.disk_seconds += first.map_or(0.0, |of| of.ratio()) * seconds;
        }
        if control.settings().credits.is_some() {
            self.with_credits += elapsed;
            self.credit_seconds += state.credit.entry.bank_seconds * seconds;
            self.credit_factor += state.credit.account.factor * seconds;
        }
        let usage = state.usage.as_ref();
        self.time += elapsed;
        for r in Resource::ALL {
            self.used[r] += usage.and_then(|usage| usage.used(r)).unwrap_or(0.0) * seconds;
            self.entitled[r] += state.target.allocation[r] * seconds;
            self.wanted[r] += state.demand.map_or(0.0, |demand| demand.amount[r]) * seconds;
        }
        let is_starved = state.measured().is_some_and(|measured| measured.is_starved());
        for (sum, holds) in [
            (&mut self.lacking, state.shortfall.is_some()),
            (&mut self.starved, is_starved),
            (&mut self.throttled, usage.is_some_and(|usage| usage.throttled)),
        ] {
            if holds {
                *sum += elapsed;
            }
        }
    }

    fn and(&mut self, other: &Sums) {
        let Sums { time, used, entitled, wanted, lacking, starved, throttled, .. } = other;
        self.with_credits += other.with_credits;
        self.credit_seconds += other.credit_seconds;
        self.credit_factor += other.credit_factor;
        self.with_disks += other.with_disks;
        self.disk_seconds += other.disk_seconds;
        self.time += *time;
        for r in Resource::ALL {
            self.used[r] += used[r];
            self.entitled[r] += entitled[r];
            self.wanted[r] += wanted[r];
        }
        self.lacking += *lacking;
        self.starved += *starved;
        self.throttled += *throttled;
    }

    fn mean(&self, sum: PerResource<f64>) -> PerResource<f64> {
        sum.map(|sum| sum / self.time.as_secs_f64().max(f64::MIN_POSITIVE))
    }

    /// Mean credit in seconds and mean factor of the weight; `None` if the policy had no credits.
    pub(crate) fn credit(&self) -> Option<(f64, f64)> {
        let seconds = self.with_credits.as_secs_f64();
        (seconds > 0.0).then(|| (self.credit_seconds / seconds, self.credit_factor / seconds))
    }

    /// Mean part of the time of its busiest disk; `None` if its requests were not counted.
    pub(crate) fn disk_ratio(&self) -> Option<f64> {
        let seconds = self.with_disks.as_secs_f64();
        (seconds > 0.0).then(|| self.disk_seconds / seconds)
    }

    pub(crate) fn used(&self) -> PerResource<f64> {
        self.mean(self.used)
    }

    pub(crate) fn entitled(&self) -> PerResource<f64> {
        self.mean(self.entitled)
    }

    pub(crate) fn wanted(&self) -> PerResource<f64> {
        self.mean(self.wanted)
    }
}

impl Episode {
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reasons.iter().max_by_key(|reason| reason.1).map(|reason| reason.3.as_str())
    }

    fn note(&mut self, state: &NodeState, elapsed: Duration) {
        let Some(shortfall) = &state.shortfall else { return };
        let mut worst: f64 = 0.0;
        for r in Resource::ALL {
            self.missing[r] = self.missing[r].max(shortfall.missing[r]);
            worst = worst.max(shortfall.missing[r] / state.target.allocation[r].max(r.noise()));
        }
        self.is_starved |= state.measured().is_some_and(|measured| measured.is_starved());
        for reason in &shortfall.reasons {
            self.note_reason(reason, worst, elapsed);
        }
    }

    fn note_reason(&mut self, reason: &Reason, worst: f64, elapsed: Duration) {
        let kind = reason.kind();
        match self.reasons.iter_mut().find(|known| known.0 == kind) {
            Some((_, time, worst_yet, words)) => {
                *time += elapsed;
                if worst > *worst_yet {
                    (*worst_yet, *words) = (worst, reason.to_string());
                }
            }
            None => self.reasons.push((kind, elapsed, worst, reason.to_string())),
        }
    }
}

impl Past {
    pub(crate) fn new(only: Option<&str>) -> Past {
        Past {
            window: Window { since: Duration::ZERO, until: Duration::MAX },
            host: String::new(),
            nr_ticks: 0,
            first: Duration::ZERO,
            last: Duration::ZERO,
            gaps: Vec::new(),
            tenants: BTreeMap::new(),
            nr_other_versions: 0,
            damaged: Vec::new(),
            only: only.map(str::to_string),
            others: BTreeSet::new(),
            step: only.map(|_| Duration::ZERO),
        }
    }

    /// Plays the segment at `path`, while `goes_on` holds.
    pub(crate) fn play(&mut self, path: &Path, mut tape: Tape, goes_on: impl Fn() -> bool) {
        self.host.clone_from(&tape.host);
        while let Some(played) = tape.play() {
            if played.wall > self.window.until || !goes_on() {
                return;
            }
            if played.wall >= self.window.since && !played.decision.is_void {
                self.take(&played, &tape.control);
            }
        }
        self.damaged.extend(Damage::at_end(path, &tape));
    }

    fn take(&mut self, played: &Played, control: &ControlLoop) {
        if self.nr_ticks == 0 {
            self.first = played.wall;
        } else if played.wall.saturating_sub(self.last)
            > GAP_MIN.max(control.settings().interval * 3)
        {
            self.gaps.push((self.last, played.wall));
        }
        (self.nr_ticks, self.last) = (self.nr_ticks + 1, played.wall);
        let Some(elapsed) = played.decision.elapsed else { return };
        let step = self.step;
        let leaves = control.tree().nodes().iter().zip(control.states()).filter(|it| it.0.is_leaf);
        for (node, state) in leaves {
            if self.only.as_ref().is_some_and(|only| *only != node.path) {
                if !self.others.contains(node.path.as_str()) {
                    self.others.insert(node.path.to_string());
                }
                continue;
            }
            if !self.tenants.contains_key(node.path.as_str()) {
                self.tenants.insert(node.path.to_string(), Course::default());
            }
            if let Some(course) = self.tenants.get_mut(node.path.as_str()) {
                course.take(state, (played.wall, elapsed), step, control);
                course.note_deaths(node, state, played.wall);
            }
        }
    }

    /// Deaths in order of time, each with its tenant, and the number of those that are not kept.
    pub(crate) fn deaths(&self) -> (Vec<(Duration, &str, &DeathStatus)>, u64) {
        let mut all = Vec::new();
        for (name, course) in &self.tenants {
            all.extend(course.deaths.iter().map(|(wall, death)| (*wall, name.as_str(), death)));
        }
        all.sort_by_key(|(wall, ..)| *wall);
        let nr_all: u64 = self.tenants.values().map(|course| course.nr_deaths).sum();
        let nr_left = nr_all - all.len() as u64;
        (all, nr_left)
    }

    /// Episodes in order of time, each with its tenant.
    pub(crate) fn episodes(&self) -> Vec<(&str, &Episode)> {
        let mut all: Vec<(&str, &Episode)> = Vec::new();
        for (name, course) in &self.tenants {
            all.extend(course.episodes.iter().map(|episode| (name.as_str(), episode)));
        }
        all.sort_by_key(|(_, episode)| episode.begin);
        all
    }
}

impl Course {
    fn take(
        &mut self,
        state: &NodeState,
        (wall, elapsed): (Duration, Duration),
        step: Option<Duration>,
        control: &ControlLoop,
    ) {
        self.all.add(state, elapsed, control);
        if let Some(step) = step {
            if self.ticks.last().is_none_or(|(begin, _)| wall >= *begin + step) {
                self.ticks.push((wall, Sums::default()));
            }
            if let Some((_, sums)) = self.ticks.last_mut() {
                sums.add(state, elapsed, control);
            }
        }
        let kills = state.oom_kills.total();
        if let (Some(before), Some(now)) = (self.kills, kills) {
            // A new agent counts from 0.
            self.nr_kills += now.saturating_sub(before);
        }
        self.kills = kills.or(self.kills);
        if state.shortfall.is_none() {
            return;
        }
        let begin = wall.saturating_sub(elapsed);
        let goes_on = self.episodes.last().is_some_and(|last| begin <= last.end + BREAK_MAX);
        if !goes_on {
            let (missing, reasons) = (PerResource::default(), Vec::new());
            self.episodes.push(Episode { begin, end: wall, missing, is_starved: false, reasons });
        }
        if let Some(last) = self.episodes.last_mut() {
            last.end = wall;
            last.note(state, elapsed);
        }
    }

    fn note_deaths(&mut self, node: &TreeNode, state: &NodeState, wall: Duration) {
        for death in state.deaths.newest() {
            self.nr_deaths += 1;
            if self.deaths.len() < DEATHS_MAX {
                self.deaths.push((wall, death::status(node, death, death.at)));
            }
        }
    }

    /// Course in rows of equal length, each with its beginning.
    pub(crate) fn rows(&self) -> Vec<(Duration, Sums)> {
        let (Some(first), Some(last)) = (self.ticks.first(), self.ticks.last()) else {
            return Vec::new();
        };
        let length = ((last.0 - first.0) / ROWS).max(Duration::from_secs(1));
        let mut rows: Vec<(Duration, Sums)> = Vec::new();
        for (wall, tick) in &self.ticks {
            match rows.last_mut().filter(|(begin, _)| *wall < *begin + length) {
                Some((_, sums)) => sums.and(tick),
                None => rows.push((*wall, tick.clone())),
            }
        }
        rows
    }
}

// --- as JSON ---

#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    host: &'a str,
    begin: String,
    end: String,
    ticks: u64,
    gaps: Vec<[String; 2]>,
    segments_of_other_versions: usize,
    damaged_files: Vec<DamageReport<'a>>,
    tenants: Vec<TenantReport<'a>>,
}

#[derive(Debug, Serialize)]
struct DamageReport<'a> {
    file: &'a str,
    /// Bytes at its end that cannot be read; absent for the whole file.
    unread_bytes: Option<u64>,
    text: &'a str,
}

#[derive(Debug, Serialize)]
struct TenantReport<'a> {
    name: &'a str,
    #[serde(flatten)]
    sums: SumsReport,
    nr_oom_kills: u64,
    /// Old name of `nr_oom_kills`.
    oom_kills: u64,
    nr_deaths: u64,
    deaths: Vec<DeathReport<'a>>,
    episodes: Vec<EpisodeReport<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    course: Vec<RowReport>,
}

#[derive(Debug, Serialize)]
struct DeathReport<'a> {
    time: String,
    #[serde(flatten)]
    death: &'a DeathStatus,
}

#[derive(Debug, Serialize)]
struct SumsReport {
    seconds: f64,
    usage_cores: f64,
    #[serde(serialize_with = "wire::bytes")]
    usage_memory_bytes: f64,
    allocation_cores: f64,
    #[serde(serialize_with = "wire::bytes")]
    allocation_memory_bytes: f64,
    demand_cores: f64,
    #[serde(serialize_with = "wire::bytes")]
    demand_memory_bytes: f64,
    lacking_seconds: f64,
    starved_seconds: f64,
    throttled_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    credit_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credit_factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_ratio: Option<f64>,
}

#[derive(Debug, Serialize)]
struct RowReport {
    time: String,
    #[serde(flatten)]
    sums: SumsReport,
}

#[derive(Debug, Serialize)]
struct EpisodeReport<'a> {
    begin: String,
    end: String,
    missing_cores: f64,
    #[serde(serialize_with = "wire::bytes")]
    missing_memory_bytes: f64,
    starved: bool,
    reasons: Vec<ReasonReport<'a>>,
}

#[derive(Debug, Serialize)]
struct ReasonReport<'a> {
    kind: ReasonKind,
    seconds: f64,
    text: &'a str,
}

impl Sums {
    fn report(&self) -> SumsReport {
        let (used, entitled, wanted) = (self.used(), self.entitled(), self.wanted());
        SumsReport {
            seconds: self.time.as_secs_f64(),
            usage_cores: used[CPU],
            usage_memory_bytes: used[MEMORY],
            allocation_cores: entitled[CPU],
            allocation_memory_bytes: entitled[MEMORY],
            demand_cores: wanted[CPU],
            demand_memory_bytes: wanted[MEMORY],
            lacking_seconds: self.lacking.as_secs_f64(),
            starved_seconds: self.starved.as_secs_f64(),
            throttled_seconds: self.throttled.as_secs_f64(),
            credit_seconds: self.credit().map(|(seconds, _)| seconds),
            credit_factor: self.credit().map(|(_, factor)| factor),
            disk_ratio: self.disk_ratio(),
        }
    }
}

impl Past {
    pub(crate) fn report(&self) -> Report<'_> {
        let stamp = time::stamp;
        let tenants = self.tenants.iter().map(|(name, course)| TenantReport {
            name,
            sums: course.all.report(),
            nr_oom_kills: course.nr_kills,
            oom_kills: course.nr_kills,
            nr_deaths: course.nr_deaths,
            deaths: course
                .deaths
                .iter()
                .map(|(wall, death)| DeathReport { time: stamp(*wall), death })
                .collect(),
            episodes: course
                .episodes
                .iter()
                .map(|episode| EpisodeReport {
                    begin: stamp(episode.begin),
                    end: stamp(episode.end),
                    missing_cores: episode.missing[CPU],
                    missing_memory_bytes: episode.missing[MEMORY],
                    starved: episode.is_starved,
                    reasons: episode
                        .reasons
                        .iter()
                        .map(|(kind, time, _, text)| ReasonReport {
                            kind: *kind,
                            seconds: time.as_secs_f64(),
                            text,
                        })
                        .collect(),
                })
                .collect(),
            course: course
                .rows()
                .iter()
                .map(|(begin, sums)| RowReport { time: stamp(*begin), sums: sums.report() })
                .collect(),
        });
        Report {
            host: &self.host,
            begin: stamp(self.first),
            end: stamp(self.last),
            ticks: self.nr_ticks,
            gaps: self.gaps.iter().map(|(from, to)| [stamp(*from), stamp(*to)]).collect(),
            segments_of_other_versions: self.nr_other_versions,
            damaged_files: self
                .damaged
                .iter()
                .map(|damage| DamageReport {
                    file: &damage.file,
                    unread_bytes: damage.unread_bytes,
                    text: &damage.text,
                })
                .collect(),
            tenants: tenants.collect(),
        }
    }
}
