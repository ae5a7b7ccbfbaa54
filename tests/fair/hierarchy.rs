//! Properties of the tree, over random trees.

use proptest::prelude::*;
use tenantd::fair::problem::{Terms, Weights};
use tenantd::fair::{self, Algorithm, Kind, Node, Problem, Solution, WorkConserving};

use super::discrete::Filling;
use super::instances::{Shape, instance};

fn drf(capacity: &[f64], nodes: &[Node]) -> Solution {
    // The oracle takes weights as they are.
    let terms = Terms { weights: Weights::Normalised, ..Terms::default() };
    let problem = Problem::try_new_on(terms, capacity.to_vec(), nodes.to_vec()).unwrap();
    fair::allocate(&problem, Algorithm::Drf, WorkConserving::No)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_tree_is_the_limit_of_small_steps((capacity, nodes) in instance(Shape::TREE)) {
        let exact = drf(&capacity, &nodes);
        let slow = Filling::new(&capacity, &nodes).run(1.0 / 2000.0);
        for leaf in &exact.leaves {
            let slow = slow[leaf.node];
            let rho = leaf.level / leaf.fraction;
            let off = if leaf.fraction > 0.0 { rho * (slow - leaf.fraction) } else { 0.0 };
            prop_assert!(off.abs() < 0.01, "leaf {}: {} and slowly {slow}", leaf.node, leaf.fraction);
        }
    }

    #[test]
    fn a_group_has_what_its_members_have((capacity, nodes) in instance(Shape::TREE)) {
        let problem = Problem::try_new(capacity.clone(), nodes.clone()).unwrap();
        for algorithm in [Algorithm::Drf, Algorithm::MaxMin] {
            for stage in [WorkConserving::No, WorkConserving::Yes] {
                let solution = fair::allocate(&problem, algorithm, stage);
                for (group, _) in nodes.iter().enumerate().filter(|(_, n)| n.kind == Kind::Group) {
                    for (r, whole) in capacity.iter().enumerate() {
                        let members = (0..nodes.len()).filter(|n| nodes[*n].parent == Some(group));
                        let sum: f64 = members.map(|n| solution.allocation(n)[r]).sum();
                        let off = (solution.allocation(group)[r] - sum).abs();
                        prop_assert!(off <= 1e-9 * whole, "{algorithm:?} {stage:?} group {group}");
                    }
                }
            }
        }
    }
}
