//! A scenario file, read: text in, a valid scenario or every finding out.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::findings::{Allowed, Findings, code, get};
use super::measure::TooMany;
use super::scenario::{Costs, Kind, Name, Scenario, Tenant};
use crate::policy::Report;
use crate::policy::hint::{nearest, shortened};
use crate::policy::parse::{self, Budget};
use crate::policy::report::Source;
use crate::policy::tree::{Entry, Node};
use crate::queue::simulation::{Arrival, Work};
use crate::queue::virtual_time::Method;
use crate::queue::{Discipline, Estimator, Machine, TenantId, multilevel};

/// Values that aliases may add to those of the text.
const ALIASED: usize = 100_000;

/// Workers of one machine.
const WORKERS_MAX: u64 = 4096;

const FILE_KEYS: [&str; 19] = [
    "discipline",
    "workers",
    "rate",
    "virtual_time",
    "tenants",
    "backlogged",
    "arrivals",
    "horizon",
    "generators",
    "seed",
    "capacity",
    "ageing",
    "estimator",
    "refresh",
    "quantum",
    "multiplier",
    "warmup",
    "sample",
    "list_dispatches",
];
const ESTIMATOR_KEYS: [&str; 2] = ["alpha", "initial"];

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
        let mut findings = Findings::new(self.source);
        let (message, help) = match at {
            TooMany::Dispatches(time) => (
                format!("too many dispatches, after {time} s already"),
                "a nearer horizon, or larger costs",
            ),
            TooMany::Listed => (
                format!("more than {} dispatches to list", Scenario::LISTED_MAX),
                "`list_dispatches: false` leaves them out",
            ),
        };
        findings.add(code::TOO_LONG, self.horizon, message, help);
        findings.into_report()
    }
}

/// Reads a scenario.
///
/// # Errors
/// Everything that is wrong with it; the first thing only, where that makes the rest unreadable.
pub(super) fn read(name: &str, text: Vec<u8>) -> Result<Parsed, Report> {
    let text = match String::from_utf8(text) {
        Ok(text) => text,
        Err(error) => {
            let mut findings = Findings::new(Source::new(name, ""));
            let byte = error.utf8_error().valid_up_to();
            findings.add(code::TEXT, 0..0, format!("byte {byte} is not UTF-8"), "");
            return Err(findings.into_report());
        }
    };
    let source = Source::new(name, text);
    let mut reader = Reader::new(Arc::clone(&source));
    // A text without aliases has no more values than bytes: what is beyond is a bomb.
    let budget = Budget { nodes: source.text().len() + ALIASED, ..Budget::PROBLEM };
    match parse::tree(source.text(), budget) {
        Ok(tree) => match reader.scenario(&tree) {
            Some(scenario) if reader.findings.is_empty() => {
                let horizon = get(entries(&tree), "horizon").map(|entry| entry.value.span());
                let places = Places { source, horizon: horizon.unwrap_or(0..0) };
                Ok(Parsed { scenario, places })
            }
            _ => Err(reader.findings.into_report()),
        },
        Err(unparsed) => {
            let help = unparsed.help.unwrap_or_default();
            reader.findings.add(code::TEXT, unparsed.span, unparsed.message, help);
            Err(reader.findings.into_report())
        }
    }
}

fn entries(node: &Node) -> &[Entry] {
    match &node.kind {
        crate::policy::tree::Kind::Map(entries) => entries,
        _ => &[],
    }
}

/// Reads on after a finding, with a harmless value in the place of the wrong one, to find the rest.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) findings: Findings,
    pub(super) resources: Vec<String>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) names: HashMap<Box<str>, TenantId>,
}

impl Reader {
    fn new(source: Arc<Source>) -> Reader {
        let findings = Findings::new(source);
        Reader { findings, resources: Vec::new(), tenants: Vec::new(), names: HashMap::new() }
    }

