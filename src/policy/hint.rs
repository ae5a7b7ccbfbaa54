//! Names for messages: lists of them, and the probable correction of a misspelling.

/// `a, b, c` with each in backticks.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// The name nearest to `wrong`, if it is near enough to be a misspelling of it.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Two typing errors in a word of six letters are a misspelling; in a word of three they make a different
    // word.
    let reach = (wrong.chars().count() / 3).clamp(1, 3);
    let near = names.into_iter().map(|name| (edit_distance(wrong, name, reach), name));
    near.filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, n)| n)
}

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
///
/// Anything above `reach` yields `reach + 1`, without the work, where the lengths alone show it.
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

/// A text from outside, cut to the length of a message.
pub fn shortened(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}
