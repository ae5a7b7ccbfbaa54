//! What the packages hold is there, is right, and is the same in both kinds.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use clap::Parser;
use serde_json::Value;
use tenantctl::args::Tenantd;
use tenantd::command::DESCRIPTORS_PER_TENANT;
use tenantd_nri::args::Arguments;
use tenantd_policy::model::Mode;

use crate::util;

/// Folders that differ between Debian and the others.
const SAME: [(&str, &str); 1] =
    [("usr/share/zsh/site-functions/", "usr/share/zsh/vendor-completions/")];

fn metadata() -> Value {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let told: Value = serde_json::from_str(&util::run(&mut cargo).out).unwrap();
    let packages = told["packages"].as_array().unwrap();
    let tenantd = packages.iter().find(|package| package["name"] == "tenantd").unwrap();
    tenantd["metadata"].clone()
}

/// Source and destination of each asset of a package.
type Assets = Vec<(String, String)>;

/// The assets of the Debian package, and of the RPM.
fn assets() -> (Assets, Assets) {
    let metadata = metadata();
    // Sources are named from the crate of the agent.
    let text = |value: &Value| {
        let text = value.as_str().unwrap();
        text.strip_prefix("../../").unwrap_or(text).to_string()
    };
    let deb = metadata["deb"]["assets"].as_array().unwrap();
    let deb = deb.iter().map(|asset| (text(&asset[0]), text(&asset[1])));
    let rpm = metadata["generate-rpm"]["assets"].as_array().unwrap();
    let rpm = rpm.iter().map(|asset| (text(&asset["source"]), text(&asset["dest"])));
    (deb.collect(), rpm.collect())
}

/// The files of the repository that a source names: itself, or what its `*` stands for.
fn matching(source: &str) -> Vec<String> {
    let Some((folder, pattern)) = source.rsplit_once('/') else {
        return fs::read_dir(".")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with(source.trim_end_matches('*')))
            .collect();
    };
    let Some((before, after)) = pattern.split_once('*') else {
        return Path::new(source).exists().then(|| source.to_string()).into_iter().collect();
    };
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with(before) && name.ends_with(after)).collect()
}

#[test]
fn every_file_that_is_packed_is_there() {
    let (deb, rpm) = assets();
    for (source, _) in deb.iter().chain(&rpm).filter(|(source, _)| !source.starts_with("target/")) {
        assert!(!matching(source).is_empty(), "{source}");
    }
}

#[test]
fn both_packages_hold_the_same() {
    let (deb, rpm) = assets();
    let plain = |assets: Vec<(String, String)>| -> BTreeSet<(String, String)> {
        let assets = assets.into_iter().map(|(source, to)| {
            let mut to = to.trim_start_matches('/').to_string();
            for (there, debian) in SAME {
                to = to.replace(there, debian);
            }
            // A folder stands for the file of the same name in it.
            let name = source.rsplit('/').next().unwrap().to_string();
            let whole = if to.ends_with('/') { format!("{to}{name}") } else { to };
            (source, whole)
        });
        // Each has its own place and form for the licence.
        let is_licence =
            |source: &str| source.starts_with("LICENSE") || source.ends_with("copyright");
        assets.filter(|(source, _)| !is_licence(source)).collect()
    };
    let (deb, rpm) = (plain(deb), plain(rpm));
    let differing: Vec<_> = deb.symmetric_difference(&rpm).collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

#[test]
fn all_units_are_packed() {
    let (deb, _) = assets();
    let packed: BTreeSet<String> =
        deb.iter().flat_map(|(source, _)| matching_or_none(source)).collect();
    for entry in fs::read_dir("systemd").unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            let name = entry.file_name().into_string().unwrap();
            assert!(packed.contains(&name), "{name}");
        }
    }
}

fn matching_or_none(source: &str) -> Vec<String> {
    if source.starts_with("systemd/") { matching(source) } else { Vec::new() }
}

/// What the service's unit says of `key`, once.
fn of_the_service(key: &str) -> String {
    let unit = fs::read_to_string("systemd/tenantd.service").unwrap();
    let values: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix(key)).collect();
    assert_eq!(values.len(), 1, "{key} {values:?}");
    values[0].to_string()
}

