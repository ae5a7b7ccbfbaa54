//! Reading the topology of real kinds of machines out of sysfs.
//!
//! A fixture is a compact form of a sysfs tree, written out into a directory before it is read:
//! `machine FILE: VALUE` is a file of the CPU directory, `node N: LIST` the CPUs of a node, `all FILE: VALUE`
//! a file of every online CPU, `cpus LIST FILE: VALUE` of these, and `share FILE: LIST LIST …` gives each
//! CPU the list it is in. Its header says which machine it models.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tenantd_dop::placement::{Request, Want, place};
use tenantd_dop::topology::{Level, Topology};
use tenantd_dop::{CpuSet, topology};
use tenantd_host::kernfs::RealKernFs;
use tenantd_host::topology::{ReadTopologyError, online, read};

const XEON: &str = include_str!("sysfs/xeon-2-sockets.txt");
const EPYC: &str = include_str!("sysfs/epyc-nps4.txt");
const LAPTOP: &str = include_str!("sysfs/laptop-hybrid.txt");
const ARM: &str = include_str!("sysfs/arm-clusters.txt");
const MICROVM: &str = include_str!("sysfs/microvm.txt");
const PARTIAL: &str = include_str!("sysfs/offline-and-isolated.txt");
const QEMU: &str = include_str!("sysfs/qemu-2-nodes.txt");

fn list(text: &str) -> CpuSet {
    text.trim().parse().unwrap_or_else(|error| panic!("{error}"))
}

fn write(path: &Path, value: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{value}\n")).unwrap();
}

/// Writes the tree of a fixture out.
fn materialise(fixture: &str) -> TempDir {
    let root = TempDir::new().unwrap();
    let cpu_dir = root.path().join("devices/system/cpu");
    let node_dir = root.path().join("devices/system/node");
    let lines = || fixture.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let of = |name: &str| lines().find_map(|line| line.strip_prefix(name)).map(list);
    let here = of("machine online:").or(of("machine present:")).unwrap();
    for cpu in &of("machine possible:").unwrap() {
        fs::create_dir_all(cpu_dir.join(format!("cpu{cpu}"))).unwrap();
    }
    let put = |cpus: CpuSet, file: &str, value: &str| {
        for cpu in &cpus.intersection(&here) {
            write(&cpu_dir.join(format!("cpu{cpu}")).join(file), value);
        }
    };
    for line in lines() {
        let (left, value) = line.split_once(':').unwrap_or_else(|| panic!("{line}"));
        let value = value.trim();
        match *left.split(' ').collect::<Vec<_>>() {
            ["machine", file] => write(&cpu_dir.join(file), value),
            ["node", number] => write(&node_dir.join(format!("node{number}/cpulist")), value),
            ["all", file] => put(here.clone(), file, value),
            ["cpus", cpus, file] => put(list(cpus), file, value),
            ["share", file] => value.split(' ').for_each(|group| put(list(group), file, group)),
            _ => panic!("{line}"),
        }
    }
    root
}

fn machine(fixture: &str) -> Topology {
    let root = materialise(fixture);
    read(&mut RealKernFs::new(), root.path()).unwrap_or_else(|error| panic!("{error}"))
}

/// How many cores, LLCs, nodes and packages there are.
fn counts(topology: &Topology) -> [usize; 4] {
    Level::ALL.map(|level| topology.domains(level).len())
}

fn domain(topology: &Topology, level: Level, index: usize) -> String {
    let cpus = &topology.cpus()[topology.domains(level)[index].clone()];
    cpus.iter().map(|cpu| cpu.place.cpu).collect::<CpuSet>().to_string()
}

/// The sets of tenants this wide, placed together.
fn placed(topology: &Topology, widths: &[u32]) -> Vec<String> {
    let requests: Vec<Request> = widths.iter().map(|w| Request::new(Want::Dop(*w))).collect();
    place(topology, &requests).sets.iter().map(CpuSet::to_string).collect()
}

#[test]
fn two_sockets_with_interleaved_numbers() {
    let topology = machine(XEON);
    assert_eq!(counts(&topology), [24, 2, 2, 2]);
    assert_eq!(domain(&topology, Level::Core, 0), "0,24");
    assert!(domain(&topology, Level::Llc, 1).starts_with("1,3,5,7"));
    // Each tenant on its socket, no core shared.
    assert_eq!(
        placed(&topology, &[8, 6]),
        ["0,2,4,6,8,10,12,14", "1,3,5,7,9,11"],
        "one thread a core while cores last"
    );
    let full = machine(XEON);
    let sets = placed(&full, &[24, 24]);
    for (set, package) in sets.iter().zip(["0,2,4", "1,3,5"]) {
        assert!(set.starts_with(package), "{set}");
        assert_eq!(full.span(&list(set), Level::Package), 1);
    }
}

#[test]
fn several_caches_in_each_of_several_nodes() {
    let topology = machine(EPYC);
    assert_eq!(counts(&topology), [16, 8, 4, 1]);
    assert_eq!(domain(&topology, Level::Node, 1), "4-7,20-23");
    assert_eq!(domain(&topology, Level::Llc, 1), "2-3,18-19");
    assert_eq!(placed(&topology, &[8, 4, 2, 2]), ["0-3,16-19", "4-5,20-21", "8-9", "12-13"]);
}

