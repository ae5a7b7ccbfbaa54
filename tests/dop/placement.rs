//! Placement: right counts, least overlap, least movement, topology order.

use proptest::prelude::*;
use tenantd::dop::CpuSet;
use tenantd::dop::placement::{Placement, Reason, Refusal, Request, Want, place};
use tenantd::dop::topology::{CpuPlace, Level, Topology};

use super::machines::{any_machine, shape};

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

fn any_request(width_max: u32) -> impl Strategy<Value = Request> {
    prop_oneof![
        6 => (0..=width_max).prop_map(dop),
        1 => (0..=width_max / 2).prop_map(exclusive),
        1 => Just(shared()),
    ]
}

fn any_requests(width_max: u32) -> impl Strategy<Value = Vec<Request>> {
    proptest::collection::vec(any_request(width_max), 1..24)
}

fn any_past() -> impl Strategy<Value = CpuSet> {
    prop_oneof![
        4 => proptest::collection::vec(0..1100_u32, 0..30).prop_map(CpuSet::from_iter),
        1 => (0..1100_u32).prop_map(CpuSet::below),
        1 => Just(CpuSet::below(1)),
        1 => Just(CpuSet::new()),
    ]
}

fn width(request: &Request) -> Option<usize> {
    match request.want {
        Want::Dop(count) | Want::Exclusive(count) => Some(count.max(1) as usize),
        _ => None,
    }
}

/// What holds of every placement: counts, exclusiveness, least and even overlap.
fn check(
    topology: &Topology,
    requests: &[Request],
    placement: &Placement,
) -> Result<(), TestCaseError> {
    let refused: Vec<usize> = placement.refusals.iter().map(|refusal| refusal.request).collect();
    let mut exclusive = CpuSet::new();
    for (index, request) in requests.iter().enumerate() {
        let set = &placement.sets[index];
        prop_assert!(!set.is_empty());
        prop_assert!(set.is_subset(topology.usable()));
        if matches!(request.want, Want::Exclusive(_)) && !refused.contains(&index) {
            prop_assert_eq!(Some(set.len()), width(request));
            for (other, theirs) in placement.sets.iter().enumerate() {
                prop_assert!(
                    other == index || set.is_disjoint(theirs),
                    "{} meets {}",
                    index,
                    other
                );
            }
        }
        if matches!(request.want, Want::Exclusive(_)) {
            exclusive = exclusive.union(set);
        }
    }
    let left = topology.usable().difference(&exclusive);
    for (index, request) in requests.iter().enumerate() {
        let set = &placement.sets[index];
        match request.want {
            Want::Dop(count) if refused.is_empty() => {
                prop_assert_eq!(set.len(), (count.max(1) as usize).min(left.len()));
            }
            Want::Shared if refused.is_empty() => prop_assert_eq!(set, &left),
            _ => {}
        }
    }
    if refused.is_empty() {
        let loads = loads(topology, requests, placement);
        let usable: Vec<u32> = topology.usable().iter().collect();
        let open = || usable.iter().zip(&loads).filter(|(cpu, _)| left.contains(**cpu));
        let most = open().map(|(_, load)| *load).max().unwrap_or(0);
        let least = open().map(|(_, load)| *load).min().unwrap_or(0);
        prop_assert!(most <= least + 1, "loads from {} to {}", least, most);
    }
    Ok(())
}

