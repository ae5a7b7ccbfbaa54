//! Patterns of cgroup paths: `*` and `?` within one name, never across a `/`.

/// Whether `pattern` fits `path`; both begin with `/`.
///
/// A pattern fits exactly the cgroups it names and not those below them.
pub fn matches(pattern: &str, path: &str) -> bool {
    let (mut patterns, mut names) = (pattern.split('/'), path.split('/'));
    loop {
        match (patterns.next(), names.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) if fits(pattern, name) => {}
            _ => return false,
        }
    }
}

/// Whether some path fits both patterns.
pub fn intersects(a: &str, b: &str) -> bool {
    let (mut left, mut right) = (a.split('/'), b.split('/'));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return true,
            (Some(a), Some(b)) if meet(a, b) => {}
            _ => return false,
        }
    }
}

/// The part of a pattern before its first wildcard.
pub fn literal_prefix(pattern: &str) -> &str {
    let end = pattern.find(['*', '?']).unwrap_or(pattern.len());
    &pattern[..end]
}

/// Greedy matching with one point of return: the last `*`. O(|pattern| × |name|) at worst.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (characters(pattern), characters(name));
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    (p, n) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Whether some name fits both: reachability in the product of the two patterns, O(|a| × |b|).
fn meet(a: &str, b: &str) -> bool {
    // Literal beginnings or ends that differ settle most pairs without the table.
    if differ(a.bytes().zip(b.bytes())) || differ(a.bytes().rev().zip(b.bytes().rev())) {
        return false;
    }
    let (a, b) = (characters(a), characters(b));
    // row[j]: some text is read by the characters of `a` so far and by the first j of `b`.
    let mut row = vec![false; b.len() + 1];
    row[0] = true;
    for (j, y) in b.iter().enumerate() {
        row[j + 1] = row[j] && *y == '*';
    }
    for x in a {
        let mut next = vec![row[0] && x == '*'];
        for (j, &y) in b.iter().enumerate() {
            let one_each = row[j] && (x == y || is_wild(x) || is_wild(y));
            let by_a_star = (x == '*' || y == '*') && (row[j + 1] || next[j]);
            next.push(one_each || by_a_star);
        }
        row = next;
    }
    row[b.len()]
}

/// Whether two texts differ in a letter before either has a wildcard.
fn differ(pairs: impl Iterator<Item = (u8, u8)>) -> bool {
    for (x, y) in pairs {
        if is_wild(x.into()) || is_wild(y.into()) {
            return false;
        }
        if x != y {
            return true;
        }
    }
    false
}

fn is_wild(c: char) -> bool {
    matches!(c, '*' | '?')
}

fn characters(text: &str) -> Vec<char> {
    text.chars().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wildcards_stay_within_one_name() {
        for (pattern, path, expected) in [
            ("/user.slice", "/user.slice", true),
            ("/user.slice", "/user.slice/user-1.slice", false),
            ("/*", "/a", true),
            ("/*", "/a/b", false),
            ("/user.slice/user-*.slice", "/user.slice/user-1000.slice", true),
            ("/user.slice/user-????.slice", "/user.slice/user-100.slice", false),
            ("/a*b*c", "/aXbbYc", true),
            ("/a?c", "/aéc", true),
            ("/a", "/", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn patterns_meet_where_a_path_fits_both() {
        for (a, b, expected) in [
            ("/a", "/a", true),
            ("/a*", "/*b", true),
            ("/a*", "/b*", false),
            ("/x/*", "/*/y", true),
            ("/x/*", "/x", false),
            ("/a?", "/a", false),
            ("/a?", "/?b", true),
            ("/*-1.slice", "/*-2.slice", false),
        ] {
            assert_eq!(intersects(a, b), expected, "{a} {b}");
            assert_eq!(intersects(b, a), expected, "{b} {a}");
        }
    }

    /// Every text over {a, b} of up to six letters.
    fn short_names() -> Vec<String> {
        let mut names = vec![String::new()];
        let mut from = 0;
        for _ in 0..6 {
            let until = names.len();
            for i in from..until {
                for letter in ["a", "b"] {
                    names.push(format!("{}{letter}", names[i]));
                }
            }
            from = until;
        }
        names
    }

    proptest! {
        /// Against every short text: two patterns of at most three signs that meet at all meet in six letters.
        #[test]
        fn meeting_is_what_the_texts_say(a in "[ab*?]{0,3}", b in "[ab*?]{0,3}") {
            let (pa, pb) = (format!("/{a}"), format!("/{b}"));
            let common = short_names().iter().map(|name| format!("/{name}")).any(|path| matches(&pa, &path) && matches(&pb, &path));
            prop_assert_eq!(intersects(&pa, &pb), common);
        }
    }
}
