//! Placement: right counts, least overlap, least movement, topology order.

mod properties;

use tenantd_dop::CpuSet;
use tenantd_dop::placement::{Placement, Reason, Refusal, Request, Want, place};
use tenantd_dop::topology::{CpuPlace, Level, Topology};

use super::machines::shape;

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn dop(count: u32) -> Request {
    Request::new(Want::Dop(count))
}

fn exclusive(count: u32) -> Request {
    Request::new(Want::Exclusive(count))
}

fn fixed(list: &str) -> Request {
    Request::new(Want::Fixed(cpus(list)))
}

fn shared() -> Request {
    Request::new(Want::Shared)
}

fn sets(placement: &Placement) -> Vec<String> {
    placement.sets.iter().map(CpuSet::to_string).collect()
}

/// The same requests, now where `placement` put them.
fn again(requests: &[Request], placement: &Placement) -> Vec<Request> {
    let placed = requests.iter().cloned().zip(placement.sets.iter().cloned());
    placed.map(|(request, set)| request.after(set)).collect()
}

/// How many dedicated sets each usable CPU is in.
fn loads(topology: &Topology, requests: &[Request], placement: &Placement) -> Vec<usize> {
    let dedicated = |index: &usize| requests[*index].want != Want::Shared;
    let load = |cpu: u32| {
        let on = |index: &usize| placement.sets[*index].contains(cpu);
        (0..requests.len()).filter(dedicated).filter(on).count()
    };
    topology.usable().iter().map(load).collect()
}

#[test]
fn two_equal_tenants_get_a_node_each() {
    // 2 sockets of 2 cores with 2 threads, a node each.
    let topology = shape(2, 1, 1, 2, 2).build();
    let placement = place(&topology, &[dop(4), dop(4)]);
    assert_eq!(sets(&placement), ["0-1,4-5", "2-3,6-7"]);
    assert_eq!(placement.overlap, 0);
}

#[test]
fn cpus_of_an_idle_tenant_are_lent_and_returned_within_the_node() {
    let topology = shape(2, 1, 1, 2, 2).build();
    let both = [dop(4), dop(4)];
    let awake = place(&topology, &both);
    let asleep = [dop(8).after(awake.sets[0].clone()), dop(1).after(awake.sets[1].clone())];
    let lent = place(&topology, &asleep);
    assert_eq!(lent.sets[0], cpus("0-7"));
    assert!(lent.sets[1].is_subset(&awake.sets[1]));
    let back = place(&topology, &again(&both, &lent));
    assert_eq!(topology.span(&back.sets[0], Level::Node), 1);
    assert_eq!(topology.span(&back.sets[1], Level::Node), 1);
    assert!(back.sets[0].is_disjoint(&back.sets[1]));
}

#[test]
fn idle_cores_are_used_before_idle_siblings() {
    let topology = shape(1, 1, 1, 4, 2).build();
    // Three threads on four cores: a core for each.
    assert_eq!(sets(&place(&topology, &[dop(3)])), ["0-2"]);
    // Five threads: one core has to take two.
    assert_eq!(sets(&place(&topology, &[dop(5)])), ["0-4"]);
    // Two tenants of three and two: four cores for five threads, none shared between them.
    assert_eq!(sets(&place(&topology, &[dop(3), dop(2)])), ["0-1,4", "2-3"]);
}

#[test]
fn no_core_is_split_between_two_tenants_while_whole_ones_are_left() {
    let topology = shape(1, 1, 1, 4, 2).build();
    let placement = place(&topology, &[dop(2), dop(2), dop(2), dop(2)]);
    for set in &placement.sets {
        assert_eq!(topology.span(set, Level::Core), 1, "{set}");
    }
}

#[test]
fn one_cache_before_two_and_one_node_before_two() {
    let topology = shape(2, 2, 2, 4, 1).build();
    let placement = place(&topology, &[dop(8), dop(4), dop(3), dop(5)]);
    let span = |level| placement.sets.iter().map(|s| topology.span(s, level)).collect::<Vec<_>>();
    assert_eq!(span(Level::Llc), [2, 1, 1, 2]);
    assert_eq!(span(Level::Node), [1, 1, 1, 1]);
}

#[test]
fn a_set_wider_than_a_node_stays_in_its_package() {
    let topology = shape(2, 4, 2, 2, 1).build();
    let placement = place(&topology, &[dop(12), dop(10)]);
    for set in &placement.sets {
        assert_eq!(topology.span(set, Level::Package), 1, "{set}");
        assert_eq!(topology.span(set, Level::Node), 3, "{set}");
    }
}

#[test]
fn few_tenants_get_a_cache_each_and_many_fill_them_up() {
    let topology = shape(1, 1, 4, 4, 1).build();
    assert_eq!(sets(&place(&topology, &[dop(2), dop(2), dop(2)])), ["0-1", "4-5", "8-9"]);
    // Two threes first, then twos: only tight packing leaves room for the twos in one cache each.
    let packed = place(&shape(1, 1, 2, 6, 1).build(), &[dop(3), dop(3), dop(2), dop(2), dop(2)]);
    assert_eq!(sets(&packed), ["0-2", "3-5", "6-7", "8-9", "10-11"]);
}

