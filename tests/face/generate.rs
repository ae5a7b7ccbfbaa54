//! `tenantctl generate`: man pages, completions, the schema.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use tenantd_policy::rules::RULES;

use super::daemon::Daemon;
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
        (
            "tenantd-nri.8",
            [".TH tenantd-nri 8".into(), "disable = false".into(), "EXIT STATUS".into()],
        ),
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

/// Shells take the scripts, and nothing else is in them that could be wrong.
#[test]
fn shells_take_the_completions() {
    for (shell, syntax_only) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = generated(&["completions", shell]);
        assert!(script.contains("tenantctl"), "{shell}");
        let Some(mut command) = util::optional(shell, shell) else { continue };
        let dir = util::scratch();
        let path = util::file(dir.path(), "completions", &script);
        util::run(command.arg(syntax_only).arg(path).stderr(Stdio::piped())).exits(0);
    }
}

/// A folder whose `tenantctl` is the built one.
fn programs() -> String {
    let folder = Path::new(crate::programs::path("tenantctl")).parent().unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

/// The values that bash offers for the last word of `line`, by the script that the package installs.
fn offered(line: &str) -> Option<Vec<String>> {
    let mut bash = util::optional("bash", "bash")?;
    let script = generated(&["completions", "bash"]);
    let ask = "eval \"$1\"; set -- \"$2\"; read -ra COMP_WORDS <<<\"$1\"; [[ $1 == *' ' ]] && COMP_WORDS+=(''); \
               COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_TYPE=9; \
               function_of=$(complete -p tenantctl | sed 's/.* -F \\([^ ]*\\).*/\\1/'); \
               $function_of tenantctl \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\" 2>/dev/null; \
               printf '%s\\n' \"${COMPREPLY[@]}\"";
    let ran =
        util::run(bash.args(["-c", ask, "bash", &script, line]).env("PATH", programs())).exits(0);
    Some(ran.out.lines().map(str::to_string).collect())
}

#[test]
fn completions_know_commands_options_and_files() {
    let Some(commands) = offered("tenantctl ") else { return };
    for command in ["status", "explain", "run", "logs"] {
        assert!(commands.iter().any(|it| it == command), "{command}: {commands:?}");
    }
    assert!(!commands.iter().any(|it| it == "load"), "a hidden command: {commands:?}");
    assert_eq!(offered("tenantctl loa").unwrap().concat(), "", "a hidden command");
    assert_eq!(offered("tenantctl help loa").unwrap().concat(), "", "a hidden command");
    assert_eq!(offered("tenantctl expl").unwrap(), ["explain"]);
    assert!(offered("tenantctl run --mem").unwrap().contains(&"--memory".to_string()));
    assert_eq!(offered("tenantctl mode enf").unwrap(), ["enforce"]);
    let dir = util::scratch();
    let policy = util::file(dir.path(), "policy.yaml", "");
    let begun = policy.display().to_string();
    for command in ["check", "diff", "plan --policy", "solve"] {
        let line = format!("tenantctl {command} {}", begun.trim_end_matches(".yaml"));
        assert_eq!(offered(&line).unwrap(), [begun.as_str()], "{command}");
    }
}

#[test]
fn completions_know_tenants_and_jobs() {
    let daemon = Daemon::with(super::daemon::status());
    let socket = daemon.socket.display().to_string();
    let ask =
        |line: &str| offered(&line.replace("tenantctl", &format!("tenantctl --socket {socket}")));
    let Some(tenants) = ask("tenantctl explain ") else { return };
    for name in ["web", "analytics", "ci/nightly", "ci"] {
        assert!(tenants.iter().any(|it| it == name), "{name}: {tenants:?}");
    }
    assert_eq!(ask("tenantctl status ci/n").unwrap(), ["ci/nightly"]);
    // A job has a tenant and not a group.
    let of_run = ask("tenantctl run --tenant ").unwrap();
    assert!(
        of_run.iter().any(|it| it == "web") && !of_run.iter().any(|it| it == "ci"),
        "{of_run:?}"
    );
    let dir = util::scratch();
    let socket = dir.path().join("socket");
    super::blocks::play_a_daemon_with_jobs(&socket);
    for command in ["wait", "jobs", "cancel", "logs"] {
        let line = format!("tenantctl --socket {} {command} 1", socket.display());
        let numbers = offered(&line).unwrap();
        assert!(
            numbers.iter().all(|it| it == "12") && !numbers.is_empty(),
            "{command}: {numbers:?}"
        );
    }
    // Without a daemon there are no names, and no message.
    let line = format!("tenantctl --socket {} explain w", dir.path().join("none").display());
    assert_eq!(offered(&line).unwrap().concat(), "");
}

#[test]
fn fish_and_zsh_complete_as_bash_does() {
    let dir = util::scratch();
    if let Some(mut fish) = util::optional("fish", "fish") {
        let script = util::file(dir.path(), "tenantctl.fish", generated(&["completions", "fish"]));
        let ask = format!("source {}; complete -C 'tenantctl expl'", script.display());
        fish.args(["--no-config", "-c", &ask]).env("PATH", programs()).env("HOME", dir.path());
        let ran = util::run(&mut fish).exits(0);
        assert!(ran.out.starts_with("explain\t"), "{ran:?}");
    }
    if let Some(mut zsh) = util::optional("zsh", "zsh") {
        // As installed: a function that is loaded at its first call, which must complete already.
        util::file(dir.path(), "_tenantctl", generated(&["completions", "zsh"]));
        let ask = "fpath=($1 $fpath); autoload -U compinit; compinit -u -d $1/dump; \
                   _describe() { eval \"print -l -- \\${${@[-1]}}\" }; words=(tenantctl expl); CURRENT=2; _tenantctl";
        zsh.args(["-f", "-c", ask, "zsh"]).arg(dir.path()).env("PATH", programs());
        let ran = util::run(&mut zsh).exits(0);
        assert!(ran.out.contains("explain:"), "{ran:?}");
    }
}

#[test]
fn the_schema_is_the_one_of_the_examples() {
    let file = fs::read_to_string("policies/policy.schema.json").unwrap();
    assert!(generated(&["schema"]) == file, "`tenantctl generate schema` prints another text");
}
