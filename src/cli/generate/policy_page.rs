//! `tenantd.policy(5)`: the keys from the schema, the diagnostics from the rules.

use anyhow::Context;
use serde_json::Value;

use crate::policy::rules::RULES;

/// Where the page takes the keys and the rules.
const KEYS_PLACE: &str = ".\\\" @KEYS@\n";
const RULES_PLACE: &str = ".\\\" @RULES@\n";

/// The page, with what is generated in its places.
pub(super) fn page(frame: &str, schema: &str) -> anyhow::Result<String> {
    let schema: Value = serde_json::from_str(schema).context("the schema is not JSON")?;
    Ok(frame.replace(KEYS_PLACE, &keys(&schema)).replace(RULES_PLACE, &rules()))
}

fn rules() -> String {
    let paragraphs = RULES.iter().map(|rule| {
        let severity = format!("{:?}", rule.severity).to_lowercase();
        format!(".TP\n\\fB{}\\fR ({severity})\n{}\n", rule.code, escaped(rule.title))
    });
    paragraphs.collect()
}

/// A paragraph for each key, the tenants' last and relative to a tenant.
fn keys(schema: &Value) -> String {
    let mut text = String::new();
    for section in ["", "host", "control", "admission", "administrators", "tenant"] {
        let (title, prefix, node) = match section {
            "" => ("The whole".to_string(), String::new(), schema),
            "tenant" => ("A tenant".to_string(), String::new(), &schema["$defs"][section]),
            _ => (section.to_string(), format!("{section}."), &schema["$defs"][section]),
        };
        text += &format!(".SS \"{title}\"\n");
        add_keys(&mut text, schema, &prefix, node);
    }
    text
}

/// The keys of `node`, and of the sections below it that have no heading of their own.
fn add_keys(text: &mut String, schema: &Value, prefix: &str, node: &Value) {
    let Some(properties) = node["properties"].as_object() else { return };
    for (key, property) in properties {
        let description = property["description"].as_str().unwrap_or_default();
        let choices = property["enum"].as_array().map(|choices| {
            let words: Vec<String> = choices.iter().map(word).collect();
            format!(" One of {}.", words.join(", "))
        });
        let default = match &property["default"] {
            Value::Null => String::new(),
            value => format!(" Default: {}.", word(value)),
        };
        let told = format!("{description}{}{default}", choices.unwrap_or_default());
        *text += &format!(".TP\n\\fB{prefix}{key}\\fR\n{}\n", escaped(&told));
        let below = definition(schema, property);
        let has_heading = prefix.is_empty() && schema["properties"][key] == *property;
        if !has_heading && key != "tenants" {
            add_keys(text, schema, &format!("{prefix}{key}."), below);
        }
    }
}

/// What a property refers to, at once or as one of its alternatives.
fn definition<'a>(schema: &'a Value, property: &'a Value) -> &'a Value {
    let alternatives = property["anyOf"].as_array().into_iter().flatten();
    let referred = [property].into_iter().chain(alternatives).filter_map(|node| {
        let name = node["$ref"].as_str()?.strip_prefix("#/$defs/")?;
        Some(&schema["$defs"][name])
    });
    let mut with_keys = referred.filter(|node| node["properties"].is_object());
    with_keys.next().unwrap_or(&Value::Null)
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// Text for roff: no line of it is a request, no backslash an escape, no hyphen a soft one.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}
