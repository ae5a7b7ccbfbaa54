//! The tenants of a scenario file, and their generated work.

use std::ops::Range;

use super::codes::{CONFLICT, COUNT_MAX, NotNegative, Positive, TOO_LONG};
use super::distribution::{Cost, Redraw, Shape};
use super::hosted;
use super::keys::{Arrive, CostKeys, Member};
use super::reading::{Reading, items};
use super::rules::check_member;
use super::scenario::{Made, Pace, Tenant};
use tenantd_policy::file::{Cause, Refusal};
use tenantd_policy::tree::{Entry, Kind, Node};
use tenantd_queue::entrance::{Bucket, Gate};
use tenantd_queue::{Terms, TermsError};

impl Tenant {
    /// Returns a tenant with defaults only.
    pub(super) fn plain(name: &str) -> Tenant {
        let (name, terms, gate) = (name.to_string(), Terms::default(), Gate::default());
        let (holds, uses) = (Box::default(), Box::default());
        Tenant { name, terms, holds, uses, gate, grace: None, work: None }
    }
}

impl Reading {
    pub(super) fn tenants(&mut self, tree: &Node) -> Result<(), Refusal> {
        let Some(tenants) = tree.get("tenants") else { return Ok(()) };
        for entry in tenants.value.map()? {
            let member: Member = entry.read()?;
            for key in ["name", "count", "cost", "arrive", "phase"] {
                if let Some(entry) = entry.value.get(key) {
                    let message = format!("unknown key `{key}` in `tenants`");
                    let unknown = Refusal::new(Cause::UnknownKey, entry.span(), message);
                    return Err(unknown.help(format!("`{key}` is a key of `generators`")));
                }
            }
            let tenant = self.member(&entry.key, &member, &entry.value)?;
            self.add_tenant(tenant, entry.span())?;
        }
        Ok(())
    }

    /// A tenant without work.
    fn member(&self, name: &str, keys: &Member, tree: &Node) -> Result<Tenant, Refusal> {
        let has_resources = !self.resources.is_empty();
        check_member(self.discipline, has_resources, self.is_hosted, keys, tree)?;
        let mut tenant = Tenant::plain(name);
        let terms = &mut tenant.terms;
        terms.weight = keys.weight.map_or(1.0, |weight| weight.0);
        terms.priority = keys.priority.map_or(0.0, |priority| priority.0);
        terms.reservation = keys.reservation.map_or(0.0, |reservation| reservation.0);
        terms.limit = keys.limit.map_or(f64::INFINITY, |limit| limit.0);
        if tree.get("guarantee").is_some() {
            terms.min_share = self.amounts(tree, "guarantee")?;
        }
        if let (Err(TermsError::Limit), Some(limit)) = (terms.check(), tree.get("limit")) {
            let message = "`limit` is below `reservation`";
            return Err(Refusal::new(CONFLICT, limit.value.span(), message));
        }
        tenant.grace = hosted::grace((keys.requeue, keys.grace), None, tree)?;
        let burst = keys.burst.map_or(1.0, |burst| burst.0);
        tenant.gate = Gate {
            bucket: keys.rate.map(|rate| Bucket::new(rate.0, burst)),
            queue_max: keys.queue_max.map(|most| most.0 as u32),
            timeout: keys.timeout.map(|timeout| timeout.0),
        };
        tenant.holds = match tree.get("holds") {
            Some(_) => self.amounts(tree, "holds")?,
            None => self.defaults.clone(),
        };
        if tree.get("uses").is_some() {
            tenant.uses = self.amounts(tree, "uses")?;
        }
        Ok(tenant)
    }

    /// Adds the tenants that always have work of a cost.
    pub(super) fn backlogged(&mut self, tree: &Node) -> Result<(), Refusal> {
        let Some(backlogged) = tree.get("backlogged") else { return Ok(()) };
        for entry in backlogged.value.map()? {
            let cost: Positive = entry.read()?;
            let tenant = self.tenant(&entry.key, entry.span())?;
            let tenant = &mut self.tenants[tenant.0 as usize];
            tenant.terms.endless = true;
            let (cost, pace) = (Cost::fixed(cost.0), Pace::Backlogged);
            tenant.work = Some(Made { cost, pace, from: 0.0, until: f64::INFINITY });
        }
        Ok(())
    }

