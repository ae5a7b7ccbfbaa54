//! The vectors: inputs and the outputs they must give, from papers, other implementations' tests, and
//! exact computation in rationals.

use std::cmp::Ordering;

use serde_json::Value;
use tenantd_fair::problem::{Terms, Weights};
use tenantd_fair::{
    self, Algorithm, Bounds, Demand, Kind, Node, Problem, Solution, State, WorkConserving, integer,
    max_min, yarn,
};

use super::instances::assert_close;
use super::suite::{number, suite};

/// A field of a map, if it is there.
fn maybe(value: &Value, key: &str) -> Option<f64> {
    value.get(key).map(number)
}

fn id(vector: &Value) -> &str {
    vector["id"].as_str().unwrap()
}

/// The names of the resources, sorted, and what there is of them.
fn capacity(input: &Value) -> (Vec<String>, Vec<f64>) {
    let capacity = input["capacity"].as_object().unwrap();
    capacity.iter().map(|(name, value)| (name.clone(), number(value))).unzip()
}

/// A map from resources as a vector; `missing` where a resource is not in it. A scalar is for all.
fn row(resources: &[String], value: Option<&Value>, missing: f64) -> Vec<f64> {
    let entry = |name: &String| match value {
        Some(Value::Object(map)) => map.get(name).map_or(missing, number),
        Some(scalar) => number(scalar),
        None => missing,
    };
    resources.iter().map(entry).collect()
}

/// A leaf of the DRF suites: `d`, `w`, `unbounded`, and `lo` and `hi` as parts of the demand.
fn leaf(resources: &[String], parent: Option<usize>, tenant: &Value, unbounded: bool) -> Node {
    let task = row(resources, tenant.get("d"), 0.0);
    let part = |part: Option<f64>, missing: f64| -> Vec<f64> {
        task.iter().map(|d| part.map_or(missing, |part| part * d)).collect()
    };
    let demand = Demand {
        guarantee: part(maybe(tenant, "lo"), 0.0),
        limit: part(maybe(tenant, "hi"), f64::INFINITY),
        tasks: if unbounded { f64::INFINITY } else { 1.0 },
        task,
    };
    let weight = row(resources, tenant.get("w"), 1.0);
    Node { parent, weight, kind: Kind::Leaf(demand) }
}

fn drf(problem: &Problem) -> Solution {
    tenantd_fair::allocate(problem, Algorithm::Drf, WorkConserving::No)
}

#[test]
fn max_min() {
    for vector in suite("maxmin") {
        let claim = |tenant: &Value| max_min::Claim {
            weight: maybe(tenant, "w").unwrap_or(1.0),
            floor: maybe(tenant, "lo").unwrap_or(0.0),
            ceiling: maybe(tenant, "hi").unwrap_or(f64::INFINITY),
        };
        let claims: Vec<_> =
            vector["input"]["tenants"].as_array().unwrap().iter().map(claim).collect();
        let division = max_min::divide(number(&vector["input"]["capacity"]), &claims);
        let expected = vector["expect"]["alloc"].as_array().unwrap();
        for (got, expected) in division.allocation.iter().zip(expected) {
            assert_close(*got, number(expected), id(&vector));
        }
        match &vector["expect"]["level"] {
            Value::Null => assert_eq!(division.level, None, "{}", id(&vector)),
            level => assert_close(division.level.unwrap(), number(level), id(&vector)),
        }
    }
}

#[test]
fn drf_divisible() {
    for vector in suite("drf_divisible") {
        let (resources, capacity) = capacity(&vector["input"]);
        let tenants = vector["input"]["tenants"].as_array().unwrap();
        let is_unbounded = |tenant: &Value| tenant.get("unbounded").is_some();
        let nodes =
            tenants.iter().map(|tenant| leaf(&resources, None, tenant, is_unbounded(tenant)));
        // The suite gives its weights normalised.
        let terms = Terms { weights: Weights::Normalised, ..Terms::default() };
        let problem = Problem::try_new_on(terms, capacity, nodes.collect()).unwrap();
        let solution = drf(&problem);
        for (tenant, leaf) in tenants.iter().zip(&solution.leaves) {
            let name = tenant["name"].as_str().unwrap();
            let what = format!("{} {name}", id(&vector));
            let expected = &vector["expect"][name];
            assert_close(leaf.fraction, number(&expected["x"]), &what);
            assert_close(leaf.level, number(&expected["level"]), &what);
            let allocation = row(&resources, expected.get("alloc"), f64::NAN);
            for (got, expected) in solution.allocation(leaf.node).iter().zip(allocation) {
                assert_close(*got, expected, &what);
            }
            let state = match leaf.state {
                State::Satisfied | State::Limited => "capped",
                State::Blocked => "blocked",
                State::NoDemand => "nodemand",
            };
            assert_eq!(state, expected["state"].as_str().unwrap(), "{what}");
        }
    }
}

