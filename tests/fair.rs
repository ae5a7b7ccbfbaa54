//! Tests of `fair`.

use tenantd::fair::{self, Algorithm, Demand, Kind, Node, Problem, WorkConserving};

fn leaf(demand: Demand) -> Node {
    Node { parent: None, weight: vec![1.0; demand.task.len()], kind: Kind::Leaf(demand) }
}

#[test]
fn nsdi() {
    let nodes = vec![
        leaf(Demand::tasks(vec![1.0, 4.0], f64::INFINITY)),
        leaf(Demand::tasks(vec![3.0, 1.0], f64::INFINITY)),
    ];
    let problem = Problem::try_new(vec![9.0, 18.0], nodes).unwrap();
    for wc in [WorkConserving::No, WorkConserving::Yes] {
        let solution = fair::allocate(&problem, Algorithm::Drf, wc);
        println!("{solution:?}");
    }
    println!(
        "{:?}",
        fair::integer::apportion(
            8,
            &[fair::integer::Claim { weight: 1.0, floor: 0, ceiling: 100 }; 3]
        )
    );
}
