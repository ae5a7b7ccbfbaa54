//! What a steady tick takes, counted: instructions outside the kernel, and allocations.
//!
//! `cargo bench --bench counts`, as root and with valgrind; a few minutes. Times on a busy machine differ by more than many
//! changes of the code are worth; counts are the same again to a few in ten thousand. Bars: the instructions of a tick grow at
//! most as tenants^1.1; a tick allocates for a tenant only where it reads the tenant's files back, which is in one of
//! ten ticks: 0.1 allocations, and as many for lists that grow with the tenants; and credits add at most 3 %.
//!
//! The tenants are cgroups of this kernel, one in ten with a sleeping process, under an agent that enforces; it is counted
//! when all its values are in place.

#![allow(clippy::expect_used, reason = "without a host there is nothing to count")]

mod bar;
mod counted;
mod crowd;

use std::process::ExitCode;
use std::time::Duration;

use bar::{Bars, exponent};
use crowd::{Crowd, agent, allow_files};
use nix::unistd::Uid;
use tenantd_policy::model::{CreditsPolicy, Mode, Policy};

const SIZES: [usize; 3] = [10, 100, 1_000];
const ONE_IN: usize = 10;
/// A tenth of what is read at all is read in every tick, so that ten ticks are the round that repeats.
const ROUND: u32 = 10;
const ROUNDS: (u32, u32) = (3, 5);
/// Ticks until all values are in place.
const SETTLED: u64 = 30;
const EXPONENT_BAR: f64 = 1.1;
const ALLOCATIONS_BAR: f64 = 0.2;

const CREDITS_BAR: f64 = 1.03;

fn work(root: &str, size: usize, rounds: u32, has_credits: bool) {
    let mut policy = Policy { mode: Mode::Enforce, ..Policy::default() };
    policy.control.credits = has_credits.then(CreditsPolicy::default);
    let mut agent = agent(root, size, policy);
    for second in 1..=SETTLED + u64::from(rounds * ROUND) {
        agent.tick(Duration::from_secs(second));
    }
}

fn main() -> ExitCode {
    allow_files(1 << 16);
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, root, size, rounds] = &arguments[..]
        && ["work", "credits"].contains(&word.as_str())
    {
        let (size, rounds) = (size.parse().expect("a number"), rounds.parse().expect("a number"));
        work(root, size, rounds, word == "credits");
        return ExitCode::SUCCESS;
    }
    if !Uid::effective().is_root() {
        eprintln!("making cgroups needs root");
        return ExitCode::SUCCESS;
    }
    let mut bars = Bars::default();
    let mut points: Vec<(f64, counted::Counts)> = Vec::new();
    for size in SIZES {
        let root = format!("tenantd-counts-{}-{size}", std::process::id());
        let _crowd = match Crowd::gather(&root, size, ONE_IN) {
            Ok(crowd) => crowd,
            Err(error) => {
                println!("no cgroups can be made: {error}");
                return ExitCode::SUCCESS;
            }
        };
        let size_text = size.to_string();
        let counted = |work: &str| counted::per_round(&[work, &root, &size_text], ROUNDS);
        let counts = match counted("work") {
            Ok(counts) => counts.over(f64::from(ROUND)),
            Err(why) => {
                println!("nothing is counted: {why}");
                return ExitCode::SUCCESS;
            }
        };
        if size == SIZES[2] {
            let Ok(with) = counted("credits") else { return ExitCode::FAILURE };
            let ratio = with.over(f64::from(ROUND)).instructions / counts.instructions;
            bars.at_most("instructions of a tick with credits", ratio, "x", CREDITS_BAR);
        }
        let name = format!("a steady tick with {size} tenants");
        bars.note(&name, counts.instructions / size as f64, "instructions a tenant");
        bars.note(&name, counts.allocations, "allocations");
        points.push((size as f64, counts));
    }
    let [_, (fewer, few), (more, many)] = points[..] else { return ExitCode::FAILURE };
    let growth = exponent(&[(fewer, few.instructions), (more, many.instructions)]);
    let unit = "as the power of the tenants";
    bars.at_most("instructions of a tick, 100 to 1,000 tenants", growth, unit, EXPONENT_BAR);
    let each = (many.allocations - few.allocations) / (more - fewer);
    bars.at_most("allocations of a steady tick", each, "for each tenant", ALLOCATIONS_BAR);
    bars.verdict()
}
