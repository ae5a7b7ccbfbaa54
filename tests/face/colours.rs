//! What a program shows on a terminal: colours where they are wanted, and nothing that is not for a person.

use std::process::Command;

use super::daemon::nobody;
use super::terminal::transcript;
use crate::util;

/// An escape sequence that selects a colour, or anything else but plain text.
const ESCAPE: char = '\x1b';

/// The output of `command` on a terminal without `NO_COLOR`.
fn shown(mut command: Command) -> String {
    command.env_remove("NO_COLOR");
    transcript(command).1
}

#[test]
fn the_log_is_plain_on_a_terminal() {
    let state = util::scratch();
    let mut command = util::tenantd();
    command.args(["--restore", "--state-dir"]).arg(state.path());
    let (status, text) = transcript(command);
    assert!(status.success(), "{text}");
    assert_eq!((text.lines().count(), text.contains(ESCAPE)), (1, false), "{text:?}");
    assert!(text.contains("INFO nothing to restore"), "{text:?}");
}

/// Every command that says what is wrong with a file does it in the same colours, or in none.
#[test]
fn colours_follow_the_option_the_terminal_and_no_color() {
    let dir = util::scratch();
    let policy =
        util::file(dir.path(), "policy.yaml", "version: 1\ntenants: { a: { weight: 0 } }\n");
    let problem = util::file(dir.path(), "problem.yaml", "algorithm: drf\nnothing: 1\n");
    let socket = nobody(dir.path());
    let tenantctl = |more: &[&str], command: &str| {
        let mut ctl = util::tenantctl();
        ctl.arg("--socket").arg(&socket).args(more).arg(command);
        match command {
            "plan" => ctl.arg("--policy").arg(&policy),
            "solve" | "dop" => ctl.arg(&problem),
            _ => ctl.arg(&policy),
        };
        ctl
    };
    for command in ["check", "diff", "plan", "solve", "dop"] {
        let text = shown(tenantctl(&[], command));
        assert!(text.contains("error") && text.contains(ESCAPE), "{command}: {text:?}");
        let text = shown(tenantctl(&["--color=never"], command));
        assert!(text.contains("error") && !text.contains(ESCAPE), "{command}, never: {text:?}");
        let mut refused = tenantctl(&[], command);
        refused.env("NO_COLOR", "1");
        let (_, text) = transcript(refused);
        assert!(text.contains("error") && !text.contains(ESCAPE), "{command}, NO_COLOR: {text:?}");
        let ran = util::run(&mut tenantctl(&["--color=always"], command)).exits(78);
        assert!((ran.out + &ran.err).contains(ESCAPE), "{command}, always, not on a terminal");
    }
    let tenantd = || {
        let mut command = util::tenantd();
        command.arg("--policy").arg(&policy);
        command
    };
    assert!(shown(tenantd()).contains(ESCAPE));
    let mut refused = tenantd();
    refused.env("NO_COLOR", "1");
    let (status, text) = transcript(refused);
    assert_eq!((status.code(), text.contains(ESCAPE)), (Some(78), false), "{text:?}");
}
