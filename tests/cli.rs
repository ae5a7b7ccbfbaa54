//! Wrong input on the command line: a clear message, the right exit code, no remains.

mod asking;
mod change;
pub(crate) mod deadline;
mod dop;
mod init;
mod me;
mod queue;
mod run;
pub(crate) mod seeds;
mod seeds_page;
mod simulate;
mod solve;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::util::{self, Ran, fits_a_terminal};

/// A policy that is right.
const GOOD: &str = "version: 1\nmode: enforce\ntenants: { web: { weight: 300 }, db: {} }\n";

/// A directory that other users may read.
fn open_scratch() -> tempfile::TempDir {
    let dir = util::scratch();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// `tenantd` with this policy, and a state directory that does not exist.
fn tenantd(dir: &Path, policy: &Path) -> Command {
    let mut command = util::tenantd();
    command.arg("--policy").arg(policy).arg("--state-dir").arg(dir.join("state"));
    command
}

/// What `tenantd` says to a policy of this text.
fn told(text: impl AsRef<[u8]>) -> Ran {
    let dir = util::scratch();
    let policy = util::file(dir.path(), "policy.yaml", text);
    let ran = util::run(&mut tenantd(dir.path(), &policy));
    assert!(!dir.path().join("state").exists(), "nothing is begun with a bad policy");
    ran
}

/// The same command as a user without any right; `None`, said in one line, where that cannot be.
fn as_nobody(command: &Command) -> Option<Command> {
    if !nix::unistd::Uid::effective().is_root() {
        let mut same = Command::new(command.get_program());
        same.args(command.get_args());
        return Some(same);
    }
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    let mut probe = Command::new("setpriv");
    probe.args(nobody.get_args()).arg(command.get_program()).arg("--version");
    if !probe.output().is_ok_and(|output| output.status.success()) {
        util::skipped("setpriv is missing, or the user nobody cannot run the built programs");
        return None;
    }
    nobody.arg(command.get_program()).args(command.get_args());
    Some(nobody)
}

#[test]
fn arguments_that_make_no_sense_are_usage() {
    for arguments in [
        &[][..],
        &["--nonsense"],
        &["--policy"],
        &["--policy", "x", "extra"],
        &["--restore", "--once"],
        &["--restore", "--observe"],
    ] {
        let ran = util::run(util::tenantd().args(arguments)).exits(2).says("error: ");
        assert_eq!(ran.out, "");
        fits_a_terminal(&ran.err);
    }
    for arguments in [
        &[][..],
        &["nonsense"],
        &["demo", "--seconds", "5"],
        &["demo", "--seconds", "61"],
        &["demo", "--seconds", "-1"],
        &["demo", "--seconds", "ten"],
        &["plan", "--nonsense"],
        &["check"],
    ] {
        let ran = util::run(util::tenantctl().args(arguments)).exits(2);
        assert_eq!(ran.out, "");
        fits_a_terminal(&ran.err);
    }
    util::run(util::tenantctl().args(["demo", "--seconds", "5"])).exits(2).says("10..=60");
}

#[test]
fn help_fits_a_terminal() {
    util::run(util::tenantd().arg("--help")).exits(0);
    for command in [
        "", "demo", "plan", "check", "solve", "dop", "status", "watch", "explain", "diff",
        "reload", "mode", "restore",
    ] {
        let mut help = util::tenantctl();
        help.args(Some(command).filter(|command| !command.is_empty())).arg("--help");
        let ran = util::run(&mut help).exits(0);
        fits_a_terminal(&ran.out);
        assert!(!ran.out.contains("\n  load"), "hidden: {}", ran.out);
    }
}

#[test]
fn a_policy_that_is_not_there_is_bad_configuration() {
    let dir = util::scratch();
    let nowhere = dir.path().join("nowhere.yaml");
    let ran = util::run(&mut tenantd(dir.path(), &nowhere)).exits(78);
    assert!(ran.err.starts_with("error[P001]: cannot be read"), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 3, "{}", ran.err);
    util::run(util::tenantctl().arg("plan").arg("--policy").arg(&nowhere)).exits(78).says("P001");
    util::run(util::tenantctl().arg("check").arg(&nowhere)).exits(78);
    // Without an argument a plan is made of the installed policy.
    let plan = util::run(util::tenantctl().arg("plan"));
    if !Path::new("/etc/tenantd").exists() {
        plan.exits(78).says("/etc/tenantd");
    }
}

#[test]
fn a_policy_that_may_not_be_read_is_bad_configuration() {
    let dir = open_scratch();
    let policy = util::file(dir.path(), "policy.yaml", GOOD);
    std::fs::set_permissions(&policy, std::fs::Permissions::from_mode(0o000)).unwrap();
    let Some(mut command) = as_nobody(&tenantd(dir.path(), &policy)) else { return };
    util::run(&mut command).exits(78).says("cannot be read: permission denied");
}

#[test]
fn a_directory_without_a_policy_is_bad_configuration() {
    let dir = util::scratch();
    util::file(dir.path(), "policy.yml", GOOD);
    let ran = util::run(&mut tenantd(dir.path(), dir.path())).exits(78);
    ran.says("there is no policy in this directory").says("only files named `*.yaml`");
}

#[test]
fn all_findings_are_reported_at_once_with_their_places() {
    let ran = told(
        "version: 1\nmode: enforced\ntenants:\n  web: { weight: 0, limit: { memory: 16G } }\n  web: {}\n",
    )
    .exits(78);
    let errors = ran.err.lines().filter(|line| line.starts_with("error[P")).count();
    assert!(errors >= 3, "{}", ran.err);
    for words in ["policy.yaml:2:", "policy.yaml:4:", "16GiB", "help"] {
        assert!(ran.err.contains(words), "{words} is not in:\n{}", ran.err);
    }
}

#[test]
fn hostile_policies_are_refused_with_a_short_report() {
    let mut bomb = String::from("version: 1\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        let ten = vec![alias; 10].join(", ");
        bomb += &format!("a{level}: &a{level} [{ten}]\n");
    }
    let line = format!("{}: {}\n", "k".repeat(1000), "v".repeat(1000));
    for text in [
        bomb,
        "a: ".to_string() + &"[".repeat(100_000),
        line.repeat(6_000),
        "\0".repeat(1000),
        String::new(),
        "{".into(),
        "--- 1\n--- 2\n".into(),
    ] {
        let ran = told(&text).exits(78);
        assert!(ran.err.len() < 64 << 10, "{} bytes", ran.err.len());
        assert!(ran.err.starts_with("error[P"), "{}", ran.err);
    }
}

#[test]
fn a_missing_permission_exits_with_77_and_one_message() {
    let dir = open_scratch();
    let policy = util::file(dir.path(), "policy.yaml", GOOD);
    // Where the journal cannot be kept.
    let Some(mut command) = as_nobody(&tenantd(dir.path(), &policy)) else { return };
    util::run(&mut command).exits(77).says_in_one_line("cannot make directory");
    // Where it can, but the cgroups are not ours to change.
    let state = dir.path().join("open");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = util::tenantd();
    command.arg("--policy").arg(&policy).arg("--state-dir").arg(state.join("state"));
    let mut command = as_nobody(&command).unwrap();
    util::run(&mut command).exits(77).says_in_one_line("not permitted to manage");
    assert!(!state.join("state/journal").exists());
    // Where the cgroups would not matter, but the socket cannot be created.
    let mut command = util::tenantd();
    command.arg("--observe").arg("--policy").arg(&policy).arg("--state-dir").arg(&state);
    command.arg("--socket").arg(dir.path().join("socket"));
    let ran = util::run(&mut as_nobody(&command).unwrap()).exits(77);
    ran.says_in_one_line("tenantd: not permitted: cannot listen on").says("--socket");
    // Where it cannot be seen whether there is anything to restore.
    std::fs::create_dir(dir.path().join("closed")).unwrap();
    let closed = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(dir.path().join("closed"), closed).unwrap();
    let mut command = util::tenantd();
    command.arg("--restore").arg("--state-dir").arg(dir.path().join("closed"));
    let ran = util::run(&mut as_nobody(&command).unwrap()).exits(77);
    ran.says_in_one_line("not permitted: cannot look for");
}

#[test]
fn commands_that_only_read_need_no_permission() {
    let dir = open_scratch();
    let policy = util::file(dir.path(), "policy.yaml", GOOD);
    let mut plan = util::tenantctl();
    plan.args(["plan", "--json", "--policy"]).arg(&policy);
    let Some(mut plan) = as_nobody(&plan) else { return };
    let ran = util::run(&mut plan).exits(0);
    let plan: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(plan["tenants"][0]["name"], "web");
    let mut observe = tenantd(dir.path(), &policy);
    observe.args(["--observe", "--once"]);
    let ran = util::run(&mut as_nobody(&observe).unwrap()).exits(0);
    assert!(!ran.err.contains("written"), "an observer wrote nothing: {}", ran.err);
}

#[test]
fn a_plan_for_a_person_fits_a_terminal() {
    let dir = util::scratch();
    let policy = util::file(dir.path(), "policy.yaml", GOOD);
    let ran = util::run(util::tenantctl().args(["plan", "--policy"]).arg(&policy)).exits(0);
    // What stands in the way on this machine is said in whole sentences below.
    fits_a_terminal(ran.out.split("\nnote: ").next().unwrap());
    assert!(ran.out.contains("web") && ran.out.contains("db"), "{}", ran.out);
}

#[test]
fn a_state_directory_that_cannot_be_made_is_reported() {
    let dir = util::scratch();
    let policy = util::file(dir.path(), "policy.yaml", GOOD);
    let file = util::file(dir.path(), "file", "not a directory");
    let with = |state: PathBuf| {
        let mut command = util::tenantd();
        command.arg("--policy").arg(&policy).arg("--state-dir").arg(state);
        util::run(&mut command)
    };
    with(file.clone()).exits(1).says_in_one_line("cannot make directory");
    with(file.join("below")).exits(1).says_in_one_line("cannot make directory");
    with("/proc/nothing".into()).exits(1).says_in_one_line("cannot make directory");
}

#[test]
fn a_full_disk_under_the_state_directory_is_reported_before_any_change() {
    let dir = util::scratch();
    let policy = util::file(dir.path(), "policy.yaml", GOOD);
    std::fs::create_dir(dir.path().join("state")).unwrap();
    // The journal is begun beside its place; every write there is told that the disk is full.
    let fresh = dir.path().join("state/journal.new");
    std::os::unix::fs::symlink("/dev/full", fresh).unwrap();
    let ran = util::run(&mut tenantd(dir.path(), &policy));
    ran.exits(1).says_in_one_line("No space left on device");
    assert!(!dir.path().join("state/journal").exists());
}

#[test]
fn a_journal_of_something_else_is_left_alone() {
    let dir = util::scratch();
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let policy = util::file(dir.path(), "policy.yaml", GOOD);
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let later = format!("{{\"tenantd_journal\":99,\"boot_id\":\"{}\"}}\n", boot_id.trim());
    for text in ["not a journal\n", &later, "\u{0}\n"] {
        let journal = util::file(&state, "journal", text);
        for command in [
            &mut tenantd(dir.path(), &policy),
            util::tenantd().arg("--restore").arg("--state-dir").arg(&state),
        ] {
            util::run(command).exits(1).says_in_one_line("is not a journal of this version");
        }
        assert_eq!(std::fs::read_to_string(journal).unwrap(), text);
    }
}

#[test]
fn nothing_to_restore_is_success() {
    let dir = util::scratch();
    let state = dir.path().join("state");
    let mut command = util::tenantd();
    util::run(command.arg("--restore").arg("--state-dir").arg(&state))
        .exits(0)
        .says_in_one_line("nothing to restore");
    assert!(!state.exists());
}

#[test]
fn the_simulated_kernel_is_not_for_the_daemon() {
    let text = format!("{GOOD}host: {{ hierarchy: simulated }}\n");
    told(text).exits(78).says_in_one_line("tenantctl demo --simulated");
}

#[test]
fn a_root_that_leads_out_of_the_hierarchy_is_refused() {
    let dir = util::scratch();
    let policy = util::file(dir.path(), "policy.yaml", GOOD);
    let mut command = tenantd(dir.path(), &policy);
    util::run(command.args(["--root", "../../etc"]))
        .exits(1)
        .says_in_one_line("leads outside the cgroup hierarchy");
}

#[test]
fn too_few_descriptors_for_the_tenants_are_told_at_the_start() {
    let dir = util::scratch();
    let policy = util::file(dir.path(), "policy.yaml", GOOD);
    let mut command = tenantd(dir.path(), &policy);
    command.args(["--root", "../../etc"]);
    let with_limit = |limit: u32| {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("ulimit -n {limit} && exec \"$0\" \"$@\"")]);
        util::run(shell.arg(command.get_program()).args(command.get_args())).exits(1)
    };
    let told = "2 tenants need up to 236 open files and the limit is 75 beside the reserve";
    with_limit(100).says(told).says("LimitNOFILE=");
    // A reserve of 64 is left to connections of root.
    let ran = with_limit(236 + 64);
    assert!(!ran.err.contains("open files"), "{}", ran.err);
}

