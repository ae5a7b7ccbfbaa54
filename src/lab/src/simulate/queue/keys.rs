//! The keys of a scenario file.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::codes::{
    Any, Burst, Cap, Count, Grace, HalfLife, Multiplier, NotNegative, Part, Positive, Seed, Splits,
    Spread, Weight,
};
use super::scenario::Named;
use tenantd_policy::file::{Whole, one_of};
use tenantd_policy::types::Words;
use tenantd_queue::virtual_time::Method;

fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Named, D::Error> {
    one_of(deserializer, Named::WORDS)
}

fn method<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Method, D::Error> {
    let words = [("active", Method::Active), ("served", Method::Served), ("gps", Method::Gps)];
    one_of(deserializer, &words)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "maps with any keys are read from the tree")]
pub(super) struct File {
    #[serde(deserialize_with = "named")]
    pub(super) discipline: Named,
    pub(super) workers: Whole<1, 4096>,
    /// Cost units that a worker does in a second.
    pub(super) rate: Option<Positive>,
    #[serde(default, deserialize_with = "method")]
    pub(super) virtual_time: Method,
    pub(super) tenants: Option<IgnoredAny>,
    pub(super) backlogged: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) arrivals: Vec<(NotNegative, String, NotNegative)>,
    pub(super) horizon: Positive,
    #[serde(default)]
    pub(super) generators: Vec<Member>,
    pub(super) seed: Option<Seed>,
    pub(super) capacity: Option<IgnoredAny>,
    /// Holdings of the requests of tenants without `holds`.
    pub(super) defaults: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) jobs: Vec<JobKeys>,
    pub(super) donation: Option<bool>,
    pub(super) ageing: Option<NotNegative>,
    #[serde(default)]
    pub(super) estimator: EstimatorKeys,
    pub(super) refresh: Option<Positive>,
    pub(super) charge: Option<Charging>,
    pub(super) reserve: Option<ReserveKeys>,
    pub(super) credits: Option<CreditsKeys>,
    pub(super) splits: Option<SplitsKeys>,
    pub(super) quantum: Option<Positive>,
    pub(super) multiplier: Option<Multiplier>,
    pub(super) warmup: Option<NotNegative>,
    pub(super) sample: Option<Positive>,
    pub(super) list_dispatches: Option<bool>,
    /// Resources whose units are numbered.
    #[serde(default)]
    pub(super) indices: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EstimatorKeys {
    /// The weight of the past.
    pub(super) alpha: Option<Part>,
    pub(super) initial: Option<NotNegative>,
}

/// Workers that take small requests only.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReserveKeys {
    pub(super) workers: Whole<1, 4096>,
    pub(super) below: Positive,
}

/// Credit of tenants, as in a policy; `keep` has no meaning here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreditsKeys {
    pub(super) half_life: Option<HalfLife>,
    pub(super) cap: Option<Cap>,
}

/// Bounds on the splits of a task that are in the queue or run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SplitsKeys {
    pub(super) min: Option<Splits>,
    pub(super) min_per_task: Option<Splits>,
    pub(super) max_per_task: Option<Count>,
}

/// Times at which running requests are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Charging {
    End,
    Refresh,
    Timer,
}

/// A tenant, or a group of tenants with generated work.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(dead_code, reason = "costs and maps with any keys are read from the tree")]
pub(super) struct Member {
    pub(super) weight: Option<Weight>,
    pub(super) priority: Option<Any>,
    pub(super) reservation: Option<NotNegative>,
    pub(super) limit: Option<Positive>,
    pub(super) holds: Option<IgnoredAny>,
    /// Use of a request at its end; one that uses more than it holds is killed.
    pub(super) uses: Option<IgnoredAny>,
    /// Requests a second that enter the queue; others wait for their turn.
    pub(super) rate: Option<Positive>,
    pub(super) burst: Option<Burst>,
    pub(super) queue_max: Option<Count>,
    pub(super) timeout: Option<Positive>,
    pub(super) guarantee: Option<IgnoredAny>,
    /// True if its requests may be ended for others and run again.
    pub(super) requeue: Option<bool>,
    pub(super) grace: Option<Grace>,
    // The keys of a group.
    pub(super) name: Option<String>,
    pub(super) count: Option<Count>,
    /// A number, or [`CostKeys`].
    pub(super) cost: Option<IgnoredAny>,
    /// [`Arrive`]; an empty map is backlogged.
    pub(super) arrive: Option<IgnoredAny>,
    pub(super) phase: Option<(NotNegative, NotNegative)>,
}

/// The distribution of a cost.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CostKeys {
    pub(super) fixed: Option<Positive>,
    pub(super) uniform: Option<(Positive, Positive)>,
    /// Its mean.
    pub(super) normal: Option<Positive>,
    /// Its median.
    pub(super) lognormal: Option<Positive>,
    /// Its mean.
    pub(super) exponential: Option<Positive>,
    pub(super) stddev: Option<NotNegative>,
    /// The standard deviation of the logarithm.
    pub(super) sigma: Option<NotNegative>,
    pub(super) min: Option<Positive>,
    pub(super) max: Option<Positive>,
    /// One cost for each tenant, and its requests within this part of it.
    pub(super) own: Option<Spread>,
}

/// Times of generated work.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Arrive {
    #[default]
    Backlogged,
    Poisson(Positive),
    Load(Positive),
    Every(Positive),
    /// Once, each tenant of a group so many seconds after the one before.
    Once(NotNegative),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobKeys {
    /// Its number from 1 where it has none.
    pub(super) name: Option<String>,
    pub(super) tenant: String,
    pub(super) cost: NotNegative,
    pub(super) count: Option<Count>,
    pub(super) at: Option<NotNegative>,
    #[serde(default)]
    pub(super) after: Vec<String>,
    /// Most tasks of a set that run at once; without it its requests are sent together.
    pub(super) at_once: Option<Count>,
    /// As its tenant's if absent.
    pub(super) requeue: Option<bool>,
    pub(super) grace: Option<Grace>,
}
