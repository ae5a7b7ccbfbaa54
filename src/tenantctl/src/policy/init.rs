//! `tenantctl init`: a policy proposed from the work on this host, with its `check`.
//!
//! As installed, tenantd reads every `*.yaml` file of [`POLICIES`]. Without `--output` the proposal becomes
//! `policy.yaml` there, if that is missing or still the one of the package; an edited policy is never
//! overwritten.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Serialize;

use super::{check, proposal, survey};
use crate::args::{CheckArgs, Colour, InitArgs};
use crate::common::file;
use tenantd::exit::Exit;
use tenantd_host::kernfs::RealKernFs;
use tenantd_lab::json;
use tenantd_policy::accounts::on_this_machine;
use tenantd_policy::accounts::people::People;
use tenantd_policy::report::Severity;
use tenantd_policy::{HostFacts, Loaded, Report, is_policy_file, load_from};

/// Directory of the service's policy.
pub const POLICIES: &str = "/etc/tenantd";
/// File of the package in that directory.
const POLICY: &str = "policy.yaml";
/// Content of the package's file.
pub const SHIPPED: &str = include_str!("../../../../packaging/policy.yaml");

/// Destination of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    Print,
    /// New file, which must not exist yet.
    New(PathBuf),
    /// The package's policy, which is replaced.
    Replace(PathBuf),
}

pub(crate) fn run(args: &InitArgs, colour: Colour) -> anyhow::Result<Exit> {
    let destination = destination(args.output.as_deref(), Path::new(POLICIES))?;
    let people = People::of_this_machine();
    people.failures().for_each(|failure| eprintln!("tenantctl: {failure}"));
    let found = survey::survey(&mut RealKernFs::new(), &people, user_name)?;
    let host = HostFacts::of_this_machine()?;
    let text = proposal::propose(&found, |text| is_clean(&checked("proposal", text, &host)));
    let path = match &destination {
        Destination::Print => None,
        Destination::New(path) => {
            write_new(path, &text).with_context(|| unwritten(path))?;
            Some(path)
        }
        Destination::Replace(path) => {
            file::replace(path, &text).with_context(|| unwritten(path))?;
            Some(path)
        }
    };
    let name = path.map_or_else(|| "the proposal".to_string(), |path| path.display().to_string());
    let result = checked(&name, &text, &host);
    let is_valid = result.is_ok();
    let results = [(Path::new(&name), result)];
    if args.json {
        let check = check::output(&results, Some(&host));
        let path = path.map(|path| path.display().to_string());
        json::write_line(&mut io::stdout().lock(), &Output { path, policy: &text, check })?;
    } else if let Some(path) = path {
        let mut out = io::stdout().lock();
        check::print_text(&mut out, &results, &Ok(host), &CheckArgs::default(), colour)?;
        write!(out, "\n{}", next_steps(path))?;
    } else {
        io::stdout().lock().write_all(text.as_bytes())?;
        check::print_text(
            &mut io::stderr().lock(),
            &results,
            &Ok(host),
            &CheckArgs::default(),
            colour,
        )?;
    }
    Ok(if is_valid { Exit::Ok } else { Exit::Failed })
}

#[derive(Serialize)]
struct Output<'a> {
    path: Option<String>,
    policy: &'a str,
    #[serde(flatten)]
    check: check::Output,
}

fn user_name(uid: u32) -> Option<String> {
    on_this_machine().owner(uid).known().map(|user| user.name)
}

fn checked(name: &str, text: &str, host: &HostFacts) -> Result<Loaded, Report> {
    load_from(name, text.as_bytes(), Some(host))
}

fn is_clean(result: &Result<Loaded, Report>) -> bool {
    result.as_ref().is_ok_and(|loaded| loaded.report.count(Severity::Warning) == 0)
}

/// Destination for this `--output`, on a host with this directory of policies.
///
/// # Errors
/// There is an edited policy, which is not replaced.
pub fn destination(output: Option<&Path>, policies: &Path) -> anyhow::Result<Destination> {
    if let Some(path) = output {
        if path == Path::new("-") {
            return Ok(Destination::Print);
        }
        if path.symlink_metadata().is_ok() {
            bail!(
                "{} exists, and is not overwritten: name another file, or move it away",
                path.display()
            );
        }
        return Ok(Destination::New(path.to_path_buf()));
    }
    let entries = match fs::read_dir(policies) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Destination::Print),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot list {}", policies.display()));
        }
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list {}", policies.display()))?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(is_policy_file) {
            files.push(path);
        }
    }
    let path = policies.join(POLICY);
    let others = files.iter().filter(|file| **file != path);
    let is_shipped = |path: &Path| fs::read_to_string(path).is_ok_and(|text| text == SHIPPED);
    match (others.count(), files.contains(&path)) {
        (0, false) => return Ok(Destination::New(path)),
        (0, true) if is_shipped(&path) => return Ok(Destination::Replace(path)),
        _ => {}
    }
    files.sort_unstable();
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    bail!(
        "there is a policy already, and it is not overwritten ({}): give `--output FILE` to write the proposal \
         elsewhere, or `--output -` to print it",
        names.join(", ")
    )
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(text.as_bytes())
}

fn unwritten(path: &Path) -> String {
    format!("cannot write {} (`--output -` prints the proposal instead)", path.display())
}

fn next_steps(path: &Path) -> String {
    let take_up = if path.starts_with(POLICIES) {
        "systemctl reload tenantd".to_string()
    } else {
        format!("tenantd --policy {}", path.display())
    };
    format!(
        "{} is written. It observes, and changes nothing. What next:
  {take_up:<28}  take it up
  {:<28}  usage and shares of each tenant
  {:<28}  what would be written, and why
  {:<28}  put it into force\n",
        path.display(),
        "tenantctl status",
        "tenantctl plan",
        "tenantctl mode enforce",
    )
}
