//! Admission rounds: the vectors, the published tables, and what must hold of every round.

use proptest::prelude::*;
use serde::Deserialize;
use tenantd_dop::target::{Admission, Place, Problem, ProblemError, Query, Reason, Running, Width};
use tenantd_dop::{imci, target};
use tenantd_fair::integer::{Claim, apportion};

use super::autodop::{Entry, Input, Suite, vectors};

fn problem_of(input: &Input) -> Problem {
    let query = |entry: &Entry| Query {
        width: match (entry.manual, entry.max) {
            (Some(dop), _) => Width::Manual(dop),
            (None, Some(max)) => Width::AtMost(max),
            (None, None) => Width::Auto,
        },
        memory: entry.mem.unwrap_or(0.0),
        ..Query::default()
    };
    let running =
        input.running().into_iter().map(|dop| Running { dop, ..Running::default() }).collect();
    let queue = input.queue.iter().map(query).collect();
    Problem::try_new(input.max_dop, Some(input.max_dop_one_query), input.mem, running, queue)
        .unwrap()
}

#[test]
fn all_vectors() {
    for vector in vectors() {
        let problem = problem_of(&vector.input);
        let elastic = target::admit(&problem);
        assert_eq!(elastic.dop, vector.expect.fair_integer, "{} elastic", vector.id);
        assert_eq!(elastic.memory_bound, vector.expect.memory_bound, "{} elastic", vector.id);
        let published = imci::admit(&problem);
        assert_eq!(published.dop, vector.expect.imci_published, "{} imci", vector.id);
        assert_eq!(published.memory_bound, vector.expect.memory_bound, "{} imci", vector.id);
    }
}

#[test]
fn all_apportionment_vectors() {
    #[derive(Debug, Deserialize)]
    struct Vector {
        id: String,
        input: Input,
        expect: Expected,
    }
    #[derive(Debug, Deserialize)]
    struct Input {
        slots: u64,
        tenants: Vec<Tenant>,
    }
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Tenant {
        w: Option<f64>,
        lo: Option<u64>,
        hi: Option<u64>,
    }
    #[derive(Debug, Deserialize)]
    struct Expected {
        alloc: Vec<u64>,
        idle: u64,
    }
    let text = include_str!("../../../tests/vectors/integer_apportionment.yaml");
    let suite: Suite<Vector> = serde_yaml::from_str(text).unwrap();
    for vector in suite.vectors {
        let slots = vector.input.slots;
        let claim = |tenant: &Tenant| Claim {
            weight: tenant.w.unwrap_or(1.0),
            floor: tenant.lo.unwrap_or(0),
            ceiling: tenant.hi.unwrap_or(slots),
        };
        let claims: Vec<Claim> = vector.input.tenants.iter().map(claim).collect();
        let given = apportion(slots, &claims);
        assert_eq!(given, vector.expect.alloc, "{}", vector.id);
        assert_eq!(slots - given.iter().sum::<u64>(), vector.expect.idle, "{}", vector.id);
    }
}

fn auto() -> Query {
    Query::default()
}

fn manual(dop: u64) -> Query {
    Query { width: Width::Manual(dop), ..auto() }
}

fn at_most(max: u64) -> Query {
    Query { width: Width::AtMost(max), ..auto() }
}

fn needs(memory: f64, query: Query) -> Query {
    Query { memory, ..query }
}

fn problem(slots: u64, max_per_query: u64, memory: Option<f64>, queue: Vec<Query>) -> Problem {
    Problem::try_new(slots, Some(max_per_query), memory, vec![], queue).unwrap()
}

#[test]
fn six_of_width_one_and_two_unbounded_ones_leave_no_slot_idle() {
    let mut queue = vec![at_most(1); 6];
    queue.extend([auto(), auto()]);
    let round = problem(16, 16, None, queue);
    assert_eq!(target::admit(&round).dop, [1, 1, 1, 1, 1, 1, 5, 5]);
    let published = imci::admit(&round);
    assert_eq!(published.dop, [1, 1, 1, 1, 1, 1, 2, 2]);
    assert_eq!(published.idle_slots, 6);
}

#[test]
fn weights_divide_what_is_over_one_each() {
    let heavy = Query { weight: 2.0, ..auto() };
    let round = problem(9, 8, None, vec![heavy, auto()]);
    assert_eq!(target::admit(&round).dop, [6, 3]);
}

