//! The vectors of `control_loops.yaml`: published controllers, step by step.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use tenantd_control::memory::probe::Law;
use tenantd_control::share::demand::after_kill;

/// Operations of other controllers in the file that tenantd has no counterpart of. It sizes nothing from histograms of
/// days, lends nothing by predicted peaks, and moves no quota: CPU time is divided by weights.
const OF_OTHERS: [&str; 5] = [
    "vpa_confidence",
    "prod_reclaimable_cpu",
    "cfs_burst_operation",
    "cfs_quota_step",
    "node_state",
];

#[derive(Deserialize)]
struct Suite {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    id: String,
    op: String,
    input: Map<String, Value>,
    expect: Value,
}

fn number(from: &Map<String, Value>, field: &str) -> f64 {
    from[field].as_f64().unwrap()
}

fn usec(from: &Map<String, Value>, field: &str) -> Duration {
    Duration::from_micros(from[field].as_u64().unwrap())
}

fn law(input: &Map<String, Value>) -> Law {
    Law {
        target: usec(input, "target_us"),
        lower_max: number(input, "max_probe"),
        raise_max: number(input, "max_backoff"),
        lower_coefficient: number(input, "coeff_probe"),
        raise_coefficient: number(input, "coeff_backoff"),
    }
}

#[test]
fn all_vectors_of_senpai_and_of_kills() {
    let text = include_str!("../vectors/control_loops.yaml");
    let suite: Suite = serde_yaml::from_str(text).unwrap();
    let (kills, others): (Vec<_>, Vec<_>) =
        suite.vectors.into_iter().partition(|vector| vector.op == "vpa_oom_bump");
    assert!(!kills.is_empty());
    for Vector { id, input, expect, .. } in kills {
        let law = (number(&input, "ratio"), number(&input, "min_bump"));
        assert_eq!(law, (1.2, 100.0 * 1_048_576.0), "{id}: not the law in use");
        assert_eq!(Some(after_kill(number(&input, "bytes"))), expect.as_f64(), "{id}");
    }
    let (ours, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|vector| vector.op == "senpai_step");
    assert!(ours.iter().any(|vector| law(&vector.input) == Law::SENPAI), "not the law in use");
    for Vector { id, input, expect, .. } in ours {
        let change = law(&input).relative_change(usec(&input, "pressure_integral_us"));
        let expected = expect["relative_change"].as_f64().unwrap();
        assert!((change - expected).abs() < 1e-9, "{id}: {change}, not {expected}");
    }
    for Vector { id, op, .. } in others {
        assert!(OF_OTHERS.contains(&op.as_str()), "{id}: nothing tests {op}");
    }
}
