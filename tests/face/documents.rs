//! The README and docs/: links have targets, and figures are those that were measured. `blocks` runs the commands.

use std::path::{Path, PathBuf};

use tenantd_core::units::Bytes;
use tenantd_policy::accounts::Answer;
use tenantd_policy::{HostFacts, load_with_host};

use super::blocks::documents;
use crate::util;

fn text(document: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(document)).unwrap()
}

/// The policy of the README.
fn policy() -> String {
    let readme = text("README.md");
    let (_, rest) = readme.split_once("```yaml\n").unwrap();
    rest.split_once("```").unwrap().0.to_string()
}

#[test]
fn the_policy_of_the_readme_fits_machines_of_all_sizes() {
    let dir = util::scratch();
    let path = util::file(dir.path(), "policy.yaml", policy());
    for (cpus, memory) in [(1, Bytes::gib(1)), (2, Bytes::gib(4)), (256, Bytes::gib(2048))] {
        let host = HostFacts {
            find_user: |_| Answer::Missing,
            find_group: |_| Answer::Missing,
            ..HostFacts::of_size(cpus, memory)
        };
        let loaded = load_with_host(&path, &host).unwrap_or_else(|report| panic!("{report}"));
        assert!(loaded.report.findings().is_empty(), "{:?}", loaded.report);
        let tenants = &loaded.policy.tenants;
        assert!(tenants.len() == 2 && tenants.iter().any(|it| !it.template().is_empty()));
    }
}

#[test]
fn links_of_the_documents_lead_somewhere() {
    for document in documents() {
        let text = text(&document);
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(&document).parent().unwrap().to_path_buf();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        for (link, _) in links.filter(|(link, _)| !link.contains("://")) {
            let target: PathBuf = folder.join(link.split('#').next().unwrap_or_default());
            assert!(target.exists(), "{document} links to {link}");
        }
    }
}

#[test]
fn the_readme_is_short_and_its_pictures_are_small() {
    let lines = text("README.md").lines().count();
    assert!(lines <= 86, "{lines} lines");
    for picture in ["top.svg", "page.png"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures").join(picture);
        assert!(path.metadata().unwrap().len() <= 128 << 10, "{picture}");
    }
}

/// What the README says was measured beside others is what the rounds of the comparison came to.
#[test]
fn figures_of_the_readme_are_those_of_the_benchmarks() {
    let readme = text("README.md");
    let (_, table) = readme.split_once("| instead of |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let benchmarks = text("BENCHMARKS.md");
    let (_, rounds) = benchmarks.split_once("### Four scenarios in guests, in rounds").unwrap();
    let (rounds, _) = rounds.split_once("\n### ").unwrap();
    let is_of_a_figure = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '%');
    let figures = |text: &str| -> Vec<String> {
        let parts =
            text.split(|c| !is_of_a_figure(c)).map(|part| part.trim_end_matches(['.', ',']));
        parts.filter(|part| part.contains(char::is_numeric)).map(str::to_string).collect()
    };
    let measured = figures(rounds);
    let told: Vec<String> =
        rows.filter_map(|row| row.split('|').nth(3)).flat_map(figures).collect();
    for figure in &told {
        assert!(measured.contains(figure), "{figure} is not in BENCHMARKS.md");
    }
    assert!(told.len() >= 8, "{told:?}");
}

/// The memory story of the README is that of the simulated hosts, as docs/simulate.md prints it.
#[test]
fn figures_of_the_memory_story_are_those_of_the_simulation() {
    let readme = text("README.md");
    let (_, story) = readme.split_once("**Memory is half of it.**").unwrap();
    let (story, _) = story.split_once("\n\n").unwrap();
    let simulated = text("docs/simulate.md");
    let (_, shown) = simulated.split_once("cache-beside-hog.yaml").unwrap();
    let row = shown.lines().skip_while(|line| !line.starts_with(" read again from disk"));
    let row = row.take(2).last().unwrap_or_default();
    let figures: Vec<&str> = row.split_whitespace().skip(1).take(2).collect();
    for figure in figures {
        let unit = figure.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        let told = format!("{} {}", &figure[..unit], &figure[unit..]);
        assert!(story.contains(&told), "{told} is not in {story}");
    }
}
