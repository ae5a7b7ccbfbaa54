//! The tenants of a scenario file, and their generated work.

use super::codes::{self, Allowed, Whole};
use super::distribution::{Cost, Redraw, Shape};
use super::read::Scenarios;
use super::scenario::{Made, Named, Pace, Tenant};
use tenantd_policy::forms::{Count, Structure};
use tenantd_policy::hint::shortened;
use tenantd_policy::key::Flag::Needed;
use tenantd_policy::key::{Fields, section, table};
use tenantd_policy::tree::{Entry, Kind, Node};
use tenantd_queue::discipline::Name;
use tenantd_queue::entrance::{Bucket, Gate};
use tenantd_queue::{Terms, TermsError};

table! {
    TENANT: Member {
        /// Its weight.
        "weight" => weight: f64, WEIGHT;
        /// Its priority.
        "priority" => priority: f64, Allowed::ANY;
        /// Cost units a second that it gets first.
        "reservation" => reservation: f64, Allowed::NOT_NEGATIVE;
        /// Cost units a second that it never exceeds.
        "limit" => limit: f64, Allowed::POSITIVE;
        /// What a request of it holds while it runs.
        "holds" => structure: (), Structure;
        /// Use of a request of it at its end; one that uses more than it holds is killed.
        "uses" => structure: (), Structure;
        /// Requests a second that enter the queue; others wait for their turn.
        "rate" => rate: Option<f64>, Allowed::POSITIVE;
        /// Requests that enter at once.
        "burst" => burst: f64, BURST;
        /// Requests that wait; one more is dropped.
        "queue_max" => queue_max: Option<u64>, Whole::COUNT;
        /// Seconds after which a request that has not started leaves.
        "timeout" => timeout: Option<f64>, Allowed::POSITIVE;
        /// What it is to hold first.
        "guarantee" => structure: (), Structure;
    }
}

table! {
    GENERATOR: Member {
        /// Its name, with a number where there are several.
        "name" => structure: (), Structure, [Needed("name it: `name: small`")];
        /// How many of them.
        "count" => count: Option<u32>, Count { most: TENANTS_MAX as u32, auto: false };
        /// The weight of each.
        "weight" => weight: f64, WEIGHT;
        /// The priority of each.
        "priority" => priority: f64, Allowed::ANY;
        /// Cost units a second that each gets first.
        "reservation" => reservation: f64, Allowed::NOT_NEGATIVE;
        /// Cost units a second that none of them exceeds.
        "limit" => limit: f64, Allowed::POSITIVE;
        /// What a request holds while it runs.
        "holds" => structure: (), Structure;
        /// Use of a request at its end; one that uses more than it holds is killed.
        "uses" => structure: (), Structure;
        /// Requests a second that enter the queue; others wait for their turn.
        "rate" => rate: Option<f64>, Allowed::POSITIVE;
        /// Requests that enter at once.
        "burst" => burst: f64, BURST;
        /// Requests that wait; one more is dropped.
        "queue_max" => queue_max: Option<u64>, Whole::COUNT;
        /// Seconds after which a request that has not started leaves.
        "timeout" => timeout: Option<f64>, Allowed::POSITIVE;
        /// What each is to hold first.
        "guarantee" => structure: (), Structure;
        /// The cost of a request, or how it is drawn.
        "cost" => structure: (), Structure, [Needed("say what a request costs: `cost: 1`")];
        /// When requests arrive.
        "arrive" => structure: (), Structure;
        /// From when until when.
        "phase" => structure: (), Structure;
    }
}

/// A tenant, or a group of them with generated work.
struct Member {
    count: Option<u32>,
    weight: f64,
    priority: f64,
    reservation: f64,
    limit: f64,
    rate: Option<f64>,
    burst: f64,
    queue_max: Option<u64>,
    timeout: Option<f64>,
    structure: (),
}

impl Default for Member {
    fn default() -> Member {
        let (weight, burst, limit) = (1.0, 1.0, f64::INFINITY);
        let (count, rate, queue_max, timeout) = (None, None, None, None);
        let (priority, reservation, structure) = (0.0, 0.0, ());
        Member {
            count,
            weight,
            priority,
            reservation,
            limit,
            rate,
            burst,
            queue_max,
            timeout,
            structure,
        }
    }
}

impl Member {
    fn gate(&self) -> Gate {
        Gate {
            bucket: self.rate.map(|rate| Bucket::new(rate, self.burst)),
            queue_max: self.queue_max.and_then(|most| u32::try_from(most).ok()),
            timeout: self.timeout,
        }
    }
}

