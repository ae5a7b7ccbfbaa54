//! A scenario file, read: text in, a valid scenario or its first error out.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::codes::{CONFLICT, COUNT_MAX, FORMAT, NotNegative, Positive, TOO_LONG};
use super::keys::{CreditsKeys, EstimatorKeys, File, ReserveKeys, SplitsKeys};
use super::measure::TooMany;
use super::reading::{Reading, items};
use super::rules::{charge, check_keys};
use super::scenario::{Kind, Named, Scenario};
use super::{hosted, indices};
use crate::problem::parse;
use crate::text::short;
use tenantd_policy::Report;
use tenantd_policy::file::{Cause, Refusal};
use tenantd_policy::model::CreditsPolicy;
use tenantd_policy::report::Source;
use tenantd_policy::tree::{Entry, Node};
use tenantd_queue::concurrency::Drivers;
use tenantd_queue::discipline::Parameters;
use tenantd_queue::simulation::Arrival;
use tenantd_queue::{Estimator, Machine, Reserve, Ties, multilevel};

/// A scenario, and the place of its length in the text.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) scenario: Scenario,
    pub(super) places: Places,
}

/// Places for findings that only a run can make.
#[derive(Debug)]
pub(super) struct Places {
    source: Arc<Source>,
    horizon: Range<usize>,
}

impl Places {
    /// The finding of a simulation that runs for too long.
    pub(super) fn too_many(self, at: TooMany) -> Report {
        let (message, help) = match at {
            TooMany::Dispatches(time) => (
                format!("too many dispatches, after {} s already", short(time)),
                "a nearer horizon, or larger costs",
            ),
            TooMany::Listed => (
                format!("more than {} dispatches to list", Scenario::LISTED_MAX),
                "`list_dispatches: false` leaves them out",
            ),
        };
        Refusal::new(TOO_LONG, self.horizon, message).help(help).report(&self.source, &FORMAT)
    }
}

/// Reads a scenario.
///
/// # Errors
/// The first error.
pub(super) fn read(name: &str, text: Vec<u8>) -> Result<Parsed, Report> {
    parse(name, text, &FORMAT, |source, tree| {
        let file: File = tree.read()?;
        let horizon = tree.get("horizon").map_or(tree.span(), |entry| entry.value.span());
        let places = Places { source: Arc::clone(source), horizon };
        Ok(Parsed { scenario: scenario(file, tree)?, places })
    })
}

fn scenario(file: File, tree: &Node) -> Result<Scenario, Refusal> {
    let is_hosted = hosted::is_asked_for(tree);
    check_keys(&file, is_hosted, tree)?;
    let charge = charge(&file, is_hosted, tree)?;
    let given = tree.get("capacity").map(|entry| entry.value.map()).transpose()?;
    if let (Some([]), Some(entry)) = (given, tree.get("capacity")) {
        let empty = Refusal::new(Cause::MissingKey, entry.value.span(), "there is no resource");
        return Err(empty.help("say what there is: `{ cpu: 9, memory: 18 }`"));
    }
    let amount = |entry: &Entry| Ok(entry.read::<Positive>()?.0);
    let capacity: Option<Vec<f64>> =
        given.map(|given| given.iter().map(amount).collect()).transpose()?;
    let kind = file.kind(capacity.as_ref());
    let (reserve, credits, splits) = (file.reserve(), file.credits(), file.splits());
    let names = given.unwrap_or_default().iter().map(|entry| entry.key.to_string());
    let mut reading = Reading {
        discipline: file.discipline,
        resources: names.collect(),
        defaults: Box::default(),
        tenants: Vec::new(),
        names: HashMap::new(),
        is_open: file.tenants.is_none(),
        is_hosted,
    };
    reading.defaults = reading.amounts(tree, "defaults")?;
    reading.tenants(tree)?;
    reading.backlogged(tree)?;
    let arrivals = reading.arrivals(file.arrivals, tree)?;
    let horizon = file.horizon.0;
    reading.generators(file.generators, tree, horizon)?;
    let jobs = reading.jobs(file.jobs, tree)?;
    if reading.tenants.is_empty() {
        let start = tree.start as usize;
        let none = Refusal::new(Cause::MissingKey, start..start + 1, "there are no tenants");
        return Err(none.help("name them under `tenants`, `backlogged` or `generators`"));
    }
    let of_all = (&reading.resources[..], capacity.as_deref().unwrap_or_default());
    if is_hosted {
        hosted::check_amounts(tree, of_all, &reading.tenants)?;
    }
    let numbered = indices::numbered(&file.indices, tree, of_all, &reading.tenants)?;
    Ok(Scenario {
        machine: Machine {
            workers: file.workers.0 as u32,
            rate: file.rate.map_or(1.0, |rate| rate.0),
        },
        horizon,
        warmup: file.warmup.map_or(0.0, |warmup| warmup.0),
        charge,
        quantum: file.quantum.map(|quantum| quantum.0),
        donates: file.donation.unwrap_or(false),
        sample: file.sample.map(|sample| sample.0),
        lists_dispatches: file.list_dispatches.unwrap_or(true),
        seed: file.seed.map_or(1, |seed| seed.0),
        arrivals,
        jobs,
        capacity,
        resources: reading.resources,
        numbered,
        reserve,
        credits,
        splits,
        is_hosted,
        kind,
        tenants: reading.tenants,
    })
}