#[test]
fn drf_endowment_weights() {
    for vector in suite("drf_endowment_weights") {
        let (resources, capacity) = capacity(&vector["input"]);
        let tenants = vector["input"]["tenants"].as_array().unwrap();
        let nodes = tenants.iter().map(|tenant| leaf(&resources, None, tenant, true));
        let problem = Problem::try_new(capacity, nodes.collect()).unwrap();
        for (tenant, leaf) in tenants.iter().zip(drf(&problem).leaves) {
            let name = tenant["name"].as_str().unwrap();
            assert_close(leaf.fraction, number(&vector["expect"]["x"][name]), id(&vector));
            let endowment = number(&vector["expect"]["endowment_tasks"][name]);
            assert!(leaf.fraction >= endowment * (1.0 - 1e-9), "{}", id(&vector));
        }
    }
}

#[test]
fn hdrf() {
    for vector in suite("hdrf") {
        let (resources, capacity) = capacity(&vector["input"]);
        let mut names = Vec::new();
        let mut nodes = Vec::new();
        let kids = vector["input"]["tree"]["kids"].as_array().unwrap();
        let mut stack: Vec<(Option<usize>, &Value)> =
            kids.iter().rev().map(|k| (None, k)).collect();
        while let Some((parent, tenant)) = stack.pop() {
            names.push(tenant["name"].as_str().unwrap());
            let node = nodes.len();
            if let Some(kids) = tenant.get("kids") {
                let weight = row(&resources, tenant.get("w"), 1.0);
                nodes.push(Node {
                    parent,
                    weight,
                    kind: Kind::Group(Bounds::none(resources.len())),
                });
                let kids = kids.as_array().unwrap().iter().rev();
                stack.extend(kids.map(|kid| (Some(node), kid)));
                continue;
            }
            let mut leaf = leaf(&resources, parent, tenant, true);
            if let (Kind::Leaf(demand), Some(hi)) = (&mut leaf.kind, maybe(tenant, "hi")) {
                demand.tasks = hi;
            }
            nodes.push(leaf);
        }
        let problem = Problem::try_new(capacity, nodes).unwrap();
        let solution = drf(&problem);
        for leaf in &solution.leaves {
            let what = format!("{} {}", id(&vector), names[leaf.node]);
            let expected = &vector["expect"][names[leaf.node]];
            assert_close(leaf.fraction, number(&expected["x"]), &what);
            let allocation = row(&resources, expected.get("alloc"), f64::NAN);
            for (got, expected) in solution.allocation(leaf.node).iter().zip(allocation) {
                assert_close(*got, expected, &what);
            }
        }
    }
}

#[test]
fn integer_apportionment() {
    for vector in suite("integer_apportionment") {
        let slots = vector["input"]["slots"].as_u64().unwrap();
        let whole = |tenant: &Value, key: &str| tenant.get(key).and_then(Value::as_u64);
        let claim = |tenant: &Value| integer::Claim {
            weight: maybe(tenant, "w").unwrap_or(1.0),
            floor: whole(tenant, "lo").unwrap_or(0),
            ceiling: whole(tenant, "hi").unwrap_or(u64::MAX),
        };
        let tenants = vector["input"]["tenants"].as_array().unwrap();
        let claims: Vec<_> = tenants.iter().map(claim).collect();
        let got = integer::apportion(slots, &claims);
        let expected = vector["expect"]["alloc"].as_array().unwrap();
        let expected: Vec<u64> = expected.iter().map(|slots| slots.as_u64().unwrap()).collect();
        assert_eq!(got, expected, "{}", id(&vector));
        let idle = slots - got.iter().sum::<u64>();
        assert_eq!(Some(idle), vector["expect"]["idle"].as_u64(), "{}", id(&vector));
    }
}

#[test]
fn drf_tasks() {
    for vector in suite("drf_tasks") {
        let (resources, capacity) = capacity(&vector["input"]);
        let users = &vector["input"]["users"];
        let names = |list: &Value| -> Vec<String> {
            list.as_array().unwrap().iter().map(|name| name.as_str().unwrap().into()).collect()
        };
        let order = names(&vector["input"]["tie_order"]);
        let user = |name: &String| {
            let task = row(&resources, users.get(name), 0.0);
            Node {
                parent: None,
                weight: vec![1.0; task.len()],
                kind: Kind::Leaf(Demand::tasks(task, f64::INFINITY)),
            }
        };
        let problem = Problem::try_new(capacity.clone(), order.iter().map(user).collect()).unwrap();
        let solution = tenantd_fair::allocate(&problem, Algorithm::DrfTasks, WorkConserving::No);
        for leaf in &solution.leaves {
            assert_eq!(leaf.fraction, number(&vector["expect"]["tasks"][&order[leaf.node]]));
        }
        let grants: Vec<String> = solution.order.iter().map(|&node| order[node].clone()).collect();
        if let Some(sequence) = vector["expect"].get("sequence") {
            assert_eq!(grants, names(sequence), "{}", id(&vector));
        }
        if let Some(start) = vector["expect"].get("sequence_starts") {
            let start = names(start);
            assert_eq!(grants[..start.len()], start, "{}", id(&vector));
        }
        for (r, name) in resources.iter().enumerate() {
            let used = 1.0 - solution.unallocated[r] / capacity[r];
            assert_close(used, number(&vector["expect"]["usage_after"][name]), id(&vector));
        }
    }
}

