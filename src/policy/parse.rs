//! YAML text in, typed values out. The only file that names the YAML crate.
//!
//! **Problem.** Policies and problem files are written by people, and sometimes by people who mean harm: a
//! file of a hundred bytes can stand for a billion values (aliases of aliases), or nest a hundred thousand
//! deep. Whatever the text, the answer comes in bounded time and memory: a value, or one clear finding.
//!
//! **Shape.** [`parse`] gives any deserializable type, for the problem files of `solve` and `dop`; it stops
//! at the first finding.
//!
//! **Strictness.** A key given twice, a second document and a merge key are refused, as is a `yes` where
//! a truth value belongs: YAML 1.1 and 1.2 read those differently.

use std::ops::Range;

use serde::de::DeserializeOwned;
use serde_yaml::budget::BudgetBreach;
use serde_yaml::{Error, MergeKeyPolicy, MessageFormatter, Options, UserMessageFormatter};

pub use serde_yaml::Spanned;

use super::report::{Diagnostic, Severity, Source};

/// How much a text may hold. Beyond it the text is refused with [`code::BUDGET`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Values, keys and collections, aliases counted as what they stand for.
    pub nodes: usize,
    /// Collections within collections.
    pub depth: usize,
    /// Bytes of text.
    pub bytes: usize,
}

impl Budget {
    /// For problem files: a million tenants of a dozen values each.
    pub const PROBLEM: Budget = Budget { nodes: 20_000_000, depth: 64, bytes: 1 << 30 };
}

/// The codes of findings in the text itself.
pub mod code {
    /// Not YAML.
    pub const SYNTAX: &str = "Y001";
    /// Too large, too deep, or an alias that stands for too much.
    pub const BUDGET: &str = "Y002";
    /// Nothing in it, or more than one document.
    pub const DOCUMENTS: &str = "Y003";
    /// A key that does not belong there.
    pub const UNKNOWN_KEY: &str = "Y004";
    /// A key given twice.
    pub const DUPLICATE_KEY: &str = "Y005";
    /// A key that must be there and is not.
    pub const MISSING_KEY: &str = "Y006";
    /// A value of the wrong type, or out of range.
    pub const VALUE: &str = "Y007";
}

/// Parses a problem file.
///
/// `source_name` is what findings call the text: a path, or `-`.
///
/// # Errors
/// The first thing that is wrong with it, with its place.
pub fn parse<T: DeserializeOwned>(source_name: &str, text: &str) -> Result<T, Diagnostic> {
    parse_within(source_name, text, Budget::PROBLEM)
}

/// Parses a text that may hold no more than `budget`.
///
/// # Errors
/// As [`parse`].
pub fn parse_within<T: DeserializeOwned>(
    source_name: &str,
    text: &str,
    budget: Budget,
) -> Result<T, Diagnostic> {
    if text.len() > budget.bytes {
        let message = format!("{} bytes are more than the {} allowed", text.len(), budget.bytes);
        let source = Source::new(source_name, "");
        return Err(Diagnostic::new(code::BUDGET, Severity::Error, &source, message));
    }
    serde_yaml::from_str_with_options(text, options(budget))
        .map_err(|error| diagnose(source_name, text, &error))
}

/// The bytes a value was read from; the alias, where it was named by one.
pub fn span<T>(value: &Spanned<T>) -> Range<usize> {
    byte_range(value.referenced)
}

fn byte_range(location: serde_yaml::Location) -> Range<usize> {
    let span = location.span();
    let start = span.byte_offset().unwrap_or(0) as usize;
    start..start + span.byte_len().unwrap_or(0) as usize
}

fn options(budget: Budget) -> Options {
    serde_yaml::options! {
        strict_booleans: true,
        with_snippet: false,
        merge_keys: MergeKeyPolicy::Error,
        // Aliases save typing in a file written by hand; beyond this they are a bomb.
        alias_limits: serde_yaml::alias_limits! { max_total_replayed_events: 100_000 },
        budget: serde_yaml::budget! {
            max_nodes: budget.nodes,
            max_events: budget.nodes.saturating_mul(2),
            max_depth: budget.depth,
            // The scanner reads ahead up to 1024 characters for a key; its own limit must lie above that
            // for the depth to be what is breached, and reported.
            flow_nesting_limit: budget.depth.max(2048),
            max_total_scalar_bytes: budget.bytes,
            max_documents: 1,
        },
    }
}