/// A cgroup is kept with its directory and the files of a sample.
#[test]
fn the_service_may_open_what_the_largest_policy_needs() {
    let descriptors: u64 = of_the_service("LimitNOFILE=").parse().unwrap();
    assert!(
        descriptors >= DESCRIPTORS_PER_TENANT * tenantd_policy::MOST_TENANTS as u64,
        "{descriptors}"
    );
}

/// The daemon is what the host needs when memory is out, and executes nothing that it does not name.
#[test]
fn the_service_is_killed_last_and_executes_itself() {
    let score: i32 = of_the_service("OOMScoreAdjust=").parse().unwrap();
    assert!((-999..=-500).contains(&score), "{score}");
    assert_eq!(of_the_service("NoExecPaths="), "/");
    let paths = of_the_service("ExecPaths=");
    for key in ["ExecStart=", "ExecReload=", "ExecStopPost="] {
        let program = of_the_service(key);
        let program = program.split(' ').next().unwrap();
        assert!(paths.split(' ').any(|path| path == program), "{program}");
    }
    let serve = fs::read_to_string("systemd/tenantd-serve.service").unwrap();
    assert!(serve.contains("\nSocketBindDeny=any\nSocketBindAllow=tcp:9595\n"), "{serve}");
}

#[test]
fn what_follows_every_stop_leaves_what_was_kept_on_purpose() {
    let after = Tenantd::try_parse_from(of_the_service("ExecStopPost=").split(' ')).unwrap();
    assert!(after.restore && after.unless_kept, "{after:?}");
    // Whoever removes the package wants nothing left.
    for script in ["packaging/deb/prerm", "packaging/rpm/pre_uninstall.sh"] {
        let text = fs::read_to_string(script).unwrap();
        assert!(text.contains("tenantd --restore >"), "{script}");
    }
}

#[test]
fn the_installed_policy_is_valid_and_only_observes() {
    let text = fs::read_to_string("packaging/policy.yaml").unwrap();
    let policy = util::policy(&text);
    assert_eq!(policy.mode, Mode::Observe);
    util::run(util::tenantctl().args(["check", "packaging/policy.yaml"])).exits(0);
}

#[test]
fn the_scripts_are_of_their_shell() {
    for script in
        ["deb/postinst", "deb/prerm", "deb/postrm", "rpm/post_install.sh", "rpm/pre_uninstall.sh"]
            .into_iter()
            .chain(["rpm/post_uninstall.sh"])
    {
        let path = Path::new("packaging").join(script);
        util::run(Command::new("sh").arg("-n").arg(&path)).exits(0);
        let Some(mut shellcheck) = util::optional("shellcheck", "shellcheck") else { continue };
        util::run(shellcheck.args(["--shell=sh", "--severity=warning"]).arg(&path)).exits(0);
    }
}

/// No kubelet runs the manifest here: its structure is that of apps/v1, and its command line that of the program.
#[test]
fn the_daemon_set_starts_the_plugin_with_its_sockets() {
    let text = fs::read_to_string("packaging/kubernetes/tenantd-nri.yaml").unwrap();
    let set: Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!((&set["apiVersion"], &set["kind"]), (&"apps/v1".into(), &"DaemonSet".into()));
    let template = &set["spec"]["template"];
    let selected = &set["spec"]["selector"]["matchLabels"];
    assert!(selected.is_object() && *selected == template["metadata"]["labels"], "{selected}");
    let pod = &template["spec"];
    let container = &pod["containers"][0];
    let command: Vec<&str> =
        container["command"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let arguments = Arguments::try_parse_from(&command).unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    for socket in [arguments.nri_socket, arguments.socket] {
        let folder = socket.parent().unwrap().to_str().unwrap();
        let mounts = list(&container["volumeMounts"]);
        let mount = mounts.iter().find(|it| it["mountPath"] == folder).unwrap();
        let volumes = list(&pod["volumes"]);
        let volume = volumes.iter().find(|it| it["name"] == mount["name"]).unwrap();
        assert_eq!(volume["hostPath"]["path"], folder);
    }
    // The service of a host has the same command line.
    let unit = fs::read_to_string("systemd/tenantd-nri.service").unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let of_unit = Arguments::try_parse_from(start.split(' ')).unwrap();
    assert_eq!(of_unit.tenant, arguments.tenant);
}
