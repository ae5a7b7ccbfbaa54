//! `tenantctl generate`: man pages, completions, the schema.

use std::fs;
use std::process::Stdio;

use tenantd_policy::rules::RULES;

use crate::util;

fn generated(arguments: &[&str]) -> String {
    util::run(util::tenantctl().arg("generate").args(arguments)).exits(0).out
}

#[test]
fn there_is_a_page_for_each_program_and_command() {
    let dir = util::scratch();
    generated(&["man", dir.path().to_str().unwrap()]);
    let read =
        |name: &str| fs::read_to_string(dir.path().join(name)).unwrap_or_else(|_| panic!("{name}"));
    let help = util::run(util::tenantctl().arg("--help")).exits(0).out;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty() && *name != "help")
        .collect();
    assert!(commands.len() >= 12, "{commands:?}");
    for command in commands {
        let page = read(&format!("tenantctl-{command}.1"));
        assert!(page.contains(&format!("tenantctl\\-{command}")), "{page}");
    }
    assert!(!dir.path().join("tenantctl-load.1").exists(), "a hidden command has no page");
    for (page, parts) in [
        ("tenantd.8", ["--restore".replace('-', "\\-"), "SIGHUP".into(), "EXIT STATUS".into()]),
        ("tenantctl.1", ["--socket".replace('-', "\\-"), "NO_COLOR".into(), "EXIT STATUS".into()]),
    ] {
        let text = read(page);
        assert!(parts.iter().all(|part| text.contains(part)), "{page}:\n{text}");
    }
    // The order that works.
    for (command, order) in [("attach", "TENANT PID..."), ("detach", "PID...")] {
        let page = read(&format!("tenantctl-{command}.1"));
        assert!(
            page.contains(&format!("\\fBtenantctl {command}\\fR [OPTIONS] {order}\n")),
            "{page}"
        );
        let help = util::run(util::tenantctl().args([command, "--help"])).exits(0).out;
        assert!(
            help.contains(&format!("Usage: tenantctl {command} [OPTIONS] {order}\n")),
            "{help}"
        );
    }
    let policy = read("tenantd.policy.5");
    for rule in RULES {
        assert!(policy.contains(rule.code), "{}", rule.code);
    }
    for key in crate::policy::keys::changed() {
        assert!(policy.contains(&format!("\\fB{}\\fR", key.path)), "{}:\n{policy}", key.path);
    }
    assert!(!policy.contains("@KEYS@") && !policy.contains("@RULES@"));
}

/// Where a formatter is installed, it has nothing to say against the pages.
#[test]
fn the_pages_are_well_formed() {
    let Some(mut mandoc) = util::optional("mandoc", "mandoc") else { return };
    let dir = util::scratch();
    generated(&["man", dir.path().to_str().unwrap()]);
    let pages = fs::read_dir(dir.path()).unwrap().map(|page| page.unwrap().path());
    let ran = util::run(mandoc.args(["-T", "lint", "-W", "warning"]).args(pages));
    let serious: Vec<&str> = ran
        .out
        .lines()
        // Dates are left out, so that the same sources make the same pages; blank lines are clap_mangen's.
        .filter(|line| {
            !line.contains("missing date") && !line.contains("skipping paragraph macro: br")
        })
        .collect();
    assert!(serious.is_empty(), "{serious:#?}");
}

#[test]
fn pages_have_a_description_exit_codes_and_an_example() {
    let dir = util::scratch();
    generated(&["man", dir.path().to_str().unwrap()]);
    let mut nr_pages = 0;
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let page = fs::read_to_string(&path).unwrap();
        let shown = path.display();
        let section = |name: &str| -> Vec<&str> {
            let lines = page
                .lines()
                .skip_while(|line| line.trim_start_matches(".SH ").trim_matches('"') != name);
            lines.skip(1).take_while(|line| !line.starts_with(".SH ")).collect()
        };
        assert!(!section("DESCRIPTION").is_empty(), "{shown} has no description");
        let codes = section("EXIT STATUS");
        assert!(
            codes.iter().any(|line| line.contains("0")),
            "{shown} has no exit codes: {codes:?}"
        );
        let example = [section("EXAMPLE"), section("EXAMPLES")].concat();
        assert!(example.len() >= 3, "{shown} has no example: {example:?}");
        nr_pages += 1;
    }
    assert!(nr_pages >= 30, "{nr_pages}");
}

#[test]
fn shells_take_the_completions() {
    for (shell, syntax_only) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = generated(&["completions", shell]);
        assert!(script.contains("explain") && script.contains("tenantctl"), "{shell}");
        let Some(mut command) = util::optional(shell, shell) else { continue };
        let dir = util::scratch();
        let path = util::file(dir.path(), "completions", &script);
        util::run(command.arg(syntax_only).arg(path).stderr(Stdio::piped())).exits(0);
    }
}

#[test]
fn the_schema_is_the_one_of_the_examples() {
    let file = fs::read_to_string("policies/policy.schema.json").unwrap();
    assert!(generated(&["schema"]) == file, "`tenantctl generate schema` prints another text");
}