#[test]
fn the_simulated_demo_is_fair() {
    let ran = util::run(util::tenantctl().args(["demo", "--simulated", "--json"])).exits(0);
    assert_eq!(ran.err, "");
    let demo: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    util::has_whole_bytes(&demo);
    assert!(demo["max_share_error"].as_f64().unwrap() <= 0.05, "{demo:#}");
    let errors = demo["phases"].as_array().unwrap().iter().flat_map(|phase| {
        let tenants = phase["tenants"].as_array().unwrap();
        tenants.iter().map(|tenant| tenant["error"].as_f64().unwrap().abs())
    });
    let largest = errors.fold(0.0, f64::max);
    assert_eq!(demo["max_share_error"].as_f64().unwrap(), largest, "of both halves: {demo:#}");
    assert!(demo["jain_index"].as_f64().unwrap() >= 0.99, "{demo:#}");
    assert_eq!((&demo["clean"], &demo["simulated"]), (&true.into(), &true.into()));
    assert_eq!((&demo["fair"], &demo["no_verdict"]), (&true.into(), &serde_json::Value::Null));
    // Without an agent the greedy tenant takes the most, and the scan displaces the files of the other one.
    let without = |tenant: usize, key: &str| demo["without"]["tenants"][tenant][key].as_f64();
    assert!(without(0, "measured_share").unwrap() > 0.5, "{demo:#}");
    assert!(without(1, "cached_ratio").unwrap() < 0.8, "{demo:#}");
    assert!(demo["cached_ratio"].as_f64().unwrap() > 0.95, "{demo:#}");
}

