//! The README and docs/: what they print works as printed, and what they link to is there.
//!
//! Every `tenantctl` line is run, in a folder with the README's policy, against a socket on which nothing listens: it
//! must succeed, or say that the daemon does not answer. Lines of other programs are checked as far as that changes
//! nothing.

use std::path::{Path, PathBuf};

use tenantd_core::units::Bytes;
use tenantd_policy::accounts::Answer;
use tenantd_policy::{HostFacts, load_with_host};

use crate::util;

const DOCUMENTS: [&str; 6] = [
    "README.md",
    "docs/README.md",
    "docs/using.md",
    "docs/run.md",
    "docs/host.md",
    "docs/hosts.md",
];

/// Where links are checked, and nothing else.
const OTHERS: [&str; 7] = [
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "SPECIFICATION.md",
    "BENCHMARKS.md",
    "docs/compare.md",
    "docs/papers.md",
    "docs/seeds.md",
];

fn text(document: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(document)).unwrap()
}

/// The policy of the README.
fn policy() -> String {
    let readme = text("README.md");
    let (_, rest) = readme.split_once("```yaml\n").unwrap();
    rest.split_once("```").unwrap().0.to_string()
}

/// Lines that a reader types: indented by four, without their comment and without `sudo`.
fn commands(document: &str) -> Vec<String> {
    // What stands between fences is a file.
    let text: String = text(document).split("```").step_by(2).collect();
    let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
    let typed = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
    let bare = typed.map(|line| line.split(" #").next().unwrap_or_default().trim());
    bare.map(|line| line.strip_prefix("sudo ").unwrap_or(line).to_string()).collect()
}

#[test]
fn the_policy_of_the_readme_fits_a_machine_of_two_cores() {
    let dir = util::scratch();
    let path = util::file(dir.path(), "policy.yaml", policy());
    let small = HostFacts {
        find_user: |_| Answer::Missing,
        find_group: |_| Answer::Missing,
        ..HostFacts::of_size(2, Bytes::gib(4))
    };
    let loaded = load_with_host(&path, &small).unwrap_or_else(|report| panic!("{report}"));
    assert!(loaded.report.findings().is_empty(), "{:?}", loaded.report);
    let tenants = &loaded.policy.tenants;
    assert!(tenants.len() == 2 && tenants.iter().any(|tenant| !tenant.template().is_empty()));
}

/// What is fenced as `yaml` is a policy, or an addition to the one before it, which has a version; other YAML is
/// fenced as `yml`.
#[test]
fn policies_of_the_recipes_are_accepted_on_hosts_of_all_sizes() {
    let text = text("docs/hosts.md");
    let fenced = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let blocks: Vec<&str> = fenced.map(|(block, _)| block).collect();
    let mut nr_policies = 0;
    for (number, block) in blocks.iter().enumerate() {
        let has_version = |block: &str| block.lines().any(|line| line.starts_with("version:"));
        let dir = util::scratch();
        util::file(dir.path(), "50.yaml", block);
        if !has_version(block) {
            util::file(dir.path(), "10.yaml", blocks[number - 1]);
        }
        for size in ["cpus=4,memory=16GiB", "cpus=128,memory=1TiB"] {
            let mut check = util::tenantctl();
            check.args(["check", "--strict", "--host", size]).arg(dir.path());
            let ran = util::run(&mut check);
            assert_eq!(ran.code, Some(0), "{size}:\n{block}\n{}{}", ran.out, ran.err);
        }
        nr_policies += 1;
    }
    assert!(nr_policies >= 7, "{nr_policies}");
}

#[test]
fn commands_of_the_documents_work_as_printed() {
    let dir = util::scratch();
    util::file(dir.path(), "policy.yaml", policy());
    let makefile = text("Makefile");
    let mut nr_run = 0;
    for (document, line) in
        DOCUMENTS.iter().flat_map(|name| commands(name).into_iter().map(move |line| (name, line)))
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let place = format!("{document}: {line}");
        match words[0] {
            "make" => {
                let has_target = makefile.lines().any(|rule| {
                    rule.split_once(':').is_some_and(|(targets, _)| {
                        targets.split_whitespace().any(|target| target == words[1])
                    })
                });
                assert!(has_target, "{place}");
            }
            "tenantctl" if words[1] == "demo" => {
                let mut demo = util::tenantctl();
                util::run(demo.args(&words[1..]).arg("--json")).exits(0);
            }
            "tenantctl" => {
                let mut command = util::tenantctl();
                command.arg("--socket").arg(dir.path().join("nothing")).args(&words[1..]);
                let ran = util::run(command.current_dir(dir.path()));
                // A log is a file of the user, and no job ran here.
                let is_missing = words[1] == "logs" && ran.err.contains("there is no log");
                let is_answered = ran.code == Some(0) || ran.code == Some(69) || is_missing;
                assert!(is_answered, "{place}: {:?} {}{}", ran.code, ran.out, ran.err);
            }
            // What it would do is for the tests of the kernel; here, that it is understood.
            "tenantd" => drop(util::run(util::tenantd().args(&words[1..]).arg("--help")).exits(0)),
            "apt" | "install" | "systemctl" | "journalctl" => {}
            _ => panic!("{place}: nothing here knows how to try this"),
        }
        nr_run += 1;
    }
    assert!(nr_run >= 20, "{nr_run}");
}

#[test]
fn links_of_the_documents_lead_somewhere() {
    for document in DOCUMENTS.iter().chain(&OTHERS) {
        let text = text(document);
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(document).parent().unwrap().to_path_buf();
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
