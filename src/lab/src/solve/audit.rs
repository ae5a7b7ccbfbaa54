//! The audit of a division: a sentence for each property, and the object of the contract.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::amounts::{rounded, shown};
use super::task::Task;
use crate::text::visible;
use tenantd_fair::audit::{Audit, Lies};

pub(super) fn json(task: &Task, audit: &Audit) -> Value {
    let name = |tenant: usize| task.paths[tenant].clone();
    let by_name = |entries: Vec<(usize, Value)>| -> Map<String, Value> {
        entries.into_iter().map(|(tenant, value)| (name(tenant), value)).collect()
    };
    let sharing = audit.sharing.iter().enumerate();
    let sharing =
        sharing.map(|(it, (alone, shared))| (it, json!({ "alone": alone, "shared": shared })));
    let envies: Vec<[String; 2]> = audit.envies.iter().map(|it| [name(it.0), name(it.1)]).collect();
    let wasted: Vec<String> = audit.wasted.iter().map(|&tenant| name(tenant)).collect();
    let mut object = json!({
        "sharing_incentive": {
            "holds": audit.leavers().next().is_none(), "tenants": by_name(sharing.collect()),
        },
        "envy_freeness": { "holds": envies.is_empty(), "envies": envies },
        "pareto_efficiency": { "holds": wasted.is_empty(), "wasted": wasted },
    });
    let Some(Lies { alone, pairs }) = &audit.lies else { return object };
    let amounts = |claim: &[f64]| -> Map<String, Value> {
        task.resources.iter().zip(claim).map(|(it, part)| (it.name.clone(), json!(part))).collect()
    };
    let lies = alone.iter().enumerate().map(|(it, lie)| {
        let claim = amounts(&lie.claim);
        (it, json!({ "honest": lie.honest, "best": lie.best, "claim": claim }))
    });
    let holds = audit.lies.as_ref().is_some_and(|lies| lies.liars().next().is_none());
    object["strategy_proofness"] = json!({ "holds": holds, "tenants": by_name(lies.collect()) });
    let pair = |pair: &tenantd_fair::audit::Collusion| {
        let two = |values: [Value; 2]| by_name(pair.tenants.into_iter().zip(values).collect());
        json!({
            "tenants": pair.tenants.map(name),
            "claims": two([0, 1].map(|it| Value::Object(amounts(&pair.claims[it])))),
            "honest": two(pair.honest.map(Value::from)),
            "useful": two(pair.useful.map(Value::from)),
            "gain": pair.gain,
        })
    };
    let all: Vec<Value> = pairs.iter().map(pair).collect();
    object["collusion"] = json!({ "holds": all.is_empty(), "pairs": all });
    object
}

/// Writes each property as a sentence, with the tenants that violate it.
pub(super) fn sentences(out: &mut impl Write, task: &Task, audit: &Audit) -> io::Result<()> {
    let name = |tenant: usize| visible(&task.paths[tenant]);
    writeln!(out)?;
    let leavers = audit.leavers().map(|it| {
        let (alone, shared) = audit.sharing[it];
        let (alone, shared) = (rounded(alone), rounded(shared));
        format!("{} runs {shared} tasks and would run {alone} alone", name(it))
    });
    say(out, "sharing incentive", "no tenant would do better alone", leavers)?;
    let envies =
        audit.envies.iter().map(|(one, other)| format!("{} envies {}", name(*one), name(*other)));
    say(out, "envy-freeness", "no tenant would do better with the bundle of another", envies)?;
    let wasted = audit.wasted.iter().map(|&it| format!("{} wants more, and it is there", name(it)));
    say(out, "Pareto efficiency", "nothing is left that a tenant could use", wasted)?;
    let Some(lies) = &audit.lies else { return Ok(()) };
    let claim = |claim: &[f64]| {
        let amounts = task.resources.iter().zip(claim).filter(|(_, amount)| **amount > 0.0);
        let amounts =
            amounts.map(|(it, &amount)| format!("{}: {}", visible(&it.name), shown(amount, it)));
        format!("{{ {} }}", amounts.collect::<Vec<_>>().join(", "))
    };
    let liars = lies.liars().map(|it| {
        let lie = &lies.alone[it];
        let (best, honest) = (rounded(lie.best), rounded(lie.honest));
        format!(
            "{} runs {best} tasks instead of {honest} if it claims {}",
            name(it),
            claim(&lie.claim)
        )
    });
    say(out, "strategy-proofness", "no tenant gains by a false claim", liars)?;
    let pairs = lies.pairs.iter().map(|pair| {
        let [one, other] = pair.tenants.map(name);
        let ([a, b], [c, d]) = (pair.honest.map(rounded), pair.useful.map(rounded));
        let [first, second] = [0, 1].map(|it| claim(&pair.claims[it]));
        format!("{one} and {other} run {c} and {d} tasks instead of {a} and {b} if they claim {first} and {second}")
    });
    say(out, "collusion-proofness", "no two tenants gain by lying together", pairs)
}

fn say(
    out: &mut impl Write,
    property: &str,
    holds: &str,
    exceptions: impl Iterator<Item = String>,
) -> io::Result<()> {
    let exceptions: Vec<String> = exceptions.collect();
    if exceptions.is_empty() {
        writeln!(out, "{property} holds: {holds}")
    } else {
        writeln!(out, "{property} does not hold: {}", exceptions.join("; "))
    }
}
