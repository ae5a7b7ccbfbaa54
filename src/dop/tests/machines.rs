//! Machines to test on: regular ones, and random ones with holes.

use proptest::prelude::*;
use tenantd_dop::CpuSet;
use tenantd_dop::topology::{CpuPlace, Topology};

/// A machine of the same shape everywhere. CPU numbers run as on x86: first all first threads, then all
/// second ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) packages: u32,
    pub(super) nodes_per_package: u32,
    pub(super) llcs_per_node: u32,
    pub(super) cores_per_llc: u32,
    pub(super) threads_per_core: u32,
}

impl Shape {
    pub(super) fn nr_cpus(&self) -> u32 {
        self.nr_cores() * self.threads_per_core
    }

    fn nr_cores(&self) -> u32 {
        self.packages * self.nodes_per_package * self.llcs_per_node * self.cores_per_llc
    }

    pub(super) fn places(&self) -> Vec<CpuPlace> {
        let place = |cpu| {
            let core = cpu % self.nr_cores();
            let llc = core / self.cores_per_llc;
            let node = llc / self.llcs_per_node;
            CpuPlace { package: node / self.nodes_per_package, node, llc, core, cpu }
        };
        (0..self.nr_cpus()).map(place).collect()
    }

    pub(super) fn build(&self) -> Topology {
        Topology::try_new(self.places(), &CpuSet::new(), CpuSet::new()).unwrap()
    }
}

pub(super) fn shape(
    packages: u32,
    nodes_per_package: u32,
    llcs_per_node: u32,
    cores_per_llc: u32,
    threads_per_core: u32,
) -> Shape {
    Shape { packages, nodes_per_package, llcs_per_node, cores_per_llc, threads_per_core }
}

pub(super) fn any_shape() -> impl Strategy<Value = Shape> {
    (1..=4_u32, 1..=4_u32, 1..=4_u32, 1..=8_u32, 1..=2_u32)
        .prop_map(|(packages, nodes, llcs, cores, threads)| {
            shape(packages, nodes, llcs, cores, threads)
        })
        .prop_filter("at most 1,024 CPUs", |shape| shape.nr_cpus() <= 1024)
}

/// Any shape with some CPUs offline, some isolated, and the numbers spread out by `stride`.
pub(super) fn any_machine() -> impl Strategy<Value = Topology> {
    (any_shape(), 1..=3_u32, any::<u64>(), 0..=3_u32).prop_filter_map(
        "a machine has a usable CPU",
        |(shape, stride, seed, holes)| {
            // One in eight CPUs is missing for each hole of three; one in sixteen is isolated.
            let noise = |cpu: u32| (u64::from(cpu) + 1).wrapping_mul(seed | 1).rotate_left(23) % 16;
            let online = |place: &CpuPlace| noise(place.cpu) >= 2 * u64::from(holes);
            let isolated = |cpu: u32| holes > 0 && noise(cpu) == 15;
            let spread = |place: CpuPlace| CpuPlace { cpu: place.cpu * stride, ..place };
            let shut: CpuSet =
                (0..shape.nr_cpus()).filter(|&cpu| isolated(cpu)).map(|cpu| cpu * stride).collect();
            let places = shape.places().into_iter().filter(online).map(spread).collect();
            Topology::try_new(places, &shut, CpuSet::new()).ok()
        },
    )
}
