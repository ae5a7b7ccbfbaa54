//! Properties of the tree, over random trees.

use proptest::prelude::*;
use tenantd::fair::problem::{Terms, Weights};
use tenantd::fair::{self, Algorithm, Node, Problem, Solution, WorkConserving};

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
}
