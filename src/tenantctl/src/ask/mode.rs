//! `tenantctl mode`: switches between observe and enforce, and saves the mode in the policy.
//!
//! A mode that was set by hand ends with the next start of tenantd. With `--save` the `mode:` line of the policy is
//! replaced as well. The edit is one line of text, so that comments and order stay. It is made only if the policy is
//! the same afterwards except for its mode.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::administer::{NOT_RESTORED, print_failures};
use crate::args::ModeArgs;
use crate::common::exit::Exit;
use tenantd_lab::json;
use tenantd_lab::text::wrapped;
use tenantd_policy::model::Mode;
use tenantd_policy::outline::Outline;
use tenantd_policy::{is_policy_file, load, load_text};
use tenantd_varlink::client::Endpoint;
use tenantd_varlink::interface::{ModeReply, SetModeParameters, method};

pub(crate) fn mode(daemon: &Endpoint, args: &ModeArgs) -> anyhow::Result<Exit> {
    let mode = Mode::from(args.mode);
    let reply = daemon.call::<method::SetMode>(&SetModeParameters { mode })?;
    let ModeReply { before, failures, policy_mode, policy } = &reply;
    let saved = args.save.then(|| save(policy.as_deref(), mode));
    let mut out = io::stdout().lock();
    match (args.json, *before == mode) {
        (true, _) => {
            let mut object = json!({ "mode": mode, "before": before, "failures": failures });
            if let Some(of_policy) = policy_mode {
                object["policy_mode"] = json!(of_policy);
            }
            if let Some(saved) = &saved {
                object["saved"] = json!(saved.is_ok());
            }
            json::write_line(&mut out, &object)?;
        }
        (false, true) => writeln!(out, "mode {}, unchanged", mode.word())?,
        (false, false) => writeln!(out, "mode {}, was {}", mode.word(), before.word())?,
    }
    match &saved {
        Some(Ok(path)) if !args.json => {
            writeln!(out, "{}", wrapped("", &format!("saved in {}", path.display())))?;
        }
        Some(Err(why)) => {
            eprintln!("{}", wrapped("tenantctl: ", &format!("the mode is not saved: {why}")));
            print_failures(NOT_RESTORED, failures, args.json);
            return Ok(Exit::Failed);
        }
        Some(Ok(_)) => {}
        None => {
            if let Some(of_policy) = policy_mode.filter(|it| *it != mode && !args.json) {
                let name = policy.as_deref().unwrap_or("its policy");
                let (of_policy, mode) = (of_policy.word(), mode.word());
                let until = format!(
                    "until tenantd restarts, because {name} has `mode: {of_policy}`; `tenantctl mode {mode} --save` \
                     changes that"
                );
                // Scripts read the line above.
                eprintln!("{}", wrapped("note: ", &until));
            }
        }
    }
    Ok(print_failures(NOT_RESTORED, failures, args.json))
}

/// Writes the mode into the policy at `path`; returns the changed file. Fails with the reason and the remedy.
fn save(path: Option<&str>, mode: Mode) -> Result<PathBuf, String> {
    let path = Path::new(path.ok_or("tenantd has no policy file")?);
    let by_hand = format!("write `mode: {}` into it yourself", mode.word());
    let file = file_of(path).map_err(|why| format!("{why}: {by_hand}"))?;
    let about = |error: io::Error| format!("{}: {error}: {by_hand}", file.display());
    let text = fs::read_to_string(&file).map_err(about)?;
    let changed = with_mode(&text, mode);
    // A file of a directory is checked alone.
    let is_whole = |text: &str| load_text("policy", text).map(|loaded| loaded.policy);
    let is_same = match (is_whole(&text), is_whole(&changed)) {
        (Ok(mut before), Ok(after)) => {
            before.mode = mode;
            Outline::of(&before).changes_to(&Outline::of(&after)).is_empty()
        }
        _ => path.is_dir(),
    };
    if !is_same {
        return Err(format!("{} has an unusual form: {by_hand}", file.display()));
    }
    replace(&file, &changed).map_err(about)?;
    match load(path).map(|loaded| loaded.policy.mode) {
        Ok(now) if now == mode => Ok(file),
        _ => {
            replace(&file, &text).map_err(about)?;
            Err(format!("{} has an unusual form: {by_hand}", file.display()))
        }
    }
}

