//! Figures and text for a terminal of 80 columns.

use std::time::Duration;

use tenantd_core::kernel_text::cleaned;
use tenantd_core::resource::{MEMORY, PerResource};
use tenantd_core::units::Bytes;

/// Columns of a line.
pub const WIDTH: usize = 80;

/// Name of a tenant's share with the present demands and other load.
pub const SHARE_NOW: &str = "share now";
/// Name of a tenant's share if all tenants want everything.
pub const SHARE_IF_BUSY: &str = "share if busy";
/// Both names as the head of a column in two lines.
pub const SHARE_HEADS: [[&str; 2]; 2] = [["share", "now"], ["share", "if busy"]];

/// Credit in seconds, and the factor of a raised weight: `44s×19`.
pub fn credit(credit: Option<(f64, f64)>) -> String {
    match credit {
        None => "-".to_string(),
        Some((seconds, factor)) if factor > 1.0 => format!("{seconds:.0}s×{factor:.0}"),
        Some((seconds, _)) => format!("{seconds:.0}s"),
    }
}

/// An amount of memory.
pub fn memory(bytes: f64) -> String {
    Bytes(bytes.max(0.0) as u64).rounded()
}

/// Most names in a list.
const NAMES_MAX: usize = 5;

/// At most five names with commas, then the number of the others: `a, b, c, d, e, and 3 more`.
pub fn names(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut names = names.into_iter();
    let first: Vec<String> =
        names.by_ref().take(NAMES_MAX).map(|it| visible(it.as_ref())).collect();
    match names.count() {
        0 => first.join(", "),
        more => format!("{}, and {more} more", first.join(", ")),
    }
}

/// `once`, or a number of times.
pub fn times(count: u64) -> String {
    match count {
        1 => "once".to_string(),
        _ => format!("{count} times"),
    }
}

/// Shortage of each resource in words; `None` without a known shortage.
pub fn missing(amounts: &PerResource<Option<f64>>) -> Option<String> {
    let missing = amounts.iter().filter_map(|(r, amount)| {
        amount.filter(|amount| *amount > 0.0).map(|amount| match r {
            MEMORY => format!("{} of memory", memory(amount)),
            _ => r.figure(amount),
        })
    });
    let missing: Vec<String> = missing.collect();
    (!missing.is_empty()).then(|| missing.join(" and "))
}

/// Shortage of a tenant as a predicate: `lacks …`, or `is held back` if no amount is known.
pub fn lacks(amounts: &PerResource<Option<f64>>) -> String {
    missing(amounts).map_or("is held back".to_string(), |missing| format!("lacks {missing}"))
}

/// A number of CPUs; `-` if it is absent.
pub fn cores(cores: Option<f64>) -> String {
    cores.map_or("-".to_string(), |cores| format!("{cores:.2}"))
}

/// An age in the largest unit that keeps it a whole number above 1.
pub fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// A share from 0 to 1; `-` if it is absent.
pub fn percent(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_string(), |ratio| format!("{:.1}%", ratio * 100.0))
}

/// A number of any size, in at most four significant digits or so.
pub fn short(number: f64) -> String {
    let trimmed = |digits: &str| {
        if digits.contains('.') {
            digits.trim_end_matches('0').trim_end_matches('.').to_string()
        } else {
            digits.to_string()
        }
    };
    match number.abs() {
        size if size >= 1e6 || (size > 0.0 && size < 1e-3) => {
            let text = format!("{number:.3e}");
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            format!("{}e{exponent}", trimmed(digits))
        }
        size if size >= 1000.0 => format!("{number:.0}"),
        _ => trimmed(&format!("{number:.3}")),
    }
}

/// A number of seconds as a time.
pub fn seconds(seconds: f64) -> String {
    match seconds.abs() {
        // Rounding noise around zero has no sign.
        size if size < 5e-6 => "0.000 s".to_string(),
        size if size < 0.0995 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{seconds:.3} s"),
    }
}

/// A number for JSON, without rounding noise in its last bits.
pub fn plain(number: f64) -> f64 {
    let scaled = number * 1e9;
    if scaled.abs() < 1e15 { scaled.round() / 1e9 } else { number }
}

/// Replaces control characters: a name in an input file may have any, and a terminal interprets them.
pub fn visible(name: &str) -> String {
    cleaned(name)
}

/// At most `width` characters of a text, made [`visible`]: a longer one loses its middle.
pub fn shortened(text: &str, width: usize) -> String {
    let text = &visible(text);
    let count = text.chars().count();
    if count <= width {
        return text.to_string();
    }
    let (head, tail) = (width / 2, width - width / 2 - 1);
    let head: String = text.chars().take(head).collect();
    let tail: String = text.chars().skip(count - tail).collect();
    format!("{head}…{tail}")
}

/// `text` in lines that fit the terminal: the first after `lead`, the others aligned below it. Both are made
/// [`visible`] here, so that no caller can forget it.
pub fn wrapped(lead: &str, text: &str) -> String {
    wrapped_at(WIDTH, lead, text)
}

/// Same as [`wrapped`], for an output that is `width` characters wide.
pub fn wrapped_at(width: usize, lead: &str, text: &str) -> String {
    let (lead, text) = (visible(lead), visible(&text.replace('\n', " ")));
    let indent = lead.chars().count();
    let width = width.saturating_sub(indent).max(20);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    format!("{lead}{}", lines.join(&format!("\n{:indent$}", "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_loses_its_middle() {
        assert_eq!(shortened("web", 8), "web");
        assert_eq!(shortened("customers/acme/nightly", 9), "cust…htly");
        assert_eq!(shortened("customers/acme/nightly", 9).chars().count(), 9);
    }

    #[test]
    fn texts_for_a_terminal_hold_no_control_characters() {
        let hostile = "a\u{1b}]0;owned\u{7}b\u{9b}c\u{202e}d\re";
        let shown = "a\u{fffd}]0;owned\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e";
        assert_eq!(shortened(hostile, 40), shown);
        assert_eq!(wrapped("", hostile), shown);
        assert_eq!(wrapped(&format!("{hostile}: "), "x"), format!("{shown}: x"));
    }

    #[test]
    fn a_list_has_five_names_and_a_number() {
        let all = ["a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(names(&all[..0]), "");
        assert_eq!(names(&all[..5]), "a, b, c, d, e");
        assert_eq!(names(all), "a, b, c, d, e, and 2 more");
    }

    #[test]
    fn numbers_of_any_size_are_short() {
        let shown = [0.0, 0.25, -1.5, 16.0, 250.0, 1234.5, 2e6, 1.2345e9, 4.2e-5].map(short);
        assert_eq!(shown, ["0", "0.25", "-1.5", "16", "250", "1234", "2e6", "1.234e9", "4.2e-5"]);
    }

    #[test]
    fn a_long_text_is_wrapped_below_its_beginning() {
        let text = wrapped("note: ", &"word ".repeat(20));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().nth(1).unwrap().starts_with("      word"), "{text}");
        assert_eq!(wrapped("a: ", ""), "a: ");
    }
}