#[test]
fn a_query_takes_the_weight_of_its_tenant_and_its_own_ceiling() {
    let running = vec![Running { dop: 2, memory: 0.0, ..Running::default() }];
    let queue = vec![manual(4), at_most(1), Query { memory: 8.0, weight: 2.0, ..auto() }, auto()];
    let round = Problem::try_new(16, Some(8), Some(32.0), running, queue).unwrap();
    let admission = target::admit(&round);
    assert_eq!(admission.dop, [4, 1, 6, 3]);
    assert_eq!((admission.admitted(), admission.idle_slots), (4, 0));
}

#[test]
fn more_queries_than_slots() {
    let round = problem(2, 2, None, vec![auto(); 3]);
    assert_eq!(target::admit(&round).dop, [1, 1, 0]);
    // The published average is 0 here, and starts nobody.
    let published = imci::admit(&round);
    assert_eq!((published.dop, published.idle_slots), (vec![0, 0, 0], 2));
}

#[test]
fn a_manual_dop_that_does_not_fit_now_blocks_those_behind_it() {
    let round = problem(8, 8, None, vec![manual(4), manual(8), auto()]);
    let admission = target::admit(&round);
    assert_eq!(admission.dop, [4, 0, 0]);
    assert!(!admission.memory_bound);
    assert_eq!(admission.idle_slots, 4);
}

#[test]
fn running_queries_keep_their_slots_and_memory() {
    let running = vec![
        Running { dop: 3, memory: 6.0, ..Running::default() },
        Running { dop: 9, memory: 0.0, ..Running::default() },
    ];
    let queue = vec![needs(3.0, auto()), needs(1.0, auto()), needs(1.0, auto())];
    let round = Problem::try_new(16, None, Some(10.0), running.clone(), queue.clone()).unwrap();
    let admission = target::admit(&round);
    assert_eq!(admission.dop, [2, 2, 0]);
    assert!(admission.memory_bound);
    // More may run than there are slots, after CPUs went away.
    let round = Problem::try_new(8, None, None, running, queue).unwrap();
    assert_eq!(target::admit(&round).dop, [0, 0, 0]);
    assert_eq!(target::admit(&round).idle_slots, 0);
}

#[test]
fn memory_that_grows_with_the_width_makes_the_hungry_narrower() {
    // Memory is what the first is short of, slots what the second is short of: their dominant shares meet.
    let hungry = Query { memory_per_thread: 4.0, ..auto() };
    let lean = Query { memory_per_thread: 1.0, ..auto() };
    let round = problem(9, 9, Some(18.0), vec![hungry.clone(), lean.clone()]);
    // DRF over 9 slots and 18 units: shares 4/18 and 1/9 a thread, so 3 and 6.
    assert_eq!(target::admit(&round).dop, [3, 6]);
    // The same with a base that both pay first.
    let with_base = |query| Query { memory: 5.0, ..query };
    let round = problem(9, 9, Some(28.0), vec![with_base(hungry), with_base(lean)]);
    assert_eq!(target::admit(&round).dop, [3, 6]);
}

#[test]
fn a_bundle_that_does_not_fit_leaves_the_slots_to_others() {
    // It comes first by its weight, and has to be passed over.
    let hungry = Query { memory_per_thread: 6.0, weight: 10.0, ..auto() };
    let round = problem(8, 8, Some(10.0), vec![hungry, auto(), at_most(3)]);
    assert_eq!(target::admit(&round).dop, [1, 4, 3]);
}

#[test]
fn memory_that_sums_up_on_paper_is_enough() {
    let queue = vec![needs(0.1, auto()), needs(0.2, auto())];
    let round = problem(4, 4, Some(0.3), queue);
    assert_eq!(target::admit(&round).dop, [2, 2]);
    assert_eq!(imci::admit(&round).dop, [2, 2]);
}

#[test]
fn the_compensation_of_the_published_rule_divides_what_does_not_run() {
    let running = vec![Running { dop: 10, memory: 0.0, ..Running::default() }];
    let queue = vec![needs(4.0, auto()); 5];
    let round = Problem::try_new(16, None, Some(10.0), running, queue).unwrap();
    // min(16 / 3, 6 / 2)
    assert_eq!(imci::admit(&round).dop, [3, 3, 0, 0, 0]);
}