#[test]
fn performance_and_efficient_cores() {
    let topology = machine(LAPTOP);
    assert_eq!(counts(&topology), [12, 1, 1, 1]);
    assert_eq!(topology.threads_per_core_max(), 2);
    // One thread on each performance core, before efficient cores and before second threads.
    assert_eq!(placed(&topology, &[4]), ["0,2,4,6"]);
    assert_eq!(placed(&topology, &[6]), ["0,2,4,6,8-9"]);
    assert_eq!(placed(&topology, &[16]), ["0-15"]);
}

#[test]
fn clusters_replace_an_unknown_cache() {
    let topology = machine(ARM);
    assert_eq!(counts(&topology), [32, 16, 1, 1]);
    assert_eq!(domain(&topology, Level::Llc, 3), "6-7");
    assert_eq!(topology.cpus()[0].place.package, 36);
    assert_eq!(placed(&topology, &[4, 2]), ["0-3", "4-5"]);
}

#[test]
fn a_machine_with_minimal_sysfs() {
    let topology = machine(MICROVM);
    assert_eq!(counts(&topology), [2, 1, 1, 1]);
    assert_eq!(domain(&topology, Level::Core, 1), "2-3");
    assert_eq!(topology.offline(), &CpuSet::new());
}

#[test]
fn only_the_list_of_present_cpus() {
    let topology = machine("machine possible: 0-63\nmachine present: 0-3\n");
    assert_eq!(topology.online().to_string(), "0-3");
    assert_eq!(topology.offline().to_string(), "4-63");
    assert_eq!(counts(&topology), [4, 1, 1, 1]);
}

#[test]
fn offline_and_isolated_cpus_are_not_used() {
    let topology = machine(PARTIAL);
    assert_eq!(topology.online().to_string(), "0-11,14-15");
    assert_eq!(topology.usable().to_string(), "0-5,8-11");
    assert_eq!(topology.offline().to_string(), "12-13,16-31");
    assert_eq!(counts(&topology), [8, 2, 1, 1]);
    assert_eq!(domain(&topology, Level::Core, 4), "4");
    assert_eq!(placed(&topology, &[99]), ["0-5,8-11"]);
}

#[test]
fn a_virtual_machine_with_two_nodes() {
    let topology = machine(QEMU);
    assert_eq!(counts(&topology), [4, 2, 2, 2]);
    assert_eq!(placed(&topology, &[4, 4]), ["0-3", "4-7"]);
}

#[test]
fn this_machine_can_be_read() {
    let root = Path::new("/sys");
    let topology = read(&mut RealKernFs::new(), root).unwrap();
    assert_eq!(&online(&mut RealKernFs::new(), root).unwrap(), topology.online());
    let last = topology.online().last().unwrap() as usize;
    assert!(topology.online().len() <= last + 1);
}

#[test]
fn hotplug_shows_in_the_online_list_at_once() {
    let root = materialise(QEMU);
    let mut kernel = RealKernFs::new();
    assert_eq!(online(&mut kernel, root.path()).unwrap().to_string(), "0-7");
    let cpu_dir = root.path().join("devices/system/cpu");
    write(&cpu_dir.join("online"), "0-6");
    fs::remove_dir_all(cpu_dir.join("cpu7")).unwrap();
    assert_eq!(online(&mut kernel, root.path()).unwrap().to_string(), "0-6");
    let topology = read(&mut kernel, root.path()).unwrap();
    assert_eq!(topology.offline().to_string(), "7");
}

#[test]
fn a_cpu_that_vanishes_between_two_reads_is_described_by_the_fallbacks() {
    let root = materialise(QEMU);
    let cpu_dir = root.path().join("devices/system/cpu");
    fs::remove_dir_all(cpu_dir.join("cpu7")).unwrap();
    let topology = read(&mut RealKernFs::new(), root.path()).unwrap();
    assert_eq!(topology.online().to_string(), "0-7");
    assert_eq!(topology.cpus().iter().filter(|cpu| cpu.place.node == 1).count(), 4);
}

#[test]
fn what_cannot_be_read_is_an_error_with_its_path() {
    let nothing = TempDir::new().unwrap();
    let error = read(&mut RealKernFs::new(), nothing.path()).unwrap_err();
    assert!(error.to_string().contains("devices/system/cpu"), "{error}");

    let garbled = materialise("machine possible: 0-3\nmachine online: 0-3\n");
    write(&garbled.path().join("devices/system/cpu/online"), "zero");
    let error = read(&mut RealKernFs::new(), garbled.path()).unwrap_err();
    assert!(matches!(&error, ReadTopologyError::Malformed { path, .. } if path == "online"));

    let shut = materialise("machine possible: 0-1\nmachine online: 0-1\nmachine isolated: 0-1\n");
    let error = read(&mut RealKernFs::new(), shut.path()).unwrap_err();
    assert_eq!(error, ReadTopologyError::Impossible(topology::TopologyError::NoUsableCpu));
}
