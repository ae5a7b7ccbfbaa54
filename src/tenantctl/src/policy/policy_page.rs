//! `tenantd.policy(5)`: the keys from the table of keys, the diagnostics from the rules.

use tenantd_policy::key::{Flag, Row, rows};
use tenantd_policy::keys::{POLICY, TENANT};
use tenantd_policy::rules::RULES;

const KEYS_PLACE: &str = ".\\\" @KEYS@\n";
const RULES_PLACE: &str = ".\\\" @RULES@\n";

pub(crate) fn page(frame: &str) -> String {
    frame.replace(KEYS_PLACE, &keys()).replace(RULES_PLACE, &rules())
}

fn rules() -> String {
    let paragraphs = RULES.iter().map(|rule| {
        let severity = format!("{:?}", rule.severity).to_lowercase();
        format!(".TP\n\\fB{}\\fR ({severity})\n{}\n", rule.code, escaped(rule.title))
    });
    paragraphs.collect()
}

/// A paragraph for each key: those at the top, those of each section, and those of a tenant.
fn keys() -> String {
    let mut text = ".SS \"The whole\"\n".to_string();
    let top = rows(POLICY);
    top.iter().for_each(|row| paragraph(&mut text, "", row));
    for section in top.iter().filter(|row| !row.rows.is_empty()) {
        text += &format!(".SS \"{}\"\n", section.name);
        add(&mut text, &format!("{}.", section.name), &section.rows);
    }
    text += ".SS \"A tenant\"\n";
    add(&mut text, "", &rows(TENANT));
    text
}

fn add(text: &mut String, prefix: &str, rows: &[Row]) {
    for row in rows {
        paragraph(text, prefix, row);
        add(text, &format!("{prefix}{}.", row.name), &row.rows);
    }
}

fn paragraph(text: &mut String, prefix: &str, row: &Row) {
    let mut said = row.doc.to_string();
    let words = row.words();
    if !words.is_empty() {
        said += &format!(" One of {}.", words.join(", "));
    }
    if let Some(default) = &row.default {
        said += &format!(" Default: {default}.");
    }
    for flag in row.flags {
        said += match flag {
            Flag::Needed(_) => " Required.",
            Flag::Restart => " A change takes effect at the next start of tenantd.",
            Flag::Leaf => " Not for groups.",
            Flag::Group => " Not for templates.",
        };
    }
    *text += &format!(".TP\n\\fB{prefix}{}\\fR\n{}\n", row.name, escaped(&said));
}

/// Escapes text for roff: no line of it is a request, no backslash an escape, no hyphen a soft one.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