#[test]
fn few_tenants_get_a_socket_each() {
    let topology = shape(2, 1, 2, 4, 1).build();
    assert_eq!(sets(&place(&topology, &[dop(2), dop(2), dop(2)])), ["0-1", "8-9", "4-5"]);
}

#[test]
fn shrinking_keeps_a_core_each_or_whole_cores_as_the_others_allow() {
    let topology = shape(1, 1, 1, 4, 2).build();
    let wide = || dop(4).after(cpus("0-7"));
    assert_eq!(sets(&place(&topology, &[wide()])), ["0-3"]);
    assert_eq!(sets(&place(&topology, &[wide(), dop(4)])), ["0-1,4-5", "2-3,6-7"]);
}

#[test]
fn a_lost_cpu_is_replaced_near_the_others() {
    let whole = shape(1, 2, 2, 4, 1).build();
    let topology = whole.restricted_to(&cpus("0-2,4-15")).unwrap();
    // The tightest cache with a free CPU is on the other node.
    let requests = [
        dop(4).after(cpus("0-3")),
        dop(2).after(cpus("4-5")),
        dop(4).after(cpus("8-11")),
        dop(3).after(cpus("12-14")),
    ];
    assert_eq!(sets(&place(&topology, &requests))[0], "0-2,6");
}

#[test]
fn the_widest_choose_first() {
    let topology = shape(1, 1, 2, 4, 1).build();
    let placement = place(&topology, &[dop(1), dop(2), dop(2), dop(3)]);
    assert_eq!(sets(&placement), ["3", "4-5", "6-7", "0-2"]);
}

#[test]
fn beyond_the_cpus_the_overlap_is_even() {
    let topology = shape(1, 1, 2, 4, 1).build();
    let requests = [dop(6), dop(6), dop(5)];
    let placement = place(&topology, &requests);
    assert_eq!(placement.overlap, 6 + 6 + 5 - 8);
    let loads = loads(&topology, &requests, &placement);
    assert_eq!(loads.iter().filter(|load| **load == 3).count(), 1);
    assert_eq!(loads.iter().filter(|load| **load == 2).count(), 7);
}

#[test]
fn no_width_exceeds_the_machine() {
    let topology = shape(1, 1, 1, 4, 1).build();
    assert_eq!(sets(&place(&topology, &[dop(9), dop(0)])), ["0-3", "0"]);
}

#[test]
fn exclusive_sets_meet_no_other() {
    let topology = shape(1, 1, 2, 4, 1).build();
    let requests = [shared(), dop(6), exclusive(3), fixed("0-1"), exclusive(1)];
    let placement = place(&topology, &requests);
    assert_eq!(placement.refusals, []);
    for mine in [2, 4] {
        let others = (0..requests.len()).filter(|&other| other != mine);
        for other in others {
            assert!(placement.sets[mine].is_disjoint(&placement.sets[other]), "{mine} {other}");
        }
    }
    assert_eq!(placement.sets[2].len(), 3);
    assert_eq!(placement.sets[0].len(), 4, "shared is all that is not exclusive");
    assert_eq!(placement.sets[1].len(), 4, "as wide as what is left");
}

#[test]
fn an_exclusive_tenant_that_arrives_takes_idle_cpus_first_and_then_evicts() {
    let topology = shape(1, 1, 1, 8, 1).build();
    let running = [dop(3), dop(3)];
    let before = again(&running, &place(&topology, &running));
    let arrived = place(&topology, &[before.clone(), vec![exclusive(2)]].concat());
    assert_eq!(arrived.moved, [0, 0, 0]);
    let crowding = place(&topology, &[before, vec![exclusive(4)]].concat());
    assert_eq!(crowding.sets[2].len(), 4);
    assert_eq!(crowding.overlap, 2);
    assert!(crowding.sets[..2].iter().all(|set| set.is_disjoint(&crowding.sets[2])));
}

#[test]
fn exclusive_requests_beyond_the_cpus_are_narrowed_in_order_and_refused_at_none() {
    let topology = shape(1, 1, 1, 4, 1).build();
    let narrowed = |request, wanted, granted| Refusal {
        request,
        reason: Reason::Narrowed { wanted, granted },
    };
    // One CPU is for the shared one, one for the exclusive that comes last.
    let placement = place(&topology, &[exclusive(4), shared(), exclusive(1)]);
    assert_eq!(sets(&placement), ["0-1", "3", "2"]);
    assert_eq!(placement.refusals, [narrowed(0, 4, 2)]);
    // Five into four: three have a CPU of their own, two share the fourth.
    let placement = place(&topology, &vec![exclusive(1); 5]);
    assert_eq!(sets(&placement), ["0", "1", "2", "3", "3"]);
    assert_eq!(placement.refusals, [narrowed(3, 1, 0), narrowed(4, 1, 0)]);
    // All of it, alone.
    assert_eq!(sets(&place(&topology, &[exclusive(4)])), ["0-3"]);
    // The fixed list leaves nothing.
    let placement = place(&topology, &[fixed("0-3"), exclusive(2)]);
    assert_eq!(sets(&placement), ["0-3", "0-3"]);
    assert_eq!(placement.refusals, [narrowed(1, 2, 0)]);
}

