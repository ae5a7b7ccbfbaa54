//! Seeds, replay, shrinking, and what the whole cost.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::util;

/// Steps on one host, before the next one begins anew.
const STEPS_PER_HOST: usize = 5_000;
/// From so many steps on nothing may grow: what is allocated once is allocated by a third of them.
const STEPS_JUDGED_MIN: usize = 3_000;
/// So many shorter lists of steps are tried after a failure.
const TRIES: usize = 200;

/// What is tried: a host, the agent on it, and a model of what must hold.
pub(crate) trait Stage {
    type Step: Clone + Debug;

    /// Random steps.
    fn steps(&self, seed: u64, count: usize) -> Vec<Self::Step>;

    /// Takes one step and checks everything.
    ///
    /// # Panics
    /// An invariant is broken.
    fn take(&mut self, step: &Self::Step);

    /// Stops the agent for good, on a host where nothing fails.
    fn end(&mut self);

    /// What the agent's journal weighs, in bytes, and how many directories it keeps open; 0 where that is not known.
    fn weight(&self) -> (u64, usize);

    /// How often an agent ticked, and how often it enforced then.
    fn ticks(&self) -> (u64, u64);
}

/// What the test program holds at one moment.
#[derive(Clone, Copy, Debug)]
struct Held {
    resident_bytes: u64,
    nr_files: usize,
    journal_bytes: u64,
    nr_dirs: usize,
    /// Ticks of an agent, and those in which it enforced.
    ticks: (u64, u64),
}

/// Takes random steps on hosts that `begin` makes: `usual` of them, unless `TENANTD_STEPS` says how many.
///
/// # Panics
/// An invariant is broken: with the seed, and the least list of steps that was found.
pub(crate) fn play<S: Stage>(stage: &str, usual: usize, begin: impl Fn() -> Option<S>) {
    let asked = util::number("TENANTD_STEPS");
    let nr_steps = asked.map_or(usual, |steps| steps as usize);
    let is_long = asked.is_some();
    let first = util::first_seed(is_long);
    let begun = Instant::now();
    let mut held = Vec::new();
    let mut done = 0;
    while done < nr_steps {
        let seed = first + (done / STEPS_PER_HOST) as u64;
        let Some(run) = begin() else { return };
        let steps = run.steps(seed, STEPS_PER_HOST.min(nr_steps - done));
        if let Err((at, why)) = attempt(run, &steps, &mut held) {
            eprintln!("{stage}: step {at} of TENANTD_SEED={seed}: {why}");
            let least = shrink(&steps[..=at], &words(&why), &begin);
            let list: Vec<String> = least.iter().map(|step| format!("  {step:?}")).collect();
            panic!(
                "{stage}: step {at} of TENANTD_SEED={seed} TENANTD_STEPS={}: {why}\n{} steps suffice:\n{}",
                at + 1,
                list.len(),
                list.join("\n")
            );
        }
        done += steps.len();
    }
    report(stage, first, done, begun, &held, is_long);
}

/// Takes `steps`; the number of the one that failed, and why.
fn attempt<S: Stage>(
    mut run: S,
    steps: &[S::Step],
    held: &mut Vec<Held>,
) -> Result<(), (usize, String)> {
    let mut at = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        for (number, step) in steps.iter().enumerate() {
            at = number;
            run.take(step);
            if number % 100 == 99 {
                held.push(measure(&run));
            }
        }
        run.end();
    }));
    outcome.map_err(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        (at, text.or(cause.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default())
    })
}

/// Leaves out what is not needed to fail: half of the steps, then quarters, down to single ones.
fn shrink<S: Stage>(
    steps: &[S::Step],
    why: &[String],
    begin: &impl Fn() -> Option<S>,
) -> Vec<S::Step> {
    let mut least = steps.to_vec();
    let mut size = least.len().div_ceil(2);
    let mut tries = TRIES;
    while size > 0 && tries > 0 {
        let mut start = 0;
        let mut found = false;
        while start < least.len() && tries > 0 {
            tries -= 1;
            let mut fewer = least.clone();
            fewer.drain(start..(start + size).min(least.len()));
            let Some(run) = begin() else { return least };
            match attempt(run, &fewer, &mut Vec::new()) {
                Err((at, other)) if words(&other) == why => {
                    fewer.truncate(at + 1);
                    least = fewer;
                    found = true;
                }
                _ => start += size,
            }
        }
        if !found || size > 1 {
            size /= 2;
        }
    }
    least
}

/// What is the same in two messages on the same failure: no numbers, and no paths.
fn words(message: &str) -> Vec<String> {
    let words = message.split(' ').map(|word| word.trim_end_matches([':', ',']));
    let is_word = |word: &&str| word.len() > 1 && word.chars().all(|c| c.is_ascii_alphabetic());
    words.filter(is_word).take(8).map(String::from).collect()
}

fn measure(run: &impl Stage) -> Held {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let nr_files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let (journal_bytes, nr_dirs) = run.weight();
    let ticks = run.ticks();
    Held { resident_bytes: pages * 4096, nr_files, journal_bytes, nr_dirs, ticks }
}

/// Says what was run, and checks that nothing grew.
///
/// Other tests of this program hold memory and files too, so that only a long run, which is alone, is judged.
fn report(stage: &str, seed: u64, steps: usize, begun: Instant, held: &[Held], is_long: bool) {
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!(
        "{stage}: {steps} steps from TENANTD_SEED={seed}, no invariant broken, {seconds:.0} s"
    );
    if held.len() < 3 {
        return;
    }
    let (ticks, enforcing) = held.iter().map(|held| held.ticks).max().unwrap_or_default();
    eprintln!("{stage}: up to {ticks} ticks on one host, {enforcing} of an agent that enforces");
    // The first part is for what is allocated once.
    let third = held.len() / 3;
    for (when, part) in [
        ("start", &held[..third]),
        ("middle", &held[third..2 * third]),
        ("end", &held[2 * third..]),
    ] {
        let most = |of: fn(&Held) -> u64| part.iter().map(of).max().unwrap_or(0);
        eprintln!(
            "{stage}: {when}: at most {} KiB resident, {} files, {} directories of the simulated kernel, journal {} bytes",
            most(|held| held.resident_bytes) / 1024,
            most(|held| held.nr_files as u64),
            most(|held| held.nr_dirs as u64),
            most(|held| held.journal_bytes),
        );
    }
    if !is_long || steps < STEPS_JUDGED_MIN {
        return;
    }
    let most = |part: &[Held], of: fn(&Held) -> u64| part.iter().map(of).max().unwrap_or(0);
    let (middle, end) = (&held[third..2 * third], &held[2 * third..]);
    let grew = |of: fn(&Held) -> u64| most(end, of) as f64 / most(middle, of).max(1) as f64;
    assert!(grew(|held| held.resident_bytes) < 1.1, "{stage}: resident memory grows");
    assert!(
        most(end, |held| held.nr_files as u64) <= most(middle, |held| held.nr_files as u64) + 4,
        "{stage}: files stay open"
    );
    // It is as long as a policy has tenants, which differs; what it must not have is what was given back.
    let journal = |part: &[Held]| most(part, |held| held.journal_bytes);
    assert!(journal(end) <= 2 * journal(middle) + (16 << 10), "{stage}: the journal grows");
}
