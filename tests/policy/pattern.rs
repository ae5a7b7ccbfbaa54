//! Patterns of cgroup paths: what they claim, and where two of them overlap.

use tenantd_policy::pattern::{claims, overlap};

#[test]
fn wildcards_stay_within_one_name() {
    for (pattern, path, expected) in [
        ("/user.slice", "/user.slice", true),
        ("/user.slice", "/user.slice/user-1.slice", true),
        ("/user.slice", "/user.slice2", false),
        ("/user.slice/a", "/user.slice", false),
        ("/*", "/a", true),
        ("/*/b", "/a/c/b", false),
        ("/user.slice/user-*.slice", "/user.slice/user-1000.slice/session-2.scope", true),
        ("/user.slice/user-????.slice", "/user.slice/user-100.slice", false),
        ("/a*b*c", "/aXbbYc", true),
        ("/a?c", "/aéc", true),
        ("/a", "/", false),
        ("/*", "/", false),
        ("/*/*", "/a", false),
        ("/*/*", "/a/", false),
    ] {
        assert_eq!(claims(pattern, path), expected, "{pattern} {path}");
    }
}

#[test]
fn patterns_overlap_where_a_cgroup_is_claimed_by_both() {
    for (a, b, expected) in [
        ("/a", "/a", true),
        ("/a", "/a/b", true),
        ("/a", "/ab", false),
        ("/a*", "/*b", true),
        ("/a*", "/b*", false),
        ("/x/*", "/*/y/z", true),
        ("/x/*", "/y", false),
        ("/a?", "/a", false),
        ("/a?", "/?b", true),
        ("/*-1.slice", "/*-2.slice", false),
    ] {
        assert_eq!(overlap(a, b, &mut 0), expected, "{a} {b}");
        assert_eq!(overlap(b, a, &mut 0), expected, "{b} {a}");
    }
}

/// Every text of `signs` with at most `longest` of them.
fn texts(signs: &[&str], longest: usize) -> Vec<String> {
    let mut texts = vec![String::new()];
    let mut from = 0;
    for _ in 0..longest {
        let until = texts.len();
        for index in from..until {
            texts.extend(
                signs.iter().map(|sign| format!("{}{sign}", texts[index])).collect::<Vec<_>>(),
            );
        }
        from = until;
    }
    texts
}

/// All patterns of at most three signs against all names of at most six letters: two such patterns
/// that meet at all meet in one of these names.
#[test]
fn patterns_meet_exactly_where_a_name_fits_both() {
    let mut names = texts(&["a", "b"], 6);
    // A cgroup without a name is the root, which nothing claims.
    names.retain(|name| !name.is_empty());
    assert!(names.len() <= 128);
    let fitting = |pattern: &str| {
        let bit = |(index, name): (usize, &String)| {
            u128::from(claims(&format!("/{pattern}"), &format!("/{name}"))) << index
        };
        names.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
    };
    let patterns: Vec<(String, u128)> = texts(&["a", "b", "*", "?"], 3)
        .into_iter()
        .filter(|p| !p.is_empty())
        .map(|p| (p.clone(), fitting(&p)))
        .collect();
    for (a, fits_a) in &patterns {
        for (b, fits_b) in &patterns {
            assert_eq!(
                overlap(&format!("/{a}"), &format!("/{b}"), &mut 0),
                fits_a & fits_b != 0,
                "{a} {b}"
            );
        }
    }
}
