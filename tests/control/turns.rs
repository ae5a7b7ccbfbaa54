//! CPU time that tenants whose jobs wait for slots lend to those whose jobs hold them.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tenantd_control::share::demand::Demand;
use tenantd_control::share::rows::Rows;
use tenantd_control::share::target::{self, Target};
use tenantd_control::share::turns::{Slots, Turn, Turns};
use tenantd_control::tree::TreeNode;
use tenantd_core::resource::{CPU, PerResource};
use tenantd_policy::model::Allocation;

use super::weights::{grouped, siblings};

const CORES: f64 = 8.0;
const TICK: Duration = Duration::from_secs(1);

/// Targets while all want everything and jobs have these turns.
fn targets(nodes: &[TreeNode], turns: &[Turn], elapsed: Duration) -> Vec<Target> {
    let demand = Demand { amount: PerResource([CORES, 0.0]), ..Demand::UNKNOWN };
    let turns = Turns { each: turns.to_vec(), elapsed };
    let rows = Rows { turns, ..Rows::from(PerResource([CORES, 1.0])) };
    target::targets(nodes, &vec![demand; nodes.len()], rows, Allocation::Drf)
}

/// Targets after a minute with these turns.
fn settled(nodes: &[TreeNode], mut turns: Vec<Turn>) -> Vec<Target> {
    for _ in 0..60 {
        let targets = targets(nodes, &turns, TICK);
        for (turn, target) in turns.iter_mut().zip(targets) {
            turn.lent_cores = target.lent_cores;
        }
    }
    targets(nodes, &turns, TICK)
}

/// A tenant that is awake uses half of the CPUs.
fn turn(held: u32, are_awaited: bool, is_awake: bool) -> Turn {
    let slots = Slots { held, are_awaited, were_held: held > 0 };
    Turn { slots, used_cores: if is_awake { CORES / 2.0 } else { 0.0 }, lent_cores: 0.0 }
}

fn weights(targets: &[Target]) -> Vec<f64> {
    targets.iter().map(|target| (target.cpu_weight * 10.0).round() / 10.0).collect()
}

#[test]
fn the_weight_of_waiting_tenants_goes_to_those_that_hold_the_slots() {
    let nodes = siblings(&[1.0, 1.0, 1.0]);
    // The first one has all slots, the second one waits for them, and the third one has no jobs.
    let targets =
        settled(&nodes, vec![turn(8, true, true), turn(0, true, false), turn(0, false, true)]);
    assert_eq!(weights(&targets), [200.0, 100.0, 100.0]);
    // While it waits for its next turn, it keeps what it was lent.
    let (lent, waits) = (targets[0].lent_cores, turn(0, true, false));
    let later = self::targets(&nodes, &[Turn { lent_cores: lent, ..waits }, waits, waits], TICK);
    assert_eq!(later[0].lent_cores, lent);
    // Without jobs it fades: by half in two seconds.
    let over = Turn { lent_cores: lent, ..Turn::default() };
    let later = self::targets(&nodes, &[over], 2 * TICK);
    assert!((later[0].lent_cores - lent / 2.0).abs() < 1e-9);
}

#[test]
fn tenants_that_use_cpus_without_a_slot_lend_nothing() {
    let nodes = siblings(&[1.0, 1.0, 2.0]);
    let targets = settled(&nodes, vec![turn(8, true, true), turn(0, true, true), Turn::default()]);
    assert_eq!(weights(&targets), [75.0, 75.0, 150.0]);
}

#[test]
fn tenants_with_the_slots_that_they_are_entitled_to_lend_nothing() {
    let nodes = siblings(&[1.0, 1.0, 2.0]);
    let targets = settled(&nodes, vec![turn(4, true, true), turn(4, true, true), Turn::default()]);
    assert_eq!(weights(&targets), [75.0, 75.0, 150.0]);
}

/// Two groups of two tenants: what a tenant leaves is its sibling's first.
#[test]
fn a_group_lends_what_none_below_it_uses() {
    let nodes = grouped(&[&[1.0, 1.0], &[1.0, 1.0]]);
    // A job of the first group has all slots. In the other group a job waits, alone, and then beside busy work.
    let (holds, waits) = (turn(8, true, true), turn(0, true, false));
    let turns = |other| vec![Turn::default(), holds, waits, Turn::default(), waits, other];
    let alone = settled(&nodes, turns(Turn::default()));
    assert_eq!([alone[0].lent_cores, alone[1].lent_cores].map(f64::round), [4.0, 6.0]);
    assert_eq!([alone[0].cpu_weight, alone[3].cpu_weight].map(f64::round), [200.0, 100.0]);
    let beside = settled(&nodes, turns(turn(0, false, true)));
    assert_eq!([beside[0].lent_cores, beside[1].lent_cores].map(f64::round), [0.0, 2.0]);
    assert_eq!([beside[0].cpu_weight, beside[3].cpu_weight].map(f64::round), [100.0, 100.0]);
}

fn any_turn() -> impl Strategy<Value = Turn> {
    let lent = prop_oneof![Just(0.0), 0.0..4.0];
    (0..9_u32, any::<bool>(), any::<bool>(), lent).prop_map(
        |(held, are_awaited, is_awake, lent)| Turn {
            lent_cores: lent,
            ..turn(held.saturating_sub(4), are_awaited, is_awake)
        },
    )
}

proptest! {
    #[test]
    fn no_entitlement_falls_and_only_those_that_wait_lend(
        groups in vec(vec(0.1..10.0_f64, 1..4), 1..4),
        all in vec(any_turn(), 16),
    ) {
        let groups: Vec<&[f64]> = groups.iter().map(Vec::as_slice).collect();
        let nodes = grouped(&groups);
        let turn = |(node, turn): (&TreeNode, &Turn)| Turn {
            lent_cores: 0.0,
            ..if node.is_leaf { *turn } else { Turn::default() }
        };
        let turns: Vec<Turn> = nodes.iter().zip(&all).map(turn).collect();
        let (plain, lent) = (targets(&nodes, &[], TICK), settled(&nodes, turns.clone()));
        let mut waits: Vec<bool> = turns.iter().map(|turn| turn.slots.are_awaited).collect();
        let members = nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.parent?)));
        members.for_each(|(at, group)| waits[group] |= waits[at]);
        let top = |at: &usize| nodes[*at].parent.is_none();
        let of_those_that_wait = (0..nodes.len()).filter(top).filter(|at| waits[*at]);
        let entitled: f64 = of_those_that_wait.map(|at| plain[at].entitled_cores).sum();
        let all_lent: f64 = (0..nodes.len()).filter(top).map(|at| lent[at].lent_cores).sum();
        prop_assert!(all_lent <= entitled * (1.0 + 1e-9) + 1e-9, "{all_lent} of {entitled}");
        for (plain, lent) in plain.iter().zip(&lent) {
            prop_assert!(lent.entitled_cores >= plain.entitled_cores - 1e-9);
            prop_assert_eq!(plain.allocation[CPU], lent.allocation[CPU]);
        }
    }

    #[test]
    fn without_a_wait_for_slots_weights_are_what_they_were(
        of_siblings in vec(0.1..10.0_f64, 1..8),
        held in vec(0..9_u32, 8),
    ) {
        let nodes = siblings(&of_siblings);
        let turns: Vec<Turn> = held.iter().map(|held| turn(*held, false, true)).collect();
        prop_assert_eq!(targets(&nodes, &turns, TICK), targets(&nodes, &[], TICK));
    }
}
