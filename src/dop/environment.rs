//! How a program gets its width: environment variables and its arguments.
//!
//! The usual runtimes each read a variable of their own before they start threads. Variables that are
//! already set stay, because they were chosen for the program. Only `TENANTD_DOP` is always set: it is a fact
//! about this job, and a value inherited from an outer one would be wrong.
//!
//! A program that can resize while it runs watches `/run/tenantd/tenants/NAME/dop` instead.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The variable that is always set.
pub const TENANTD_DOP: &str = "TENANTD_DOP";

/// The placeholder of the width in the arguments of a command.
pub const PLACEHOLDER: &str = "{dop}";

/// The variables that a child of this width should get. `is_set` returns whether the environment has one
/// already.
///
/// | variable | read by |
/// |---|---|
/// | `OMP_NUM_THREADS` | OpenMP, and with it most BLAS libraries |
/// | `RAYON_NUM_THREADS` | rayon |
/// | `GOMAXPROCS` | the Go runtime |
/// | `MAKEFLAGS` | GNU make, as `-jN` |
pub fn variables(dop: u32, is_set: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
    let width = dop.max(1).to_string();
    let hints = [
        ("OMP_NUM_THREADS", width.clone()),
        ("RAYON_NUM_THREADS", width.clone()),
        ("GOMAXPROCS", width.clone()),
        ("MAKEFLAGS", format!("-j{width}")),
    ];
    let unset = hints.into_iter().filter(|(name, _)| !is_set(name));
    std::iter::once((TENANTD_DOP, width)).chain(unset).collect()
}

/// The argument with every `{dop}` replaced by the width. Bytes that are not text pass through.
pub fn substitute(argument: &OsStr, dop: u32) -> OsString {
    let (width, placeholder) = (dop.max(1).to_string(), PLACEHOLDER.as_bytes());
    let mut rest = argument.as_bytes();
    let mut result = Vec::with_capacity(rest.len());
    while let Some(at) = rest.windows(placeholder.len()).position(|window| window == placeholder) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(width.as_bytes());
        rest = &rest[at + placeholder.len()..];
    }
    result.extend_from_slice(rest);
    OsString::from_vec(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_runtime_has_its_variable() {
        let told = variables(6, |_| false);
        let names: Vec<&str> = told.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            ["TENANTD_DOP", "OMP_NUM_THREADS", "RAYON_NUM_THREADS", "GOMAXPROCS", "MAKEFLAGS"]
        );
        assert!(
            told.iter().all(
                |(name, value)| value == "6" || (*name, value.as_str()) == ("MAKEFLAGS", "-j6")
            )
        );
    }

    #[test]
    fn what_is_set_stays_except_our_own() {
        let told = variables(6, |name| name != "GOMAXPROCS");
        assert_eq!(told, [("TENANTD_DOP", "6".to_string()), ("GOMAXPROCS", "6".to_string())]);
    }

    #[test]
    fn every_placeholder_is_replaced() {
        for (argument, result) in [
            ("-j{dop}", "-j4"),
            ("{dop}{dop}", "44"),
            ("a={dop},b={dop}", "a=4,b=4"),
            ("{{dop}}", "{4}"),
            ("{DOP}", "{DOP}"),
            ("{dop", "{dop"),
            ("", ""),
        ] {
            assert_eq!(substitute(OsStr::new(argument), 4), result, "{argument}");
        }
        let bytes = OsStr::from_bytes(b"\xff{dop}\xfe");
        assert_eq!(substitute(bytes, 12).as_bytes(), b"\xff12\xfe");
    }

    #[test]
    fn no_runtime_gets_zero_threads() {
        assert!(variables(0, |_| false).iter().all(|(_, value)| value.ends_with('1')));
        assert_eq!(substitute(OsStr::new("{dop}"), 0), "1");
    }
}
