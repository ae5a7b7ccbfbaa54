//! Properties of placement, on any machine and for any requests.

use proptest::prelude::*;
use tenantd_dop::CpuSet;
use tenantd_dop::placement::{Placement, Request, Want, place};
use tenantd_dop::topology::{Level, Topology};

use super::{again, dop, exclusive, loads, shared};
use crate::machines::{any_machine, shape};

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
        if total <= usable.len() {
            prop_assert_eq!(moved, least)
        } else {
            // A tenant cannot move to a CPU that it has, so the bound is not always within reach.
            prop_assert!(moved <= least + least / 2 + 3, "{} for {}", moved, least)
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
