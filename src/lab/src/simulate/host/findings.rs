//! The findings of a simulation, in a few sentences.

use super::measure::{Figures, Outcome, Run};
use super::scenario::Scenario;
use super::world::Regime;
use crate::text;

/// Share errors below this are not worth a sentence.
const ERROR_MIN: f64 = 0.005;

impl Regime {
    pub(super) fn words(self) -> &'static str {
        match self {
            Regime::Tenantd => "with tenantd",
            Regime::Static => "with static settings",
            Regime::None => "without either",
        }
    }
}

pub(super) fn findings(scenario: &Scenario, outcome: &Outcome) -> Vec<String> {
    let names: Vec<String> =
        scenario.policy().leaves().into_iter().map(|(path, _)| text::visible(&path)).collect();
    let mut findings = Vec::new();
    match widest(outcome, |figures| figures.share_error_mean).filter(|it| it.1 >= ERROR_MIN) {
        Some((tenant, _)) => {
            let of = |run: &Run| text::percent(Some(run.tenants[tenant].share_error_mean));
            let parts = by_regime(outcome, of);
            let name = &names[tenant];
            findings.push(format!("Part of the CPUs that {name} lacks on average: {parts}."));
        }
        None => findings.push(
            "What governs the tenants makes no difference to how far they are from their CPUs."
                .into(),
        ),
    }
    let parts = by_regime(outcome, settled);
    findings
        .push(format!("After a change of demand or of the policy, the division is fair {parts}."));
    if let Some((tenant, _)) = widest(outcome, |figures| figures.refault_bytes) {
        let parts = by_regime(outcome, |run| text::memory(run.tenants[tenant].refault_bytes));
        let name = &names[tenant];
        findings.push(format!("Files that {name} reads again from disk: {parts}."));
    }
    if let Some((tenant, _)) = widest(outcome, |figures| figures.nr_kills as f64) {
        let of = |run: &Run| run.tenants[tenant].nr_kills.to_string();
        let parts = by_regime(outcome, of);
        let name = &names[tenant];
        findings.push(format!("Kills of {name} for want of memory: {parts}."));
    }
    findings
}

/// The tenant with the largest difference between two machines, and that difference; `None` without a
/// difference.
fn widest(outcome: &Outcome, figure: fn(&Figures) -> f64) -> Option<(usize, f64)> {
    let of_tenant = |tenant: usize| {
        let figures = outcome.runs.iter().map(|run| figure(&run.tenants[tenant]));
        let bounds = figures.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), figure| {
            (low.min(figure), high.max(figure))
        });
        (tenant, bounds.1 - bounds.0)
    };
    // Reversed, so that the first of several equals wins.
    let tenants = (0..outcome.tenants.len()).map(of_tenant).rev();
    tenants.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, difference)| *difference > 0.0)
}

/// `1 with tenantd, 2 with static settings and 3 without either`.
fn by_regime(outcome: &Outcome, of: impl Fn(&Run) -> String) -> String {
    let parts: Vec<String> = Regime::ALL
        .iter()
        .zip(&outcome.runs)
        .map(|(regime, run)| format!("{} {}", of(run), regime.words()))
        .collect();
    match parts.split_last() {
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Duration of the slowest change: `within 2 s`, or `never`.
fn settled(run: &Run) -> String {
    let (nr_changes, nr_fair) =
        (run.settled.len(), run.settled.iter().flat_map(|it| it.after).count());
    let slowest = run.settled.iter().flat_map(|settled| settled.after).max().unwrap_or_default();
    match nr_fair {
        0 => "never".to_string(),
        _ if nr_fair < nr_changes => format!("after {nr_fair} of {nr_changes} changes only"),
        _ if slowest.is_zero() => "at once".to_string(),
        _ => format!("within {} s", text::short(slowest.as_secs_f64())),
    }
}
