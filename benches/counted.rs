//! Counts, where time is too noisy: instructions and allocations of a program, by valgrind.
//!
//! They depend on the program and its input alone, so that a machine that is busy or slow changes nothing. What the kernel
//! does on the program's behalf is not among them.

use std::process::{Command, Stdio};

/// What one round of some work takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) instructions: f64,
    pub(crate) allocations: f64,
}

impl Counts {
    /// Those of one of so many parts.
    pub(crate) fn over(self, parts: f64) -> Counts {
        let Counts { instructions, allocations } = self;
        Counts { instructions: instructions / parts, allocations: allocations / parts }
    }
}

/// What is run under valgrind: whole, with what a program does before and after its rounds.
const TOOLS: [Tool; 2] = [
    Tool {
        name: "callgrind",
        out: "--callgrind-out-file=/dev/null",
        before: "Collected : ",
        unit: "",
    },
    // `Total: 1,234 bytes in 5 blocks`: what was ever allocated, whether it is freed or not.
    Tool { name: "dhat", out: "--dhat-out-file=/dev/null", before: "Total: ", unit: "blocks" },
];

struct Tool {
    name: &'static str,
    out: &'static str,
    before: &'static str,
    unit: &'static str,
}

/// The counts of a round: this program is run with `arguments` and a number of rounds behind them, once with as many as
/// `few` and once with as many as `many`, and the difference is divided. An error where valgrind is not there.
pub(crate) fn per_round(arguments: &[&str], (few, many): (u32, u32)) -> Result<Counts, String> {
    let mut counts = [0.0; 2];
    for (count, tool) in counts.iter_mut().zip(&TOOLS) {
        let total = |rounds| tool.total(arguments, rounds);
        *count = (total(many)? - total(few)?) / f64::from(many - few);
    }
    Ok(Counts { instructions: counts[0], allocations: counts[1] })
}

impl Tool {
    fn total(&self, arguments: &[&str], rounds: u32) -> Result<f64, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let ran = Command::new("valgrind")
            .arg(format!("--tool={}", self.name))
            .arg(self.out)
            .arg(own)
            .args(arguments)
            .arg(rounds.to_string())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("valgrind cannot be started: {error}"))?;
        let said = String::from_utf8_lossy(&ran.stderr);
        let found = said.lines().rev().find_map(|line| self.figure(line));
        found
            .filter(|_| ran.status.success())
            .ok_or_else(|| format!("no count of {} rounds by {}: {said}", rounds, self.name))
    }

    fn figure(&self, line: &str) -> Option<f64> {
        let (_, rest) = line.split_once(self.before)?;
        let number = rest.trim_end_matches(self.unit).split_whitespace().next_back()?;
        number.replace(',', "").parse().ok()
    }
}
