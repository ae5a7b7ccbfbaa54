//! CPU sets against `BTreeSet`, and the list format against what the kernel takes and prints.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tenantd_dop::CpuSet;

#[test]
fn the_kernels_list_format_parses() {
    for (text, cpus) in [
        ("", vec![]),
        ("\n", vec![]),
        ("0", vec![0]),
        ("0-3,8-11\n", vec![0, 1, 2, 3, 8, 9, 10, 11]),
        // Separators may be white space, repeat, lead and trail.
        (" ,1,, 2\t4 , ", vec![1, 2, 4]),
        // Order and repeats do not matter.
        ("9,3-5,4", vec![3, 4, 5, 9]),
        // The example of the kernel's own comment.
        ("0-1023:2/256", vec![0, 1, 256, 257, 512, 513, 768, 769]),
        ("9-38:4/10", vec![9, 10, 11, 12, 19, 20, 21, 22, 29, 30, 31, 32]),
        // The last group is cut off by the end of the range.
        ("0-4:3/4", vec![0, 1, 2, 4]),
        ("0-7:0/4", vec![]),
        ("1048575", vec![CpuSet::MAX]),
    ] {
        let set: CpuSet = text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(set.iter().collect::<Vec<_>>(), cpus, "{text:?}");
    }
}

#[test]
fn what_the_kernel_refuses_is_refused() {
    for text in [
        "a",
        "-1",
        "1-",
        "-",
        "3-1",
        "0x3",
        "+1",
        "1.5",
        "1-2-3",
        "5:1/2",
        "0-3:",
        "0-3:1",
        "0-3:1/",
        "0-3:1/0",
        "0-3:3/2",
        "0-3/2",
        "1048576",
        "0-4294967295",
        "99999999999",
        "N",
        "all",
        "0-N",
        "0\n1",
    ] {
        let error = text.parse::<CpuSet>().expect_err(text);
        assert!(text.contains(&error.region), "{text}: {error}");
    }
}

#[test]
fn a_known_width_gives_all_and_n_a_meaning() {
    for (text, printed) in
        [("all", "0-7"), ("ALL", "0-7"), ("0-N", "0-7"), ("N", "7"), ("all:1/2", "0,2,4,6")]
    {
        assert_eq!(CpuSet::parse_within(text, 8).map(|set| set.to_string()), Ok(printed.into()));
    }
    for text in ["8", "0-8", "7-9"] {
        assert!(CpuSet::parse_within(text, 8).is_err(), "{text}");
    }
    assert!(CpuSet::parse_within("0", 0).is_err());
}

#[test]
fn sets_print_as_the_kernel_prints_them() {
    for (cpus, text) in [
        (vec![], ""),
        (vec![5], "5"),
        (vec![0, 1], "0-1"),
        (vec![0, 1, 2, 3, 8, 9, 10, 11], "0-3,8-11"),
        (vec![0, 2, 4], "0,2,4"),
        (vec![63, 64, 127, 128, 4096], "63-64,127-128,4096"),
    ] {
        assert_eq!(CpuSet::from_iter(cpus).to_string(), text);
    }
}

#[test]
fn below_is_all_that_is_smaller() {
    for count in [0, 1, 63, 64, 65, 1024, 1025] {
        assert_eq!(CpuSet::below(count), CpuSet::from_iter(0..count), "{count}");
    }
    assert_eq!(CpuSet::below(u32::MAX).last(), Some(CpuSet::MAX));
}

fn numbers() -> impl Strategy<Value = BTreeSet<u32>> {
    // Dense at both ends of words, and with holes wider than a word.
    proptest::collection::btree_set(prop_oneof![0..140_u32, 1000..1100_u32], 0..80)
}

proptest! {
    #[test]
    fn the_algebra_is_that_of_sets(a in numbers(), b in numbers(), probe in 0..1200_u32) {
        let (x, y) = (CpuSet::from_iter(a.clone()), CpuSet::from_iter(b.clone()));
        let same = |set: CpuSet, model: BTreeSet<u32>| {
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), Vec::from_iter(model.clone()));
            prop_assert_eq!(set, CpuSet::from_iter(model));
            Ok(())
        };
        same(x.union(&y), &a | &b)?;
        same(x.intersection(&y), &a & &b)?;
        same(x.difference(&y), &a - &b)?;
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
        prop_assert_eq!(x.contains(probe), a.contains(&probe));
        prop_assert_eq!(x.len(), a.len());
        prop_assert_eq!(x.is_empty(), a.is_empty());
        prop_assert_eq!((x.first(), x.last()), (a.first().copied(), a.last().copied()));
    }

    #[test]
    fn removing_what_was_inserted_restores_the_set(a in numbers(), cpu in 0..3000_u32) {
        let before = CpuSet::from_iter(a.clone());
        let mut set = before.clone();
        prop_assert_eq!(set.insert(cpu), !a.contains(&cpu));
        prop_assert!(set.contains(cpu));
        if !a.contains(&cpu) {
            prop_assert!(set.remove(cpu));
            prop_assert_eq!(&set, &before);
        }
        prop_assert!(!set.remove(3001));
    }

    #[test]
    fn a_printed_set_reads_back(a in numbers()) {
        let set = CpuSet::from_iter(a);
        prop_assert_eq!(set.to_string().parse(), Ok(set));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[0-9Nal,:/ \\-]{0,20}") {
        if let Ok(set) = text.parse::<CpuSet>() {
            prop_assert!(set.last().is_none_or(|max| max <= CpuSet::MAX));
        }
    }
}
