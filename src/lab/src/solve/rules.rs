//! Checks of keys that do not go together.
//!
//! A key that a rule would ignore is refused: its author expects an effect.

use super::codes::{CONFLICT, UNAUDITED};
use super::task::{Asked, Rule};
use crate::problem::refuse_key;
use tenantd_fair::order::Sorter;
use tenantd_fair::{Algorithm, Problem, audit};
use tenantd_policy::file::{Cause, Refusal};
use tenantd_policy::tree::{Entry, Kind, Node};

const DRF: Rule = Rule::Divide(Algorithm::Drf);
const MAX_MIN: Rule = Rule::Divide(Algorithm::MaxMin);
const DRF_TASKS: Rule = Rule::Divide(Algorithm::DrfTasks);

/// Refuses the key of a map by a rule with this code unless `holds`.
fn refuse(
    (map, code): (&Node, &'static str),
    key: &str,
    holds: bool,
    message: &str,
    help: &str,
) -> Result<(), Refusal> {
    if holds { Ok(()) } else { refuse_key(map, key, code, message, help) }
}

/// Refuses keys of a file that its rule ignores.
pub(super) fn check_file(rule: Rule, file: &Node) -> Result<(), Refusal> {
    let has = |key: &str| file.get(key).is_some();
    let refuse = |key, holds, message, help| refuse((file, CONFLICT), key, holds, message, help);
    let whole = "machines hold whole tasks: use `drf-tasks`, `fifo` or `slots`";
    refuse("nodes", rule.is_whole(), "this algorithm divides one machine", whole)?;
    let message = "`capacity` and `nodes` exclude each other";
    refuse(
        "nodes",
        !has("capacity"),
        message,
        "keep one of them: the capacity is that of all nodes",
    )?;
    let nodes = "it says where tasks stand on `nodes`";
    refuse("placement", has("nodes"), "`placement` needs `nodes`", nodes)?;
    refuse("evict", has("nodes"), "`evict` needs `nodes`", nodes)?;
    let message = "no task is evicted from a slot";
    refuse("evict", rule != Rule::Slots, message, "leave it out, or use `drf-tasks` or `fifo`")?;
    let message = "this algorithm has no slots";
    refuse("slots", rule == Rule::Slots, message, "`algorithm: slots` has, on each node")?;
    let message = "this algorithm has an order of its own";
    refuse(
        "order",
        [DRF, DRF_TASKS].contains(&rule),
        message,
        "`drf` and `drf-tasks` have orders",
    )?;
    let message = "what is left over is handed out by DRF";
    refuse("work_conserving", rule == DRF || !has("order"), message, "leave it out")
}

/// Refuses keys of a tenant that its rule, or its kind of tenant, ignores. `kind` is the key that defines the
/// kind.
pub(super) fn check_tenant(
    (rule, on_nodes): (Rule, bool),
    kind: &Entry,
    tenant: &Node,
) -> Result<(), Refusal> {
    let kind_is = |kinds: &[&str]| kinds.contains(&&*kind.key);
    let is_order = matches!(rule, Rule::Order(_));
    let refuse =
        |key: &str, holds, message, help| refuse((tenant, CONFLICT), key, holds, message, help);
    refuse(
        &kind.key,
        is_order || !kind_is(&["usage"]),
        "this algorithm divides: it asks for wishes",
        "give `task` or `demand`",
    )?;
    let message = "this algorithm orders by what is used";
    refuse(&kind.key, !is_order || kind_is(&["usage", "tenants"]), message, "give `usage`")?;
    let with_weight = tenant.get("deadline").is_none();
    let message = "a deadline is a weight, and there is one beside it";
    refuse("weight", with_weight, message, "keep one of them")?;
    let per_resource = |entry: &Entry| matches!(entry.value.kind, Kind::Map(_));
    let is_scalar = rule == Rule::Slots || is_order;
    let is_each = tenant.get("weight").is_some_and(per_resource);
    let message = "this algorithm has one weight for a tenant";
    refuse("weight", !(is_scalar && is_each), message, "write a number")?;
    let orders = "it is an order of whole groups under `drf` and `drf-tasks`";
    let message = "there are no members to order";
    refuse("order", kind_is(&["tenants"]) && [DRF, DRF_TASKS].contains(&rule), message, orders)?;
    let is_kept = !matches!(rule, Rule::Fifo | Rule::Slots | Rule::Order(Sorter::Mesos));
    let message = "this algorithm keeps no guarantee";
    refuse("guarantee", is_kept, message, "leave it out, or use `drf-tasks` with `order: fifo`")?;
    let message = "this algorithm knows no limit";
    refuse("limit", !is_order && rule != Rule::Slots, message, "leave it out")?;
    let message = "only a tenant with tasks can have a deadline";
    for key in ["work", "deadline"] {
        refuse(key, kind_is(&["task", "demand"]), message, "give it to the members of a group")?;
    }
    let message = "`running` is compared with whole tasks of one machine";
    let counts = kind_is(&["task", "demand"]) && [DRF_TASKS, Rule::Fifo].contains(&rule);
    refuse("running", counts && !on_nodes, message, "use `drf-tasks` or `fifo` without `nodes`")?;
    let message = "a claim is one about a `task`, under `drf` or `max-min`";
    refuse("claim", kind_is(&["task"]) && [DRF, MAX_MIN].contains(&rule), message, "leave it out")?;
    let message = "only `mesos-order` counts allocations, of a tenant with `usage`";
    let mesos = rule == Rule::Order(Sorter::Mesos);
    refuse("allocations", mesos && kind_is(&["usage"]), message, "leave it out")?;
    let message = "only a tenant with `usage` can be inactive";
    refuse("inactive", is_order && kind_is(&["usage"]), message, "leave the tenant out")
}

/// Refuses tenants without a deadline if others have one, and groups: their weights would not be comparable.
pub(super) fn check_deadlines(entries: &[&Entry]) -> Result<(), Refusal> {
    let without = |entry: &&&Entry| entry.value.get("deadline").is_none();
    let Some(entry) = entries.iter().find(without) else { return Ok(()) };
    if entries.iter().all(|entry| without(&entry)) {
        return Ok(());
    }
    let message = match entry.value.get("tenants") {
        None => "it has no deadline, and others have",
        Some(_) => "a group has no deadline, and tenants have",
    };
    let help = "give all tenants `work` and `deadline`, without groups, or none of them";
    Err(Refusal::new(Cause::Rule(CONFLICT), entry.span(), message).help(help))
}

/// Refuses requests that have no answer.
pub(super) fn check_asked(
    asked: Asked,
    rule: Rule,
    file: &Node,
    problem: &Problem,
    has_claims: bool,
) -> Result<(), Refusal> {
    let refuse = |key, holds, message, help| refuse((file, UNAUDITED), key, holds, message, help);
    if asked.steps {
        let message = "`--steps` lists grants of whole tasks, and this algorithm grants none";
        refuse("algorithm", rule.is_whole(), message, "use `drf-tasks`, `fifo` or `slots`")?;
    }
    if !asked.audit {
        return Ok(());
    }
    let message = "`--audit` looks at a division, and this algorithm only orders";
    refuse("algorithm", !matches!(rule, Rule::Order(_)), message, "use an algorithm that divides")?;
    let most = "an audit tries all lies of all pairs: at most 6 tenants and 3 resources";
    let is_small = problem.leaves().count() <= audit::MOST_TENANTS
        && problem.resources() <= audit::MOST_RESOURCES;
    refuse("tenants", is_small, most, "leave some out")?;
    let plain = |leaf: usize| {
        problem.guarantee(leaf).iter().all(|&guarantee| guarantee == 0.0)
            && problem.limit(leaf).iter().all(|limit| limit.is_infinite())
    };
    let message = "the properties are those of tenants without groups, guarantees and limits";
    let is_plain = problem.is_flat() && problem.leaves().all(plain);
    refuse("tenants", is_plain, message, "leave these out")?;
    let message = "an audit finds the claims that pay by itself";
    refuse("tenants", !has_claims, message, "leave `claim` out, or `--audit`")
}
