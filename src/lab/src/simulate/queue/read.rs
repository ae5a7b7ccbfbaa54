//! A scenario file, read: text in, a valid scenario or every finding out.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::codes::{self, Allowed, CODES, Whole};
use super::measure::TooMany;
use super::scenario::{Kind, Named, Scenario, Tenant};
use crate::problem;
use crate::problem::OneOf;
use crate::text::short;
use tenantd_policy::Report;
use tenantd_policy::forms::{Count, Keys, Structure, Word};
use tenantd_policy::hint::{nearest, shortened};
use tenantd_policy::key::Flag::Needed;
use tenantd_policy::key::section;
use tenantd_policy::parse::Budget;
use tenantd_policy::reader::Reader;
use tenantd_policy::report::Source;
use tenantd_policy::tree::{Node, Place};
use tenantd_policy::types::Words;
use tenantd_queue::concurrency::Drivers;
use tenantd_queue::discipline::Parameters;
use tenantd_queue::simulation::Arrival;
use tenantd_queue::virtual_time::Method;
use tenantd_queue::{Estimator, Machine, Reserve, TenantId, Ties, multilevel};

section! {
    /// A scenario file.
    pub(super) struct File, FILE {
        /// The decision rule.
        "discipline" => discipline: Option<Named>, Word,
            [Needed("add `discipline: 2dfq`, or another of them")];
        /// Workers of the machine.
        "workers" => workers: Option<u32>, Count { most: 4096, auto: false },
            [Needed("say how many there are: `workers: 2`")];
        /// Cost units that a worker does in a second.
        "rate" => rate: f64 = 1.0, Allowed::POSITIVE;
        /// What drives virtual time.
        "virtual_time" => virtual_time: Option<Method>, OneOf(METHODS);
        /// The tenants, in the order that breaks ties.
        "tenants" => tenants: (), Structure;
        /// Tenants that always have work, and its cost.
        "backlogged" => backlogged: (), Structure;
        /// Work that arrives at given times.
        "arrivals" => arrivals: (), Structure;
        /// When it ends.
        "horizon" => horizon: f64 = 1.0, Allowed::POSITIVE,
            [Needed("say when it ends, in seconds: `horizon: 60`")];
        /// Groups of tenants with random work.
        "generators" => generators: (), Structure;
        /// For what is random.
        "seed" => seed: u64 = 1, Whole::SEED;
        /// What requests hold while they run.
        "capacity" => capacity: (), Structure;
        /// Holdings of the requests of tenants without `holds`.
        "defaults" => defaults: (), Structure;
        /// Sets of requests that wait for each other.
        "jobs" => jobs: (), Structure;
        /// How much priority grows in a second.
        "ageing" => ageing: f64, Allowed::NOT_NEGATIVE;
        /// How costs are estimated.
        "estimator" => estimator: EstimatorKeys, Keys(ESTIMATOR);
        /// Seconds between charges of running requests.
        "refresh" => refresh: Option<f64>, Allowed::POSITIVE;
        /// Times at which running requests are charged.
        "charge" => charge: Option<Charging>, Word;
        /// Workers that take small requests only.
        "reserve" => reserve: ReserveKeys, Keys(RESERVE);
        /// Bounds on the splits of a task.
        "splits" => splits: SplitsKeys, Keys(SPLITS);
        /// Seconds of a slice.
        "quantum" => quantum: Option<f64>, Allowed::POSITIVE;
        /// How much less the next level gets.
        "multiplier" => multiplier: f64 = multilevel::MULTIPLIER,
            Allowed { range: (1.0, 1e3), words: "a number from 1 to 1000" };
        /// Seconds at the beginning that do not count.
        "warmup" => warmup: f64, Allowed::NOT_NEGATIVE;
        /// Seconds between samples.
        "sample" => sample: Option<f64>, Allowed::POSITIVE;
        /// Whether the answer lists every dispatch.
        "list_dispatches" => list_dispatches: bool = true, Word;
    }
}

section! {
    /// `estimator:` how costs are estimated.
    pub(super) struct EstimatorKeys, ESTIMATOR {
        /// The weight of what was seen before.
        "alpha" => alpha: f64 = Estimator::ALPHA, Allowed::PART;
        /// The cost of the first request.
        "initial" => initial: f64 = 1.0, Allowed::NOT_NEGATIVE;
    }
}

/// Definitions of virtual time, by the words of a scenario.
const METHODS: &[(&str, Method)] =
    &[("active", Method::Active), ("served", Method::Served), ("gps", Method::Gps)];

