//! Scenarios with evictable requests: the admission of a host decides, with its own rules of eviction.
//!
//! The resource `cpu` is slots, `memory` is memory, and any other one a counted resource. A request holds at least one slot
//! and one worker.

use std::time::Duration;

use super::codes::{CONFLICT, Grace};
use super::scenario::{Scenario, Tenant};
use tenantd_admission::{Admission, Capacity, Guarantee, Holding, Host, Reserve, Rules, Terms};
use tenantd_policy::file::Refusal;
use tenantd_policy::tree::{Kind, Node};
use tenantd_queue::discipline::Name;

/// Grace in seconds without a key, as of `run --requeue`.
const GRACE_SECONDS: u32 = 30;
/// Largest capacity of a resource other than memory.
const UNITS_MAX: f64 = 100_000.0;
/// Largest capacity of memory: each whole number up to it is exact.
const MEMORY_MAX: f64 = 1e15;
/// Seconds between two ticks, and most ticks of a run; a longer one has longer ticks.
const TICK: f64 = 1.0;
const TICKS_MAX: f64 = 1e6;

/// Time between two charges, and between two looks for evictions, in seconds.
pub(super) fn tick(horizon: f64) -> f64 {
    TICK.max(horizon / TICKS_MAX)
}

/// True if a tenant, a generator or a job has `requeue: true`.
pub(super) fn is_asked_for(tree: &Node) -> bool {
    let asks = |node: &Node| {
        node.get("requeue").is_some_and(|entry| entry.read::<bool>().is_ok_and(|asks| asks))
    };
    let values = |key: &str| tree.get(key).map(|entry| &entry.value);
    let of_map = values("tenants").is_some_and(|tenants| match &tenants.kind {
        Kind::Map(entries) => entries.iter().any(|entry| asks(&entry.value)),
        _ => false,
    });
    let of_list = |key: &str| values(key).is_some_and(|items| items.list().iter().any(asks));
    of_map || of_list("generators") || of_list("jobs")
}

/// Grace of requests with these keys, of which the tenant has a grace of its own; `None` if they may not be evicted.
pub(super) fn grace(
    (requeue, grace): (Option<bool>, Option<Grace>),
    of_tenant: Option<u32>,
    tree: &Node,
) -> Result<Option<u32>, Refusal> {
    let is_evictable = requeue.unwrap_or(of_tenant.is_some());
    if let Some(entry) = tree.get("grace").filter(|_| !is_evictable) {
        let message = "`grace` is the time in which a job with `requeue: true` ends";
        return Err(Refusal::new(CONFLICT, entry.value.span(), message).help("add `requeue: true`"));
    }
    let seconds = grace.map(|seconds| seconds.0 as u32).or(of_tenant).unwrap_or(GRACE_SECONDS);
    Ok(is_evictable.then_some(seconds))
}

fn holding(name: &str) -> Holding {
    match name {
        "cpu" => Holding::Slots,
        "memory" => Holding::Memory,
        _ => Holding::Units(name.to_string()),
    }
}

/// Refuses amounts that a host cannot count, and requests that could never start.
pub(super) fn check_amounts(
    tree: &Node,
    (resources, capacity): (&[String], &[f64]),
    tenants: &[Tenant],
) -> Result<(), Refusal> {
    let entries = tree.get("capacity").map(|entry| entry.value.map()).transpose()?;
    for ((at, name), entry) in resources.iter().enumerate().zip(entries.unwrap_or_default()) {
        let most = if holding(name) == Holding::Memory { MEMORY_MAX } else { UNITS_MAX };
        let is_counted = |amount: f64| amount.fract() == 0.0 && amount <= most;
        let held =
            || tenants.iter().filter_map(move |tenant| Some((tenant, tenant.holds.get(at)?)));
        if !is_counted(capacity[at]) || !held().all(|(_, amount)| is_counted(*amount)) {
            let message = format!("with `requeue` all amounts of `{name}` are whole numbers");
            let refusal = Refusal::new(CONFLICT, entry.value.span(), message);
            return Err(refusal.help(format!("write whole numbers, at most {most}")));
        }
        if let Some((tenant, _)) = held().find(|(_, amount)| **amount > capacity[at]) {
            let tenant = &tenant.name;
            let message = format!("a request of `{tenant}` holds more `{name}` than there is");
            let refusal = Refusal::new(CONFLICT, entry.value.span(), message);
            return Err(refusal.help("it could never start: raise the capacity, or lower `holds`"));
        }
        let is_unit = matches!(holding(name), Holding::Units(_));
        let is_guaranteed = |it: &&Tenant| it.terms.min_share.get(at).is_some_and(|it| *it > 0.0);
        if let Some(tenant) = tenants.iter().find(is_guaranteed).filter(|_| is_unit) {
            let message = format!("`{}` has a guarantee of `{name}`", tenant.name);
            let refusal = Refusal::new(CONFLICT, entry.value.span(), message);
            return Err(refusal.help("a host guarantees `cpu` and `memory` only"));
        }
    }
    Ok(())
}

/// The scheduler of a scenario; without `evicts` no request is evicted.
pub(super) fn scheduler(scenario: &Scenario, discipline: Name, evicts: bool) -> Host {
    let workers = scenario.machine.workers;
    let amounts = scenario.capacity.as_deref().unwrap_or_default();
    let mut capacity = Capacity { slots: workers, memory_bytes: None, units: Vec::new() };
    for (name, amount) in scenario.resources.iter().zip(amounts) {
        match holding(name) {
            Holding::Slots => capacity.slots = *amount as u32,
            Holding::Memory => capacity.memory_bytes = Some(*amount as u64),
            Holding::Units(name) => capacity.units.push((name, *amount as u32)),
        }
    }
    let rate = scenario.machine.rate;
    let reserve = scenario.reserve.map(|reserve| Reserve {
        workers: workers.saturating_sub(reserve.from),
        below: Duration::try_from_secs_f64(reserve.below / rate).unwrap_or(Duration::MAX),
    });
    let rules = Rules {
        discipline,
        max_running: Some(workers),
        max_waiting: u32::MAX,
        max_waiting_per_user: u32::MAX,
        reserve,
        ..Rules::default()
    };
    let guarantee = |tenant: &Tenant| {
        let of = |wanted: Holding| {
            let at = scenario.resources.iter().position(|name| holding(name) == wanted)?;
            tenant.terms.min_share.get(at).copied()
        };
        let memory_bytes = of(Holding::Memory).unwrap_or(0.0) as u64;
        Guarantee { cores: of(Holding::Slots).unwrap_or(0.0), memory_bytes }
    };
    let terms = scenario.tenants.iter().map(|tenant| Terms {
        guarantee: guarantee(tenant),
        ..Terms::new(&*tenant.name, tenant.terms.weight)
    });
    let mut admission = Admission::new(rules, capacity);
    admission.policy(rules, terms.collect(), 0.0);
    let names = scenario.tenants.iter().map(|tenant| tenant.name.clone());
    let holdings = scenario.resources.iter().map(|name| holding(name)).collect();
    Host::new(admission, names.collect(), holdings, rate, evicts)
}

/// CPUs of a request of a tenant while it runs.
pub(super) fn cpus(scenario: &Scenario, tenant: &Tenant) -> f64 {
    let holdings: Vec<Holding> = scenario.resources.iter().map(|name| holding(name)).collect();
    Host::slots_of(&holdings, &tenant.holds) as f64
}
