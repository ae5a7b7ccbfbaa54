//! A strict reader of OpenMetrics text, for gauges, counters and info: OpenMetrics 1.0, "Text format".
//!
//! What it insists on: `# HELP`, `# TYPE`, `# UNIT` before the samples of their family and once; families in
//! one piece; a unit that ends the name; `_total` behind the samples of counters and of nothing else; no sample
//! twice; no blank line; `# EOF` as the last line.

use std::collections::{BTreeMap, BTreeSet};

/// One family: all samples of a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) unit: String,
    pub(crate) help: String,
    /// Values by their labels, as they are written: `{tenant="web"}`, or empty.
    pub(crate) samples: BTreeMap<String, f64>,
}

/// The families by name.
pub(crate) type Families = BTreeMap<String, Family>;

/// Reads a whole text.
pub(crate) fn read(text: &str) -> Result<Families, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("the last line is not `# EOF`")?;
    let mut families = Families::new();
    let mut current = String::new();
    let mut seen: BTreeSet<(String, &str)> = BTreeSet::new();
    for line in body.lines() {
        let told = |what: &str| format!("{what}: {line}");
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (Some(word), Some(name), Some(value)) = (words.next(), words.next(), words.next())
            else {
                return Err(told("not a descriptor"));
            };
            if name != current {
                if families.contains_key(name) {
                    return Err(told("a family in two pieces"));
                }
                current = name.to_string();
            }
            let family = families.entry(current.clone()).or_default();
            if !family.samples.is_empty() {
                return Err(told("a descriptor behind a sample"));
            }
            let field = match word {
                "HELP" => ("HELP", &mut family.help),
                "TYPE" => ("TYPE", &mut family.kind),
                "UNIT" => ("UNIT", &mut family.unit),
                _ => return Err(told("an unknown descriptor")),
            };
            if !seen.insert((current.clone(), field.0)) {
                return Err(told("told twice"));
            }
            *field.1 = value.to_string();
            continue;
        }
        let (series, value) = line.rsplit_once(' ').ok_or_else(|| told("not a sample"))?;
        let (name, labels) = match series.find('{') {
            Some(at) => series.split_at(at),
            None => (series, ""),
        };
        check_labels(labels).map_err(|what| told(&what))?;
        let family = families.get_mut(&current).ok_or_else(|| told("a sample of no family"))?;
        let suffix = match family.kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        if name != format!("{current}{suffix}") {
            return Err(told("not a sample of the family above it"));
        }
        let value: f64 = value.parse().map_err(|_| told("not a number"))?;
        if family.kind == "counter" && (value.is_nan() || value < 0.0) {
            return Err(told("a counter below 0"));
        }
        if family.samples.insert(labels.to_string(), value).is_some() {
            return Err(told("a sample twice"));
        }
    }
    for (name, family) in &families {
        check_family(name, family)?;
    }
    Ok(families)
}

fn check_family(name: &str, family: &Family) -> Result<(), String> {
    let is_name = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    if !is_name(name) || name.contains("__") {
        return Err(format!("not a name: {name}"));
    }
    if !["gauge", "counter", "info"].contains(&family.kind.as_str()) {
        return Err(format!("{name} is a {}", family.kind));
    }
    if !family.unit.is_empty() && !name.ends_with(&format!("_{}", family.unit)) {
        return Err(format!("{name} does not end in its unit {}", family.unit));
    }
    if ["_total", "_count", "_sum", "_bucket", "_info", "_created"]
        .iter()
        .any(|end| name.ends_with(end))
    {
        return Err(format!("{name} has a reserved end"));
    }
    if family.help.is_empty() || family.samples.is_empty() {
        return Err(format!("{name} says nothing"));
    }
    Ok(())
}

/// `{a="b",c="d"}`, with `\\`, `\"` and `\n` as the only escapes.
fn check_labels(labels: &str) -> Result<(), String> {
    if labels.is_empty() {
        return Ok(());
    }
    let inner = labels.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let mut rest = inner.filter(|inner| !inner.is_empty()).ok_or("not labels")?;
    loop {
        let (name, value) = rest.split_once("=\"").ok_or("not a label")?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            return Err("not the name of a label".into());
        }
        let mut characters = value.char_indices();
        let end = loop {
            match characters.next().ok_or("a label without an end")? {
                (at, '"') => break at,
                (_, '\\') => match characters.next() {
                    Some((_, '\\' | '"' | 'n')) => {}
                    _ => return Err("an unknown escape".into()),
                },
                _ => {}
            }
        };
        match &value[end + 1..] {
            "" => return Ok(()),
            more => rest = more.strip_prefix(',').ok_or("no comma between labels")?,
        }
    }
}

#[test]
fn the_reader_refuses_what_is_not_openmetrics() {
    let good = "# HELP a_seconds A.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
                a_seconds_total{t=\"x\\\"\"} 1.5\n# EOF\n";
    assert_eq!(read(good).unwrap()["a_seconds"].samples["{t=\"x\\\"\"}"], 1.5);
    for (from, to) in [
        ("# EOF\n", ""),
        ("a_seconds_total{", "a_seconds{"),
        ("seconds seconds", "seconds bytes"),
        ("counter", "summary"),
        (" 1.5", " x"),
        (" 1.5", " -1"),
        ("# HELP", "\n# HELP"),
        ("\\\"\"}", "\\q\"}"),
        ("# UNIT", "# TYPE"),
        ("# HELP a_seconds A.\n", ""),
    ] {
        assert!(read(&good.replacen(from, to, 1)).is_err(), "{from:?} -> {to:?} is read");
    }
}
