//! The drawing of a machine.

use proptest::prelude::*;
use tenantd_dop::CpuSet;
use tenantd_dop::map::{Entry, WIDTH_MAX, render};
use tenantd_dop::placement::{Request, Want, place};
use tenantd_dop::topology::Topology;

use super::machines::{any_machine, shape};

/// The drawing of tenants this wide, named `t0`, `t1`, … and the first of them shared where asked for.
fn drawn(topology: &Topology, widths: &[u32], shared: bool) -> Vec<String> {
    let mut requests: Vec<Request> = widths.iter().map(|w| Request::new(Want::Dop(*w))).collect();
    if shared {
        requests.insert(0, Request::new(Want::Shared));
    }
    let placement = place(topology, &requests);
    let names: Vec<String> = (0..requests.len()).map(|index| format!("t{index}")).collect();
    let entries: Vec<Entry<'_>> = requests
        .iter()
        .zip(&names)
        .zip(&placement.sets)
        .map(|((request, name), cpus)| Entry {
            name,
            dop: cpus.len() as u32,
            cpus,
            shared: request.want == Want::Shared,
        })
        .collect();
    render(topology, &entries)
}

#[test]
fn sockets_nodes_caches_cores_and_threads() {
    let topology = shape(2, 2, 2, 2, 2).build();
    let lines = drawn(&topology, &[8, 6, 3], true);
    let expected = "\
socket 0  node 0  AA AA | AA AA
          node 1  BB BB | B. B.
socket 1  node 2  CC C. | .. ..
          node 3  .. .. | .. ..

   t0  dop  32  shared
A  t1  dop   8  on 0-3,16-19
B  t2  dop   6  on 4-7,20-21
C  t3  dop   3  on 8-9,24
 . unassigned (15)";
    assert_eq!(lines.join("\n"), expected);
}

#[test]
fn overlap_isolation_and_offline_cpus_are_explained() {
    let places = shape(1, 1, 1, 6, 1).places();
    let topology =
        Topology::try_new(places, &"5".parse().unwrap(), "6-7".parse().unwrap()).unwrap();
    let lines = drawn(&topology, &[3, 3], false);
    let expected = "\
socket 0  node 0  2 A A B B #

A  t0  dop   3  on 0-2
B  t1  dop   3  on 0,3-4
# isolated (1), 2-9 tenants on one CPU, offline: 6-7";
    assert_eq!(lines.join("\n"), expected);
}

#[test]
fn a_wide_node_continues_below_itself() {
    let topology = shape(1, 1, 3, 16, 2).build();
    let lines = drawn(&topology, &[40], false);
    assert!(lines[0].starts_with("socket 0  node 0  AA AA"), "{}", lines[0]);
    assert!(lines[1].starts_with("                  "), "{}", lines[1]);
    let marks: String = lines[..4].concat();
    assert_eq!(marks.chars().filter(|mark| *mark == 'A').count(), 40);
}

#[test]
fn beyond_the_alphabet_tenants_share_a_star() {
    let topology = shape(1, 1, 1, 64, 1).build();
    let lines = drawn(&topology, &[1; 64], false);
    let marks: String = lines.iter().take_while(|line| !line.is_empty()).cloned().collect();
    assert_eq!(marks.matches('*').count(), 12);
    assert!(lines.iter().any(|line| line.starts_with("z  t51")));
}

/// How many CPUs a line shows.
fn marks_of(line: &str) -> usize {
    let marks = match line.split_once("node ") {
        Some((_, rest)) => rest.split_once("  ").map_or("", |(_, marks)| marks),
        None => line,
    };
    marks.chars().filter(|mark| !matches!(mark, ' ' | '|')).count()
}

proptest! {
    #[test]
    fn every_cpu_is_drawn_once_and_no_line_is_too_wide(
        topology in any_machine(),
        widths in proptest::collection::vec(1..40_u32, 0..120),
    ) {
        let lines = drawn(&topology, &widths, true);
        prop_assert!(lines.iter().all(|line| line.chars().count() <= WIDTH_MAX));
        prop_assert!(lines.iter().all(|line| line.trim_end() == line));
        let drawing = lines.iter().take_while(|line| !line.is_empty());
        let marks: usize = drawing.map(|line| marks_of(line)).sum();
        prop_assert_eq!(marks, topology.cpus().len());
    }

    #[test]
    fn long_names_are_cut(name in "[a-zé]{0,200}") {
        let topology = shape(1, 1, 1, 2, 1).build();
        let cpus = CpuSet::below(2);
        let entry = Entry { name: &name, dop: 2, cpus: &cpus, shared: false };
        let lines = render(&topology, &[entry]);
        prop_assert!(lines.iter().all(|line| line.chars().count() <= WIDTH_MAX));
    }
}
