//! Patterns of cgroup paths: `*` and `?` within one name, never across a `/`; `**` for any number of names.
//!
//! A pattern claims the cgroups that match it and everything below them: services make cgroups of their
//! own, and a claim on a slice covers all processes in it. Two patterns overlap if both claim one cgroup,
//! as with `/a` and `/a/b`. Behind a `**` they overlap only if one cgroup matches both; of two nested ones
//! the first counts.

/// Any number of names, including none; the last name of a pattern is a name of its own.
pub const ANY_DEPTH: &str = "**";

/// True if `pattern` claims the cgroup at `path`; both begin with `/`. No pattern claims the root, which
/// has no name.
pub fn claims(pattern: &str, path: &str) -> bool {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    let pattern: Vec<&str> = names_of(pattern);
    if !pattern.contains(&ANY_DEPTH) {
        return pattern.iter().all(|pattern| names.next().is_some_and(|name| fits(pattern, name)));
    }
    let mut reached = begin(&pattern);
    names.any(|name| {
        reached = step(&pattern, &reached, name);
        is_match(&pattern, &reached)
    })
}

/// True if no name of a pattern has a letter of its own, so that it fits whatever is at its depth.
pub fn names_none(pattern: &str) -> bool {
    let is_any = |name: &str| name.contains('*') && name.chars().all(|c| matches!(c, '*' | '?'));
    names_of(pattern).into_iter().all(is_any)
}

/// Names of a path or a pattern.
pub fn names_of(path: &str) -> Vec<&str> {
    path.split('/').filter(|name| !name.is_empty()).collect()
}

/// Match state for the empty path: the indices in the pattern of the names that may be next.
pub fn begin(pattern: &[&str]) -> Vec<usize> {
    let mut reached = Vec::new();
    reach(pattern, 0, &mut reached);
    reached
}

/// Match state after one more `name`; empty if nothing below can match.
pub fn step(pattern: &[&str], reached: &[usize], name: &str) -> Vec<usize> {
    let mut next = Vec::new();
    for at in reached {
        match pattern.get(*at) {
            Some(&ANY_DEPTH) => reach(pattern, *at, &mut next),
            Some(wanted) if fits(wanted, name) => reach(pattern, at + 1, &mut next),
            _ => {}
        }
    }
    next
}

/// True if a path with this match state matches.
pub fn is_match(pattern: &[&str], reached: &[usize]) -> bool {
    reached.contains(&pattern.len())
}

fn reach(pattern: &[&str], at: usize, reached: &mut Vec<usize>) {
    if !reached.contains(&at) {
        reached.push(at);
        if pattern.get(at) == Some(&ANY_DEPTH) {
            reach(pattern, at + 1, reached);
        }
    }
}

/// True if the cgroup at `path` itself fits `pattern`.
pub fn is_at(pattern: &str, path: &str) -> bool {
    let pattern = names_of(pattern);
    let names = names_of(path).into_iter();
    let reached = names.fold(begin(&pattern), |reached, name| step(&pattern, &reached, name));
    is_match(&pattern, &reached)
}

/// True if both patterns claim some cgroup. Adds the cost to `work`: 16 for the comparison, and the product
/// of the lengths of those names whose ends do not decide it.
pub fn overlap(a: &str, b: &str, work: &mut usize) -> bool {
    *work += 16;
    let (a, b) = (names_of(a), names_of(b));
    let depth = |names: &[&str]| names.iter().position(|name| *name == ANY_DEPTH);
    let fixed = depth(&a).unwrap_or(a.len()).min(depth(&b).unwrap_or(b.len()));
    // Everything below the shorter pattern is claimed, so only the names that both have can differ.
    let begin_alike = a.iter().zip(&b).take(fixed).all(|(a, b)| meet(a, b, work));
    let is_all_below = fixed == a.len() || fixed == b.len();
    begin_alike && (is_all_below || match_both(&a, &b, work))
}

/// True if some path matches both: reachability in the product of their names.
fn match_both(a: &[&str], b: &[&str], work: &mut usize) -> bool {
    // reached[i][j]: some path is read by the first i names of `a` and the first j of `b`.
    let mut reached = vec![vec![false; b.len() + 1]; a.len() + 1];
    reached[0][0] = true;
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            if !reached[i][j] {
                continue;
            }
            let (of_a, of_b) = (a.get(i).copied(), b.get(j).copied());
            // A `**` ends, or reads one more name of the other.
            if of_a == Some(ANY_DEPTH) {
                reached[i + 1][j] = true;
                reached[i][(j + 1).min(b.len())] = true;
            }
            if of_b == Some(ANY_DEPTH) {
                reached[i][j + 1] = true;
                reached[(i + 1).min(a.len())][j] = true;
            }
            if let (Some(x), Some(y)) = (of_a, of_b)
                && x != ANY_DEPTH
                && y != ANY_DEPTH
                && meet(x, y, work)
            {
                reached[i + 1][j + 1] = true;
            }
        }
    }
    reached[a.len()][b.len()]
}

/// True if it fits more than one name.
pub fn has_wildcard(pattern: &str) -> bool {
    pattern.contains(['*', '?'])
}

/// Part of a pattern before its first wildcard.
pub fn literal_prefix(pattern: &str) -> &str {
    let end = pattern.find(['*', '?']).unwrap_or(pattern.len());
    &pattern[..end]
}

/// True if a name fits a pattern for one name.
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

/// True if some name fits both: reachability in the product of the two patterns, O(|a| × |b|).
fn meet(a: &str, b: &str, work: &mut usize) -> bool {
    // Differing literal beginnings or ends settle most pairs without the table.
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

/// True if two texts differ in a letter before either has a wildcard.
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
