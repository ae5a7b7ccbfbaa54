//! The slice of a tenant: `tenants-NAME.slice`, and `tenants-GROUP-NAME.slice` below a group.
//!
//! A dash in the name of a slice means "below": `a-b.slice` is in `a.slice` (systemd.slice(5); `slice_verify`
//! in `src/core/slice.c` refuses any other place). So the tree of groups is the tree of slices, all of it is in
//! `tenants.slice`, and a dash in a tenant's own name is written `\x2d`, as by systemd-escape(1).

/// The slice that contains all slices of tenants.
pub const TOP: &str = "tenants.slice";

/// The longest name of a unit, in bytes (`UNIT_NAME_MAX`, less the terminating zero).
pub const BYTES_MAX: usize = 255;

/// Slice of the tenant at `path` (names joined by `/`); `None` if the name would be too long for a unit.
pub fn slice_name(path: &str) -> Option<String> {
    let mut name = TOP.trim_end_matches(".slice").to_string();
    for part in path.split('/') {
        name.push('-');
        name.push_str(&escaped(part));
    }
    name.push_str(".slice");
    (name.len() <= BYTES_MAX).then_some(name)
}

/// Every byte that is not a letter, a digit, `:`, `_` or `.` becomes `\xNN`.
fn escaped(part: &str) -> String {
    let mut escaped = String::with_capacity(part.len());
    for byte in part.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b':' | b'_' | b'.' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("\\x{byte:02x}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_nest_and_dashes_do_not() {
        let name = |path| slice_name(path).unwrap();
        assert_eq!(name("web"), "tenants-web.slice");
        assert_eq!(name("ci/nightly"), "tenants-ci-nightly.slice");
        assert_eq!(name("ci/pull-requests"), "tenants-ci-pull\\x2drequests.slice");
        assert_eq!(name("db_1.old"), "tenants-db_1.old.slice");
    }

    #[test]
    fn no_two_tenants_share_a_slice() {
        assert_ne!(slice_name("a-b"), slice_name("a/b"));
    }

    #[test]
    fn a_name_too_long_is_none() {
        let long = "n".repeat(64);
        assert!(slice_name(&long).is_some());
        assert_eq!(slice_name(&[long.as_str(); 4].join("/")), None);
    }
}