    /// Adds the groups of tenants with random work.
    pub(super) fn generators(
        &mut self,
        groups: Vec<Member>,
        tree: &Node,
        horizon: f64,
    ) -> Result<(), Refusal> {
        for (group, item) in groups.into_iter().zip(items(tree, "generators")) {
            let span = |key: &str| item.get(key).map_or(item.span(), |entry| entry.value.span());
            let Some(name) = &group.name else { return Err(Refusal::missing(item, "name")) };
            let Some(cost) = item.get("cost") else { return Err(Refusal::missing(item, "cost")) };
            let mut tenant = self.member(name, &group, item)?;
            let (pace, stagger) = pace(item, horizon)?;
            let (from, until) = group.phase(span("phase"))?;
            tenant.terms.endless = pace == Pace::Backlogged;
            let count = group.count.map_or(1, |count| count.0);
            if count + self.tenants.len() as u64 > COUNT_MAX {
                let message = format!("more than {COUNT_MAX} tenants");
                return Err(Refusal::new(TOO_LONG, item.span(), message));
            }
            let cost = read_cost(cost)?;
            for index in 1..=count {
                let mut member = tenant.clone();
                let from = from + stagger * (index - 1) as f64;
                member.work = Some(Made { cost, pace, from, until });
                if group.count.is_some() {
                    member.name = format!("{name}-{index}");
                }
                self.add_tenant(member, span("name"))?;
            }
        }
        Ok(())
    }
}

impl Member {
    /// Begin and end of generated work.
    fn phase(&self, span: Range<usize>) -> Result<(f64, f64), Refusal> {
        let Some((from, until)) = self.phase else { return Ok((0.0, f64::INFINITY)) };
        if until.0 <= from.0 {
            return Err(Refusal::new(Cause::Number, span, "a phase ends after it begins"));
        }
        Ok((from.0, until.0))
    }
}

/// The pace of generated work, and the delay in seconds from tenant to tenant of the group.
fn pace(group: &Node, horizon: f64) -> Result<(Pace, f64), Refusal> {
    let arrive = group.get("arrive").filter(|entry| !entry.value.is_empty());
    let span = arrive.map_or(group.span(), |entry| entry.value.span());
    Ok(match arrive.map_or(Ok(Arrive::default()), Entry::read)? {
        Arrive::Every(every) if horizon / every.0 > 1e7 => {
            let refusal = Refusal::new(TOO_LONG, span, "`every` is too short");
            return Err(refusal.help("at most ten million times before the horizon"));
        }
        Arrive::Backlogged => (Pace::Backlogged, 0.0),
        Arrive::Poisson(rate) => (Pace::Poisson(rate.0), 0.0),
        Arrive::Load(load) => (Pace::Load(load.0), 0.0),
        Arrive::Every(every) => (Pace::Every(every.0), 0.0),
        Arrive::Once(stagger) => (Pace::Once, stagger.0),
    })
}

/// Reads a number, `{ normal: 1, stddev: 0.1 }`, `{ lognormal: 2000, sigma: 2.2, min: 250, max: 5e6, own: 0.1 }`
/// and the like.
fn read_cost(entry: &Entry) -> Result<Cost, Refusal> {
    if let Kind::Scalar { .. } = entry.value.kind {
        return Ok(Cost::fixed(entry.read::<Positive>()?.0));
    }
    let keys: CostKeys = entry.read()?;
    let zero = NotNegative(0.0);
    let (stddev, sigma) = (keys.stddev.unwrap_or(zero).0, keys.sigma.unwrap_or(zero).0);
    let shapes = [
        keys.fixed.map(|cost| (cost.0, Shape::Fixed(cost.0))),
        keys.uniform.map(|(low, _)| (low.0, Shape::Uniform)),
        keys.normal.map(|mean| (mean.0, Shape::Normal { mean: mean.0, stddev })),
        keys.lognormal.map(|median| (median.0, Shape::LogNormal { median: median.0, sigma })),
        keys.exponential.map(|mean| (mean.0, Shape::Exponential { mean: mean.0 })),
    ];
    let given: Vec<(f64, Shape)> = shapes.into_iter().flatten().collect();
    let [(middle, shape)] = given[..] else {
        let help = "give exactly one of `fixed`, `uniform`, `normal`, `lognormal`, `exponential`";
        let refusal = Refusal::new(CONFLICT, entry.value.span(), "which distribution?");
        return Err(refusal.help(help));
    };
    // A request of cost zero never ends, so costs below a millionth of the distribution's median are cut off.
    let (min, max) = match keys.uniform {
        Some((low, high)) => (low.0, high.0),
        None => (keys.min.map_or(middle / 1e6, |min| min.0), keys.max.map_or(1e15, |max| max.0)),
    };
    if max < min {
        return Err(Refusal::new(CONFLICT, entry.value.span(), "`max` is below `min`"));
    }
    let redraw = keys.own.map_or(Redraw::Request, |spread| Redraw::Tenant { spread: spread.0 });
    Ok(Cost { shape, min, max, redraw })
}
