//! Diagnosis of a text that is not YAML, at the line of the mistake.
//!
//! **Problem.** A YAML scanner stops where it cannot go on: for an unclosed brace, lines below it; for a
//! missing colon, at the next line that has one; and its messages name flow mappings and simple keys.
//! **Answer.** From that place and the kind of error, this file searches back for the line to change: the
//! open bracket, the key without a colon, the line with a different indentation. If none fits, the
//! scanner's own message is kept.
//!
//! **Properties** (`tests/policy/syntax.rs`): each common mistake is reported at its line with the remedy.

use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// A `:` where no key can be.
    Colon,
    /// A key without a `:`.
    Key,
    /// A line that belongs to no map above it.
    Indentation,
    /// A bracket, or the text between brackets.
    Bracket,
    Other,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) message: String,
    pub(super) span: Range<usize>,
    pub(super) help: String,
}

/// The common mistake that stopped a scanner at byte `at`, if it is one.
pub(super) fn mistake(text: &str, at: usize, trouble: Trouble) -> Option<Mistake> {
    let line = Line::at(text, at);
    let above = line.above(text);
    let open = open_brackets(text, at);
    if let Some(bracket) = open.last() {
        return in_brackets(text, bracket, &open, at, trouble);
    }
    match trouble {
        Trouble::Bracket => {
            let bracket = text[at..].chars().next().filter(|c| "}]".contains(*c))?;
            let message = format!("this `{bracket}` closes nothing");
            let help = "remove it, or add the opening one before it".to_string();
            Some(Mistake { message, span: at..at + 1, help })
        }
        Trouble::Key => colon_missing(&line),
        Trouble::Colon if line.has_key_before(text, at) => {
            let message = "a second key on one line".to_string();
            let first = line.content.split(':').next().unwrap_or_default();
            let rest = line.content[first.len()..].trim_start_matches(':').trim();
            let help = format!("write `{first}: {{ {rest} }}`, or the second on a line of its own");
            let start = line.start + line.content.len() - rest.len();
            Some(Mistake { message, span: start..line.end(), help })
        }
        Trouble::Colon => {
            let above = above?;
            if !above.content.contains(": ") && !above.content.ends_with(':') {
                return colon_missing(&above);
            }
            (line.indent > above.indent).then(|| deeper(&line, &above))
        }
        Trouble::Indentation => indentation(text, &line),
        Trouble::Other => None,
    }
}

#[derive(Debug)]
struct Line<'t> {
    start: usize,
    indent: usize,
    content: &'t str,
}

impl<'t> Line<'t> {
    fn at(text: &'t str, at: usize) -> Line<'t> {
        let begin = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let end = text[begin..].find('\n').map_or(text.len(), |length| begin + length);
        let whole = &text[begin..end];
        let indent = whole.len() - whole.trim_start_matches(' ').len();
        let content = without_comment(&whole[indent..]).trim_end();
        Line { start: begin + indent, indent, content }
    }

    fn end(&self) -> usize {
        self.start + self.content.len()
    }

    /// The nearest line above it with content.
    fn above(&self, text: &'t str) -> Option<Line<'t>> {
        let mut begin = self.start - self.indent;
        while begin > 0 {
            let line = Line::at(text, begin - 1);
            if !line.content.is_empty() {
                return Some(line);
            }
            begin = line.start - line.indent;
        }
        None
    }

    fn has_key_before(&self, text: &str, at: usize) -> bool {
        text.get(self.start..at).is_some_and(|before| before.contains(": "))
    }
}

fn without_comment(line: &str) -> &str {
    if line.starts_with('#') { "" } else { line.split(" #").next().unwrap_or(line) }
}

fn colon_missing(line: &Line<'_>) -> Option<Mistake> {
    let span = line.start..line.end();
    // `version:1` is one text: YAML requires a space.
    if let Some((key, value)) = line.content.split_once(':') {
        let message = format!("no space after the colon of `{key}`");
        return Some(Mistake { message, span, help: format!("write `{key}: {}`", value.trim()) });
    }
    let (key, value) = line.content.split_once(' ').unwrap_or((line.content, ""));
    let message = format!("`{key}` has no colon");
    let help = format!("write `{key}: {}`", value.trim()).replace(": `", ":`");
    Some(Mistake { message, span, help })
}

fn spaces(count: usize) -> String {
    match count {
        0 => "no spaces".to_string(),
        1 => "1 space".to_string(),
        _ => format!("{count} spaces"),
    }
}

/// A key below a key that already has a value.
fn deeper(line: &Line<'_>, above: &Line<'_>) -> Mistake {
    let message = "this line is indented deeper than the one above, which has a value".to_string();
    let first = above.content.split(':').next().unwrap_or_default();
    let help = format!("indent it with {}, as `{first}`", spaces(above.indent));
    Mistake { message, span: line.start..line.end(), help }
}

/// Start of the second key in `a: { … }, b: …`.
fn after_brackets(content: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, c) in content.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' if depth == 1 => {
                let rest = content[index + 1..].trim_start().strip_prefix(',')?.trim_start();
                return rest.contains(": ").then(|| content.len() - rest.len());
            }
            '}' | ']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// Mistake in a line whose indentation fits none of the maps above it.
fn indentation(text: &str, line: &Line<'_>) -> Option<Mistake> {
    if let Some(second) = after_brackets(line.content) {
        let message = "a second key on one line".to_string();
        let help = "write it on a line of its own, without the comma".to_string();
        return Some(Mistake { message, span: line.start + second..line.end(), help });
    }
    let mut columns: Vec<(usize, String)> = Vec::new();
    let mut above = line.above(text);
    while let Some(it) = above {
        let name = it.content.split(':').next().unwrap_or_default().to_string();
        if columns.last().is_none_or(|(column, _)| it.indent < *column) {
            columns.push((it.indent, name));
        }
        above = if it.indent == 0 { None } else { it.above(text) };
    }
    let deeper = columns.iter().rev().find(|(column, _)| *column > line.indent);
    let flatter = columns.iter().find(|(column, _)| *column < line.indent);
    let fits = |(column, name): &(usize, String)| format!("{}, as `{name}`", spaces(*column));
    let help = match (deeper, flatter) {
        (Some(deeper), Some(flatter)) => format!("{}, or {}", fits(deeper), fits(flatter)),
        (Some(one), None) | (None, Some(one)) => fits(one),
        (None, None) => return None,
    };
    let message = "the indentation of this line is that of no line above".to_string();
    let span = line.start..line.end();
    Some(Mistake { message, span, help: format!("indent it with {help}") })
}

/// Brackets open at byte `at`, outermost first. Quotes and comments are skipped.
fn open_brackets(text: &str, at: usize) -> Vec<usize> {
    let mut open = Vec::new();
    let mut quote = None;
    let mut before = '\n';
    let mut characters = text[..at].char_indices();
    while let Some((index, c)) = characters.next() {
        match (quote, c) {
            (Some('"'), '\\') => drop(characters.next()),
            (Some(mark), _) if mark == c => quote = None,
            (Some(_), _) => {}
            (None, '#') if before.is_whitespace() => {
                characters.by_ref().find(|(_, c)| *c == '\n');
            }
            // A quote within a word is one of its letters.
            (None, '"' | '\'') if before.is_whitespace() || "[{,:".contains(before) => {
                quote = Some(c);
            }
            (None, '{' | '[') if !open.is_empty() || before.is_whitespace() => open.push(index),
            (None, '}' | ']') => drop(open.pop()),
            _ => {}
        }
        before = c;
    }
    open
}

/// True for `NAME=value`, whose name no key of a policy is like.
fn is_setting(line: &str) -> bool {
    let name = line.strip_prefix("export ").unwrap_or(line).split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| {
        let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        is_name && name.contains(|c: char| c.is_ascii_uppercase())
    })
}

