//! Texts that are no YAML, and trees that are no policy: the finding is at the line of the mistake and says
//! what to write.

use tenantd_policy::load_text;
use tenantd_policy::parse::{Budget, Fault, tree};

/// A text, and where what is found: line, column, message, help.
type Mistake = (&'static str, (usize, usize), &'static str, &'static str);

const MISTAKES: &[Mistake] = &[
    (
        "version: 1\nmode enforce\ntenants:\n  web: { weight: 300 }\n",
        (2, 1),
        "`mode` has no colon",
        "write `mode: enforce`",
    ),
    (
        "version: 1\ntenants:\n  web:\n    weight 300\n    limit: { cpu: 2 }\n",
        (4, 5),
        "`weight` has no colon",
        "write `weight: 300`",
    ),
    (
        "version: 1\ntenants\n  web: { weight: 300 }\n",
        (2, 1),
        "`tenants` has no colon",
        "write `tenants:`",
    ),
    (
        "version: 1\ntenants:\n  web:\n    weight: 300\n   limit: { cpu: 2 }\n  ci: {}\n",
        (5, 4),
        "the indentation of this line is that of no line above",
        "indent it with 4 spaces, as `weight`, or 2 spaces, as `web`",
    ),
    (
        "version: 1\ntenants:\n  web:\n    weight: 300\n      limit: { cpu: 2 }\n  ci: {}\n",
        (5, 7),
        "this line is indented deeper than the one above, which has a value",
        "indent it with 4 spaces, as `weight`",
    ),
    (
        "version: 1\ntenants:\n  web: { weight: 300, limit: { cpu: 2 }\n  ci: { weight: 100 }\n  db: { weight: 100 }\n",
        (3, 8),
        "this `{` is not closed",
        "add `}` at the end of what belongs to it",
    ),
    (
        "version: 1\nhost: { reserve: { cpu: 1\ntenants:\n  web: {}\n",
        (2, 18),
        "this `{` is not closed",
        "add `} }` at the end of what belongs to it",
    ),
    (
        "version: 1\ntenants:\n  web: { match: { users: [ana, bob }\n  ci: {}\n",
        (3, 26),
        "this `[` is closed by `}`",
        "close it with `]` before the `}`",
    ),
    (
        "version: 1\ntenants:\n  web: { match: { cgroup: \"/web } }\n  ci: {}\n",
        (3, 27),
        "this quote is not closed",
        "close it on the same line",
    ),
    (
        "version: 1\n tenants:\n  web: {}\n",
        (2, 2),
        "this line is indented deeper than the one above, which has a value",
        "indent it with no spaces, as `version`",
    ),
    (
        "version:1\ntenants:\n  web: {}\n",
        (1, 1),
        "no space after the colon of `version`",
        "write `version: 1`",
    ),
    (
        "version: 1\ntenants:\n  web:\n  \tweight: 300\n",
        (4, 4),
        "a tab in the indentation",
        "indent with spaces",
    ),
    (
        "version: 1\ntenants:\n  web: { weight: 300 } }\n  ci: {}\n",
        (3, 24),
        "this `}` closes nothing",
        "remove it, or add the opening one before it",
    ),
    (
        "version: 1\ntenants:\n  web: weight: 300\n  ci: {}\n",
        (3, 8),
        "a second key on one line",
        "write `web: { weight: 300 }`, or the second on a line of its own",
    ),
    (
        "version: 1\ntenants:\n  web: { limit: { cpu: 2, memory: 4GiB }\n",
        (3, 8),
        "this `{` is not closed",
        "add `}` at the end of what belongs to it",
    ),
    (
        "version: 1\ntenants:\n  web:\n    weight: 300\n    match: { cgroup: *.slice }\n",
        (5, 22),
        "`*` and `&` begin the name of an alias here",
        "put the text into quotes: `\"*.slice\"`",
    ),
    (
        "version: 1\ntenants:\n  web:\n    weight: 300\n    limit: { cpu: 2\n    match: { unit: nginx.service }\n  ci:\n    weight: 1\n",
        (5, 12),
        "this `{` is not closed",
        "add `}` at the end of what belongs to it",
    ),
    (
        "version: 1\ntenants:\n  web:\n    match: { users: [ana, bob\n  ci:\n    weight: 1\n",
        (4, 21),
        "this `[` is not closed",
        "add `] }` at the end of what belongs to it",
    ),
    (
        "version: 1\ntenants:\n  web:\n    guarantee:\n      cpu: 2\n     memory: 4GiB\n  ci: {}\n",
        (6, 6),
        "the indentation of this line is that of no line above",
        "indent it with 6 spaces, as `cpu`, or 4 spaces, as `guarantee`",
    ),
    (
        "version: 1\ntenants:\n  web:\n    guarantee\n      cpu: 2\n  ci: {}\n",
        (4, 5),
        "`guarantee` has no colon",
        "write `guarantee:`",
    ),
    (
        "version: 1\ntenants:\n  web:\n    guarantee: { cpu: 1 }, limit: { cpu: 2 }\n  ci: {}\n",
        (4, 28),
        "a second key on one line",
        "write it on a line of its own, without the comma",
    ),
    (
        "version: 1\ntenants:\n  web: {\n    weight: 300\n    limit: { cpu: 2 }\n  }\n",
        (4, 16),
        "no comma between two entries",
        "end this line with a comma, or close the `{` above",
    ),
];

#[test]
fn a_mistake_is_reported_at_its_line_with_what_to_write() {
    for (text, place, message, help) in MISTAKES {
        let report = load_text("policy.yaml", text).unwrap_err();
        let [finding] = report.findings() else { panic!("{text}: {report}") };
        assert_eq!((finding.code, finding.position()), ("P002", Some(*place)), "{text}");
        assert_eq!((&*finding.message, finding.help.as_deref()), (*message, Some(*help)), "{text}");
    }
}

/// Values of a tenant that are wrong, and what the finding says to write.
const VALUES: &[(&str, &str, &str)] = &[
    ("dop: 4", "P020", "`dop: { manual: 4 }` for exactly 4 CPUs"),
    ("cpus: [0, 1]", "P020", "`cpus: \"0-1\"`"),
    ("weight: high", "P020", "a weight is a number"),
    ("weight: \"300\"", "P020", "drop the quotes: `300`"),
    ("limit: { cpu: 150% }", "P022", "at most 100%; 150% of one CPU is `1500m`"),
    ("limit: { cpu: 0% }", "P022", "leave the key out"),
    ("guarantee: { cpu: 50 % }", "P022", "`50%`, without a space"),
    ("weight: 50%", "P020", "a weight is a number"),
    ("limit: { cpu: 2 cores }", "P022", "say `2`"),
    ("limit: { cpu: unlimited }", "P022", "`max` is no limit"),
    ("limit: { memory: 101% }", "P023", "above 0% and at most 100%"),
    ("guarantee: { memory: -5% }", "P023", "above 0% and at most 100%"),
    ("limit: { memory: 12.3456% }", "P023", "at most three decimals"),
    ("limit: { memory: half% }", "P023", "`75%` or `12.5%`"),
    ("limit: { memory: 16G }", "P023", "say `16GiB`"),
    ("limit: { memory: 8gib }", "P023", "say `8GiB`"),
    ("limit: 4", "P020", "`{ cpu: 4 }`"),
    ("match: nginx.service", "P020", "`{ unit: nginx.service }`"),
    ("limit: [8GiB]", "P020", "`{ memory: 8GiB }`"),
    ("limit: { memory: [8GiB] }", "P020", "drop the brackets: `8GiB`"),
    ("weight: [3]", "P020", "drop the brackets: `3`"),
    ("weight: \"1,5\"", "P020", "a point: `1.5`"),
    ("dop: 50%", "P021", "`{ max: 4 }`"),
    ("match: { unit: nginx.servcie }", "P031", "say `nginx.service`"),
    ("match: { unit: \"php*\" }", "P031", "`.service`"),
    ("match: { unit: \"*.slice\" }", "P031", "begin it with the name of one slice"),
    ("cpus: dop, 5GiB", "P010", "decimals have a point"),
    ("weight:300", "P010", "`weight: 300`"),
    ("weight 300", "P010", "`weight: 300`"),
    ("interval: 5s", "P010", "`interval` is a key of `control`"),
    ("pids: 4096", "P010", "`pids` is a key of `limit` of a tenant"),
    ("cpu: 2", "P010", "`cpu` is a key of `weight`, `guarantee`, `limit` of a tenant"),
    ("unit: nginx.service", "P010", "`unit` is a key of `match` of a tenant"),
];

#[test]
fn a_wrong_value_is_answered_with_what_to_write() {
    for (value, code, help) in VALUES {
        let text = format!("version: 1\ntenants: {{ web: {{ {value} }} }}\n");
        let report = load_text("policy.yaml", &text).unwrap_err();
        let [finding] = report.findings() else { panic!("{text}: {report}") };
        let said = finding.help.as_deref().unwrap_or_default();
        assert!(finding.code == *code && said.contains(help), "{text}: {} {said}", finding.code);
    }
    assert!(
        load_text("policy.yaml", "version: 1\ntenants: { a: { limit: { memory: 512Mi } } }")
            .is_ok()
    );
}

/// A key of a tenant that is indented as far as its name.
#[test]
fn a_key_beside_its_tenant_is_told_where_to_go() {
    for (text, line) in [
        ("  web:\n  weight: 100\n", 4),
        ("  web:\n  limit: { cpu: 2 }\n", 4),
        ("  db: {}\n  web:\n  match:\n    unit: web.service\n", 5),
        ("  web: {}\n  dop: auto\n  weight: 5\n", 4),
    ] {
        let text = format!("version: 1\ntenants:\n{text}");
        let report = load_text("policy.yaml", &text).unwrap_err();
        let finding = &report.findings()[0];
        assert_eq!(
            (finding.code, finding.position().map(|it| it.0)),
            ("P010", Some(line)),
            "{text}"
        );
        let said = finding.help.as_deref().unwrap_or_default();
        assert_eq!(said, "indent it more than `web`, whose key it is", "{text}");
    }
    let report = load_text("policy.yaml", "version: 1\ntenants: { weight: 5 }\n").unwrap_err();
    let said = report.findings()[0].help.clone().unwrap_or_default();
    assert_eq!(said, "name the tenant: `web: { weight: … }`");
    // Nobody is kept from a tenant of such a name.
    for tenant in ["dop: {}", "limit: { weight: 5 }", "match:"] {
        let text = format!("version: 1\ntenants: {{ {tenant} }}\n");
        assert!(load_text("policy.yaml", &text).is_ok(), "{text}");
    }
}

/// A typo of a key at the top is one finding, which names the key.
#[test]
fn a_misspelt_key_at_the_top_is_one_finding() {
    for (text, key) in [
        ("verison: 1\ntenants: { a: {} }\n", "version"),
        ("version: 1\ntenant: { a: {} }\n", "tenants"),
        ("version: 1\nmodes: enforce\ntenants: { a: {} }\n", "mode"),
    ] {
        let report = load_text("policy.yaml", text).unwrap_err();
        let [finding] = report.findings() else { panic!("{text}: {report}") };
        assert_eq!(finding.labels[0].text, format!("did you mean `{key}`?"), "{text}");
    }
    let report = load_text("policy.yaml", "version: 2\ntenants: { a: {} }\n").unwrap_err();
    assert!(report.findings()[0].help.as_deref().unwrap().contains("say `version: 1`"));
}

#[test]
fn a_tree_ends_at_its_budget() {
    let budget = |nodes| Budget { nodes, ..Budget::POLICY };
    for (text, nodes) in [("a", 1), ("[a, b]", 3), ("a: [b]", 4), ("[&x [a, b], *x]", 10)] {
        assert!(tree(text, budget(nodes)).is_ok(), "{text}");
        let unparsed = tree(text, budget(nodes - 1)).unwrap_err();
        assert_eq!(unparsed.fault, Fault::Budget, "{text}");
    }
}