#[test]
fn the_compensation_of_the_published_rule_never_overbooks() {
    // As published, step 2 would raise the second to 8 beside a manual 10.
    let queue = vec![needs(1.0, manual(10)), needs(1.0, auto()), needs(9.0, at_most(1))];
    let admission = imci::admit(&problem(16, 16, Some(8.0), queue));
    assert!(admission.memory_bound);
    assert_eq!(admission.dop, [10, 6, 0]);
}

#[test]
fn problems_that_make_no_sense_are_refused_with_their_place() {
    let refused = |slots, max, memory, queue| {
        let errors = Problem::try_new(slots, max, memory, vec![], queue).unwrap_err();
        errors.iter().map(ProblemError::to_string).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(refused(0, None, None, vec![]), "slots: must be at least 1");
    assert_eq!(refused(1 << 21, None, None, vec![]), "slots: must be at most 1048576");
    assert_eq!(refused(4, Some(0), None, vec![]), "max_per_query: must be at least 1");
    for memory in [f64::NAN, f64::INFINITY, -1.0] {
        assert_eq!(
            refused(4, None, Some(memory), vec![]),
            "memory: must be a number that is not negative"
        );
        let queue = vec![auto(), needs(memory, auto())];
        assert!(refused(4, None, None, queue).starts_with("queue[1].memory:"));
    }
    assert_eq!(
        Problem::try_new(4, None, None, vec![], vec![auto(), manual(5)]),
        Err(vec![ProblemError {
            place: Place::Queue(1, target::Field::Manual),
            reason: Reason::BeyondSlots { slots: 4 },
        }])
    );
    assert_eq!(refused(4, None, None, vec![manual(0)]), "queue[0].manual: must be at least 1");
    assert_eq!(refused(4, None, None, vec![at_most(0)]), "queue[0].max: must be at least 1");
    assert_eq!(
        refused(4, Some(0), None, vec![at_most(0), manual(9)]),
        "max_per_query: must be at least 1; queue[0].max: must be at least 1; \
         queue[1].manual: is more than the 4 slots there are",
        "everything at once"
    );
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let queue = vec![Query { weight, ..auto() }];
        assert!(
            refused(4, None, None, queue).starts_with("queue[0].weight: must be a number from")
        );
    }
}

fn any_query(slots: u64) -> impl Strategy<Value = Query> {
    let width = prop_oneof![
        3 => Just(Width::Auto),
        2 => (1..=slots).prop_map(Width::AtMost),
        1 => (1..=slots).prop_map(Width::Manual),
    ];
    let weight = prop_oneof![3 => Just(1.0), 1 => (1..=5_u32).prop_map(f64::from)];
    // Whole numbers, so that sums are exact.
    (width, weight, 0..20_u32, prop_oneof![2 => Just(0), 1 => 0..6_u32]).prop_map(
        |(width, weight, memory, per_thread)| Query {
            width,
            weight,
            memory: f64::from(memory),
            memory_per_thread: f64::from(per_thread),
            ..Query::default()
        },
    )
}

/// A round without an end of memory.
fn any_problem() -> impl Strategy<Value = Problem> {
    (1..=40_u64, 1..=40_u64).prop_flat_map(|(slots, max)| {
        let running = (1..6_u64, 0..8_u32).prop_map(|(dop, memory)| Running {
            dop,
            memory: f64::from(memory),
            ..Running::default()
        });
        let running = proptest::collection::vec(running, 0..3);
        let queue = proptest::collection::vec(any_query(slots), 0..14);
        (running, queue).prop_map(move |(running, queue)| {
            Problem::try_new(slots, Some(max), None, running, queue).unwrap()
        })
    })
}

/// All memory, if there is an end of it, less what runs.
fn free_memory(problem: &Problem, capacity: Option<f64>) -> f64 {
    let used: f64 = problem.running().iter().map(|query| query.memory).sum();
    (capacity.unwrap_or(f64::INFINITY) - used).max(0.0)
}

fn used_memory(problem: &Problem, admission: &Admission) -> f64 {
    let started = problem.queue().iter().zip(&admission.dop).filter(|(_, dop)| **dop > 0);
    started.map(|(query, dop)| query.memory_at(*dop)).sum()
}

/// From what a query keeps to the most it could use.
fn bounds(problem: &Problem, query: &Query) -> (u64, u64) {
    match query.width {
        Width::Manual(dop) => (dop, dop),
        Width::AtMost(max) => (1, max.min(problem.max_per_query())),
        Width::Auto => (1, problem.max_per_query()),
    }
}

