//! A scenario: tenants, their work, a discipline, and its length.

use super::distribution::Cost;
use tenantd_policy::model::CreditsPolicy;
use tenantd_policy::types::Words;
use tenantd_queue::concurrency::Drivers;
use tenantd_queue::discipline::Name;
use tenantd_queue::entrance::Gate;
use tenantd_queue::operations::Plan;
use tenantd_queue::simulation::{Arrival, Charge, Work};
use tenantd_queue::{Discipline, Machine, Reserve, TenantId, Terms};

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) kind: Kind,
    pub(super) machine: Machine,
    pub(super) horizon: f64,
    /// Seconds at the beginning that do not count in lag, latency and gaps.
    pub(super) warmup: f64,
    pub(super) charge: Charge,
    pub(super) quantum: Option<f64>,
    pub(super) donates: bool,
    /// Seconds between samples of the lag; `None` for a default.
    pub(super) sample: Option<f64>,
    pub(super) lists_dispatches: bool,
    pub(super) seed: u64,
    pub(super) tenants: Vec<Tenant>,
    /// By time.
    pub(super) arrivals: Vec<Arrival>,
    pub(super) jobs: Vec<Job>,
    /// Capacity of each resource.
    pub(super) capacity: Option<Vec<f64>>,
    pub(super) resources: Vec<String>,
    /// Positions of the resources whose units are numbered.
    pub(super) numbered: Vec<usize>,
    pub(super) reserve: Option<Reserve>,
    pub(super) credits: Option<CreditsPolicy>,
    pub(super) splits: Option<Drivers>,
    /// True if the admission of a host decides, because some requests may be evicted.
    pub(super) is_hosted: bool,
}

/// A set of equal requests.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) tenant: TenantId,
    pub(super) cost: f64,
    /// Consent to an eviction, with the grace in seconds.
    pub(super) grace: Option<u32>,
    pub(super) plan: Plan,
}

/// The decision rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A discipline.
    Queue(Name, Discipline),
    /// The ideal itself.
    Gps,
}

/// A tenant and its generated work, beside its listed work.
#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) terms: Terms,
    pub(super) holds: Box<[f64]>,
    /// Use of a request at its end.
    pub(super) uses: Box<[f64]>,
    pub(super) gate: Gate,
    /// Consent of its requests to an eviction, with the grace in seconds.
    pub(super) grace: Option<u32>,
    pub(super) work: Option<Made>,
}

impl Tenant {
    pub(super) fn request(&self, cost: f64) -> Work {
        let (holds, uses) = (self.holds.clone(), self.uses.clone());
        Work { cost, class: 0, holds, uses, grace: self.grace }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) cost: Cost,
    pub(super) pace: Pace,
    pub(super) from: f64,
    pub(super) until: f64,
}

/// Times of generated work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    /// Always backlogged.
    Backlogged,
    /// Random, with this number of arrivals a second.
    Poisson(f64),
    /// Random, with a rate that uses this part of the tenant's fair share.
    Load(f64),
    /// At regular intervals, in seconds.
    Every(f64),
    /// One single request.
    Once,
}

/// The decision rules by name: the disciplines, and the ideal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Queue(Name),
    Gps,
}

impl Words for Named {
    const WORDS: &'static [(&'static str, Named)] = &{
        let mut words = [("gps", Named::Gps); Name::ALL.len() + 1];
        let mut at = 0;
        while at < Name::ALL.len() {
            words[at] = (Name::ALL[at].0, Named::Queue(Name::ALL[at].1));
            at += 1;
        }
        words
    };
}

impl Kind {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Kind::Gps => Named::Gps.word(),
            Kind::Queue(name, _) => name.word(),
        }
    }
}

impl Scenario {
    /// The largest number of dispatches; a longer run is aborted.
    pub(super) const DISPATCHES_MAX: u64 = 20_000_000;
    /// The largest number of listed dispatches.
    pub(super) const LISTED_MAX: usize = 5_000_000;

    /// The fair share of each tenant if all have work, in cost units a second.
    pub(super) fn fair_rates(&self) -> Vec<f64> {
        let whole: f64 = self.tenants.iter().map(|tenant| tenant.terms.weight).sum();
        let speed = self.machine.speed();
        self.tenants.iter().map(|tenant| speed * tenant.terms.weight / whole).collect()
    }

    pub(super) fn sample(&self) -> f64 {
        let samples = (60_000_000 / self.tenants.len().max(1)).clamp(10, 600);
        self.sample.unwrap_or(self.horizon / samples as f64)
    }
}