/// File of the policy that has its mode: the only one, or the one in a directory with such a line.
fn file_of(path: &Path) -> Result<PathBuf, String> {
    let real = |path: &Path| {
        // A link stays a link.
        fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    if !path.is_dir() {
        return real(path);
    }
    let entries = fs::read_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let files = names.filter(|name| is_policy_file(name)).map(|name| path.join(name));
    let has_mode = |file: &PathBuf| {
        fs::read_to_string(file).is_ok_and(|text| text.lines().any(is_line_of_mode))
    };
    match files.filter(has_mode).collect::<Vec<_>>().as_slice() {
        [one] => real(one),
        [] => Err(format!("{} has no file with a line `mode:`", path.display())),
        _ => Err(format!("{} has several files with a line `mode:`", path.display())),
    }
}

/// True for the line of the top key `mode`. Only comments, top keys and markers of documents start in column 0.
fn is_line_of_mode(line: &str) -> bool {
    line.strip_prefix("mode").is_some_and(|rest| rest.trim_start().starts_with(':'))
}

/// The text of a policy with another mode: its line is replaced, or one is added before the first key.
fn with_mode(text: &str, mode: Mode) -> String {
    let line = format!("mode: {}", mode.word());
    let mut lines: Vec<String> = text.split('\n').map(str::to_string).collect();
    if let Some(at) = lines.iter().position(|line| is_line_of_mode(line)) {
        let comment = lines[at].find(" #").map(|begin| {
            let begin = lines[at][..begin].trim_end().len();
            lines[at][begin..].to_string()
        });
        let end = if lines[at].ends_with('\r') && comment.is_none() { "\r" } else { "" };
        lines[at] = line + &comment.unwrap_or_default() + end;
    } else {
        let is_key = |line: &String| line.starts_with(|c: char| c.is_alphabetic() || c == '"');
        let at = lines.iter().position(is_key).unwrap_or(lines.len());
        lines.insert(at, line);
    }
    lines.join("\n")
}

/// Replaces a file by one with this content, and the same owner and permissions. On an error the old file stays.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let before = fs::metadata(file)?;
    let dir = file.parent().unwrap_or(Path::new("."));
    // No name that tenantd reads as a policy.
    let mut fresh = tempfile::Builder::new().prefix(".tenantd-").tempfile_in(dir)?;
    fresh.write_all(text.as_bytes())?;
    fresh.as_file().set_permissions(before.permissions())?;
    if (before.uid(), before.gid())
        != (fresh.as_file().metadata()?.uid(), fresh.as_file().metadata()?.gid())
    {
        chown(fresh.path(), Some(before.uid()), Some(before.gid()))?;
    }
    fresh.as_file().sync_all()?;
    fresh.persist(file).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_written_into_its_line_and_nothing_else_changes() {
        for (before, after) in [
            ("mode: observe\ntenants: {}\n", "mode: enforce\ntenants: {}\n"),
            ("# why\nmode :   observe  # for now\n", "# why\nmode: enforce  # for now\n"),
            ("mode: observe\r\nx: 1\r\n", "mode: enforce\r\nx: 1\r\n"),
            ("# a\n\ninterval: 1s\n", "# a\n\nmode: enforce\ninterval: 1s\n"),
            ("---\ntenants: []\n", "---\nmode: enforce\ntenants: []\n"),
            ("host:\n  mode: x\n", "mode: enforce\nhost:\n  mode: x\n"),
        ] {
            assert_eq!(with_mode(before, Mode::Enforce), after);
        }
    }

    #[test]
    fn a_policy_is_saved_with_its_owner_and_permissions_or_not_at_all() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.yaml");
        let good = "version: 1\nmode: observe # now\ntenants:\n  web: {}\n";
        fs::write(&file, good).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let link = dir.path().join("link.yaml");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let path = link.to_str();
        assert_eq!(save(path, Mode::Enforce), Ok(fs::canonicalize(&file).unwrap()));
        assert_eq!(fs::read_to_string(&file).unwrap(), good.replace("observe", "enforce"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        // A flow mapping has no line for it.
        let flow = "{version: 1, mode: observe, tenants: {web: {}}}\n";
        fs::write(&file, flow).unwrap();
        assert!(save(path, Mode::Enforce).unwrap_err().contains("`mode: enforce`"));
        assert_eq!(fs::read_to_string(&file).unwrap(), flow);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left behind");
        assert!(save(None, Mode::Observe).is_err());
    }
}