fn with_memory() -> impl Strategy<Value = (Problem, Option<f64>)> {
    (any_problem(), proptest::option::of(0..120_u32)).prop_map(|(problem, memory)| {
        let memory = memory.map(f64::from);
        let (running, queue) = (problem.running().to_vec(), problem.queue().to_vec());
        let max = Some(problem.max_per_query());
        (Problem::try_new(problem.slots(), max, memory, running, queue).unwrap(), memory)
    })
}

proptest! {
    #[test]
    fn a_round_stays_within_slots_memory_floors_and_ceilings((problem, memory) in with_memory()) {
        let admission = target::admit(&problem);
        let used: u64 = admission.dop.iter().sum();
        prop_assert_eq!(used + admission.idle_slots, problem.free_slots());
        prop_assert!(used_memory(&problem, &admission) <= free_memory(&problem, memory) + 1e-6);
        for (query, dop) in problem.queue().iter().zip(&admission.dop) {
            let (floor, ceiling) = bounds(&problem, query);
            prop_assert!(*dop == 0 || (floor..=ceiling).contains(dop), "{} of {:?}", dop, query);
        }
    }

    #[test]
    fn admission_is_in_order_and_ends_only_where_it_must((problem, memory) in with_memory()) {
        let admission = target::admit(&problem);
        let admitted = admission.admitted();
        prop_assert!(admission.dop[..admitted].iter().all(|dop| *dop > 0));
        // With everyone before it at its floor, the first left out lacks slots or memory.
        let mut slots = problem.free_slots();
        let mut left = free_memory(&problem, memory);
        for query in &problem.queue()[..admitted] {
            let (floor, _) = bounds(&problem, query);
            slots -= floor;
            left -= query.memory_at(floor);
        }
        match problem.queue().get(admitted) {
            None => prop_assert!(!admission.memory_bound),
            Some(query) => {
                let (floor, _) = bounds(&problem, query);
                prop_assert_eq!(admission.memory_bound, floor <= slots);
                prop_assert!(floor > slots || query.memory_at(floor) > left);
            }
        }
    }

    #[test]
    fn no_slot_is_idle_that_an_admitted_query_could_use((problem, memory) in with_memory()) {
        let admission = target::admit(&problem);
        let left = free_memory(&problem, memory) - used_memory(&problem, &admission);
        let could_grow = problem.queue().iter().zip(&admission.dop).any(|(query, dop)| {
            *dop > 0 && *dop < bounds(&problem, query).1 && query.memory_per_thread <= left - 1e-6
        });
        prop_assert!(admission.idle_slots == 0 || !could_grow);
    }

    #[test]
    fn the_integer_allocation_is_max_min(problem in any_problem()) {
        // Slots alone: i could gain one only from a j that would then be no better off than i is now.
        let slots_only = problem.queue().iter().all(|query| query.memory_per_thread == 0.0);
        prop_assume!(slots_only);
        let admission = target::admit(&problem);
        let started: Vec<usize> = (0..admission.dop.len()).filter(|i| admission.dop[*i] > 0).collect();
        for &i in &started {
            for &j in &started {
                let (mine, theirs) = (&problem.queue()[i], &problem.queue()[j]);
                let gains = admission.dop[i] < bounds(&problem, mine).1;
                let gives = admission.dop[j] > bounds(&problem, theirs).0;
                if i != j && gains && gives {
                    let after = (admission.dop[j] - 1) as f64 / theirs.weight;
                    let now = admission.dop[i] as f64 / mine.weight;
                    prop_assert!(after <= now + 1e-9, "{} could take from {}", i, j);
                }
            }
        }
    }

    #[test]
    fn a_tiny_memory_per_thread_changes_nothing(problem in any_problem()) {
        let with = |per_thread: f64| {
            let queue = problem
                .queue()
                .iter()
                .map(|query| Query { memory_per_thread: per_thread, ..query.clone() })
                .collect();
            let max = Some(problem.max_per_query());
            Problem::try_new(problem.slots(), max, None, problem.running().to_vec(), queue).unwrap()
        };
        prop_assert_eq!(target::admit(&with(0.0)), target::admit(&with(1e-9)));
    }

    #[test]
    fn the_published_rule_never_overbooks_either((problem, memory) in with_memory()) {
        let admission = imci::admit(&problem);
        let used: u64 = admission.dop.iter().sum();
        prop_assert_eq!(used + admission.idle_slots, problem.free_slots());
        prop_assert!(used_memory(&problem, &admission) <= free_memory(&problem, memory) + 1e-6);
    }
}