/// A demo for people on the simulated kernel, started; finished by [`util::finish`].
fn start_demo(mut demo: Command, arguments: &[&str]) -> std::process::Child {
    let demo = demo.args(["demo", "--seconds", "10"]).args(arguments);
    demo.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
}

/// They take their time, so they run side by side.
#[test]
fn the_demo_shows_a_person_what_happens() {
    let begin = std::time::Instant::now();
    let plain = start_demo(util::tenantctl(), &["--simulated"]);
    let verbose = start_demo(util::tenantctl(), &["--simulated", "--verbose"]);
    // A user without rights gets the simulated kernel unasked.
    let unasked = as_nobody(&util::tenantctl()).map(|nobody| start_demo(nobody, &[]));

    let plain = util::finish(plain).exits(0);
    assert!(begin.elapsed().as_secs() >= 10, "a simulated second takes a second");
    assert!(plain.out.lines().next().unwrap().contains("simulated"), "{}", plain.out);
    fits_a_terminal(&plain.out);
    for words in [
        "without",
        "share now",
        "off by",
        "not measured",
        "Fair: ",
        "files in memory",
        "The host is as it was",
    ] {
        assert!(plain.out.contains(words), "{words}: {}", plain.out);
    }
    let verbose = util::finish(verbose).exits(0);
    fits_a_terminal(&verbose.out);
    for jargon in ["dominant", "unified (cgroup v2)"] {
        assert!(verbose.out.contains(jargon) && !plain.out.contains(jargon), "{jargon}");
    }
    if let Some(unasked) = unasked {
        let unasked = util::finish(unasked).exits(0);
        assert!(unasked.out.lines().next().unwrap().contains("not root"), "{}", unasked.out);
    }
}

