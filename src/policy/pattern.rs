//! Patterns of cgroup paths: `*` and `?` within one name, never across a `/`.
//!
//! A pattern claims the cgroups that match it and everything below them: services make cgroups of their own,
//! and to claim a slice is to claim what runs in it. Two patterns overlap where one cgroup is claimed by
//! both, as with `/a` and `/a/b`.

/// Whether `pattern` claims the cgroup at `path`; both begin with `/`. No pattern claims the root, which has
/// no name.
pub fn claims(pattern: &str, path: &str) -> bool {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
    pattern.split('/').all(|pattern| names.next().is_some_and(|name| fits(pattern, name)))
}

/// Whether some cgroup is claimed by both patterns. Adds the cost to `work`: 16 for the comparison, and the
/// product of the lengths of those names whose ends do not decide it.
pub fn overlap(a: &str, b: &str, work: &mut usize) -> bool {
    *work += 16;
    // Everything below the shorter pattern is claimed: only the names that both have can differ.
    a.split('/').zip(b.split('/')).all(|(a, b)| meet(a, b, work))
}

/// Whether it fits more than one name.
pub fn has_wildcard(pattern: &str) -> bool {
    pattern.contains(['*', '?'])
}

/// The part of a pattern before its first wildcard.
pub fn literal_prefix(pattern: &str) -> &str {
    let end = pattern.find(['*', '?']).unwrap_or(pattern.len());
    &pattern[..end]
}

/// Whether a name fits a pattern for one name.
///
/// Greedy matching with one point of return: the last `*`. O(|pattern| × |name|) at worst.
pub fn fits(pattern: &str, name: &str) -> bool {
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
fn meet(a: &str, b: &str, work: &mut usize) -> bool {
    // Literal beginnings or ends that differ settle most pairs without the table.
    if differ(a.bytes().zip(b.bytes())) || differ(a.bytes().rev().zip(b.bytes().rev())) {
        return false;
    }
    *work += a.len() * b.len();
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
