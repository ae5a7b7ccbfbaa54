//! What names, units, accounts, paths and lists of CPUs may look like, through the policies that have them.

use tenantd_policy::hint::{listed, nearest};
use tenantd_policy::load_text;
use tenantd_policy::model::{CpusPolicy, RootChoice};
use tenantd_policy::report::Severity;

/// The codes of the errors of a policy.
fn errors(text: &str) -> Vec<&'static str> {
    let Err(report) = load_text("policy.yaml", text) else { return Vec::new() };
    let findings = report.findings().iter();
    findings.filter(|f| f.severity == Severity::Error).map(|f| f.code).collect()
}

fn of_tenant(key: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('\n', "\\n").replace('\u{7}', "\\a");
    format!("version: 1\ntenants: {{ t: {{ {} }} }}\n", key.replace('@', &format!("\"{value}\"")))
}

#[test]
fn names_are_safe_below_a_cgroup() {
    let named = |name: &str| {
        format!("version: 1\ntenants: {{ \"{}\": {{}} }}\n", name.replace('\n', "\\n"))
    };
    let longest = "x".repeat(64);
    for name in [
        "web",
        "a.b",
        "x-1_y",
        "1",
        "_",
        "cpux",
        "cpu-x",
        "tasks2",
        "user.slice",
        "tenantd",
        &longest,
    ] {
        assert_eq!(errors(&named(name)), [""; 0], "{name}");
    }
    let too_long = format!("{longest}x");
    for name in [
        "",
        ".",
        "..",
        ".a",
        "-a",
        "a/b",
        "a b",
        "é",
        "a\n",
        "cpu.max",
        "cgroup.procs",
        "memory.x",
        "io.weight",
        "tasks",
        "release_agent",
        "notify_on_release",
        "hugetlb.2MB.max",
        "tenantd.agent",
        "tenantd.rest",
        "tenantd.",
        &too_long,
    ] {
        assert_eq!(errors(&named(name)), ["P027"], "{name}");
    }
}

#[test]
fn units_and_accounts_are_distinguished_from_other_texts() {
    let unit = |name: &str| errors(&of_tenant("match: { unit: @ }", name));
    for name in ["nginx.service", "user-1000.slice", "run-r1\\x2d.scope", "getty@tty1.service"] {
        assert_eq!(unit(name), [""; 0], "{name}");
    }
    for (name, said) in [
        ("nginx", "say `nginx.service`"),
        ("php8.2-fpm", "say `php8.2-fpm.service`"),
        ("a.socket", "end in `.service`"),
        ("a/b.service", "letters, digits"),
        ("a b.service", "letters, digits"),
        (".service", "letters, digits"),
        (".slic", "end in `.service`"),
        ("getty@.service", "an instance, `getty@1.service`"),
        ("-.slice", "every process"),
        ("a--b.slice", "single dashes"),
        ("-a.slice", "single dashes"),
    ] {
        assert_eq!(unit(name), ["P031"], "{name}");
        let report = load_text("policy.yaml", &of_tenant("match: { unit: @ }", name)).unwrap_err();
        let help = report.findings()[0].help.clone().unwrap();
        assert!(help.contains(said), "{name}: {help}");
    }
    let user = |name: &str| errors(&of_tenant("match: { users: @ }", name));
    for name in
        ["ana", "1000", "svc_build$", "DOMAIN\\ana", "ana@example.org", "domain users", "+7"]
    {
        assert_eq!(user(name), [""; 0], "{name}");
    }
    for name in ["ana,bob", "a:b", "a/b", "*", "a\u{7}", " ana", "ana ", "a\nb"] {
        assert_eq!(user(name), ["P031"], "{name:?}");
    }
    // Without quotes it looks like two names.
    for text in [
        "match: { users: ana bob }",
        "match: { groups: [domain users] }",
        "allow: { users: ana bob }",
    ] {
        let policy = format!("version: 1\ntenants: {{ t: {{ {text} }} }}\n");
        let report = load_text("policy.yaml", &policy).unwrap_err();
        let help = report.findings()[0].help.clone().unwrap();
        assert!(help.contains("one with a space has quotes"), "{text}: {help}");
    }
}

#[test]
fn paths_are_brought_to_one_form() {
    for (path, normal) in [("/a/b", "/a/b"), ("a//b/", "a/b"), ("/", "/"), ("/a..b/.c", "/a..b/.c")]
    {
        let text = format!("version: 1\nhost: {{ root: {path} }}\ntenants: {{ t: }}\n");
        let root = load_text("policy.yaml", &text).unwrap().policy.host.root;
        assert_eq!(root, RootChoice::Path(normal.into()), "{path}");
    }
    let text = of_tenant("match: { cgroup: @ }", "a-*//b?/");
    let policy = load_text("policy.yaml", &text).unwrap().policy;
    assert_eq!(policy.tenants[0].matches.cgroups, ["/a-*/b?"]);
}

#[test]
fn paths_stay_within_the_hierarchy() {
    let pattern = |path: &str| errors(&of_tenant("match: { cgroup: @ }", path));
    for path in ["..", "/..", "a/../b", "/a/./b", "/sys/fs/cgroup/a", "/proc/self", "./a"] {
        assert_eq!(pattern(path), ["P032"], "{path}");
    }
    let long = format!("/{}", "x".repeat(256));
    for path in ["/", "/a/**", "/a[0-9]", "/{a,b}", "/a\nb", &long] {
        assert_eq!(pattern(path), ["P031"], "{path}");
    }
    // The cgroups of all programs: that is what `rest` is for.
    for path in ["/*", "*", "//*/", "/?*", "/**/*", "/*/*"] {
        assert_eq!(pattern(path), ["P031"], "{path}");
    }
    for path in ["/a*", "/*/jobs", "/jobs/*", "/**/a", "/?"] {
        assert_eq!(pattern(path), [""; 0], "{path}");
    }
}

#[test]
fn lists_of_cpus_are_sorted_sets() {
    let set = |list: &str| {
        let policy = load_text("policy.yaml", &of_tenant("cpus: @", list)).ok()?.policy;
        match &policy.tenants[0].cpus {
            CpusPolicy::Fixed(cpus) => Some(cpus.clone()),
            _ => None,
        }
    };
    for (list, cpus) in [
        ("0", vec![0]),
        ("0-3,8", vec![0, 1, 2, 3, 8]),
        ("8,0-1, 1-2", vec![0, 1, 2, 8]),
        ("8191", vec![8191]),
    ] {
        assert_eq!(set(list), Some(cpus), "{list}");
    }
    for list in ["", ",", "0-", "-1", "3-1", "0..3", "a", "8192", "0-4294967295", "1.5", "0-3:2"] {
        assert_eq!(set(list), None, "{list}");
    }
    let repeated = "0-8191,".repeat(2000);
    assert_eq!(set(repeated.trim_end_matches(',')).map(|cpus| cpus.len()), Some(8192));
}

#[test]
fn a_misspelling_is_close_and_another_word_is_not() {
    for (wrong, near) in [
        ("capactiy", Some("capacity")),
        ("memroy", Some("memory")),
        ("ci", None),
        ("cp", Some("cpu")),
        ("gpu", Some("cpu")),
        ("", None),
    ] {
        assert_eq!(nearest(wrong, ["cpu", "memory", "capacity"]), near, "{wrong}");
    }
    assert_eq!(listed(["a", "b"]), "`a`, `b`");
}