#[test]
fn a_closed_output_is_not_a_failure() {
    let mut demo = util::tenantctl();
    demo.args(["demo", "--simulated", "--seconds", "60"]);
    let mut child = demo
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = util::finish(child).exits(0);
    assert_eq!(ran.err, "");
}

/// JSON is written as it is made, and what the pipe says reaches the command through the writer of JSON.
#[test]
fn output_that_is_read_in_part_is_not_a_failure() {
    let dir = util::scratch();
    let tenants: String = (0..20_000).map(|i| format!(" t{i}: {{task: {{cpu: 1}}}}\n")).collect();
    let text = format!("algorithm: drf\ncapacity: {{ cpu: 9 }}\ntenants:\n{tenants}");
    let solve = util::file(dir.path(), "solve.yaml", text);
    let text = format!("algorithm: elastic\nslots: 16\nqueue: [{}]\n", "{}, ".repeat(100_000));
    let dop = util::file(dir.path(), "dop.yaml", text);
    let good = util::file(dir.path(), "good.yaml", GOOD);
    // More than a pipe holds, of each.
    let policies = vec![good; 2000];
    for (name, files) in [("solve", vec![solve]), ("dop", vec![dop]), ("check", policies)] {
        let mut command = util::tenantctl();
        command.args([name, "--json"]).args(files);
        let pipes = command.stdout(std::process::Stdio::piped());
        let mut child = pipes.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut begin = [0; 10];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut begin).unwrap();
        drop(child.stdout.take());
        let ran = util::finish(child).exits(0);
        assert_eq!(ran.err, "", "{name}");
    }
}