    fn scenario(&mut self, tree: &Node) -> Option<Scenario> {
        let file = self.findings.map(tree, "a map with `discipline`, `workers` and `horizon`");
        self.findings.check_keys(file, &FILE_KEYS);
        for (key, example) in [
            ("discipline", "add `discipline: 2dfq`, or another of them"),
            ("workers", "say how many there are: `workers: 2`"),
            ("horizon", "say when it ends, in seconds: `horizon: 60`"),
        ] {
            if get(file, key).is_none() {
                let start = tree.start as usize;
                let message = format!("`{key}` is missing");
                self.findings.add(code::MISSING_KEY, start..start + 1, message, example);
            }
        }
        let capacity = get(file, "capacity").map(|entry| self.capacity(&entry.value));
        let horizon = self.maybe(file, "horizon", Allowed::POSITIVE).unwrap_or(1.0);
        if let Some(tenants) = get(file, "tenants") {
            self.tenants(&tenants.value);
        }
        let is_open = get(file, "tenants").is_none();
        if let Some(backlogged) = get(file, "backlogged") {
            self.backlogged(&backlogged.value, is_open);
        }
        let arrivals = get(file, "arrivals").map(|entry| self.arrivals(&entry.value, is_open));
        if let Some(generators) = get(file, "generators") {
            self.generators(&generators.value, horizon);
        }
        self.check_work(file, tree);
        let seed =
            get(file, "seed").and_then(|entry| self.findings.count(&entry.value, 0, 1 << 53));
        let workers = get(file, "workers")
            .and_then(|entry| self.findings.count(&entry.value, 1, WORKERS_MAX));
        let kind = get(file, "discipline").and_then(|entry| self.kind(file, entry, capacity));
        let lists = get(file, "list_dispatches").and_then(|entry| self.findings.flag(&entry.value));
        let rate = self.maybe(file, "rate", Allowed::POSITIVE).unwrap_or(1.0);
        Some(Scenario {
            machine: Machine { workers: workers? as u32, rate },
            horizon,
            warmup: self.maybe(file, "warmup", Allowed::NOT_NEGATIVE).unwrap_or(0.0),
            refresh: self.maybe(file, "refresh", Allowed::POSITIVE),
            quantum: self.maybe(file, "quantum", Allowed::POSITIVE),
            sample: self.maybe(file, "sample", Allowed::POSITIVE),
            lists_dispatches: lists.unwrap_or(true),
            seed: seed.unwrap_or(1),
            arrivals: arrivals.unwrap_or_default(),
            kind: kind?,
            tenants: std::mem::take(&mut self.tenants),
        })
    }

    /// Rules about the whole: there are tenants, and repetitions are slow enough.
    fn check_work(&mut self, file: &[Entry], tree: &Node) {
        if self.tenants.is_empty() && self.findings.is_empty() {
            let help = "name them under `tenants`, `backlogged` or `generators`";
            let span = tree.start as usize..tree.start as usize + 1;
            self.findings.add(code::MISSING_KEY, span, "there are no tenants", help);
        }
        let Some(horizon) = self.maybe(file, "horizon", Allowed::ANY) else { return };
        for key in ["refresh", "sample", "quantum"] {
            if let Some(period) = self.maybe(file, key, Allowed::ANY)
                && let Some(entry) = get(file, key)
                && period > 0.0
                && horizon / period > 1e7
            {
                let help = "at most ten million times before the horizon";
                let message = format!("`{key}` is too short");
                self.findings.add(code::TOO_LONG, entry.value.span(), message, help);
            }
        }
    }

    pub(super) fn maybe(&mut self, map: &[Entry], key: &str, allowed: Allowed) -> Option<f64> {
        get(map, key).and_then(|entry| self.findings.number(&entry.value, allowed))
    }

    fn kind(&mut self, file: &[Entry], entry: &Entry, capacity: Option<Vec<f64>>) -> Option<Kind> {
        let name = self.findings.one_of(&entry.value, &Name::ALL)?;
        let methods = [("active", Method::Active), ("gps", Method::Gps)];
        let virtual_time = get(file, "virtual_time");
        let method = virtual_time.and_then(|entry| self.findings.one_of(&entry.value, &methods));
        let ageing = self.maybe(file, "ageing", Allowed::NOT_NEGATIVE);
        let multiplier = Allowed { range: (1.0, 1e3), words: "from 1 to 1000" };
        let multiplier = self.maybe(file, "multiplier", multiplier);
        let estimator = get(file, "estimator").map(|entry| self.estimator(&entry.value));
        let (alpha, initial) = estimator.unwrap_or((Estimator::ALPHA, 1.0));
        Some(Kind::Queue(match name {
            Name::Gps => return Some(Kind::Gps),
            Name::Fifo => Discipline::Fifo,
            Name::Priority => Discipline::Priority { ageing: ageing.unwrap_or(0.0) },
            Name::RoundRobin => Discipline::RoundRobin,
            Name::Drf => {
                let workers = self.maybe(file, "workers", Allowed::ANY).unwrap_or(1.0);
                Discipline::Drf { capacity: capacity.unwrap_or_else(|| vec![workers.max(1.0)]) }
            }
            Name::Multilevel => {
                Discipline::Multilevel { multiplier: multiplier.unwrap_or(multilevel::MULTIPLIER) }
            }
            Name::Fair(rule, costs) => {
                let estimator = match costs {
                    Costs::Declared => Estimator::Declared,
                    Costs::Average => Estimator::MovingAverage { alpha, initial },
                    Costs::Pessimistic => Estimator::Pessimistic { alpha, initial },
                };
                let method = method.unwrap_or_default();
                if let (Method::Gps, true, Some(entry)) =
                    (method, costs != Costs::Declared, virtual_time)
                {
                    let message = "GPS cannot be followed without knowing costs";
                    let help = "estimating disciplines have `virtual_time: active`";
                    self.findings.add(code::CONFLICT, entry.value.span(), message, help);
                }
                Discipline::Fair { rule, estimator, virtual_time: method }
            }
        }))
    }

