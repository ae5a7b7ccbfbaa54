//! The machine as a drawing: sockets, nodes, caches, cores, and the tenants on them.
//!
//! ```text
//! socket 0  node 0  AA AA | AB BB
//!           node 1  CC C. | .. ..
//! ```
//!
//! A line is a NUMA node, a group between bars a last-level cache, a word a core, a letter a hardware thread
//! and the tenant it belongs to. `.` is free, `#` is isolated, a digit is the number of tenants on the CPU
//! (`+` from ten on). Below the drawing is a line for each tenant. No line is wider than 80 columns.
//!
//! Tests: golden drawings and the width, `tests/dop/map.rs`.

use std::fmt::Write;
use std::ops::Range;

use super::cpuset::CpuSet;
use super::topology::{Level, Topology};

/// The widest line, in columns.
pub const WIDTH_MAX: usize = 80;

/// The most tenants named below the drawing.
const NAMED_MAX: usize = 100;

/// One tenant in the drawing.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its width.
    pub dop: u32,
    /// Its CPUs.
    pub cpus: &'a CpuSet,
    /// True if it runs on all CPUs that are not exclusive: it is named, not drawn.
    pub shared: bool,
}

/// Draws the machine and names the tenants, in their order.
pub fn render(topology: &Topology, entries: &[Entry<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    let letters = letters(entries);
    let marks = marks(topology, entries, &letters);
    for package in topology.domains(Level::Package) {
        for (rank, node) in topology.inner(Level::Node, package).iter().enumerate() {
            let place = topology.cpus()[node.start].place;
            let socket = format!("socket {}", place.package);
            let label = match rank {
                0 => format!("{socket}  node {}  ", place.node),
                _ => format!("{:1$}  node {2}  ", "", socket.len(), place.node),
            };
            draw_node(topology, node, &marks, &label, &mut lines);
        }
    }
    lines.push(String::new());
    name_tenants(entries, &letters, &mut lines);
    lines.extend(explain(topology, &marks));
    lines
}

/// `A` to `Z`, `a` to `z`, and `*` for all further ones; `None` for those that are not drawn.
fn letters(entries: &[Entry<'_>]) -> Vec<Option<char>> {
    let mut alphabet = ('A'..='Z').chain('a'..='z');
    let letter = |entry: &Entry<'_>| (!entry.shared).then(|| alphabet.next().unwrap_or('*'));
    entries.iter().map(letter).collect()
}

/// The mark of each CPU, in topology order.
fn marks(topology: &Topology, entries: &[Entry<'_>], letters: &[Option<char>]) -> Vec<char> {
    let mark = |cpu: u32| {
        let mut on = entries
            .iter()
            .zip(letters)
            .filter(|(entry, _)| entry.cpus.contains(cpu))
            .filter_map(|(_, letter)| *letter);
        match (on.next(), on.count()) {
            (None, _) => '.',
            (Some(letter), 0) => letter,
            (Some(_), others) => char::from_digit(others as u32 + 1, 10).unwrap_or('+'),
        }
    };
    let cpus = topology.cpus().iter();
    cpus.map(|cpu| match (mark(cpu.place.cpu), cpu.isolated) {
        ('.', true) => '#',
        (mark, _) => mark,
    })
    .collect()
}

/// Draws one node on as many lines as needed.
fn draw_node(
    topology: &Topology,
    node: &Range<usize>,
    marks: &[char],
    label: &str,
    lines: &mut Vec<String>,
) {
    let mut line = label.to_string();
    let mut begun = false;
    for (rank, llc) in topology.inner(Level::Llc, node).iter().enumerate() {
        for (index, core) in topology.inner(Level::Core, llc).iter().enumerate() {
            let word: String = marks[core.clone()].iter().collect();
            let bar = index == 0 && rank > 0;
            // Two columns are kept for a bar at the end of the line.
            let full = line.len() + " | ".len() + word.len() + " |".len() > WIDTH_MAX;
            match (begun, full, bar) {
                (false, ..) => {}
                (true, false, true) => line += " | ",
                (true, false, false) => line += " ",
                (true, true, _) => {
                    line += if bar { " |" } else { "" };
                    lines.push(std::mem::replace(&mut line, " ".repeat(label.len())));
                }
            }
            line += &word;
            begun = true;
        }
    }
    lines.push(line);
}

fn name_tenants(entries: &[Entry<'_>], letters: &[Option<char>], lines: &mut Vec<String>) {
    let named = entries.iter().zip(letters).take(NAMED_MAX);
    let longest = named.clone().map(|(entry, _)| entry.name.chars().count()).max().unwrap_or(0);
    let name_width = longest.min(24);
    for (entry, letter) in named {
        let name = fitted(entry.name, name_width);
        let cpus = if entry.shared { "shared".to_string() } else { format!("on {}", entry.cpus) };
        let line =
            format!("{}  {name:name_width$}  dop {:>3}  {cpus}", letter.unwrap_or(' '), entry.dop);
        lines.push(fitted(&line, WIDTH_MAX));
    }
    if entries.len() > NAMED_MAX {
        lines.push(format!("   … and {} more", entries.len() - NAMED_MAX));
    }
}

/// The meaning of the marks that occur and are not letters, and the offline CPUs, which are not drawn.
fn explain(topology: &Topology, marks: &[char]) -> Option<String> {
    let count = |wanted: char| marks.iter().filter(|mark| **mark == wanted).count();
    let mut text = String::new();
    let mut add = |part: String| {
        let separator = if text.is_empty() { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{part}");
    };
    match count('.') {
        0 => {}
        idle => add(format!(" . unassigned ({idle})")),
    }
    match count('#') {
        0 => {}
        isolated => add(format!("# isolated ({isolated})")),
    }
    if marks.iter().any(|mark| mark.is_ascii_digit() || *mark == '+') {
        add("2-9 tenants on one CPU".to_string());
    }
    if !topology.offline().is_empty() {
        add(format!("offline: {}", topology.offline()));
    }
    (!text.is_empty()).then(|| fitted(&text, WIDTH_MAX))
}

/// Cuts a text to `width` characters, with a sign for the rest.
fn fitted(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        text.to_string()
    } else {
        text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
    }
}