impl File {
    fn kind(&self, capacity: Option<&Vec<f64>>) -> Kind {
        let Named::Queue(name) = self.discipline else { return Kind::Gps };
        let EstimatorKeys { alpha, initial } = &self.estimator;
        let discipline = name.with(&Parameters {
            ageing: self.ageing.map_or(0.0, |ageing| ageing.0),
            alpha: alpha.map_or(Estimator::ALPHA, |alpha| alpha.0),
            initial: initial.map_or(1.0, |initial| initial.0),
            virtual_time: self.virtual_time,
            capacity: capacity.map_or_else(|| vec![self.workers.0 as f64], Vec::clone),
            ties: Ties::Earlier,
            multiplier: self.multiplier.map_or(multilevel::MULTIPLIER, |it| it.0),
        });
        Kind::Queue(name, discipline)
    }

    fn reserve(&self) -> Option<Reserve> {
        let ReserveKeys { workers, below } = self.reserve.as_ref()?;
        Some(Reserve { from: (self.workers.0 - workers.0) as u32, below: below.0 })
    }

    pub(super) fn credits(&self) -> Option<CreditsPolicy> {
        let (CreditsKeys { half_life, cap }, default) =
            (self.credits.as_ref()?, CreditsPolicy::default());
        Some(CreditsPolicy {
            half_life: half_life.map_or(default.half_life, |it| it.0),
            cap: cap.map_or(default.cap, |it| it.0),
            ..default
        })
    }

    /// All tasks together have splits for twice the workers unless the file says otherwise, each task first 3.
    fn splits(&self) -> Option<Drivers> {
        let SplitsKeys { min, min_per_task, max_per_task } = self.splits.as_ref()?;
        Some(Drivers {
            min: min.map_or(2 * self.workers.0, |min| min.0) as u32,
            min_per_task: min_per_task.map_or(3, |min| min.0) as u32,
            max_per_task: max_per_task.map_or(COUNT_MAX, |max| max.0) as u32,
        })
    }
}

impl Reading {
    /// The work that arrives at given times.
    fn arrivals(
        &mut self,
        arrivals: Vec<(NotNegative, String, NotNegative)>,
        tree: &Node,
    ) -> Result<Vec<Arrival>, Refusal> {
        let mut read = Vec::with_capacity(arrivals.len());
        for ((time, name, cost), item) in arrivals.into_iter().zip(items(tree, "arrivals")) {
            let tenant = self.tenant(&name, item.list()[1].span())?;
            let of = &self.tenants[tenant.0 as usize];
            if of.terms.endless {
                let message = "a backlogged tenant has no arrivals of its own";
                return Err(Refusal::new(CONFLICT, item.span(), message));
            }
            read.push(Arrival { time: time.0, tenant, work: of.request(cost.0) });
        }
        // A stable sort: simultaneous arrivals keep the order of the text.
        read.sort_by(|a, b| a.time.total_cmp(&b.time));
        Ok(read)
    }
}
