//! The tenants of a scenario file, and their generated work.

use super::distribution::{Cost, Redraw, Shape};
use super::findings::{Allowed, code, get};
use super::read::Reader;
use super::scenario::{Made, Pace, Tenant};
use crate::policy::hint::shortened;
use crate::policy::tree::{Entry, Kind, Node};
use crate::queue::{Terms, TermsError};

const TENANT_KEYS: [&str; 6] = ["weight", "priority", "reservation", "limit", "holds", "guarantee"];
const GENERATOR_KEYS: [&str; 11] = [
    "name",
    "count",
    "weight",
    "priority",
    "reservation",
    "limit",
    "holds",
    "guarantee",
    "cost",
    "arrive",
    "phase",
];
const COST_KEYS: [&str; 10] = [
    "fixed",
    "uniform",
    "normal",
    "lognormal",
    "exponential",
    "stddev",
    "sigma",
    "min",
    "max",
    "own",
];

/// Tenants of one file.
const TENANTS_MAX: u64 = 2_000_000;

impl Tenant {
    /// A tenant with defaults only.
    pub(super) fn plain(name: &str) -> Tenant {
        let (name, terms) = (name.to_string(), Terms::default());
        Tenant { name, terms, holds: Box::default(), work: None }
    }
}

impl Reader {
    pub(super) fn tenants(&mut self, node: &Node) {
        let members = self.findings.map(node, "a map of tenants by name");
        self.findings.check_duplicates(members);
        for entry in members {
            if self.names.contains_key(&entry.key) {
                continue;
            }
            let mut tenant = Tenant::plain(&entry.key);
            if !matches!(entry.value.kind, Kind::Null) {
                let fields = self.findings.map(&entry.value, "a map such as `{ weight: 2 }`");
                self.findings.check_keys(fields, &TENANT_KEYS);
                self.terms(fields, &mut tenant);
            }
            self.add_tenant(&entry.key, entry.span(), tenant);
        }
    }

    /// The keys of a tenant beside its work.
    fn terms(&mut self, fields: &[Entry], tenant: &mut Tenant) {
        let weight =
            Allowed { range: (Terms::WEIGHT_MIN, Terms::WEIGHT_MAX), words: "from 1e-9 to 1e9" };
        let terms = &mut tenant.terms;
        terms.weight = self.maybe(fields, "weight", weight).unwrap_or(1.0);
        terms.priority = self.maybe(fields, "priority", Allowed::ANY).unwrap_or(0.0);
        terms.reservation = self.maybe(fields, "reservation", Allowed::NOT_NEGATIVE).unwrap_or(0.0);
        terms.limit = self.maybe(fields, "limit", Allowed::POSITIVE).unwrap_or(f64::INFINITY);
        if let Some(holds) = get(fields, "holds") {
            tenant.holds = self.amounts(&holds.value);
        }
        if let Some(guarantee) = get(fields, "guarantee") {
            terms.min_share = self.amounts(&guarantee.value);
        }
        let place = |key: &str| get(fields, key).map_or(0..0, |entry| entry.value.span());
        if tenant.terms.check() == Err(TermsError::Limit) {
            let message = "`limit` is below `reservation`";
            self.findings.add(code::CONFLICT, place("limit"), message, "");
        }
    }

    /// A map from resources to amounts as a vector, 0 where a resource is not in it.
    fn amounts(&mut self, node: &Node) -> Box<[f64]> {
        let mut vector = vec![0.0; self.resources.len()];
        let amounts = self.findings.map(node, "a map such as `{ cpu: 1, memory: 4 }`");
        self.findings.check_duplicates(amounts);
        for entry in amounts {
            let amount = self.findings.number(&entry.value, Allowed::NOT_NEGATIVE);
            match self.resources.iter().position(|name| **name == *entry.key) {
                Some(resource) => vector[resource] = amount.unwrap_or(0.0),
                None => {
                    let message = format!("there is no resource `{}`", shortened(&entry.key));
                    let help = "say how much there is under `capacity`";
                    self.findings.add(code::NAME, entry.span(), message, help);
                }
            }
        }
        vector.into()
    }