section! {
    /// `reserve:` workers that take small requests only.
    pub(super) struct ReserveKeys, RESERVE {
        /// Number of workers, from the last on.
        "workers" => workers: Option<u64>, Whole { range: (1, 4096) },
            [Needed("say how many: `workers: 1`")];
        /// Cost that their requests are below.
        "below" => below: f64, Allowed::POSITIVE, [Needed("say what is small: `below: 5`")];
    }
}

section! {
    /// `splits:` bounds on the splits of a task that are in the queue or run.
    pub(super) struct SplitsKeys, SPLITS {
        /// All tasks together are filled up to this; twice the workers where it is not given.
        "min" => min: Option<u64>, Whole::SPLITS;
        /// Each task is filled up to this first.
        "min_per_task" => min_per_task: u64 = 3, Whole::SPLITS;
        /// The most of one task.
        "max_per_task" => max_per_task: u64 = Whole::SPLITS.range.1, Whole::COUNT;
    }
}

/// `charge:` when running requests are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charging {
    End,
    Refresh,
    Timer,
}

impl Words for Charging {
    const WORDS: &'static [(&'static str, Charging)] =
        &[("end", Charging::End), ("refresh", Charging::Refresh), ("timer", Charging::Timer)];
}

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
        let mut report = Report::default();
        let finding = codes::TOO_LONG.about(&self.source, message).at(self.horizon, "");
        report.push(finding.help(help));
        report
    }
}

/// Reads a scenario.
///
/// # Errors
/// All findings; only the first one if it makes the rest unreadable.
pub(super) fn read(name: &str, text: Vec<u8>) -> Result<Parsed, Report> {
    let (source, tree) = problem::tree(name, text, Budget::PROBLEM.depth, &codes::TEXT)?;
    let mut report = Report::default();
    let reader = Reader::new(&mut report, &source, &CODES, "");
    let (resources, tenants, names) = (Vec::new(), Vec::new(), HashMap::new());
    let (discipline, defaults) = (None, Box::default());
    let parsed = Scenarios { reader, discipline, resources, defaults, tenants, names }.read(&tree);
    report.sort(std::slice::from_ref(&source));
    match (report.has_errors(), parsed) {
        (false, Some((scenario, horizon))) => {
            Ok(Parsed { scenario, places: Places { source, horizon } })
        }
        _ => Err(report),
    }
}

impl File {
    fn kind(&self, capacity: Option<Vec<f64>>) -> Option<Kind> {
        let Named::Queue(name) = self.discipline? else { return Some(Kind::Gps) };
        let EstimatorKeys { alpha, initial } = self.estimator;
        let workers = f64::from(self.workers.unwrap_or(1));
        let discipline = name.with(&Parameters {
            ageing: self.ageing,
            alpha,
            initial,
            virtual_time: self.virtual_time.unwrap_or_default(),
            capacity: capacity.unwrap_or_else(|| vec![workers]),
            ties: Ties::Earlier,
            multiplier: self.multiplier,
        });
        Some(Kind::Queue(name, discipline))
    }

    fn reserve(&self) -> Option<Reserve> {
        let reserved = u32::try_from(self.reserve.workers?).ok()?;
        let from = self.workers?.saturating_sub(reserved);
        Some(Reserve { from, below: self.reserve.below })
    }

    fn splits(&self) -> Drivers {
        let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let SplitsKeys { min, min_per_task, max_per_task } = self.splits;
        Drivers {
            min: min.map_or(2 * self.workers.unwrap_or(1), count),
            min_per_task: count(min_per_task),
            max_per_task: count(max_per_task),
        }
    }
}

/// Reader that continues after a finding, with a harmless value in the place of the wrong one, to find the
/// rest.
pub(super) struct Scenarios<'r> {
    pub(super) reader: Reader<'r>,
    pub(super) discipline: Option<Named>,
    pub(super) resources: Vec<String>,
    /// Holdings of tenants without `holds`.
    pub(super) defaults: Box<[f64]>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) names: HashMap<Box<str>, TenantId>,
}