section! {
    /// The distribution of a cost.
    struct CostKeys, COST {
        /// Always the same.
        "fixed" => fixed: Option<f64>, Allowed::POSITIVE;
        /// Evenly between two costs.
        "uniform" => uniform: (), Structure;
        /// Normal, with this mean.
        "normal" => normal: Option<f64>, Allowed::POSITIVE;
        /// Log-normal, with this median.
        "lognormal" => lognormal: Option<f64>, Allowed::POSITIVE;
        /// Exponential, with this mean.
        "exponential" => exponential: Option<f64>, Allowed::POSITIVE;
        /// The standard deviation of a normal one.
        "stddev" => stddev: f64, Allowed::NOT_NEGATIVE;
        /// The standard deviation of the logarithm of a log-normal one.
        "sigma" => sigma: f64, Allowed::NOT_NEGATIVE;
        /// The smallest cost.
        "min" => min: Option<f64>, Allowed::POSITIVE;
        /// The largest cost.
        "max" => max: Option<f64>, Allowed::POSITIVE;
        /// One cost for each tenant, and its requests within this part of it.
        "own" => own: Option<f64>, Allowed { range: (0.0, 0.999), words: "a number from 0 to 0.999" };
    }
}

section! {
    /// When generated work arrives.
    struct PaceKeys, PACE {
        /// At random, so often in a second.
        "poisson" => poisson: Option<f64>, Allowed::POSITIVE;
        /// At random, to use this part of the fair share.
        "load" => load: Option<f64>, Allowed::POSITIVE;
        /// At regular intervals.
        "every" => every: Option<f64>, Allowed::POSITIVE;
        /// Once, each tenant of a group so many seconds after the one before.
        "once" => once: Option<f64>, Allowed::NOT_NEGATIVE;
    }
}

const WEIGHT: Allowed =
    Allowed { range: (Terms::WEIGHT_MIN, Terms::WEIGHT_MAX), words: "a number from 1e-9 to 1e9" };

const BURST: Allowed = Allowed { range: (1.0, 1e15), words: "a number from 1 to 1e15" };

/// Largest number of tenants in a file.
const TENANTS_MAX: usize = 2_000_000;

impl Tenant {
    /// Returns a tenant with defaults only.
    pub(super) fn plain(name: &str) -> Tenant {
        let (name, terms, gate) = (name.to_string(), Terms::default(), Gate::default());
        Tenant { name, terms, holds: Box::default(), uses: Box::default(), gate, work: None }
    }
}

