//! Hostile bytes by the thousand: the wire and the policy parser ([`targets`]).
//!
//! Inputs are made by changing seeds, which are files in `tests/fixtures/fuzz/`: bytes are set, repeated, cut out
//! and exchanged, and words of the grammar put in. What is tried is told by one number, so that a failure can be
//! had again: it prints the input, which then becomes a seed. `make fuzz` gives the same targets to libFuzzer,
//! by the million.

mod targets;

use std::fs;
use std::panic::{self, AssertUnwindSafe};

use crate::util::Dice;

const ITERATIONS: u64 = 3_000;

fn seeds(kind: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(format!("tests/fixtures/fuzz/{kind}")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no seeds of {kind}");
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Another input, made from the seeds.
fn mutated(dice: &mut Dice, seeds: &[Vec<u8>], words: &[&str], into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&seeds[dice.index(seeds.len())]);
    for _ in 0..=dice.index(6) {
        let at = dice.index(into.len() + 1);
        match dice.index(6) {
            0 if at < into.len() => into[at] = dice.roll() as u8,
            1 => {
                let word = words[dice.index(words.len())];
                into.splice(at..at, word.bytes());
            }
            2 => {
                let end = (at + dice.index(20)).min(into.len());
                into.drain(at..end);
            }
            3 => {
                let end = (at + dice.index(30)).min(into.len());
                let piece = into[at..end].to_vec();
                for _ in 0..dice.index(8) {
                    into.splice(at..at, piece.iter().copied());
                }
            }
            4 => {
                let other = &seeds[dice.index(seeds.len())];
                let from = dice.index(other.len());
                into.truncate(at);
                into.extend_from_slice(&other[from..]);
            }
            _ => into.truncate(at),
        }
        into.truncate(4096);
    }
}

/// Runs `target` on many inputs; a failure shows the one that it was.
fn fuzz(kind: &str, words: &[&str], target: impl Fn(&[u8])) {
    let seeds = seeds(kind);
    for seed in &seeds {
        target(seed);
    }
    let mut input = Vec::new();
    for iteration in 0..ITERATIONS {
        let mut dice = Dice::new(iteration);
        mutated(&mut dice, &seeds, words, &mut input);
        let ran = panic::catch_unwind(AssertUnwindSafe(|| target(&input)));
        if let Err(cause) = ran {
            eprintln!("{kind}, iteration {iteration}: {:?}", String::from_utf8_lossy(&input));
            panic::resume_unwind(cause);
        }
    }
}

#[test]
fn any_bytes_on_the_wire() {
    let words = [
        "\0",
        "{",
        "}",
        "[",
        "]",
        "\"",
        ":",
        ",",
        "null",
        "true",
        "\"method\":",
        "\"parameters\":{",
        "\"more\":true",
        "\"oneway\":true",
        "\\u0000",
        "io.tenantd.Manager.",
        "1e999",
        "\u{fffd}",
    ];
    fuzz("wire", &words, targets::wire);
}

#[test]
fn any_bytes_as_a_policy() {
    let words = [
        "version: 1\n",
        "tenants:\n",
        "  a: {}\n",
        "weight: ",
        "{",
        "}",
        "[",
        "]",
        "&a ",
        "*a",
        "- ",
        ": ",
        "\n",
        "  ",
        "\t",
        "limit: { cpu: 1 }",
        "match: { users: [a] }",
        "dop: { max: 2 }",
        "cpus: \"0-3\"",
        "1e400",
        "-1",
        "0x10",
        "!!str ",
        "|\n",
        ">-\n",
        "\u{feff}",
        "---\n",
        "guarantee: { memory: 1GiB }",
        "administrators: { users: x }",
        "control: { watch_policy: true }",
    ];
    fuzz("policy", &words, targets::policy);
}
