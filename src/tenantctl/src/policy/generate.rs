//! `tenantctl generate`: generates files for packages from the programs themselves.
//!
//! Man pages come from the parsed command line, the schema and the keys of
//! `tenantd.policy(5)` from the table of keys, its diagnostics from the table of rules. Files, signals and
//! exit codes are written by hand in packaging/man.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap_mangen::Man;

use super::policy_page::escaped;
use crate::args::{self, GenerateArgs, Generated, Program};
use crate::common::complete;
use tenantd::exit::Exit;
use tenantd_policy::schema;

/// Hand-written parts of tenantd(8) and tenantctl(1).
const TENANTD_SECTIONS: &str = include_str!("../../../../packaging/man/tenantd.8.roff");
const TENANTCTL_SECTIONS: &str = include_str!("../../../../packaging/man/tenantctl.1.roff");
/// All of tenantd-nri(8), except its title.
const NRI_PAGE: &str = include_str!("../../../../packaging/man/tenantd-nri.8.roff");
/// Exit codes and examples of the commands, a block each.
const COMMANDS: &str = include_str!("../../../../packaging/man/commands.txt");
/// tenantd.policy(5), with placeholders for the keys and the rules.
const POLICY_PAGE: &str = include_str!("../../../../packaging/man/tenantd.policy.5.roff");

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn run(args: &GenerateArgs) -> anyhow::Result<Exit> {
    match &args.what {
        Generated::Man { dir } => man(dir)?,
        Generated::Completions { shell } => complete::script(*shell, &mut io::stdout().lock())?,
        Generated::Schema => {
            let mut out = io::stdout().lock();
            serde_json::to_writer_pretty(&mut out, &schema::schema())?;
            writeln!(out)?;
        }
    }
    Ok(Exit::Ok)
}

fn man(dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for (name, text) in pages()? {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn pages() -> anyhow::Result<Vec<(String, String)>> {
    // Without a date a generated title shifts the fields after it.
    let title = |name: &str, section: &str| {
        format!(".TH {name} {section} \"\" \"tenantd {VERSION}\" tenantd\n")
    };
    let manual = |name: &str, section: &str, command| {
        let mut roff = Vec::new();
        Man::new(command).section(section).render(&mut roff)?;
        let roff = String::from_utf8(roff)?;
        let title = title(name, section);
        let lines = roff.split_inclusive('\n');
        let titled = lines.map(|line| if line.starts_with(".TH ") { title.as_str() } else { line });
        anyhow::Ok(titled.collect::<String>())
    };
    let tenantd = args::command_of(Program::Tenantd).disable_help_subcommand(true);
    let mut tenantctl = args::command_of(Program::Tenantctl).disable_help_subcommand(true);
    // Passes the global options to the commands and gives these their full names.
    tenantctl.build();
    let mut pages = vec![
        ("tenantd.8".into(), manual("tenantd", "8", tenantd)? + TENANTD_SECTIONS),
        ("tenantctl.1".into(), manual("tenantctl", "1", tenantctl.clone())? + TENANTCTL_SECTIONS),
        ("tenantd-nri.8".into(), title("tenantd-nri", "8") + NRI_PAGE),
        ("tenantd.policy.5".into(), super::policy_page::page(POLICY_PAGE)),
    ];
    for command in tenantctl.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("tenantctl-{}", command.get_name());
        let page = manual(&name, "1", command.clone().display_name(name.clone()))?;
        pages.push((format!("{name}.1"), page + &sections(command.get_name()) + SEE_ALSO));
    }
    Ok(pages)
}

/// Exit codes that mean the same for all commands.
const EXIT_CODES: [(u8, &str); 3] = [
    (0, "Success."),
    (1, "Failure; the message gives the cause."),
    (2, "The command line is invalid."),
];

/// The sections EXIT STATUS and EXAMPLE of a command, from its block in [`COMMANDS`].
fn sections(command: &str) -> String {
    let mut blocks = COMMANDS.split("\n\n").map(str::lines);
    let block = blocks.find_map(|mut lines| (lines.next() == Some(command)).then_some(lines));
    let lines: Vec<&str> = block.into_iter().flatten().collect();
    let is_code = |line: &&&str| line.starts_with(|first: char| first.is_ascii_digit());
    let mut codes: BTreeMap<u8, &str> = EXIT_CODES.into();
    let own = lines.iter().filter(is_code).filter_map(|line| line.split_once(' '));
    codes.extend(own.filter_map(|(code, meaning)| Some((code.parse().ok()?, meaning))));
    let mut text = ".SH \"EXIT STATUS\"\n".to_string();
    for (code, meaning) in codes {
        text += &format!(".TP\n\\fB{code}\\fR\n{}\n", escaped(meaning));
    }
    text += ".SH EXAMPLE\n";
    for line in lines.iter().filter(|line| !is_code(line)) {
        text += &match line.strip_prefix("$ ") {
            Some(example) => format!(".TP\n\\fB{}\\fR\n", escaped(example)),
            None => format!("{}\n", escaped(line)),
        };
    }
    text
}

const SEE_ALSO: &str =
    ".SH \"SEE ALSO\"\n\\fBtenantctl\\fR(1), \\fBtenantd\\fR(8), \\fBtenantd.policy\\fR(5)\n";