impl Scenarios<'_> {
    pub(super) fn tenants(&mut self, node: &Node) {
        let members = self.reader.map(node, "a map of tenants by name");
        self.reader.duplicates(members);
        for entry in members {
            if self.names.contains_key(&entry.key) {
                continue;
            }
            let mut tenant = Tenant::plain(&entry.key);
            if let Some(fields) = self.reader.fields(TENANT, &entry.value) {
                self.member(&fields, &mut tenant);
            }
            let place = self.reader.key_place(entry);
            self.add_tenant(&entry.key, &place, tenant);
        }
    }

    /// Reads the keys of a tenant other than its work.
    fn member(&mut self, fields: &Fields<'_, Member>, tenant: &mut Tenant) -> Member {
        let mut member = Member::default();
        self.reader.values(fields, &mut member);
        let terms = &mut tenant.terms;
        (terms.weight, terms.priority) = (member.weight, member.priority);
        (terms.reservation, terms.limit) = (member.reservation, member.limit);
        tenant.gate = member.gate();
        self.check_member(fields, &member);
        let holds = fields.get("holds").filter(|_| self.has_capacity());
        tenant.holds = holds.map_or(self.defaults.clone(), |holds| self.amounts(&holds.value));
        if let Some(uses) = fields.get("uses").filter(|_| !self.resources.is_empty()) {
            tenant.uses = self.amounts(&uses.value);
        }
        if let Some(guarantee) = fields.get("guarantee") {
            tenant.terms.min_share = self.amounts(&guarantee.value);
        }
        if let (Err(TermsError::Limit), Some(limit)) = (tenant.terms.check(), fields.get("limit")) {
            let message = "`limit` is below `reservation`";
            self.reader.find(&codes::CONFLICT, &limit.value, message, "");
        }
        member
    }

    fn has_capacity(&self) -> bool {
        self.discipline.is_none_or(Named::has_capacity)
    }

    /// Refuses keys of a tenant that the discipline ignores.
    fn check_member(&mut self, fields: &Fields<'_, Member>, member: &Member) {
        let is_named = |name| self.discipline.is_none_or(|it| it == Named::Queue(name));
        let has_drf = is_named(Name::Drf) || self.resources.is_empty();
        let has_weights = self.discipline != Some(Named::Queue(Name::Fq));
        self.unless(has_weights, fields, "weight", "`fq` has no weights: `wfq` has");
        let message = "only `drf` and `fifo` obey what requests hold";
        self.unless(self.has_capacity(), fields, "holds", message);
        let message = "there is no `capacity` to use";
        self.unless(!self.resources.is_empty(), fields, "uses", message);
        self.unless(
            has_drf,
            fields,
            "guarantee",
            "only `drf` obeys what a tenant is to hold first",
        );
        self.unless(member.rate.is_some(), fields, "burst", "there is no `rate` to exceed");
        let is_gps = self.discipline == Some(Named::Gps);
        for key in ["rate", "queue_max", "timeout"] {
            self.unless(!is_gps, fields, key, "`gps` is the ideal: all that arrives is served");
        }
    }

    /// A map from resources to amounts as a vector, 0 where a resource is not in it.
    pub(super) fn amounts(&mut self, node: &Node) -> Box<[f64]> {
        let mut vector = vec![0.0; self.resources.len()];
        let amounts = self.reader.map(node, "a map such as `{ cpu: 1, memory: 4 }`");
        self.reader.duplicates(amounts);
        for entry in amounts {
            let amount = Allowed::NOT_NEGATIVE.number(&mut self.reader, &entry.value);
            match self.resources.iter().position(|name| **name == *entry.key) {
                Some(resource) => vector[resource] = amount.unwrap_or(0.0),
                None => {
                    let message = format!("there is no resource `{}`", shortened(&entry.key));
                    let help = "say how much there is under `capacity`";
                    let finding = codes::NAME.at(&self.reader.key_place(entry), message, "");
                    self.reader.report.push(finding.help(help));
                }
            }
        }
        vector.into()
    }

    /// Reads the tenants that always have work of a cost.
    pub(super) fn backlogged(&mut self, node: &Node, is_open: bool) {
        let members = self.reader.map(node, "a map from tenants to costs");
        self.reader.duplicates(members);
        for entry in members {
            let cost = Allowed::POSITIVE.number(&mut self.reader, &entry.value);
            let place = self.reader.key_place(entry);
            let Some(tenant) = self.named(&entry.key, place, is_open) else { continue };
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

    /// Reads groups of tenants with random work.
    pub(super) fn generators(&mut self, node: &Node, horizon: f64) {
        let expected = "a list such as `[{ name: small, count: 50, cost: { fixed: 1 } }]`";
        for item in self.reader.list(node, expected) {
            let Some(fields) = self.reader.fields(GENERATOR, item) else { continue };
            let (Some(name), Some(cost)) = (fields.get("name"), fields.get("cost")) else {
                continue;
            };
            let name_text = self.reader.text(&name.value, "a name").unwrap_or_default();
            let mut tenant = Tenant::plain(name_text);
            let count = self.member(&fields, &mut tenant).count;
            let cost = self.cost(&cost.value);
            let pace = fields.get("arrive").map(|entry| self.pace(&entry.value, horizon));
            let (pace, stagger) = pace.unwrap_or((Pace::Backlogged, 0.0));
            let (from, until) = self.phase(&fields, horizon);
            tenant.terms.endless = pace == Pace::Backlogged;
            tenant.work = Some(Made { cost, pace, from, until });
            if count.unwrap_or(1) as usize + self.tenants.len() > TENANTS_MAX {
                let message = format!("more than {TENANTS_MAX} tenants");
                return self.reader.find(&codes::TOO_LONG, item, message, "");
            }
            let place = self.reader.place(&name.value);
            for index in 1..=count.unwrap_or(1) {
                let mut member = tenant.clone();
                if let Some(work) = &mut member.work {
                    work.from += stagger * f64::from(index - 1);
                }
                if count.is_some() {
                    member.name = format!("{name_text}-{index}");
                }
                let name_of_member = member.name.clone();
                self.add_tenant(&name_of_member, &place, member);
            }
        }
    }

    /// Begin and end of generated work.
    fn phase(&mut self, fields: &Fields<'_, Member>, horizon: f64) -> (f64, f64) {
        let Some(phase) = fields.get("phase") else { return (0.0, f64::INFINITY) };
        let Some([from, until]) = phase.value.items() else {
            self.reader.wrong_type(&phase.value, "two times, such as `[10, 20]`", "");
            return (0.0, horizon);
        };
        let from = Allowed::NOT_NEGATIVE.number(&mut self.reader, from).unwrap_or(0.0);
        let until = Allowed::NOT_NEGATIVE.number(&mut self.reader, until).unwrap_or(horizon);
        if until <= from {
            let message = "a phase ends after it begins";
            self.reader.find(&codes::BAD_NUMBER, &phase.value, message, "");
        }
        (from, until)
    }

    /// Reads `backlogged`, `{ poisson: 5 }`, `{ load: 0.5 }`, `{ every: 0.1 }` or `{ once: 1 }`. The second
    /// value is the delay in seconds from tenant to tenant of the group.
    fn pace(&mut self, node: &Node, horizon: f64) -> (Pace, f64) {
        let backlogged = (Pace::Backlogged, 0.0);
        if node.is_word("backlogged") {
            return backlogged;
        }
        let expected = "`backlogged`, or one of `{ poisson: 5 }`, `{ load: 0.5 }`, `{ every: 0.1 }`, `{ once: 1 }`";
        if !matches!(node.kind, Kind::Map(_)) {
            self.reader.wrong_type(node, expected, "");
            return backlogged;
        }
        let Some(fields) = self.reader.fields(PACE, node) else { return backlogged };
        let mut keys = PaceKeys::default();
        self.reader.values(&fields, &mut keys);
        let [(_, entry)] = fields.0[..] else {
            if !node.is_empty() {
                self.reader.wrong_type(node, expected, "");
            }
            return backlogged;
        };
        if keys.every.is_some_and(|every| horizon / every > 1e7) {
            let help = "at most ten million times before the horizon";
            self.reader.find(&codes::TOO_LONG, &entry.value, "`every` is too short", help);
        }
        match keys {
            PaceKeys { poisson: Some(rate), .. } => (Pace::Poisson(rate), 0.0),
            PaceKeys { load: Some(load), .. } => (Pace::Load(load), 0.0),
            PaceKeys { every: Some(every), .. } => (Pace::Every(every), 0.0),
            PaceKeys { once: Some(stagger), .. } => (Pace::Once, stagger),
            _ => backlogged,
        }
    }

    /// Reads `{ normal: 1, stddev: 0.1 }`, `{ lognormal: 2000, sigma: 2.2, min: 250, max: 5e6, own: 0.1 }`
    /// and the like.
    fn cost(&mut self, node: &Node) -> Cost {
        if let Kind::Scalar { .. } = node.kind {
            return Cost::fixed(Allowed::POSITIVE.number(&mut self.reader, node).unwrap_or(1.0));
        }
        let harmless = Cost::fixed(1.0);
        let Some(fields) = self.reader.fields(COST, node) else { return harmless };
        let mut keys = CostKeys::default();
        self.reader.values(&fields, &mut keys);
        let shapes = ["fixed", "uniform", "normal", "lognormal", "exponential"];
        let given: Vec<&Entry> = shapes.iter().filter_map(|key| fields.get(key)).collect();
        let [shape] = given[..] else {
            let help =
                "give exactly one of `fixed`, `uniform`, `normal`, `lognormal`, `exponential`";
            self.reader.find(&codes::CONFLICT, node, "which distribution?", help);
            return harmless;
        };
        let middle = [keys.fixed, keys.normal, keys.lognormal, keys.exponential];
        let middle = middle.into_iter().flatten().next().unwrap_or(1.0);
        // A request of cost zero never ends, so costs below a millionth of the distribution's median are
        // cut off.
        let mut min = keys.min.unwrap_or(middle / 1e6);
        let mut max = keys.max.unwrap_or(1e15);
        let shape = match &*shape.key {
            "fixed" => Shape::Fixed(middle),
            "normal" => Shape::Normal { mean: middle, stddev: keys.stddev },
            "lognormal" => Shape::LogNormal { median: middle, sigma: keys.sigma },
            "exponential" => Shape::Exponential { mean: middle },
            _ => {
                (min, max) = self.range(&shape.value);
                Shape::Uniform
            }
        };
        if max < min {
            self.reader.find(&codes::CONFLICT, node, "`max` is below `min`", "");
            max = min;
        }
        let redraw = keys.own.map_or(Redraw::Request, |spread| Redraw::Tenant { spread });
        Cost { shape, min, max, redraw }
    }

    fn range(&mut self, node: &Node) -> (f64, f64) {
        let Some([low, high]) = node.items() else {
            self.reader.wrong_type(node, "two costs, such as `[1, 10]`", "");
            return (1.0, 1.0);
        };
        let low = Allowed::POSITIVE.number(&mut self.reader, low).unwrap_or(1.0);
        (low, Allowed::POSITIVE.number(&mut self.reader, high).unwrap_or(low))
    }
}