impl Scenarios<'_> {
    /// The scenario, and the place of its horizon.
    fn read(mut self, tree: &Node) -> Option<(Scenario, Range<usize>)> {
        let fields = self.reader.fields(FILE, tree)?;
        let mut file = File::default();
        self.reader.values(&fields, &mut file);
        self.discipline = file.discipline;
        let capacity = fields.get("capacity").map(|entry| self.capacity(&entry.value));
        if let Some(defaults) = fields.get("defaults").filter(|_| capacity.is_some()) {
            self.defaults = self.amounts(&defaults.value);
        }
        let tenants = fields.get("tenants");
        if let Some(tenants) = tenants {
            self.tenants(&tenants.value);
        }
        let is_open = tenants.is_none();
        if let Some(backlogged) = fields.get("backlogged") {
            self.backlogged(&backlogged.value, is_open);
        }
        let arrivals = fields.get("arrivals").map(|entry| self.arrivals(&entry.value, is_open));
        if let Some(generators) = fields.get("generators") {
            self.generators(&generators.value, file.horizon);
        }
        let jobs = fields.get("jobs").map(|entry| self.jobs(&entry.value, is_open));
        self.check_work(&file, &fields, tree);
        self.check_keys(&file, &fields);
        let charge = self.charge(&file, &fields);
        let horizon = fields.get("horizon")?.value.span();
        let workers = file.workers?;
        let kind = file.kind(capacity.clone())?;
        let scenario = Scenario {
            machine: Machine { workers, rate: file.rate },
            horizon: file.horizon,
            warmup: file.warmup,
            charge,
            quantum: file.quantum,
            sample: file.sample,
            lists_dispatches: file.list_dispatches,
            seed: file.seed,
            arrivals: arrivals.unwrap_or_default(),
            jobs: jobs.unwrap_or_default(),
            capacity,
            resources: self.resources,
            reserve: file.reserve(),
            splits: fields.get("splits").map(|_| file.splits()),
            kind,
            tenants: self.tenants,
        };
        Some((scenario, horizon))
    }

    /// Reads the capacity, and with it the names of the resources.
    fn capacity(&mut self, node: &Node) -> Vec<f64> {
        let amounts = self.reader.map(node, "a map such as `{ cpu: 9, memory: 18 }`");
        self.reader.duplicates(amounts);
        if node.is_empty() {
            let help = "say what there is: `{ cpu: 9, memory: 18 }`";
            self.reader.find(&codes::MISSING_KEY, node, "there is no resource", help);
        }
        self.resources = amounts.iter().map(|entry| entry.key.to_string()).collect();
        let mut amount = |node: &Node| Allowed::POSITIVE.number(&mut self.reader, node);
        amounts.iter().map(|entry| amount(&entry.value).unwrap_or(1.0)).collect()
    }

    /// Reads the work that arrives at given times.
    fn arrivals(&mut self, node: &Node, is_open: bool) -> Vec<Arrival> {
        let expected = "a list such as `[[0, A, 4]]`: time, tenant, cost";
        let mut arrivals = Vec::new();
        for item in self.reader.list(node, expected) {
            let Some([time, tenant, cost]) = item.items() else {
                self.reader.wrong_type(item, "a list of three: time, tenant, cost", "");
                continue;
            };
            let time = Allowed::NOT_NEGATIVE.number(&mut self.reader, time);
            let cost = Allowed::NOT_NEGATIVE.number(&mut self.reader, cost);
            let tenant = self.tenant(tenant, is_open);
            if let (Some(time), Some(tenant), Some(cost)) = (time, tenant, cost) {
                let work = self.tenants[tenant.0 as usize].request(cost);
                if self.tenants[tenant.0 as usize].terms.endless {
                    let message = "a backlogged tenant has no arrivals of its own";
                    self.reader.find(&codes::CONFLICT, item, message, "");
                }
                arrivals.push(Arrival { time, tenant, work });
            }
        }
        // A stable sort: simultaneous arrivals keep the order of the text.
        arrivals.sort_by(|a, b| a.time.total_cmp(&b.time));
        arrivals
    }

    /// Finds a tenant by its name; adds it if the file does not define tenants.
    pub(super) fn tenant(&mut self, node: &Node, is_open: bool) -> Option<TenantId> {
        let name = self.reader.text(node, "the name of a tenant")?;
        self.named(name, self.reader.place(node), is_open)
    }

    pub(super) fn named(&mut self, name: &str, place: Place, is_open: bool) -> Option<TenantId> {
        if let Some(known) = self.names.get(name) {
            return Some(*known);
        }
        if is_open {
            let tenant = Tenant { holds: self.defaults.clone(), ..Tenant::plain(name) };
            return self.add_tenant(name, &place, tenant);
        }
        let names = self.tenants.iter().map(|tenant| tenant.name.as_str());
        let help = match nearest(name, names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "define it under `tenants`".to_string(),
        };
        let message = format!("there is no tenant `{}`", shortened(name));
        self.reader.report.push(codes::NAME.at(&place, message, "").help(help));
        None
    }

    pub(super) fn add_tenant(
        &mut self,
        name: &str,
        place: &Place,
        tenant: Tenant,
    ) -> Option<TenantId> {
        let id = TenantId(u32::try_from(self.tenants.len()).ok()?);
        if self.names.insert(name.into(), id).is_some() {
            let message = format!("there are two tenants `{}`", shortened(name));
            self.reader.report.push(codes::NAME.at(place, message, ""));
        }
        self.tenants.push(tenant);
        Some(id)
    }
}
