//! Names for messages: lists of them, and the probable correction of a misspelling.

/// `a, b, c` with each in backticks.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// The name nearest to `wrong`, if it may be a misspelling of it.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let misspelling = Misspelling::new(wrong);
    let near = names.into_iter().filter_map(|name| Some((misspelling.distance(name)?, name)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// At most `max` paths that `wrong`, or its last name, may misspell; nearest first. The cost is a few steps
/// per letter, mostly for the first letters only, because clients call this.
pub fn near_paths<'a>(
    wrong: &str,
    paths: impl IntoIterator<Item = &'a str>,
    max: usize,
) -> Vec<&'a str> {
    let misspelling = Misspelling::new(wrong);
    let distance = |path: &str| {
        let last = path.rsplit_once('/').and_then(|(_, last)| misspelling.distance(last));
        misspelling.distance(path).into_iter().chain(last).min()
    };
    let near = paths.into_iter().filter_map(|path| Some((distance(path)?, path)));
    let mut near: Vec<(usize, &str)> = near.collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(max).map(|(_, path)| path).collect()
}

const COMPARED: usize = 64;

/// The compared letters of a name. Case is no difference: `CPU` is a misspelling of `cpu`.
fn letters(name: &str) -> Vec<char> {
    name.chars().take(COMPARED).map(|c| c.to_ascii_lowercase()).collect()
}

/// An unknown name, and its largest distance to an intended one.
struct Misspelling {
    letters: Vec<char>,
    reach: usize,
}

impl Misspelling {
    fn new(wrong: &str) -> Misspelling {
        // Two typing errors in a word of six letters are a misspelling; in a word of three they make a
        // different word. Names that exist are compared in full, so a longer one does not match.
        let letters: Vec<char> = letters(wrong);
        let reach = (letters.len() / 3).clamp(1, 3);
        Misspelling { letters, reach }
    }

    /// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours;
    /// `None` beyond the reach. Only cells within the reach of the diagonal are computed, and only rows up
    /// to the first without any.
    fn distance(&self, name: &str) -> Option<usize> {
        let (a, reach) = (&self.letters, self.reach);
        let b: Vec<char> = letters(name);
        if a.len().abs_diff(b.len()) > reach {
            return None;
        }
        let beyond = reach + 1;
        let mut before_last = vec![beyond; b.len() + 1];
        let mut last: Vec<usize> = (0..=b.len()).map(|j| j.min(beyond)).collect();
        for i in 1..=a.len() {
            let mut row = vec![beyond; b.len() + 1];
            row[0] = i.min(beyond);
            for j in i.saturating_sub(reach).max(1)..=(i + reach).min(b.len()) {
                let substitution = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = substitution.min(last[j] + 1).min(row[j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(before_last[j - 2] + 1);
                }
                row[j] = best.min(beyond);
            }
            if row.iter().all(|distance| *distance > reach) {
                return None;
            }
            before_last = std::mem::replace(&mut last, row);
        }
        Some(last[b.len()]).filter(|distance| *distance <= reach)
    }
}

/// The remedy for a variable.
pub(super) const VARIABLES: &str =
    "variables are not expanded: write the value, or let another program fill in the file";

/// The remedy for characters that make a text meaningless wherever it is: variables, typographic characters, and
/// comments of another language.
pub(super) fn oddity(text: &str) -> Option<&'static str> {
    const SPACES: &[char] = &['\u{a0}', '\u{2007}', '\u{202f}', '\u{200b}', '\u{feff}', '\u{3000}'];
    const QUOTES: &[char] = &['“', '”', '„', '‘', '’', '«', '»'];
    let is_variable = ["${", "{{", "$(", "<%"].iter().any(|mark| text.contains(mark))
        || text.strip_prefix('$').is_some_and(|name| name.starts_with(char::is_alphabetic));
    if is_variable {
        Some(VARIABLES)
    } else if text.contains(SPACES) {
        Some("it has a no-break or invisible space, which is a letter in YAML: write a plain space")
    } else if text.contains(QUOTES) {
        Some("typographic quotes are letters in YAML: write plain ones, `\"` or `'`, or none")
    } else if text.starts_with("//") || text.starts_with("/*") {
        Some("a comment begins with `#`")
    } else {
        None
    }
}

/// Cuts a foreign text to the length of a message.
pub fn shortened(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Textbook table of the distance, as a reference.
    fn in_full(a: &[char], b: &[char]) -> usize {
        let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in 0..=a.len() {
            for j in 0..=b.len() {
                table[i][j] = match (i, j) {
                    (0, _) | (_, 0) => i + j,
                    _ => {
                        let changed = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                        let shifted = table[i - 1][j].min(table[i][j - 1]) + 1;
                        let swaps = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                        let swapped = if swaps { table[i - 2][j - 2] + 1 } else { usize::MAX };
                        changed.min(shifted).min(swapped)
                    }
                };
            }
        }
        table[a.len()][b.len()]
    }

    #[test]
    fn the_bounded_distance_is_the_full_one_within_its_reach() {
        let mut words = vec![String::new()];
        for at in 0..31 {
            let word: String = words[at].clone();
            words.extend(["a", "b"].map(|letter| format!("{word}{letter}")));
        }
        words.extend(
            ["abcdefghij", "abdcefghij", "bcdefghijk", "abcdefg", "xbcdyfgzij"].map(String::from),
        );
        for a in &words {
            let misspelling = Misspelling::new(a);
            for b in &words {
                let (letters, of_b) = (misspelling.letters.clone(), b.chars().collect::<Vec<_>>());
                let full = Some(in_full(&letters, &of_b)).filter(|it| *it <= misspelling.reach);
                assert_eq!(misspelling.distance(b), full, "{a} {b}");
            }
        }
    }

    #[test]
    fn the_nearest_paths_come_first_and_the_last_name_alone_is_enough() {
        let paths = ["web", "ci/nightly", "ci/weekly", "database", "data"];
        assert_eq!(near_paths("nihgtly", paths, 10), ["ci/nightly"]);
        assert_eq!(near_paths("ci/weekli", paths, 10), ["ci/weekly"]);
        assert_eq!(near_paths("dat", paths, 10), ["data"]);
        assert!(near_paths(&"x".repeat(60_000), paths, 10).is_empty());
    }
}
