//! The papers' settings: what each discipline makes of them, within the published bounds.

use serde_json::Value;

use super::command::{scenario, simulated};
use super::vectors::number;

fn of(answer: &Value, tenant: &str, figure: &str) -> f64 {
    number(&answer["tenants"][tenant][figure])
}

/// 2DFQ, figure 8, at 50 expensive tenants of 100. A shorter time than the scenario's, over which the standard
/// deviations are nearer to each other.
#[test]
fn small_requests_beside_large_ones() {
    let setting = |discipline: &str| {
        let text = scenario("2dfq-figure-8")
            .replace("discipline: 2dfq", &format!("discipline: {discipline}"));
        simulated(&text.replace("horizon: 60", "horizon: 30"))
    };
    let (wfq, wf2q, two) = (setting("wfq"), setting("wf2q"), setting("2dfq"));
    let stddev = |answer: &Value| of(answer, "small-1", "lag_stddev");
    assert!(stddev(&wf2q) / stddev(&two) >= 3.0, "{} {}", stddev(&wf2q), stddev(&two));
    assert!(stddev(&wfq) / stddev(&two) >= 7.0, "{} {}", stddev(&wfq), stddev(&two));
    let mean = of(&wfq, "small-1", "lag_mean");
    assert!((-1.9..=-1.7).contains(&mean), "{mean}");
    assert!(of(&two, "small-1", "longest_gap") < 0.05);
    assert!(of(&wf2q, "small-1", "longest_gap") > 0.3);
}
