//! The picture of a machine: domains nest and partition it.

use proptest::prelude::*;
use tenantd_dop::CpuSet;
use tenantd_dop::topology::{CpuPlace, Level, Topology, TopologyError};

use super::machines::{any_machine, shape};

#[test]
fn domains_are_ranges_of_the_topology_order() {
    let topology = shape(2, 1, 2, 2, 2).build();
    let counts = Level::ALL.map(|level| topology.domains(level).len());
    assert_eq!(counts, [8, 4, 2, 2]);
    let order: Vec<u32> = topology.cpus().iter().map(|cpu| cpu.place.cpu).collect();
    assert_eq!(order, [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]);
    let siblings: Vec<u32> = topology.cpus().iter().take(4).map(|cpu| cpu.sibling).collect();
    assert_eq!(siblings, [0, 1, 0, 1]);
    let node = topology.domains(Level::Node)[1].clone();
    assert_eq!(topology.inner(Level::Llc, &node), [8..12, 12..16]);
    let shared = |a: usize, b: usize| topology.cpus()[a].shared_level(&topology.cpus()[b]);
    assert_eq!(shared(0, 1), Some(Level::Core));
    assert_eq!(shared(0, 2), Some(Level::Llc));
    assert_eq!(shared(0, 4), Some(Level::Node));
    assert_eq!(shared(0, 8), None);
}

#[test]
fn a_cache_over_two_nodes_counts_as_two_and_so_does_a_node_over_two_packages() {
    let place = |package, node, cpu| CpuPlace { package, node, llc: 0, core: cpu, cpu };
    let build = |places: Vec<CpuPlace>| {
        let topology = Topology::try_new(places, &CpuSet::new(), CpuSet::new()).unwrap();
        Level::ALL.map(|level| topology.domains(level).len())
    };
    assert_eq!(build(vec![place(0, 0, 0), place(0, 1, 1)]), [2, 2, 2, 1]);
    assert_eq!(build(vec![place(0, 0, 0), place(1, 0, 1)]), [2, 2, 2, 2]);
}

#[test]
fn impossible_machines_are_refused() {
    let place = |cpu| CpuPlace { package: 0, node: 0, llc: 0, core: cpu, cpu };
    let build = |cpus: &[u32], isolated: &str| {
        let places = cpus.iter().copied().map(place).collect();
        Topology::try_new(places, &isolated.parse().unwrap(), CpuSet::new())
    };
    assert_eq!(build(&[], ""), Err(TopologyError::NoUsableCpu));
    assert_eq!(build(&[0, 1], "0-1"), Err(TopologyError::NoUsableCpu));
    assert_eq!(build(&[0, 1, 1], ""), Err(TopologyError::Duplicate(1)));
    assert!(build(&[0, CpuSet::MAX + 1], "").is_err());
    assert!(Topology::flat(0).is_err());
}

#[test]
fn a_restricted_view_excludes_other_cpus() {
    let whole = shape(1, 2, 1, 2, 2).build();
    let part = whole.restricted_to(&"0-1,4".parse().unwrap()).unwrap();
    assert_eq!(part.online().to_string(), "0-1,4");
    assert_eq!(part.offline().to_string(), "2-3,5-7");
    assert_eq!(part.domains(Level::Node).len(), 1);
    assert_eq!(part.threads_per_core_max(), 2);
    assert_eq!(whole.restricted_to(&"9".parse().unwrap()), Err(TopologyError::NoUsableCpu));
}

#[test]
fn the_legacy_hierarchy_gets_the_nodes_of_a_set() {
    let topology = shape(2, 2, 1, 2, 1).build();
    let nodes = |cpus: &str| topology.nodes_of(&cpus.parse().unwrap()).to_string();
    assert_eq!(nodes("0-1"), "0");
    assert_eq!(nodes("1-2,7"), "0-1,3");
    assert_eq!(topology.span(&"1-2,7".parse().unwrap(), Level::Package), 2);
}

proptest! {
    #[test]
    fn domains_partition_and_nest(topology in any_machine()) {
        for level in Level::ALL {
            let mut next = 0;
            for (index, domain) in topology.domains(level).iter().enumerate() {
                prop_assert_eq!(domain.start, next);
                prop_assert!(!domain.is_empty());
                next = domain.end;
                prop_assert!(topology.cpus()[domain.clone()].iter().all(|c| c.domain(level) == index));
            }
            prop_assert_eq!(next, topology.cpus().len());
        }
        for (inner, outer) in Level::ALL.into_iter().zip(Level::ALL.into_iter().skip(1)) {
            for domain in topology.domains(outer) {
                let parts = topology.inner(inner, domain);
                prop_assert_eq!(parts.first().map(|p| p.start), Some(domain.start));
                prop_assert_eq!(parts.last().map(|p| p.end), Some(domain.end));
            }
        }
        prop_assert!(topology.usable().is_subset(topology.online()));
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(topology in any_machine()) {
        let mut places: Vec<CpuPlace> = topology.cpus().iter().map(|cpu| cpu.place).collect();
        places.reverse();
        let isolated = topology.online().difference(topology.usable());
        let again = Topology::try_new(places, &isolated, CpuSet::new());
        prop_assert_eq!(again.as_ref(), Ok(&topology));
    }
}
