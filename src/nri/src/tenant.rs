//! Facts about a pod, and the name of its tenant, if an option gives one.
//!
//! A [`Template`] is a path of a tenant in which `{namespace}`, `{pod}` and `{label:KEY}` stand for facts of the pod. A fact with a
//! character that no name of a tenant has gives no tenant: it could name another one, as `a/b` does.

use std::str::FromStr;

use tenantd_core::kernel_text::{cleaned, text_of};

use super::messages;
use tenantd_varlink::interface::{FACTS_MAX, LABELS_MAX, Pod};

/// Longest fact, in bytes; a label of Kubernetes has up to 317 characters.
pub const FACT_MAX: usize = 512;
/// Longest path of a tenant, in bytes.
const NAME_MAX: usize = 1024;

/// Facts in a message of the runtime, within the bounds of tenantd: labels that are too long, or one too many, are left out.
pub fn facts(pod: &messages::Pod) -> Pod {
    let text = |bytes: &[u8]| text_of(&bytes[..bytes.len().min(FACT_MAX)]);
    let is_short = |text: &[u8]| text.len() <= FACT_MAX;
    let mut facts =
        Pod { name: text(&pod.name), namespace: text(&pod.namespace), ..Pod::default() };
    for label in pod.labels.iter().filter(|it| is_short(&it.key) && is_short(&it.value)) {
        let (key, value) = (text(&label.key), text(&label.value));
        if facts.labels.len() < LABELS_MAX && facts.size() + key.len() + value.len() <= FACTS_MAX {
            facts.labels.insert(key, value);
        }
    }
    facts
}

/// Path of a tenant with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Namespace,
    Pod,
    Label(String),
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else {
                return Err(format!("`{{{after}` has no `}}`"));
            };
            parts.push(Part::Text(before.to_string()));
            parts.push(match (name, name.strip_prefix("label:")) {
                ("namespace", _) => Part::Namespace,
                ("pod", _) => Part::Pod,
                (_, Some(key)) if !key.is_empty() => Part::Label(key.to_string()),
                _ => {
                    return Err(format!(
                        "`{{{name}}}` is unknown: write {{namespace}}, {{pod}} or {{label:KEY}}"
                    ));
                }
            });
            rest = after;
        }
        parts.push(Part::Text(rest.to_string()));
        parts.retain(|part| *part != Part::Text(String::new()));
        let is_safe = |part: &Part| match part {
            Part::Text(text) => text.chars().all(|c| c == '/' || is_of_name(c)),
            _ => true,
        };
        if parts.is_empty() || !parts.iter().all(is_safe) {
            return Err("the path of a tenant has letters, digits, `_`, `.`, `-` and `/`".into());
        }
        Ok(Template(parts))
    }
}

impl Template {
    /// Path of the tenant of a pod.
    ///
    /// # Errors
    /// The reason why the pod has no tenant.
    pub fn fill(&self, pod: &Pod) -> Result<String, String> {
        let mut path = String::new();
        for part in &self.0 {
            let (what, fact) = match part {
                Part::Text(text) => {
                    path += text;
                    continue;
                }
                Part::Namespace => ("namespace", Some(&pod.namespace)),
                Part::Pod => ("name", Some(&pod.name)),
                Part::Label(key) => (&**key, pod.labels.get(key)),
            };
            let Some(fact) = fact.filter(|fact| !fact.is_empty()) else {
                return Err(format!("the pod has no {}", described(part, what)));
            };
            if !fact.chars().all(is_of_name) {
                return Err(format!(
                    "`{}`, the {} of the pod, has characters that the name of a tenant cannot have",
                    cleaned(fact),
                    described(part, what)
                ));
            }
            path += fact;
        }
        if path.len() > NAME_MAX {
            return Err(format!("the name of its tenant has more than {NAME_MAX} bytes"));
        }
        Ok(path)
    }
}

fn described(part: &Part, what: &str) -> String {
    match part {
        Part::Label(key) => format!("label `{}`", cleaned(key)),
        _ => what.to_string(),
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.-".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Label;

    fn pod(labels: &[(&[u8], &[u8])]) -> Pod {
        let label =
            |(key, value): &(&[u8], &[u8])| Label { key: key.to_vec(), value: value.to_vec() };
        facts(&messages::Pod {
            name: b"web-7".to_vec(),
            namespace: b"shop".to_vec(),
            labels: labels.iter().map(label).collect(),
            ..messages::Pod::default()
        })
    }

    fn filled(template: &str, pod: &Pod) -> Result<String, String> {
        template.parse::<Template>().unwrap().fill(pod)
    }

    #[test]
    fn facts_fill_a_template() {
        let web = pod(&[(b"app.kubernetes.io/part-of", b"till")]);
        for (template, path) in [
            ("{namespace}", "shop"),
            ("pods/{namespace}", "pods/shop"),
            ("all", "all"),
            ("{namespace}-{pod}", "shop-web-7"),
            ("{label:app.kubernetes.io/part-of}", "till"),
        ] {
            assert_eq!(filled(template, &web).as_deref(), Ok(path), "{template}");
        }
    }

    #[test]
    fn a_fact_that_could_name_another_tenant_gives_none() {
        for value in ["a/b", "a b", "é", "\u{202e}", "\\x41", ""] {
            let web = pod(&[(b"team", value.as_bytes())]);
            let why = filled("{label:team}", &web).unwrap_err();
            assert!(why.contains("label `team`"), "{value}: {why}");
        }
        let web = pod(&[(b"team", b"\xff\x1b[2J")]);
        assert_eq!(
            filled("{label:team}", &web).unwrap_err(),
            "`\\xff\\x1b[2J`, the label `team` of the pod, has characters that the name of a tenant cannot have"
        );
        assert_eq!(filled("{label:team}", &pod(&[])).unwrap_err(), "the pod has no label `team`");
        let long = "x".repeat(FACT_MAX);
        let web = pod(&[(b"a", long.as_bytes())]);
        assert!(filled("{label:a}{label:a}", &web).is_ok());
        assert!(filled("{label:a}{label:a}/", &web).unwrap_err().contains("bytes"));
    }

    #[test]
    fn facts_are_bounded() {
        let long = vec![b'x'; FACT_MAX + 1];
        assert_eq!(pod(&[(b"a", &long), (&long, b"a"), (b"b", b"c")]).labels.len(), 1);
        let keys: Vec<String> = (0..2 * LABELS_MAX).map(|key| key.to_string()).collect();
        let many: Vec<(&[u8], &[u8])> =
            keys.iter().map(|key| (key.as_bytes(), &b"v"[..])).collect();
        assert_eq!(pod(&many).labels.len(), LABELS_MAX);
        let value = [b'x'; FACT_MAX];
        let long: Vec<(&[u8], &[u8])> =
            keys.iter().map(|key| (key.as_bytes(), &value[..])).collect();
        assert!(pod(&long).is_bounded() && pod(&long).labels.len() > 30);
        let long = messages::Pod { name: vec![0xff; 4 * FACT_MAX], ..messages::Pod::default() };
        assert_eq!(facts(&long).name.len(), 4 * FACT_MAX);
    }

    #[test]
    fn a_wrong_template_is_refused() {
        for text in ["", "{", "{namespace", "{uid}", "{label:}", "a b", "{pod}}", "é"] {
            assert!(text.parse::<Template>().is_err(), "{text}");
        }
    }
}