    fn estimator(&mut self, node: &Node) -> (f64, f64) {
        let fields = self.findings.map(node, "a map such as `{ alpha: 0.99, initial: 1 }`");
        self.findings.check_keys(fields, &ESTIMATOR_KEYS);
        let alpha = self.maybe(fields, "alpha", Allowed::PART).unwrap_or(Estimator::ALPHA);
        (alpha, self.maybe(fields, "initial", Allowed::NOT_NEGATIVE).unwrap_or(1.0))
    }

    /// The capacity, and with it the names of the resources.
    fn capacity(&mut self, node: &Node) -> Vec<f64> {
        let amounts = self.findings.map(node, "a map such as `{ cpu: 9, memory: 18 }`");
        self.findings.check_duplicates(amounts);
        if amounts.is_empty() && self.findings.is_empty() {
            let help = "say what there is: `{ cpu: 9, memory: 18 }`";
            self.findings.add(code::MISSING_KEY, node.span(), "there is no resource", help);
        }
        self.resources = amounts.iter().map(|entry| entry.key.to_string()).collect();
        let mut amount = |entry: &Entry| self.findings.number(&entry.value, Allowed::POSITIVE);
        amounts.iter().map(|entry| amount(entry).unwrap_or(1.0)).collect()
    }

    /// Work that arrives at given times.
    fn arrivals(&mut self, node: &Node, is_open: bool) -> Vec<Arrival> {
        let expected = "a list such as `[[0, A, 4]]`: time, tenant, cost";
        let mut arrivals = Vec::new();
        for item in self.findings.list(node, expected) {
            let [time, tenant, cost] = self.findings.list(item, "time, tenant, cost") else {
                self.findings.wrong_type(item, "a list of three: time, tenant, cost");
                continue;
            };
            let time = self.findings.number(time, Allowed::NOT_NEGATIVE);
            let cost = self.findings.number(cost, Allowed::NOT_NEGATIVE);
            let tenant = self.tenant(tenant, is_open);
            if let (Some(time), Some(tenant), Some(cost)) = (time, tenant, cost) {
                let holds = self.tenants[tenant.0 as usize].holds.clone();
                let work = Work { cost, class: 0, holds };
                if self.tenants[tenant.0 as usize].terms.endless {
                    let message = "a backlogged tenant has no arrivals of its own";
                    self.findings.add(code::CONFLICT, item.span(), message, "");
                }
                arrivals.push(Arrival { time, tenant, work });
            }
        }
        // A stable sort: simultaneous arrivals keep the order of the text.
        arrivals.sort_by(|a, b| a.time.total_cmp(&b.time));
        arrivals
    }

    /// A tenant by its name; where none are defined, a new one is.
    fn tenant(&mut self, node: &Node, is_open: bool) -> Option<TenantId> {
        let name = self.findings.text(node, "the name of a tenant")?;
        self.named(name, node.span(), is_open)
    }

    pub(super) fn named(
        &mut self,
        name: &str,
        span: Range<usize>,
        is_open: bool,
    ) -> Option<TenantId> {
        if let Some(known) = self.names.get(name) {
            return Some(*known);
        }
        if is_open {
            return self.add_tenant(name, span, Tenant::plain(name));
        }
        let names = self.tenants.iter().map(|tenant| tenant.name.as_str());
        let help = match nearest(name, names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "define it under `tenants`".to_string(),
        };
        let message = format!("there is no tenant `{}`", shortened(name));
        self.findings.add(code::NAME, span, message, help);
        None
    }

    pub(super) fn add_tenant(
        &mut self,
        name: &str,
        span: Range<usize>,
        tenant: Tenant,
    ) -> Option<TenantId> {
        let id = TenantId(u32::try_from(self.tenants.len()).ok()?);
        if self.names.insert(name.into(), id).is_some() {
            let message = format!("there are two tenants `{}`", shortened(name));
            self.findings.add(code::NAME, span, message, "");
        }
        self.tenants.push(tenant);
        Some(id)
    }
}
