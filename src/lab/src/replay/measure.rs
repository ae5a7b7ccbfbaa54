//! Comparison of the recorded shares with those of the other policy, over time.
//!
//! A tenant is *short* in a tick if it is entitled to less than nine tenths of its demand. Its demand is
//! the larger of the estimates of both loops.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::forecast::{self, Forecast, Forecasts, MINUTE_SECONDS, Minute, Model, Wish};
use super::origin::Origin;
use super::rival::{Rival, Tick};
use crate::{text, time};
use tenantd_control::report::reason::SEEN_CORES_MIN;
use tenantd_control::share::credit::Credit;
use tenantd_control::state::NodeState;
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_core::resource::{CPU, MEMORY, PerResource, Resource, wire};
use tenantd_host::recording::tape::{Damage, Tape};

/// A tenant with less than this part of its demand is short.
const SHORT_RATIO: f64 = 0.9;
/// Points of a curve of the page; more ticks are averaged.
pub(super) const POINTS_MAX: usize = 960;

/// Comparison over the whole recording.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) host: String,
    pub(super) nr_ticks: u64,
    pub(super) first: Duration,
    pub(super) last: Duration,
    pub(super) time: Duration,
    pub(super) tenants: BTreeMap<String, Both>,
    pub(super) nr_writes: [u64; 2],
    pub(super) notes: Vec<String>,
    other_versions: BTreeMap<String, u64>,
    damaged: Vec<Damage>,
    /// Ticks that one point of the curves averages.
    per_point: u64,
}

#[derive(Debug, Default)]
pub(super) struct Both {
    pub(super) time: Duration,
    pub(super) used: PerResource<f64>,
    pub(super) wanted: PerResource<f64>,
    /// The recorded side, and the side of the other policy.
    pub(super) sides: [Side; 2],
    /// Means over time.
    pub(super) points: Vec<Point>,
}

#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) entitled: PerResource<f64>,
    pub(super) short: PerResource<Duration>,
    pub(super) unmet: PerResource<f64>,
    pub(super) dop: f64,
    /// Mean credit in seconds and mean factor, over time; `None` if the policy has no credits.
    pub(super) credit: Option<(f64, f64)>,
}

/// Means of some ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Point {
    nr_ticks: u64,
    seconds: f64,
    pub(super) used: PerResource<f64>,
    pub(super) entitled: [PerResource<f64>; 2],
    pub(super) model: Model,
}

/// One tenant in one tick.
#[derive(Clone, Copy, Debug)]
struct Now {
    used: PerResource<f64>,
    wanted: PerResource<f64>,
    entitled: [PerResource<f64>; 2],
    wish: Wish,
    dop: [u32; 2],
    credit: [Option<(f64, f64)>; 2],
}

impl Now {
    fn of(
        [was, would]: [&NodeState; 2],
        limits: [Option<f64>; 2],
        has_credits: [bool; 2],
    ) -> Option<Now> {
        let credit = |state: &NodeState, has_credits: bool| {
            let Credit { account, entry, .. } = &state.credit;
            has_credits.then_some((entry.bank_seconds, account.factor))
        };
        let usage = was.usage.as_ref()?;
        let demand = |state: &NodeState, r| state.demand.map_or(0.0, |demand| demand.amount[r]);
        let wanted = PerResource::from_fn(|r| demand(was, r).max(demand(would, r)));
        Some(Now {
            used: PerResource::from_fn(|r| usage.used(r).unwrap_or(0.0)),
            wanted,
            wish: Wish::of([was, would], limits, wanted[CPU]),
            entitled: [was.target.allocation, would.target.allocation],
            dop: [was, would].map(|state| state.width.dop().unwrap_or(0)),
            credit: [credit(was, has_credits[0]), credit(would, has_credits[1])],
        })
    }
}