    /// Tenants that always have work of a cost.
    pub(super) fn backlogged(&mut self, node: &Node, is_open: bool) {
        let members = self.findings.map(node, "a map from tenants to costs");
        self.findings.check_duplicates(members);
        for entry in members {
            let cost = self.findings.number(&entry.value, Allowed::POSITIVE);
            let Some(tenant) = self.named(&entry.key, entry.span(), is_open) else { continue };
            let tenant = &mut self.tenants[tenant.0 as usize];
            tenant.terms.endless = true;
            tenant.work = Some(Made {
                cost: Cost::fixed(cost.unwrap_or(1.0)),
                pace: Pace::Backlogged,
                from: 0.0,
                until: f64::INFINITY,
            });
        }
    }

    /// Many tenants at once, with work at random.
    pub(super) fn generators(&mut self, node: &Node, horizon: f64) {
        let expected = "a list such as `[{ name: small, count: 50, cost: { fixed: 1 } }]`";
        for item in self.findings.list(node, expected) {
            let fields = self.findings.map(item, "a map with `name` and `cost`");
            self.findings.check_keys(fields, &GENERATOR_KEYS);
            for key in ["name", "cost"].into_iter().filter(|key| get(fields, key).is_none()) {
                let message = format!("`{key}` is missing");
                self.findings.add(code::MISSING_KEY, item.span(), message, "");
            }
            let (Some(name), Some(cost)) = (get(fields, "name"), get(fields, "cost")) else {
                continue;
            };
            let name_text = self.findings.text(&name.value, "a name").unwrap_or_default();
            let count = get(fields, "count");
            let number = count.and_then(|entry| self.findings.count(&entry.value, 1, TENANTS_MAX));
            let mut tenant = Tenant::plain(name_text);
            self.terms(fields, &mut tenant);
            let cost = self.cost(&cost.value);
            let pace = get(fields, "arrive").map(|entry| self.pace(&entry.value, horizon));
            let (pace, stagger) = pace.unwrap_or((Pace::Backlogged, 0.0));
            let (from, until) = self.phase(fields, horizon);
            tenant.terms.endless = pace == Pace::Backlogged;
            tenant.work = Some(Made { cost, pace, from, until });
            if number.unwrap_or(1) + self.tenants.len() as u64 > TENANTS_MAX {
                let message = format!("more than {TENANTS_MAX} tenants");
                self.findings.add(code::TOO_LONG, item.span(), message, "");
                return;
            }
            for index in 1..=number.unwrap_or(1) {
                let mut member = tenant.clone();
                if let Some(work) = &mut member.work {
                    work.from += stagger * (index - 1) as f64;
                }
                if count.is_some() {
                    member.name = format!("{name_text}-{index}");
                }
                let name_of_member = member.name.clone();
                self.add_tenant(&name_of_member, name.value.span(), member);
            }
        }
    }

    /// When generated work begins and ends.
    fn phase(&mut self, fields: &[Entry], horizon: f64) -> (f64, f64) {
        let Some(phase) = get(fields, "phase") else { return (0.0, f64::INFINITY) };
        let [from, until] = self.findings.list(&phase.value, "two times, such as `[10, 20]`")
        else {
            self.findings.wrong_type(&phase.value, "two times, such as `[10, 20]`");
            return (0.0, horizon);
        };
        let from = self.findings.number(from, Allowed::NOT_NEGATIVE).unwrap_or(0.0);
        let until = self.findings.number(until, Allowed::NOT_NEGATIVE).unwrap_or(horizon);
        if until <= from {
            let message = "a phase ends after it begins";
            self.findings.add(code::BAD_NUMBER, phase.value.span(), message, "");
        }
        (from, until)
    }

