//! Cgroup of the demo.
//!
//! On a systemd host every cgroup belongs to systemd unless it was delegated. So the demo restarts itself
//! in a transient scope with `Delegate=yes` and a memory limit, and works below it. Elsewhere it makes a
//! root named after its process below its own cgroup.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::scene;
use crate::args::DemoArgs;
use tenantd::exit::Exit;

const IN_SCOPE: &str = "TENANTD_DEMO_SCOPE";

fn on_systemd() -> bool {
    // The test of sd_booted(3).
    Path::new("/run/systemd/system").is_dir()
}

/// Reruns the demo in a delegated scope, if this host needs that; then returns its exit code.
pub(crate) fn enter(args: &DemoArgs) -> anyhow::Result<Option<Exit>> {
    if !on_systemd() || env::var_os(IN_SCOPE).is_some() {
        return Ok(None);
    }
    let program = env::current_exe().context("cannot find the path of tenantctl")?;
    let mut command = Command::new("systemd-run");
    // Leaves room for the demo itself beside its loads.
    let limit = format!("MemoryMax={}", scene::MEMORY.0 + scene::MEMORY.0 / 8);
    command.args(["--scope", "--quiet", "--collect", "-p", "Delegate=yes", "-p", &limit, "--"]);
    command.arg(program).args(["demo", "--seconds", &args.seconds.to_string()]);
    let flags = [("--json", args.json), ("--verbose", args.verbose), ("--strict", args.strict)];
    command.args(flags.iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag));
    let status = command.env(IN_SCOPE, "1").status().context(
        "cannot start systemd-run, which gives the demo a cgroup of its own on a systemd host",
    )?;
    Ok(Some(if status.success() { Exit::Ok } else { Exit::Failed }))
}

/// Root of the demo's tenants; `None` if it is the demo's own cgroup.
pub(crate) fn root() -> Option<PathBuf> {
    let own = on_systemd() && env::var_os(IN_SCOPE).is_some();
    (!own).then(|| PathBuf::from(format!("tenantd-demo-{}", std::process::id())))
}