proptest! {
    #[test]
    fn counts_are_right_and_overlap_is_least_and_even(
        topology in any_machine(),
        requests in any_requests(40),
    ) {
        check(&topology, &requests, &place(&topology, &requests))?;
    }

    #[test]
    fn whatever_was_before_the_result_is_as_good(
        topology in any_machine(),
        before in any_requests(40),
        after in any_requests(40),
    ) {
        let placed = place(&topology, &before);
        let mut requests = after;
        for (request, set) in requests.iter_mut().zip(placed.sets) {
            request.previous = Some(set);
        }
        check(&topology, &requests, &place(&topology, &requests))?;
    }

    #[test]
    fn a_past_that_makes_no_sense_is_survived(
        topology in any_machine(),
        requests in any_requests(40),
        pasts in proptest::collection::vec(proptest::option::of(any_past()), 24),
    ) {
        // Whatever a state file says: other CPUs, too many, too few, everybody on one.
        let requests: Vec<Request> = requests
            .into_iter()
            .zip(pasts)
            .map(|(request, previous)| Request { previous, ..request })
            .collect();
        check(&topology, &requests, &place(&topology, &requests))?;
    }

    #[test]
    fn held_sets_stay_whatever_the_others_do(
        topology in any_machine(),
        before in any_requests(20),
        after in any_requests(20),
        held in proptest::collection::vec(any::<bool>(), 24),
    ) {
        let first = place(&topology, &before);
        let mut requests = after;
        for ((request, set), held) in requests.iter_mut().zip(first.sets).zip(held) {
            (request.previous, request.held) = (Some(set), held);
        }
        let second = place(&topology, &requests);
        let refused: Vec<usize> = second.refusals.iter().map(|refusal| refusal.request).collect();
        for (index, request) in requests.iter().enumerate() {
            prop_assert!(!second.sets[index].is_empty());
            if request.held && matches!(request.want, Want::Dop(_)) {
                prop_assert_eq!(Some(&second.sets[index]), request.previous.as_ref());
            }
            if matches!(request.want, Want::Exclusive(_)) && !refused.contains(&index) {
                let others = (0..requests.len()).filter(|&other| other != index);
                for other in others {
                    prop_assert!(second.sets[index].is_disjoint(&second.sets[other]));
                }
            }
        }
    }

    #[test]
    fn no_more_moves_than_the_overlap_demands(
        topology in any_machine(),
        pasts in proptest::collection::vec(proptest::collection::vec(any::<u16>(), 1..12), 1..20),
    ) {
        // Everybody keeps the width of a past set; the sets overlap as they like.
        let usable: Vec<u32> = topology.usable().iter().collect();
        let pasts: Vec<CpuSet> = pasts
            .iter()
            .map(|past| past.iter().map(|n| usable[usize::from(*n) % usable.len()]).collect())
            .collect();
        let total: usize = pasts.iter().map(CpuSet::len).sum();
        let requests: Vec<Request> =
            pasts.iter().map(|past| dop(past.len() as u32).after(past.clone())).collect();
        let moved: usize = place(&topology, &requests).moved.iter().sum();
        // Loads have to end at the mean, rounded down, or one above it, and only so many may be above.
        let base = total / usable.len();
        let above_max = total % usable.len();
        let loads = usable.iter().map(|cpu| pasts.iter().filter(|past| past.contains(*cpu)).count());
        let excess: Vec<usize> = loads.map(|load| load.saturating_sub(base)).collect();
        let above = excess.iter().filter(|excess| **excess > 0).count();
        let least = excess.iter().sum::<usize>() - above.min(above_max);
        match total <= usable.len() {
            true => prop_assert_eq!(moved, least),
            // A tenant cannot move to a CPU that it has, so the bound is not always within reach.
            false => prop_assert!(moved <= least + least / 2 + 3, "{} for {}", moved, least),
        }
    }

    #[test]
    fn cores_are_not_split_and_threads_are_spread_where_one_cache_has_room(
        cores in 1..40_u32,
        widths in proptest::collection::vec(1..10_u32, 1..12),
    ) {
        let topology = shape(1, 1, 1, cores, 2).build();
        let requests: Vec<Request> = widths.iter().copied().map(dop).collect();
        let placement = place(&topology, &requests);
        let spans: Vec<usize> =
            placement.sets.iter().map(|set| topology.span(set, Level::Core)).collect();
        let packed: u32 = widths.iter().map(|width| width.div_ceil(2)).sum();
        if packed <= cores {
            // No core has two tenants: the cores they touch add up to the cores touched by any.
            let all = placement.sets.iter().fold(CpuSet::new(), |all, set| all.union(set));
            prop_assert_eq!(spans.iter().sum::<usize>(), topology.span(&all, Level::Core));
            // And no core idles while some tenant could use it instead of a second thread.
            let wanted: u32 = widths.iter().sum();
            prop_assert_eq!(topology.span(&all, Level::Core) as u32, wanted.min(cores));
        }
    }

    #[test]
    fn the_same_requests_move_nothing(
        topology in any_machine(),
        requests in any_requests(40),
    ) {
        let first = place(&topology, &requests);
        let second = place(&topology, &again(&requests, &first));
        prop_assert_eq!(&second.sets, &first.sets);
        prop_assert!(second.moved.iter().all(|moved| *moved == 0));
        // And the answer is a function of the question.
        prop_assert_eq!(place(&topology, &requests), first);
    }

    #[test]
    fn a_leaving_tenant_moves_no_other_where_nothing_overlapped(
        topology in any_machine(),
        requests in any_requests(12),
        leaver in any::<prop::sample::Index>(),
    ) {
        // Small enough, most of the time, that all of them fit.
        let fair = (topology.usable().len() as u32 / requests.len() as u32).max(1);
        let fitting = |request: Request| match request.want {
            Want::Dop(count) => dop(count % fair + 1),
            Want::Exclusive(count) => exclusive(count % fair + 1),
            _ => request,
        };
        let requests: Vec<Request> = requests.into_iter().map(fitting).collect();
        let first = place(&topology, &requests);
        prop_assume!(first.overlap == 0 && first.refusals.is_empty() && requests.len() > 1);
        let mut left = again(&requests, &first);
        let gone = leaver.index(left.len());
        left.remove(gone);
        let second = place(&topology, &left);
        prop_assert!(second.moved.iter().all(|moved| *moved == 0), "{:?}", second.moved);
    }

    #[test]
    fn shrinking_keeps_a_subset_and_moves_no_other(
        topology in any_machine(),
        widths in proptest::collection::vec(1..12_u32, 1..20),
        narrower in proptest::collection::vec(1..12_u32, 20),
    ) {
        let requests: Vec<Request> = widths.iter().copied().map(dop).collect();
        let first = place(&topology, &requests);
        prop_assume!(first.overlap == 0);
        let shrunk: Vec<Request> =
            widths.iter().zip(&narrower).map(|(a, b)| dop(*a.min(b))).collect();
        let second = place(&topology, &again(&shrunk, &first));
        for (new, old) in second.sets.iter().zip(&first.sets) {
            prop_assert!(new.is_subset(old), "{} of {}", new, old);
        }
    }

    #[test]
    fn a_tenant_that_grows_into_free_room_of_its_cache_keeps_all_it_had(
        topology in any_machine(),
        widths in proptest::collection::vec(1..4_u32, 1..10),
        grower in any::<prop::sample::Index>(),
    ) {
        let mut requests: Vec<Request> = widths.iter().copied().map(dop).collect();
        let first = place(&topology, &requests);
        let taken = first.sets.iter().fold(CpuSet::new(), |all, set| all.union(set));
        let index = grower.index(requests.len());
        let mine = &first.sets[index];
        let room = topology.domains(Level::Llc).iter().any(|llc| {
            let inside = |set: &CpuSet| {
                topology.cpus()[llc.clone()].iter().filter(|c| set.contains(c.place.cpu)).count()
            };
            inside(mine) == mine.len() && inside(topology.usable()) > inside(&taken)
        });
        prop_assume!(first.overlap == 0 && room);
        requests[index] = dop(widths[index] + 1);
        let second = place(&topology, &again(&requests, &first));
        prop_assert!(mine.is_subset(&second.sets[index]));
        prop_assert_eq!(topology.span(&second.sets[index], Level::Llc), 1);
        prop_assert!(second.moved.iter().all(|moved| *moved == 0));
    }

    #[test]
    fn a_tenant_alone_spans_as_few_domains_as_can_hold_it(
        topology in any_machine(),
        count in 1..200_u32,
    ) {
        let count = count.min(topology.usable().len() as u32);
        let set = &place(&topology, &[dop(count)]).sets[0];
        let usable_in = |range: &std::ops::Range<usize>| {
            topology.cpus()[range.clone()].iter().filter(|cpu| !cpu.isolated).count() as u32
        };
        for level in [Level::Llc, Level::Node, Level::Package] {
            let largest = topology.domains(level).iter().map(usable_in).max().unwrap_or(0);
            if count <= largest {
                prop_assert_eq!(topology.span(set, level), 1, "{:?}: {}", level, set);
            }
        }
    }
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