    /// `backlogged`, `{ poisson: 5 }`, `{ load: 0.5 }`, `{ every: 0.1 }` or `{ once: 1 }`; and how many
    /// seconds later each tenant of the group begins.
    fn pace(&mut self, node: &Node, horizon: f64) -> (Pace, f64) {
        if let Kind::Scalar { text, .. } = &node.kind
            && &**text == "backlogged"
        {
            return (Pace::Backlogged, 0.0);
        }
        let expected = "`backlogged`, or one of `{ poisson: 5 }`, `{ load: 0.5 }`, `{ every: 0.1 }`, `{ once: 1 }`";
        let fields = self.findings.map(node, expected);
        self.findings.check_keys(fields, &["poisson", "load", "every", "once"]);
        let [entry] = fields else {
            if !fields.is_empty() {
                self.findings.wrong_type(node, expected);
            }
            return (Pace::Backlogged, 0.0);
        };
        let allowed = match &*entry.key {
            "once" => Allowed::NOT_NEGATIVE,
            _ => Allowed::POSITIVE,
        };
        let number = self.findings.number(&entry.value, allowed).unwrap_or(1.0);
        if &*entry.key == "every" && horizon / number > 1e7 {
            let message = "`every` is too short";
            let help = "at most ten million times before the horizon";
            self.findings.add(code::TOO_LONG, entry.value.span(), message, help);
        }
        match &*entry.key {
            "poisson" => (Pace::Poisson(number), 0.0),
            "load" => (Pace::Load(number), 0.0),
            "once" => (Pace::Once, number),
            _ => (Pace::Every(number), 0.0),
        }
    }

    /// `{ normal: 1, stddev: 0.1 }`, `{ lognormal: 2000, sigma: 2.2, min: 250, max: 5e6, own: 0.1 }` and
    /// the like.
    fn cost(&mut self, node: &Node) -> Cost {
        if matches!(node.kind, Kind::Scalar { .. }) {
            return Cost::fixed(self.findings.number(node, Allowed::POSITIVE).unwrap_or(1.0));
        }
        let fields = self
            .findings
            .map(node, "a cost, or a distribution such as `{ normal: 1, stddev: 0.1 }`");
        self.findings.check_keys(fields, &COST_KEYS);
        let shapes = ["fixed", "uniform", "normal", "lognormal", "exponential"];
        let given: Vec<&Entry> = shapes.iter().filter_map(|key| get(fields, key)).collect();
        let [shape] = given[..] else {
            let help =
                "give exactly one of `fixed`, `uniform`, `normal`, `lognormal`, `exponential`";
            self.findings.add(code::CONFLICT, node.span(), "which distribution?", help);
            return Cost::fixed(1.0);
        };
        let spread = |reader: &mut Reader, key: &str| {
            reader.maybe(fields, key, Allowed::NOT_NEGATIVE).unwrap_or(0.0)
        };
        // A request of cost zero never ends: of a distribution, less than a millionth of its median is cut
        // off.
        let middle = match &*shape.key {
            "uniform" => 0.0,
            _ => self.findings.number(&shape.value, Allowed::POSITIVE).unwrap_or(1.0),
        };
        let mut min = self.maybe(fields, "min", Allowed::POSITIVE).unwrap_or(middle / 1e6);
        let mut max = self.maybe(fields, "max", Allowed::POSITIVE).unwrap_or(1e15);
        let shape = match &*shape.key {
            "fixed" => Shape::Fixed(middle),
            "normal" => Shape::Normal { mean: middle, stddev: spread(self, "stddev") },
            "lognormal" => Shape::LogNormal { median: middle, sigma: spread(self, "sigma") },
            "exponential" => Shape::Exponential { mean: middle },
            _ => {
                (min, max) = self.range(&shape.value);
                Shape::Uniform
            }
        };
        if max < min {
            self.findings.add(code::CONFLICT, node.span(), "`max` is below `min`", "");
            max = min;
        }
        let own = Allowed { range: (0.0, 0.999), words: "from 0 to 0.999" };
        let redraw = match self.maybe(fields, "own", own) {
            Some(spread) => Redraw::Tenant { spread },
            None => Redraw::Request,
        };
        Cost { shape, min, max, redraw }
    }

    fn range(&mut self, node: &Node) -> (f64, f64) {
        let [low, high] = self.findings.list(node, "two costs, such as `[1, 10]`") else {
            self.findings.wrong_type(node, "two costs, such as `[1, 10]`");
            return (1.0, 1.0);
        };
        let low = self.findings.number(low, Allowed::POSITIVE).unwrap_or(1.0);
        (low, self.findings.number(high, Allowed::POSITIVE).unwrap_or(low))
    }
}