#[test]
fn a_fixed_list_is_taken_as_it_is() {
    let places = shape(1, 1, 1, 8, 1).places().into_iter().filter(|place| place.cpu != 5).collect();
    let topology = Topology::try_new(places, &cpus("7"), cpus("5")).unwrap();
    // Isolated CPUs may be named; offline ones fall away; dop tenants keep clear of it while they can.
    let placement = place(&topology, &[fixed("0,5,7"), dop(5), fixed("5")]);
    assert_eq!(sets(&placement), ["0,7", "1-4,6", "0-4,6"]);
    assert_eq!(placement.refusals, [Refusal { request: 2, reason: Reason::Offline }]);
    assert_eq!(placement.overlap, 0);
}

#[test]
fn an_offline_cpu_is_replaced_and_nothing_else_moves() {
    let whole = shape(2, 1, 2, 4, 1).build();
    let requests = [dop(3), dop(4), dop(2)];
    let before = again(&requests, &place(&whole, &requests));
    let lost = before[0].previous.as_ref().and_then(CpuSet::first).unwrap();
    let mut left = whole.online().clone();
    left.remove(lost);
    let after = place(&whole.restricted_to(&left).unwrap(), &before);
    assert_eq!(after.moved, [1, 0, 0]);
    assert!(!after.sets[0].contains(lost));
}

#[test]
fn a_grown_set_stays_where_there_is_room_and_moves_where_it_would_be_split() {
    let topology = shape(1, 1, 3, 4, 1).build();
    let roomy = [dop(3).after(cpus("0-1")), dop(2).after(cpus("4-5"))];
    assert_eq!(sets(&place(&topology, &roomy)), ["0-2", "4-5"]);
    // Its cache is full, another is empty: moving two CPUs beats two caches.
    let crowded = [dop(4).after(cpus("0-1")), dop(2).after(cpus("2-3")), dop(3).after(cpus("4-6"))];
    let placement = place(&topology, &crowded);
    assert_eq!(sets(&placement), ["8-11", "2-3", "4-6"]);
    assert_eq!(placement.moved, [2, 0, 0]);
}

#[test]
fn a_grown_set_does_not_move_without_need() {
    let topology = shape(1, 1, 3, 4, 1).build();
    let requests = [dop(6).after(cpus("4-8")), dop(2).after(cpus("0-1"))];
    // Placed afresh it would span two caches as well.
    assert_eq!(sets(&place(&topology, &requests)), ["4-9", "0-1"]);
}

#[test]
fn a_held_set_stays_until_one_of_its_cpus_goes_offline() {
    let topology = shape(1, 1, 1, 8, 1).build();
    let held = |request: Request| Request { held: true, ..request };
    let requests = [held(dop(2).after(cpus("0-5"))), dop(4).after(cpus("6-7")), exclusive(4)];
    let placement = place(&topology, &requests);
    assert_eq!(placement.sets[0], cpus("0-5"), "too wide, but it moved a moment ago");
    assert!(placement.sets[2].is_disjoint(&placement.sets[0]));
    assert_eq!(placement.refusals.len(), 1);
    let fewer = topology.restricted_to(&cpus("0-4,6-7")).unwrap();
    assert_eq!(place(&fewer, &requests).sets[0].len(), 2);
}

#[test]
fn a_held_exclusive_set_gives_way_to_a_fixed_list() {
    let topology = shape(1, 1, 1, 8, 1).build();
    let held = Request { held: true, ..exclusive(3).after(cpus("0-2")) };
    let placement = place(&topology, &[held, fixed("2-3"), dop(2)]);
    assert_eq!(sets(&placement), ["0-1,4", "2-3", "5-6"]);
    assert_eq!(placement.refusals, []);
}

#[test]
fn overlapping_sets_separate_with_the_fewest_moves() {
    let topology = shape(1, 1, 1, 8, 1).build();
    let requests = [dop(4).after(cpus("0-3")), dop(4).after(cpus("2-5"))];
    let placement = place(&topology, &requests);
    assert_eq!(placement.overlap, 0);
    assert_eq!(placement.moved, [0, 2]);
}

#[test]
fn unusual_cpu_numbers_change_nothing() {
    // Siblings next to each other, numbers from 100 with holes.
    let place_of = |core: u32, sibling: u32| CpuPlace {
        package: 7,
        node: 3,
        llc: core / 2,
        core,
        cpu: 100 + core * 10 + sibling,
    };
    let places = (0..4).flat_map(|core| [place_of(core, 0), place_of(core, 1)]).collect();
    let topology = Topology::try_new(places, &CpuSet::new(), CpuSet::new()).unwrap();
    assert_eq!(sets(&place(&topology, &[dop(4), dop(4)])), ["100-101,110-111", "120-121,130-131"]);
}
