//! What is left when others have what they claim.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tenantd_policy::rest::{Claimed, Left};

fn claimed(cgroups: &[&str], has_systemd: bool) -> Claimed {
    let cgroups = cgroups.iter().map(|it| it.to_string()).collect();
    Claimed { cgroups, has_systemd, ..Claimed::default() }
}

#[test]
fn services_and_sessions_stay_whole_and_slices_are_divided() {
    let all = [
        "/init.scope",
        "/system.slice",
        "/system.slice/cron.service",
        "/system.slice/cron.service/below",
        "/system.slice/boot.mount",
        "/system.slice/db.service",
        "/system.slice/docker.service",
        "/system.slice/docker.service/x",
        "/system.slice/docker.service/y",
        "/user.slice",
        "/user.slice/user-1.slice",
        "/user.slice/user-1.slice/session-1.scope",
        "/user.slice/user-1.slice/session-2.scope",
        "/user.slice/user-2.slice",
        "/web",
        "/web/a",
    ];
    let parts = |claimed: &Claimed| claimed.parts(all.into_iter()).join(" ");
    let nobody = claimed(&[], true);
    assert_eq!(parts(&nobody), "/system.slice /user.slice /web");
    let one = claimed(&["/system.slice/db.service"], true);
    let services = "/system.slice/cron.service /system.slice/docker.service";
    assert_eq!(parts(&one), format!("{services} /user.slice /web"));
    // A unit may be known by its name alone, and a slice that was divided may stay so.
    let units = BTreeSet::from(["user-2.slice".to_string()]);
    let divided = BTreeSet::from(["/user.slice".to_string()]);
    let by_name = Claimed { units, divided, ..nobody };
    assert_eq!(parts(&by_name), "/system.slice /user.slice/user-1.slice /web");
    let inside = claimed(
        &["/system.slice/docker.service/x", "/user.slice/user-1.slice/session-1.scope", "/web/a"],
        true,
    );
    let session = "/user.slice/user-1.slice/session-2.scope";
    let expected = format!("/system.slice/cron.service /system.slice/db.service {session}");
    assert_eq!(parts(&inside), format!("{expected} /user.slice/user-2.slice"));
    // Without systemd these are names like any other.
    let plain = claimed(&["/system.slice/docker.service/x"], false);
    assert_eq!(plain.left_of("/init.scope"), Left::All);
    assert_eq!(plain.left_of("/system.slice/docker.service"), Left::Part);
    assert_eq!(plain.left_of("/system.slice/docker.service/y"), Left::All);
    assert_eq!(plain.left_of("/system.slice/boot.mount"), Left::All);
}

fn path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a.slice", "b.slice", "c.service", "d.scope", "e"]);
    let names = prop::collection::vec(name, 1..5);
    names.prop_map(|names| names.iter().map(|name| format!("/{name}")).collect())
}

fn is_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|below| below.starts_with('/'))
}

proptest! {
    #[test]
    fn parts_are_apart_from_what_is_claimed_and_from_each_other(
        paths in prop::collection::btree_set(path(), 1..40),
        picked in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        has_systemd in any::<bool>(),
    ) {
        // With all that is above them, as in a kernel.
        let ends = |path: &String| {
            path.match_indices('/').map(|(at, _)| path[..at].to_string()).chain([path.clone()]).collect::<Vec<_>>()
        };
        let all: BTreeSet<String> = paths.iter().flat_map(ends).filter(|path| !path.is_empty()).collect();
        let list: Vec<&String> = all.iter().collect();
        let taken: Vec<&str> = picked.iter().map(|index| index.get(&list).as_str()).collect();
        let claimed = claimed(&taken, has_systemd);
        let parts = claimed.parts(all.iter().map(String::as_str));
        for part in &parts {
            for other in taken.iter().chain(parts.iter().filter(|other| *other != part)) {
                prop_assert!(part != other && !is_within(part, other) && !is_within(other, part), "{part} {other}");
            }
        }
        for path in &all {
            let holders = parts.iter().filter(|part| path == *part || is_within(path, part)).count();
            let is_taken = taken.iter().any(|it| path == it || is_within(path, it));
            let is_divided = taken.iter().any(|it| is_within(it, path));
            // What is in a service beside a tenant is nobody's.
            let is_of_service = has_systemd && list.iter().any(|up| {
                let is_unit = up.ends_with(".service") || up.ends_with(".scope");
                is_unit && is_within(path, up) && taken.iter().any(|it| is_within(it, up))
            });
            match holders {
                0 => prop_assert!(is_taken || is_divided || is_of_service, "{path} is lost"),
                _ => prop_assert!(holders == 1 && !is_taken && !is_divided, "{path}"),
            }
        }
    }
}
