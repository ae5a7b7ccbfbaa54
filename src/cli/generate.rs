//! `tenantctl generate`: what packages ship beside the programs, made from the programs themselves.
//!
//! Man pages and completions come from the same command line that is parsed, the keys of `tenantd.policy(5)`
//! from the schema that editors use and its diagnostics from the table of rules: none of them can lag behind.
//! What no code knows (files, signals, exit codes) is written by hand in packaging/man.

mod policy_page;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap_complete::Shell;
use clap_mangen::Man;

use super::args::{self, GenerateArgs, Generated, Program};
use super::exit::Exit;

/// The schema of policies.
const SCHEMA: &str = include_str!("../../policies/policy.schema.json");
/// What follows the generated part of tenantd(8) and tenantctl(1).
const TENANTD_SECTIONS: &str = include_str!("../../packaging/man/tenantd.8.roff");
const TENANTCTL_SECTIONS: &str = include_str!("../../packaging/man/tenantctl.1.roff");
/// tenantd.policy(5), with a place for the keys and one for the rules.
const POLICY_PAGE: &str = include_str!("../../packaging/man/tenantd.policy.5.roff");

/// Runs the command.
///
/// # Errors
/// The output could not be written.
pub(super) fn run(args: &GenerateArgs) -> anyhow::Result<Exit> {
    match &args.what {
        Generated::Man { dir } => man(dir)?,
        Generated::Completions { shell } => completions(*shell)?,
        Generated::Schema => io::stdout().lock().write_all(SCHEMA.as_bytes())?,
    }
    Ok(Exit::Ok)
}

fn completions(shell: Shell) -> io::Result<()> {
    let mut command = args::command_of(Program::Tenantctl);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "tenantctl", &mut script);
    io::stdout().lock().write_all(&script)
}

fn man(dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for (name, text) in pages()? {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The pages: file name and roff.
fn pages() -> anyhow::Result<Vec<(String, String)>> {
    let manual = |command, section: &str| {
        let page = Man::new(command).section(section).manual("tenantd").source("tenantd");
        let mut roff = Vec::new();
        page.render(&mut roff)?;
        anyhow::Ok(String::from_utf8(roff)?)
    };
    let tenantd = args::command_of(Program::Tenantd).disable_help_subcommand(true);
    let mut tenantctl = args::command_of(Program::Tenantctl).disable_help_subcommand(true);
    // Hands the global options down to the commands and gives them their full names.
    tenantctl.build();
    let mut pages = vec![
        ("tenantd.8".into(), manual(tenantd, "8")? + TENANTD_SECTIONS),
        ("tenantctl.1".into(), manual(tenantctl.clone(), "1")? + TENANTCTL_SECTIONS),
        ("tenantd.policy.5".into(), policy_page::page(POLICY_PAGE, SCHEMA)?),
    ];
    for command in tenantctl.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("tenantctl-{}", command.get_name());
        let page = manual(command.clone().display_name(name.clone()), "1")?;
        pages.push((format!("{name}.1"), page + SEE_ALSO));
    }
    Ok(pages)
}

/// The end of the page of a command.
const SEE_ALSO: &str =
    ".SH \"SEE ALSO\"\n\\fBtenantctl\\fR(1), \\fBtenantd\\fR(8), \\fBtenantd.policy\\fR(5)\n";