/// Says in our words what the YAML crate found.
fn diagnose(source_name: &str, text: &str, error: &Error) -> Diagnostic {
    let source = Source::new(source_name, text);
    let error = error.without_snippet();
    let (code, message, help) = describe(error);
    let mut diagnostic = Diagnostic::new(code, Severity::Error, &source, message);
    if let Some(location) = error.location() {
        let mut span = byte_range(location);
        // A mapping's span is one byte, and one at the very end has nothing to underline.
        span.end = span.end.min(text.len());
        diagnostic = diagnostic.at(span.start.min(span.end)..span.end, "");
    }
    match help {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
}

fn describe(error: &Error) -> (&'static str, String, Option<String>) {
    match error {
        Error::AliasError { error, .. } => describe(error),
        Error::Budget { breach: BudgetBreach::Documents { .. }, .. }
        | Error::MultipleDocuments { .. } => (
            code::DOCUMENTS,
            "more than one document".into(),
            Some("keep one, without `---`".into()),
        ),
        Error::Eof { .. } => (code::DOCUMENTS, "the text ends before it is complete".into(), None),
        Error::Budget { breach, .. } => (code::BUDGET, describe_breach(breach), None),
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            (code::BUDGET, "aliases stand for too many values".into(), None)
        }
        Error::SerdeUnknownField { field, expected, .. } => {
            let help = match nearest(field, expected.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("known here: {}", listed(expected.iter().copied())),
            };
            (code::UNKNOWN_KEY, format!("unknown key `{field}`"), Some(help))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => (
            code::VALUE,
            format!("unknown value `{variant}`"),
            Some(format!("one of {}", listed(expected.iter().copied()))),
        ),
        Error::SerdeMissingField { field, .. } => {
            (code::MISSING_KEY, format!("`{field}` is missing"), None)
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("?");
            (code::DUPLICATE_KEY, format!("`{key}` is given twice"), None)
        }
        Error::MergeKeyNotAllowed { .. } => (
            code::SYNTAX,
            "merge keys (`<<`) are not read".into(),
            Some("write the keys out".into()),
        ),
        Error::SerdeInvalidType { unexpected, expected, .. }
        | Error::SerdeInvalidValue { unexpected, expected, .. } => {
            (code::VALUE, format!("expected {expected}, found {unexpected}"), None)
        }
        Error::InvalidBooleanStrict { .. } => {
            (code::VALUE, "expected `true` or `false`".into(), None)
        }
        Error::Unexpected { expected, .. } => {
            // The crate reads every scalar as a string first; the reader never asked for a string.
            let expected = if *expected == "string scalar" { "a single value" } else { expected };
            (code::VALUE, format!("expected {expected}"), None)
        }
        Error::InvalidScalar { ty, .. } => (code::VALUE, format!("expected {ty}"), None),
        Error::Message { msg, .. } => (code::VALUE, msg.clone(), None),
        _ => (code::SYNTAX, UserMessageFormatter.format_message(error).into_owned(), None),
    }
}

fn describe_breach(breach: &BudgetBreach) -> String {
    match breach {
        BudgetBreach::Depth { depth } => format!("nested {depth} deep, which is too deep"),
        BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => "too many values".into(),
        BudgetBreach::ScalarBytes { .. } | BudgetBreach::InputBytes { .. } => "too large".into(),
        _ => "aliases stand for too many values".into(),
    }
}

/// `a, b, c` with each in backticks.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// The name that `wrong` was probably meant to be: the nearest one, if it is near at all.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Two slips in a word of six letters are a misspelling; in a word of three they are another word.
    let reach = (wrong.chars().count() / 3).clamp(1, 3);
    let near = names.into_iter().map(|name| (edit_distance(wrong, name, reach), name));
    near.filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, n)| n)
}

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
///
/// Anything above `reach` is answered with `reach + 1`, without the work, where the lengths alone say so.
fn edit_distance(a: &str, b: &str, reach: usize) -> usize {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.chars().take(64).collect(), b.chars().take(64).collect());
    if a.len().abs_diff(b.len()) > reach {
        return reach + 1;
    }
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let substitution = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = substitution.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::report::{Style, render};

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Problem {
        capacity: Spanned<f64>,
        #[serde(default)]
        strict: bool,
    }

    fn refused(text: &str) -> Diagnostic {
        parse::<Problem>("p.yaml", text).unwrap_err()
    }

    #[test]
    fn a_value_knows_its_place() {
        let text = "strict: true\ncapacity: 9.5 # cores\n";
        let problem: Problem = parse("p.yaml", text).unwrap();
        assert_eq!((problem.capacity.value, problem.strict), (9.5, true));
        assert_eq!(&text[span(&problem.capacity)], "9.5");
    }

    #[test]
    fn json_is_read_too() {
        assert_eq!(parse::<Problem>("-", r#"{"capacity": 2}"#).unwrap().capacity.value, 2.0);
    }

    #[test]
    fn every_refusal_has_a_code_and_a_place() {
        for (text, code, position) in [
            ("capacity: 1\ncapacity: 2\n", code::DUPLICATE_KEY, Some((2, 1))),
            ("capacity: 1\nstrikt: true\n", code::UNKNOWN_KEY, Some((2, 1))),
            ("strict: true\n", code::MISSING_KEY, Some((1, 1))),
            ("capacity: many\n", code::VALUE, Some((1, 11))),
            ("capacity: 1\nstrict: yes\n", code::VALUE, Some((2, 9))),
            ("capacity: 1\n---\ncapacity: 2\n", code::DOCUMENTS, Some((2, 1))),
            ("capacity: [1, 2\n", code::VALUE, Some((1, 11))),
            ("capacity: \"1\n", code::SYNTAX, Some((1, 1))),
            ("capacity: 1\n<<: {strict: true}\n", code::SYNTAX, Some((2, 1))),
            ("", code::DOCUMENTS, None),
        ] {
            let diagnostic = refused(text);
            assert_eq!(
                (diagnostic.code, diagnostic.position()),
                (code, position),
                "{text:?}\n{diagnostic}"
            );
        }
    }

    #[test]
    fn a_misspelt_key_is_answered_with_the_right_one() {
        let text = render(&refused("capactiy: 1\n"), Style::PLAIN);
        assert!(text.contains("did you mean `capacity`?"), "{text}");
        assert!(text.contains("p.yaml:1:1"), "{text}");
        assert_eq!(nearest("ci", ["cpu", "memory"]), None);
    }

    #[test]
    fn nesting_and_alias_bombs_are_refused() {
        type Any = serde_json::Value;
        assert_eq!(parse::<Any>("p", &"[".repeat(100_000)).unwrap_err().code, code::BUDGET);
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let previous = format!("*a{}", level - 1);
            bomb += &format!("a{level}: &a{level} [{}]\n", [previous.as_str(); 10].join(", "));
        }
        let error = parse::<Any>("p", &bomb).unwrap_err();
        assert_eq!(error.code, code::BUDGET);
    }
}
