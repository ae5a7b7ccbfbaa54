//! Hostile bytes by the million: the wire and the policy parser.
//!
//! `FUZZ_ITERATIONS=10000000 cargo test --release --test tests fuzz::` runs each target that often; without it
//! each runs a few thousand times. Inputs are made by changing seeds, which are files in
//! `tests/fixtures/fuzz/`: bytes are set, repeated, cut out and exchanged, and words of the grammar put in. What
//! is tried is told by one number, so that a failure can be had again: it prints the input, which then becomes
//! a seed.

use std::fs;
use std::panic::{self, AssertUnwindSafe};

use tenantd::policy;
use tenantd::varlink::interface::{
    DescriptionParameters, ExplainParameters, Method, Nothing, SetModeParameters,
};
use tenantd::varlink::wire::{Call, Framer};

/// A generator whose whole state is one number (Vigna's splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound.max(1) as u64) as usize
    }
}

fn iterations() -> u64 {
    let wanted = std::env::var("FUZZ_ITERATIONS").ok();
    wanted.map_or(3_000, |wanted| wanted.parse().expect("FUZZ_ITERATIONS is a number"))
}

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
    into.extend_from_slice(&seeds[dice.below(seeds.len())]);
    for _ in 0..=dice.below(6) {
        let at = dice.below(into.len() + 1);
        match dice.below(6) {
            0 if at < into.len() => into[at] = dice.roll() as u8,
            1 => {
                let word = words[dice.below(words.len())];
                into.splice(at..at, word.bytes());
            }
            2 => {
                let end = (at + dice.below(20)).min(into.len());
                into.drain(at..end);
            }
            3 => {
                let end = (at + dice.below(30)).min(into.len());
                let piece = into[at..end].to_vec();
                for _ in 0..dice.below(8) {
                    into.splice(at..at, piece.iter().copied());
                }
            }
            4 => {
                let other = &seeds[dice.below(seeds.len())];
                let from = dice.below(other.len());
                into.truncate(at);
                into.extend_from_slice(&other[from..]);
            }
            _ => into.truncate(at),
        }
        into.truncate(4096);
    }
}

/// Runs `target` on many inputs; a failure shows the one that it was.
fn fuzz(kind: &str, words: &[&str], target: impl Fn(&mut Dice, &[u8])) {
    let seeds = seeds(kind);
    for seed in &seeds {
        target(&mut Dice(0), seed);
    }
    let mut input = Vec::new();
    for iteration in 0..iterations() {
        let mut dice = Dice(iteration);
        mutated(&mut dice, &seeds, words, &mut input);
        let ran = panic::catch_unwind(AssertUnwindSafe(|| target(&mut dice, &input)));
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
    fuzz("wire", &words, |dice, bytes| {
        let max_bytes = 1 + dice.below(2048);
        let mut framer = Framer::new(max_bytes);
        let mut left = bytes;
        while !left.is_empty() {
            let length = 1 + dice.below(left.len().min(64));
            framer.push(&left[..length]);
            left = &left[length..];
            loop {
                match framer.next_message() {
                    Ok(Some(message)) => try_call(message),
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
            assert!(framer.kept_bytes() <= max_bytes);
        }
    });
}

fn try_call(message: &[u8]) {
    let Ok(call) = Call::parse(message) else { return };
    // What was read is written and read the same again.
    let again = Call::parse(&serde_json::to_vec(&call).unwrap()).unwrap();
    assert_eq!(call.method, again.method);
    let _ = Method::find(&call.method);
    let _ = call.parameters::<Nothing>();
    let _ = call.parameters::<ExplainParameters>();
    let _ = call.parameters::<SetModeParameters>();
    let _ = call.parameters::<DescriptionParameters>();
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
    fuzz("policy", &words, |_, bytes| {
        let text = String::from_utf8_lossy(bytes);
        match policy::load_text("fuzz", &text) {
            Ok(loaded) => {
                let outline = policy::outline::Outline::of(&loaded.policy);
                assert!(outline.changes_to(&outline).is_empty());
            }
            Err(report) => {
                assert!(!report.findings().is_empty());
                assert!(!report.render(policy::report::Style::PLAIN).is_empty());
            }
        }
    });
}