/// Format of a text that is none of YAML, by its first line, with the place of that line.
pub(super) fn other_format(text: &str) -> Option<(&'static str, Range<usize>)> {
    let lines = text.split_inclusive('\n').scan(0, |start, line| {
        let at = *start;
        *start += line.len();
        Some((at, line.trim_end()))
    });
    let (start, first) =
        lines.into_iter().find(|(_, line)| !line.is_empty() && !line.starts_with(['#', ';']))?;
    let is_section = first.starts_with('[')
        && first.ends_with(']')
        && !first.contains([',', ':', '{', '"', '\'']);
    let format = match first {
        _ if is_section => "a file with sections, such as INI or TOML",
        _ if first.starts_with('<') => "a file with tags, such as XML",
        _ if first.starts_with("-----BEGIN ") => "a key or a certificate",
        _ if is_setting(first) => "a file of settings `NAME=value`",
        _ => return None,
    };
    Some((format, start..start + first.len()))
}

/// Mistake between brackets, in the line of the open one.
fn on_one_line(text: &str, at: usize) -> Option<Mistake> {
    let start = text[..at].rfind(['{', '[', ','])? + 1;
    let entry = text[start..at].trim();
    if entry.is_empty() && text[at..].starts_with(',') {
        let message = "a comma without an entry before it".to_string();
        return Some(Mistake { message, span: at..at + 1, help: "remove it".to_string() });
    }
    let (first, second) = entry.rsplit_once(' ')?;
    let first = first.trim_end_matches([' ', ';']);
    let is_entry = first.contains(": ") && text[at..].starts_with(':');
    is_entry.then(|| Mistake {
        message: "no comma between two entries".to_string(),
        span: at - text[start..at].trim_start().len()..at,
        help: format!("write `{first}, {second}: …`"),
    })
}

fn in_brackets(
    text: &str,
    bracket: &usize,
    open: &[usize],
    at: usize,
    trouble: Trouble,
) -> Option<Mistake> {
    let closing = |index: &usize| if text[*index..].starts_with('{') { '}' } else { ']' };
    let line = Line::at(text, *bracket);
    let opening = &text[*bracket..*bracket + 1];
    let span = *bracket..*bracket + 1;
    if Line::at(text, at).start == line.start && at < text.len() {
        return on_one_line(text, at);
    }
    if open_brackets(text, text.len()).is_empty() && trouble != Trouble::Other {
        let above = Line::at(text, at).above(text)?;
        return Some(Mistake {
            message: "no comma between two entries".to_string(),
            span: above.end()..above.end(),
            help: format!("end this line with a comma, or close the `{opening}` above"),
        });
    }
    let of_line = open.iter().filter(|index| Line::at(text, **index).start == line.start);
    let missing: Vec<String> = of_line.rev().map(|index| closing(index).to_string()).collect();
    Some(Mistake {
        message: format!("this `{opening}` is not closed"),
        span,
        help: format!("add `{}` at the end of what belongs to it", missing.join(" ")),
    })
}