/// The tenants that both loops know, with their states.
fn both<'a>(
    recorded: &'a ControlLoop,
    rival: &'a Rival,
) -> impl Iterator<Item = (&'a str, Now)> + 'a {
    let has_credits = [recorded, &rival.control].map(|it| it.settings().credits.is_some());
    let nodes = rival.control.tree().nodes().iter().zip(rival.control.states()).zip(&rival.origins);
    nodes.filter(|((node, _), _)| node.is_leaf).filter_map(move |((node, would), origin)| {
        let origin = (*origin)?;
        let was = recorded.states().get(origin)?;
        let limit_was = recorded.tree().nodes().get(origin).and_then(|node| node.limit[CPU]);
        let limits = [limit_was, node.limit[CPU]];
        Some((node.path.as_str(), Now::of([was, would], limits, has_credits)?))
    })
}

impl Comparison {
    pub(super) fn begin(&mut self, tape: &Tape) {
        self.host.clone_from(&tape.host);
        self.per_point = self.per_point.max(1);
    }

    pub(super) fn note_other_version(&mut self, recorder: String) {
        *self.other_versions.entry(recorder).or_default() += 1;
    }

    pub(super) fn note_damage(&mut self, damage: impl IntoIterator<Item = Damage>) {
        self.damaged.extend(damage);
    }

    fn damage(&self) -> String {
        let all = self.damaged.iter().map(Damage::to_string);
        format!("damaged files: {}; check the disk", text::names(all))
    }

    /// Remedy for a recording without a tick that can be replayed.
    pub(super) fn unreplayed(&self) -> String {
        let all: Vec<&str> = self.other_versions.keys().map(String::as_str).collect();
        let mut why = String::new();
        if !all.is_empty() {
            let recorders = all.join(" and ");
            why =
                format!("; its files were recorded by {recorders}: replay them with that version");
        }
        if !self.damaged.is_empty() {
            why += &format!("; {}", self.damage());
        }
        why
    }

    /// Notes the tenants that one side lacks, and the files that cannot be replayed.
    pub(super) fn note_unmatched(&mut self, rival: &Rival) {
        let is_whole = self.other_versions.is_empty() && self.damaged.is_empty();
        let absent = if is_whole {
            "not in the recording, so idle throughout"
        } else {
            "not in the files that can be replayed, so idle throughout"
        };
        let seen = &rival.seen;
        let left_out = seen.left_out().iter().map(String::as_str).collect();
        for (what, tenants) in [
            (absent, seen.never(Origin::Absent)),
            ("a group in the recording, so idle throughout", seen.never(Origin::Group)),
            (
                "several tenants have the last name, so idle throughout (only the recorded path chooses one)",
                seen.never(Origin::Ambiguous),
            ),
            ("in a part of the recording only, and idle in the rest", seen.sometimes()),
            ("no tenants of the policy, so work of no tenant", left_out),
        ] {
            if !tenants.is_empty() {
                self.notes.push(format!("{what}: {}", text::names(tenants)));
            }
        }
        for (recorder, count) in &self.other_versions {
            let files = if *count == 1 { "file" } else { "files" };
            self.notes.push(format!("{count} {files} of {recorder} cannot be replayed here"));
        }
        if !self.damaged.is_empty() {
            self.notes.push(self.damage());
        }
    }

    pub(super) fn take(&mut self, tick: &Tick, recorded: &ControlLoop, rival: &Rival) {
        if tick.was.is_void {
            return;
        }
        if self.nr_ticks == 0 {
            self.first = tick.wall;
        }
        (self.nr_ticks, self.last) = (self.nr_ticks + 1, tick.wall);
        for (side, decision) in [&tick.was, &tick.would].into_iter().enumerate() {
            self.nr_writes[side] += decision.actions.len() as u64;
        }
        let Some(elapsed) = tick.was.elapsed else { return };
        self.time += elapsed;
        let at = tick.wall.saturating_sub(self.first).as_secs_f64();
        let tenants: Vec<(&str, Now)> = both(recorded, rival).collect();
        let wishes: Vec<Wish> = tenants.iter().map(|(_, now)| now.wish).collect();
        let capacity = [&tick.was, &tick.would].map(|it| it.capacity.divided[CPU]);
        for ((name, now), model) in tenants.into_iter().zip(forecast::models(&wishes, capacity)) {
            if !self.tenants.contains_key(name) {
                self.tenants.insert(name.to_string(), Both::default());
            }
            if let Some(tenant) = self.tenants.get_mut(name) {
                tenant.take(&now, model, elapsed, at, self.per_point);
            }
        }
        if self.tenants.values().any(|tenant| tenant.points.len() >= 2 * POINTS_MAX) {
            self.per_point *= 2;
            self.tenants.values_mut().for_each(Both::halve);
        }
    }
}

impl Both {
    /// True if a table shows any use or demand of it, or a different share.
    pub(super) fn has_use(&self) -> bool {
        let is_seen = |r: Resource| {
            let of_policy = |side: &Side| self.mean(side.entitled[r]);
            let least = if r == CPU { SEEN_CORES_MIN } else { 1.0 };
            let change = of_policy(&self.sides[0]) - of_policy(&self.sides[1]);
            [self.mean(self.used[r]), self.mean(self.wanted[r]), change.abs()]
                .iter()
                .any(|it| *it >= least)
        };
        Resource::ALL.into_iter().any(is_seen)
    }

    fn take(&mut self, now: &Now, model: Model, elapsed: Duration, at: f64, per_point: u64) {
        let seconds = elapsed.as_secs_f64();
        self.time += elapsed;
        for r in Resource::ALL {
            self.used[r] += now.used[r] * seconds;
            self.wanted[r] += now.wanted[r] * seconds;
            for (side, entitled) in self.sides.iter_mut().zip(now.entitled) {
                side.entitled[r] += entitled[r] * seconds;
                if entitled[r] < now.wanted[r] * SHORT_RATIO && now.wanted[r] > r.noise() {
                    side.short[r] += elapsed;
                }
                side.unmet[r] += (now.wanted[r] - entitled[r]).max(0.0) * seconds;
            }
        }
        for (side, dop) in self.sides.iter_mut().zip(now.dop) {
            side.dop += f64::from(dop) * seconds;
        }
        for (side, credit) in self.sides.iter_mut().zip(now.credit) {
            if let Some((bank, factor)) = credit {
                let sum = side.credit.get_or_insert_default();
                *sum = (sum.0 + bank * seconds, sum.1 + factor * seconds);
            }
        }
        let is_full = |point: &Point| point.nr_ticks >= per_point;
        if self.points.last().is_none_or(is_full) {
            self.points.push(Point { seconds: at, ..Point::default() });
        }
        if let Some(point) = self.points.last_mut() {
            let Now { used, entitled, .. } = *now;
            let tick = Point { nr_ticks: 1, seconds: at, used, entitled, model };
            *point = Point::joined(&[*point, tick]);
        }
    }

    /// Halves the number of points by averaging pairs.
    fn halve(&mut self) {
        self.points = self.points.chunks(2).map(Point::joined).collect();
    }

    /// Points joined to minutes.
    fn minutes(&self) -> Vec<Minute> {
        let begin = |point: &Point| (point.seconds / MINUTE_SECONDS).floor() * MINUTE_SECONDS;
        let minute = |points: &[Point]| {
            let Point { used, model, .. } = Point::joined(points);
            let begin_seconds = points.first().map_or(0.0, begin);
            Minute { begin_seconds, used_cores: used[CPU], model }
        };
        self.points.chunk_by(|one, other| begin(one) == begin(other)).map(minute).collect()
    }

    /// Mean credit of a side.
    pub(super) fn credit(&self, side: &Side) -> Option<(f64, f64)> {
        side.credit.map(|(seconds, factor)| (self.mean(seconds), self.mean(factor)))
    }

    /// The mean over time of a sum.
    pub(super) fn mean(&self, sum: f64) -> f64 {
        sum / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl Point {
    /// Seconds since the beginning.
    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The means of all ticks of some points.
    pub(super) fn joined(points: &[Point]) -> Point {
        let join = |sum: Point, point: &Point| {
            let (one, two) = (sum.nr_ticks as f64, point.nr_ticks as f64);
            let mean = |old: PerResource<f64>, new: PerResource<f64>| {
                PerResource::from_fn(|r| (old[r] * one + new[r] * two) / (one + two))
            };
            Point {
                nr_ticks: sum.nr_ticks + point.nr_ticks,
                seconds: sum.seconds,
                used: mean(sum.used, point.used),
                entitled: [0, 1].map(|side| mean(sum.entitled[side], point.entitled[side])),
                model: sum.model.mean(one, &point.model, two),
            }
        };
        let Some((first, others)) = points.split_first() else { return Point::default() };
        others.iter().fold(*first, join)
    }
}

// --- as JSON ---

#[derive(Debug, Serialize)]
pub(super) struct Line {
    time: String,
    tenants: BTreeMap<String, TickOf>,
}

#[derive(Debug, Serialize)]
struct TickOf {
    usage_cores: f64,
    #[serde(serialize_with = "wire::bytes")]
    usage_memory_bytes: f64,
    demand_cores: f64,
    #[serde(serialize_with = "wire::bytes")]
    demand_memory_bytes: f64,
    was: Entitled,
    would: Entitled,
}

#[derive(Debug, Serialize)]
struct Entitled {
    allocation_cores: f64,
    #[serde(serialize_with = "wire::bytes")]
    allocation_memory_bytes: f64,
    dop: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    credit_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credit_factor: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct MinuteLine<'a> {
    minute: String,
    tenants: BTreeMap<&'a str, Forecast>,
}

#[derive(Debug, Serialize)]
pub(super) struct Summary<'a> {
    host: &'a str,
    begin: String,
    end: String,
    ticks: u64,
    writes: Pair,
    notes: &'a [String],
    tenants: BTreeMap<&'a str, TenantSummary>,
}

#[derive(Debug, Serialize)]
struct Pair {
    was: u64,
    would: u64,
}

#[derive(Debug, Serialize)]
struct TenantSummary {
    seconds: f64,
    usage_cores: f64,
    #[serde(serialize_with = "wire::bytes")]
    usage_memory_bytes: f64,
    demand_cores: f64,
    #[serde(serialize_with = "wire::bytes")]
    demand_memory_bytes: f64,
    forecast: Forecast,
    was: SideSummary,
    would: SideSummary,
}

#[derive(Debug, Serialize)]
struct SideSummary {
    #[serde(flatten)]
    entitled: Entitled,
    short_of_cpu_seconds: f64,
    short_of_memory_seconds: f64,
    unmet_cores: f64,
    #[serde(serialize_with = "wire::bytes")]
    unmet_memory_bytes: f64,
}

impl Comparison {
    /// One tick of both; `None` if nothing was decided in it.
    pub(super) fn line(&self, tick: &Tick, recorded: &ControlLoop, rival: &Rival) -> Option<Line> {
        if tick.was.is_void {
            return None;
        }
        let of = |now: Now| {
            let side = |side: usize| Entitled {
                allocation_cores: now.entitled[side][CPU],
                allocation_memory_bytes: now.entitled[side][MEMORY],
                dop: f64::from(now.dop[side]),
                credit_seconds: now.credit[side].map(|(seconds, _)| seconds),
                credit_factor: now.credit[side].map(|(_, factor)| factor),
            };
            TickOf {
                usage_cores: now.used[CPU],
                usage_memory_bytes: now.used[MEMORY],
                demand_cores: now.wanted[CPU],
                demand_memory_bytes: now.wanted[MEMORY],
                was: side(0),
                would: side(1),
            }
        };
        let tenants = both(recorded, rival).map(|(name, now)| (name.to_string(), of(now)));
        Some(Line { time: time::stamp(tick.wall), tenants: tenants.collect() })
    }

    /// The forecasts of all tenants. Recordings above half a day have longer minutes: one for each of their points.
    pub(super) fn forecasts(&self) -> Forecasts<'_> {
        let tenants = self.tenants.iter();
        forecast::forecasts(tenants.map(|(name, of)| (name.as_str(), of.minutes())).collect())
    }

    /// The forecasts of each minute of the recording.
    pub(super) fn minutes<'a>(&self, forecasts: &Forecasts<'a>) -> Vec<MinuteLine<'a>> {
        let mut lines: BTreeMap<Duration, BTreeMap<&str, Forecast>> = BTreeMap::new();
        for (name, minutes) in &forecasts.0 {
            for (seconds, forecast) in minutes {
                let at = self.first + Duration::from_secs_f64(*seconds);
                lines.entry(at).or_default().insert(name, *forecast);
            }
        }
        let line = |(at, tenants)| MinuteLine { minute: time::stamp(at), tenants };
        lines.into_iter().map(line).collect()
    }

    pub(super) fn summary(&self, forecasts: &Forecasts<'_>) -> Summary<'_> {
        let tenant = |name: &str, tenant: &Both| {
            let side = |side: &Side| SideSummary {
                entitled: Entitled {
                    allocation_cores: tenant.mean(side.entitled[CPU]),
                    allocation_memory_bytes: tenant.mean(side.entitled[MEMORY]),
                    dop: tenant.mean(side.dop),
                    credit_seconds: tenant.credit(side).map(|(seconds, _)| seconds),
                    credit_factor: tenant.credit(side).map(|(_, factor)| factor),
                },
                short_of_cpu_seconds: side.short[CPU].as_secs_f64(),
                short_of_memory_seconds: side.short[MEMORY].as_secs_f64(),
                unmet_cores: tenant.mean(side.unmet[CPU]),
                unmet_memory_bytes: tenant.mean(side.unmet[MEMORY]),
            };
            TenantSummary {
                seconds: tenant.time.as_secs_f64(),
                usage_cores: tenant.mean(tenant.used[CPU]),
                usage_memory_bytes: tenant.mean(tenant.used[MEMORY]),
                demand_cores: tenant.mean(tenant.wanted[CPU]),
                demand_memory_bytes: tenant.mean(tenant.wanted[MEMORY]),
                forecast: forecasts.mean(name),
                was: side(&tenant.sides[0]),
                would: side(&tenant.sides[1]),
            }
        };
        Summary {
            host: &self.host,
            begin: time::stamp(self.first),
            end: time::stamp(self.last),
            ticks: self.nr_ticks,
            writes: Pair { was: self.nr_writes[0], would: self.nr_writes[1] },
            notes: &self.notes,
            tenants: self
                .tenants
                .iter()
                .map(|(name, of)| (name.as_str(), tenant(name, of)))
                .collect(),
        }
    }
}
