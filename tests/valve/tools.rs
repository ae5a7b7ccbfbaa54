//! make, cargo and ninja under a valve: one `MAKEFLAGS` for all of them, and each follows both ways.

use std::ffi::OsString;
use std::fs;
use std::process::{Command, Stdio};

use tenantd_dop::environment::{self, Jobserver, Width};
use tenantd_host::valve::Valve;

use super::valve;
use super::works::Works;
use crate::util::{self, wait_until};

/// Commands of a build: more than a test lets end one by one. While it gets narrower there may be dozens, because on a busy
/// machine the client is mostly faster than the valve.
const COMMANDS: u32 = 400;
/// Crates of a workspace.
const CRATES: u32 = 40;
/// Crates on which all others depend.
const FIRST_CRATES: u32 = 12;
/// The oldest ninja with a job server.
const NINJA: [u32; 2] = [1, 13];
/// One that looks for new tokens while all its commands run.
const ATTENTIVE_NINJA: [u32; 2] = [1, 14];

/// When a client notices that there are more tokens.
#[derive(Clone, Copy, PartialEq)]
enum Notices {
    AtOnce,
    /// When the next of its commands ends.
    Later,
}

/// A build tool in the environment that a job gets, its descriptors included.
fn tool(program: &str, arguments: &[&str], dop: u32, valve: &Valve) -> Command {
    let fifo = valve.fifo();
    let fifo = fifo.to_str().unwrap();
    let jobserver = Jobserver { fifo, descriptors: Some((8, 9)) };
    let width = Width { dop, is_pinned: true, jobserver: Some(jobserver), cgroup: "/a/job-1" };
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec 8<>"$0" 9<>"$0"; exec "$@""#, fifo, program]).args(arguments);
    // The tests may run under a make or a cargo with a job server and settings of its own.
    for (name, _) in std::env::vars_os() {
        let name = name.to_str().unwrap_or_default();
        if name.contains("MAKE")
            || name.contains("CARGO") && name != "CARGO_HOME"
            || name.contains("RUST") && !name.contains("RUSTUP")
        {
            command.env_remove(name);
        }
    }
    let line: Vec<OsString> =
        std::iter::once(program).chain(arguments.iter().copied()).map(OsString::from).collect();
    command.envs(environment::variables(&width, &line, |_| false));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a build of [`COMMANDS`] commands, widens and narrows it, and lets it end.
#[track_caller]
fn follows(works: &mut Works, notices: Notices, program: &str, arguments: &[&str]) {
    let mut valve = valve(&works.dir, 2);
    let build = tool(program, arguments, 3, &valve).spawn().unwrap();
    works.wait_for(3);
    // Wider, while commands go on.
    valve.set(5).unwrap();
    works.end(u32::from(notices == Notices::Later));
    works.wait_for(6);
    // Narrower, as commands end.
    valve.set(1).unwrap();
    works.end_until_none("tokens", || valve.debt());
    works.wait_for(2);
    for _ in 0..4 {
        works.end(2);
        works.wait_for(2);
    }
    valve.set(3).unwrap();
    works.end(u32::from(notices == Notices::Later));
    works.wait_for(4);
    works.end(2 * COMMANDS);
    util::finish(build).exits(0);
    wait_until("all tokens are back", || valve.free().unwrap() == 3);
}

/// A makefile of [`COMMANDS`] commands.
fn makefile(works: &Works) -> String {
    let targets: Vec<String> = (0..COMMANDS).map(|number| format!("t{number}")).collect();
    let all = targets.join(" ");
    format!("all: {all}\n.PHONY: {all}\n{all}:\n\t@{}\n", works.command())
}

#[test]
fn make_follows_both_ways() {
    if util::optional("make", "make").is_none() {
        return;
    }
    let dir = util::scratch();
    let mut works = Works::new(dir.path());
    util::file(dir.path(), "Makefile", makefile(&works));
    follows(&mut works, Notices::AtOnce, "make", &["-C", dir.path().to_str().unwrap()]);
}

/// Where the width of the whole is told to a make below another: the descriptors go on.
#[test]
fn a_make_below_a_make_follows() {
    if util::optional("make", "make").is_none() {
        return;
    }
    let dir = util::scratch();
    let mut works = Works::new(dir.path());
    util::file(dir.path(), "inner.mk", makefile(&works));
    util::file(dir.path(), "Makefile", "all:\n\t@$(MAKE) -f inner.mk\n");
    follows(&mut works, Notices::AtOnce, "make", &["-C", dir.path().to_str().unwrap()]);
}

#[test]
fn ninja_follows_both_ways() {
    let version = Command::new("ninja").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let numbers = |text: String| -> Option<[u32; 2]> {
        let mut parts = text.trim().split('.').map(|part| part.parse().ok());
        Some([parts.next()??, parts.next()??])
    };
    let version = version.ok().and_then(numbers);
    let Some(version) = version.filter(|version| *version >= NINJA) else {
        return util::skipped("ninja 1.13 or later is not there (PyPI: ninja)");
    };
    let notices = if version < ATTENTIVE_NINJA { Notices::Later } else { Notices::AtOnce };
    let dir = util::scratch();
    let mut works = Works::new(dir.path());
    let mut text = format!("rule work\n  command = {}\n", works.command());
    for number in 0..COMMANDS {
        text += &format!("build t{number}: work\n");
    }
    util::file(dir.path(), "build.ninja", text);
    follows(&mut works, notices, "ninja", &["-C", dir.path().to_str().unwrap()]);
}

/// A workspace of empty crates with a compiler that waits for leave. Cargo keeps a token while it has a crate to compile
/// with it, so that it gets narrower only where it has none: here, before the crates on which all others depend are done.
#[test]
fn cargo_follows_both_ways() {
    let dir = util::scratch();
    let mut works = Works::new(dir.path());
    // What cargo asks before it builds is answered at once.
    let wrapper = format!(
        "#!/bin/sh\ncase \" $* \" in *' --crate-name member'*) {} ;; esac\nexec \"$@\"\n",
        works.command()
    );
    let wrapper = util::script(dir.path(), "rustc", wrapper);
    util::file(dir.path(), "Cargo.toml", "[workspace]\nmembers = ['m*']\nresolver = '2'\n");
    let dependency = |number| format!("member{number} = {{ path = '../m{number}' }}\n");
    let dependencies: String = (0..FIRST_CRATES).map(dependency).collect();
    for number in 0..CRATES {
        let member = dir.path().join(format!("m{number}"));
        fs::create_dir_all(member.join("src")).unwrap();
        let manifest = format!("[package]\nname = 'member{number}'\nversion = '0.1.0'\n");
        let above = if number < FIRST_CRATES { "" } else { &dependencies };
        util::file(
            &member,
            "Cargo.toml",
            format!("{manifest}edition = '2021'\n[dependencies]\n{above}"),
        );
        util::file(&member.join("src"), "lib.rs", "");
    }
    let manifest = format!("--manifest-path={}/Cargo.toml", dir.path().display());
    let wrapper = format!("build.rustc-wrapper='{}'", wrapper.display());
    let cargo = std::env::var("CARGO").unwrap();
    let arguments = ["build", "--offline", "--quiet", "--config", &wrapper, &manifest];
    follows(&mut works, Notices::AtOnce, &cargo, &arguments);
}