#[test]
fn yarn_fair_shares() {
    for vector in suite("yarn_fair_shares") {
        let total = vector["input"]["total"].as_u64().unwrap();
        let whole = |queue: &Value, key: &str| queue.get(key).and_then(Value::as_u64);
        let queue = |it: &Value| yarn::Queue {
            weight: maybe(it, "w").unwrap_or(1.0),
            min: whole(it, "min").unwrap_or(0),
            max: whole(it, "max").unwrap_or(i32::MAX as u64),
        };
        let queues = vector["input"]["sched"].as_array().unwrap();
        let queues: Vec<yarn::Queue> = queues.iter().map(queue).collect();
        let got = yarn::fair_shares(total, &queues);
        let Some(expected) = vector["expect"].as_array() else { continue };
        let expected: Vec<u64> = expected.iter().map(|share| share.as_u64().unwrap()).collect();
        assert_eq!(got, expected, "{}", id(&vector));
        let claim = |queue: &yarn::Queue| max_min::Claim {
            weight: queue.weight,
            floor: queue.min as f64,
            ceiling: queue.max as f64,
        };
        let claims: Vec<_> = queues.iter().map(claim).collect();
        for (exact, got) in max_min::divide(total as f64, &claims).allocation.iter().zip(got) {
            assert!((exact - got as f64).abs() < 1.0, "{}", id(&vector));
        }
    }
}

#[test]
fn yarn_drf_comparator() {
    let numbers = |list: &Value| list.as_array().unwrap().iter().map(number).collect::<Vec<f64>>();
    for vector in suite("yarn_drf_comparator") {
        let (input, expect) = (&vector["input"], &vector["expect"]);
        if let Some(cluster) = input.get("cluster") {
            let resources: Vec<String> = cluster.as_object().unwrap().keys().cloned().collect();
            let parts = |it: &Value| {
                let usage = row(&resources, it.get("usage"), 0.0);
                let min_share = row(&resources, it.get("min"), 0.0);
                (usage, min_share, maybe(it, "w").unwrap_or(1.0))
            };
            let (one, two) = (parts(&input["s1"]), parts(&input["s2"]));
            fn schedulable<'a>(
                (usage, min_share, weight): &'a (Vec<f64>, Vec<f64>, f64),
                name: &'a str,
            ) -> yarn::Schedulable<'a> {
                yarn::Schedulable { usage, min_share, weight: *weight, start_time: 0, name }
            }
            let cluster = row(&resources, Some(cluster), 0.0);
            let order = yarn::compare(&cluster, &schedulable(&one, "s1"), &schedulable(&two, "s2"));
            let expected = match expect.as_str().unwrap() {
                "s1<s2" => Ordering::Less,
                "s1>s2" => Ordering::Greater,
                _ => Ordering::Equal,
            };
            assert_eq!(order, expected, "{}", id(&vector));
        } else if let Some(min) = input.get("min") {
            let resources: Vec<String> = min.as_object().unwrap().keys().cloned().collect();
            let usage = row(&resources, input.get("usage"), 0.0);
            let got = yarn::min_share_ratios(&usage, &row(&resources, Some(min), 0.0));
            for (got, name) in got.iter().zip(&resources) {
                match expect[name].as_str() {
                    Some("inf") => assert_eq!(*got, f64::INFINITY),
                    _ => assert_close(*got, number(&expect[name]), id(&vector)),
                }
            }
        } else if let Some(rows) = input.get("rows") {
            let column = |list: &Value, column: usize| -> Vec<f64> {
                list.as_array().unwrap().iter().map(|row| number(&row[column])).collect()
            };
            let got = yarn::by_dominance(&column(rows, 0), &column(rows, 1));
            assert_eq!(got, column(expect, 1), "{}", id(&vector));
        } else {
            let order = yarn::compare_ratios(&numbers(&input["r1"]), &numbers(&input["r2"]));
            assert_eq!(order as i64, expect.as_i64().unwrap(), "{}", id(&vector));
        }
    }
}
