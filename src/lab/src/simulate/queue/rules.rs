//! Rules about keys together: each key of a scenario is obeyed or refused, never ignored.

use super::codes::{CONFLICT, TOO_LONG};
use super::hosted;
use super::keys::{Charging, File, Member};
use super::scenario::Named;
use tenantd_policy::file::Refusal;
use tenantd_policy::tree::Node;
use tenantd_queue::discipline::Name;
use tenantd_queue::simulation::Charge;
use tenantd_queue::virtual_time::Method;

impl Named {
    /// True if it keeps running requests within a capacity.
    pub(super) fn has_capacity(self) -> bool {
        matches!(self, Named::Queue(Name::Drf | Name::Fifo))
    }

    fn estimates(self) -> bool {
        matches!(self, Named::Queue(Name::WfqE | Name::Wf2qE | Name::TwoDfqE))
    }

    fn has_tags(self) -> bool {
        matches!(self, Named::Queue(name) if name.has_tags())
    }

    fn can_reserve(self) -> bool {
        !matches!(self, Named::Gps | Named::Queue(Name::Drf | Name::Multilevel))
    }
}

/// Refuses a key that is given unless `is_right`.
fn unless(is_right: bool, map: &Node, key: &str, message: &str) -> Result<(), Refusal> {
    let Some(entry) = map.get(key).filter(|_| !is_right) else { return Ok(()) };
    let refusal = Refusal::new(CONFLICT, entry.value.span(), message);
    Err(refusal.help(format!("leave `{key}` out")))
}

/// Refuses keys that the discipline ignores.
pub(super) fn check_keys(file: &File, is_hosted: bool, tree: &Node) -> Result<(), Refusal> {
    if is_hosted {
        check_hosted(tree)?;
    }
    let named = file.discipline;
    let is_multilevel = named == Named::Queue(Name::Multilevel);
    let is_estimated_gps = file.virtual_time == Method::Gps && named.estimates();
    let reserved = file.reserve.as_ref().map_or(0, |reserve| reserve.workers.0);
    let is_capped = file.credits().is_none_or(|credits| credits.cap <= credits.half_life);
    let rules = [
        (
            "capacity",
            named.has_capacity() || is_hosted,
            "only `drf`, `fifo` and scenarios with `requeue` obey a capacity",
        ),
        ("defaults", file.capacity.is_some(), "there is no `capacity` to hold of"),
        ("charge", named.estimates(), "only disciplines that estimate costs charge later"),
        ("indices", file.capacity.is_some(), "there is no `capacity` to number"),
        (
            "indices",
            file.quantum.is_none(),
            "a request in slices holds nothing between two of them",
        ),
        (
            "reserve",
            named.can_reserve() || is_hosted,
            "`gps`, `drf` and `multilevel` reserve no workers",
        ),
        ("reserve", reserved <= file.workers.0, "more workers are reserved than there are"),
        (
            "credits",
            named.has_tags(),
            "only disciplines with tags start tenants with credit earlier",
        ),
        ("credits", is_capped, "the cap is longer than the half-life: it fades before it is full"),
        ("splits", is_multilevel, "only `multilevel` has splits of tasks"),
        ("jobs", named != Named::Gps, "`gps` is the ideal of single requests"),
        ("virtual_time", !is_estimated_gps, "GPS cannot be followed without knowing costs"),
    ];
    rules
        .iter()
        .try_for_each(|(key, is_obeyed, message)| unless(*is_obeyed, tree, key, message))?;
    let periods = [("refresh", file.refresh), ("sample", file.sample), ("quantum", file.quantum)];
    for (key, period) in periods {
        if let (Some(period), Some(entry)) = (period, tree.get(key))
            && file.horizon.0 / period.0 > 1e7
        {
            let message = format!("`{key}` is too short");
            let refusal = Refusal::new(TOO_LONG, entry.value.span(), message);
            return Err(refusal.help("at most ten million times before the horizon"));
        }
    }
    Ok(())
}

/// Refuses keys for which the admission of a host has a rule of its own.
fn check_hosted(tree: &Node) -> Result<(), Refusal> {
    let rules = [
        ("virtual_time", "with `requeue` virtual time passes as jobs are charged, as on a host"),
        ("estimator", "with `requeue` costs are estimated as on a host"),
        ("charge", "with `requeue` running jobs are charged at each `refresh`, as on a host"),
        ("ageing", "with `requeue` waiting counts as on a host"),
        ("multiplier", "with `requeue` levels are those of a host"),
        ("quantum", "a job of a host runs in one piece"),
        ("splits", "a host has no splits of tasks"),
        ("donation", "`requeue` is simulated without donated turns"),
    ];
    rules.iter().try_for_each(|(key, message)| unless(false, tree, key, message))
}

/// Refuses keys of a tenant that the discipline ignores.
pub(super) fn check_member(
    discipline: Named,
    has_resources: bool,
    is_hosted: bool,
    member: &Member,
    tree: &Node,
) -> Result<(), Refusal> {
    let has_drf = discipline == Named::Queue(Name::Drf) || !has_resources || is_hosted;
    let has_weights = discipline != Named::Queue(Name::Fq);
    let is_queue = discipline != Named::Gps;
    let ideal = "`gps` is the ideal: all that arrives is served";
    let rules = [
        ("weight", has_weights, "`fq` has no weights: `wfq` has"),
        (
            "holds",
            discipline.has_capacity() || is_hosted,
            "only `drf`, `fifo` and scenarios with `requeue` obey what requests hold",
        ),
        ("priority", !is_hosted, "with `requeue` the weight is the priority, as on a host"),
        ("reservation", !is_hosted, "with `requeue` a `guarantee` comes first, as on a host"),
        ("limit", !is_hosted, "the admission of a host limits no CPU time"),
        ("requeue", is_queue, ideal),
        ("uses", has_resources, "there is no `capacity` to use"),
        ("guarantee", has_drf, "only `drf` obeys what a tenant is to hold first"),
        ("burst", member.rate.is_some(), "there is no `rate` to exceed"),
        ("rate", is_queue, ideal),
        ("queue_max", is_queue, ideal),
        ("timeout", is_queue, ideal),
    ];
    rules.iter().try_for_each(|(key, is_obeyed, message)| unless(*is_obeyed, tree, key, message))
}

/// Times at which running requests are charged.
pub(super) fn charge(file: &File, is_hosted: bool, tree: &Node) -> Result<Charge, Refusal> {
    let is_refreshed = file.charge.is_none_or(|charging| charging == Charging::Refresh);
    unless(is_refreshed, tree, "refresh", "`charge` says not to refresh")?;
    let is_periodic = file.charge != Some(Charging::Refresh) || file.refresh.is_some();
    unless(is_periodic, tree, "charge", "`refresh` does not say how often")?;
    Ok(match (file.charge, file.refresh) {
        (Some(Charging::Timer), _) => Charge::Timer,
        (Some(Charging::Refresh) | None, Some(period)) => Charge::Refresh(period.0),
        _ if is_hosted => Charge::Refresh(hosted::tick(file.horizon.0)),
        _ => Charge::End,
    })
}
