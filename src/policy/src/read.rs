//! Reads the trees of a policy's files into one [`Draft`]: the model, and the places of all values.
//!
//! Every finding goes into the report and reading goes on, with the default in place of the wrong value; a
//! draft is valid only if its report has no errors. This file handles cases that the table of keys cannot
//! express: a policy may be in several files, and tenants nest.

use std::collections::HashMap;
use std::sync::Arc;

use super::hint::{listed, shortened};
use super::key::{Fields, Flag, Row, rows};
use super::keys::{MATCH, POLICY, Policy, TENANT, Tenant};
use super::reader::{Given, Reader};
use super::report::{Report, Source};
use super::rules;
use super::tree::{Entry, Kind, Node, Place};
use super::values::safe_name;
use tenantd_core::resource::Resource;

const DEEPEST: usize = 16;
/// Most tenants, including groups.
pub const MOST_TENANTS: usize = 10_000;

fn elsewhere(name: &str) -> Option<String> {
    let is_named = |row: &&Row| row.name == name;
    let top = rows(POLICY);
    let in_sections = top.iter().filter(|section| section.rows.iter().any(|row| row.name == name));
    let mut maps: Vec<String> = in_sections.map(|section| format!("`{}`", section.name)).collect();
    maps.extend(top.iter().find(is_named).map(|_| "the policy, at the top".to_string()));
    let tenant = rows(TENANT);
    maps.extend(tenant.iter().find(is_named).map(|_| "a tenant".to_string()));
    let in_tenant = tenant.iter().filter(|section| section.rows.iter().any(|row| row.name == name));
    let in_tenant: Vec<&str> = in_tenant.map(|section| section.name).collect();
    maps.extend((!in_tenant.is_empty()).then(|| format!("{} of a tenant", listed(in_tenant))));
    if maps.len() == 1 { maps.pop() } else { None }
}

/// True if an entry among tenants is a key of a tenant, by its value.
fn is_misplaced(entry: &Entry) -> bool {
    let is_key = |name: &str| TENANT.iter().any(|key| key.name == name);
    is_key(&entry.key)
        && match &entry.value.kind {
            Kind::Null => false,
            Kind::Map(entries) => !entries.is_empty() && !entries.iter().any(|it| is_key(&it.key)),
            _ => true,
        }
}

/// A policy whose values still have their places.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Model; wrong values have their defaults.
    pub(super) policy: Policy,
    pub(super) given: Places,
    pub(super) located: Vec<Located>,
    /// Top-level keys that are the probable correction of misspelt ones.
    pub(super) misspelt: Vec<&'static str>,
    names: HashMap<String, Place>,
    nr_tenants: usize,
}

#[derive(Debug, Default)]
pub(super) struct Places(Vec<Given>);

#[derive(Debug)]
pub(super) struct Located {
    /// Names from the top, joined by `/`.
    pub(super) path: String,
    pub(super) parent: Option<usize>,
    pub(super) given: Places,
    pub(super) each_at: Option<Place>,
}

impl Places {
    fn get(&self, path: &str) -> Option<&Given> {
        self.0.iter().find(|given| given.path == path)
    }

    pub(super) fn key(&self, path: &str) -> Option<&Place> {
        self.get(path).map(|given| &given.key)
    }

    /// Place of a value, or of the first item of a list.
    pub(super) fn value(&self, path: &str) -> Option<&Place> {
        self.get(path)?.values.first()
    }

    /// Place of an amount in the map at `path`.
    pub(super) fn amount(&self, path: &str, resource: Resource) -> Option<&Place> {
        self.value(&format!("{path}.{}", resource.name()))
    }

    /// Places of the items of a list, in the order of the model.
    pub(super) fn items(&self, path: &str) -> &[Place] {
        self.get(path).map_or(&[], |given| &given.values)
    }
}

impl Draft {
    pub(super) fn file(&mut self, source: &Arc<Source>, root: &Node, report: &mut Report) {
        let mut reader = Reader::new(report, source, elsewhere, "policy");
        let Some(mut fields) = reader.fields(POLICY, root) else { return };
        fields.0.retain(|(key, entry)| match self.given.key(key.name) {
            // Tenants may be spread over files; everything else is given once.
            Some(first) if key.name != "tenants" => {
                let message = format!("`{}` is given in two files", key.name);
                let place = reader.key_place(entry);
                let finding = rules::DUPLICATE_KEY.at(&place, message, "given again here");
                let first = first.label("first given here");
                reader.report.push(finding.also(first).help("remove one of them"));
                false
            }
            _ => true,
        });
        reader.values(&fields, &mut self.policy);
        self.given.0.append(&mut reader.given);
        if let Some(entry) = fields.get("tenants") {
            let mut names = std::mem::take(&mut self.names);
            let tenants = self.tenants(&mut reader, entry, None, 1, &mut names);
            self.names = names;
            self.policy.tenants.extend(tenants);
        }
        self.misspelt.append(&mut reader.misspelt);
    }

    fn tenants(
        &mut self,
        reader: &mut Reader<'_>,
        entry: &Entry,
        parent: Option<usize>,
        depth: usize,
        names: &mut HashMap<String, Place>,
    ) -> Vec<Tenant> {
        let place = reader.key_place(entry);
        let entries = match &entry.value.kind {
            Kind::Map(entries) if !entries.is_empty() => entries,
            Kind::Map(_) | Kind::Null => {
                let finding = rules::NO_TENANTS.at(&place, "`tenants` names no tenant", "");
                let help = "name one below it, indented: `  web: { weight: 100 }`";
                reader.report.push(finding.help(help));
                return Vec::new();
            }
            _ => {
                let expected = "a map of tenants (`web: { weight: 100 }`)";
                let is_list = matches!(entry.value.kind, Kind::List(_));
                let help = if is_list { "each tenant is a key, without `-`" } else { "" };
                reader.wrong_type(&entry.value, expected, help);
                return Vec::new();
            }
        };
        if depth > DEEPEST {
            let message = format!("groups are nested more than {DEEPEST} deep");
            let finding = rules::TOO_DEEP.at(&place, message, "one level too many");
            reader.report.push(finding.help("weights of groups multiply: use fewer levels"));
            return Vec::new();
        }
        let mut tenants = Vec::new();
        let mut above: Option<&Entry> = None;
        for entry in entries {
            let place = reader.key_place(entry);
            if is_misplaced(entry) {
                let message = format!("`{}` is a key of a tenant, not a tenant", entry.key);
                let help = match above.map(|above| shortened(&above.key)) {
                    Some(name) => format!("indent it more than `{name}`, whose key it is"),
                    None => format!("name the tenant: `web: {{ {}: … }}`", entry.key),
                };
                reader.report.push(rules::UNKNOWN_KEY.at(&place, message, "").help(help));
                continue;
            }
            above = Some(entry);
            self.nr_tenants += 1;
            if self.nr_tenants > MOST_TENANTS {
                if self.nr_tenants == MOST_TENANTS + 1 {
                    let message = format!("more than {MOST_TENANTS} tenants");
                    reader.report.push(rules::TOO_MANY.at(&place, message, "one too many"));
                }
                break;
            }
            self.name(reader, entry, place, names);
            tenants.extend(self.tenant(reader, entry, parent, depth));
        }
        // They stay as long as the agent runs.
        tenants.shrink_to_fit();
        tenants
    }

    fn name(
        &self,
        reader: &mut Reader<'_>,
        entry: &Entry,
        place: Place,
        names: &mut HashMap<String, Place>,
    ) {
        if let Err(help) = safe_name(&entry.key) {
            let message = format!("`{}` cannot be the name of a tenant", shortened(&entry.key));
            reader.report.push(rules::BAD_NAME.at(&place, message, "").help(help));
        }
        match names.get(&*entry.key) {
            Some(first) => {
                let message = format!("tenant `{}` is defined twice", shortened(&entry.key));
                let finding = rules::DUPLICATE_TENANT.at(&place, message, "defined again here");
                let first = first.label("first defined here");
                let help = "rename one of the two, or merge them";
                reader.report.push(finding.also(first).help(help));
            }
            None => {
                names.insert(entry.key.to_string(), place);
            }
        }
    }

    fn tenant(
        &mut self,
        reader: &mut Reader<'_>,
        entry: &Entry,
        parent: Option<usize>,
        depth: usize,
    ) -> Option<Tenant> {
        reader.scope = "tenant";
        let fields = reader.fields(TENANT, &entry.value)?;
        let mut tenant = Tenant { name: entry.key.to_string(), ..Tenant::default() };
        reader.values(&fields, &mut tenant);
        if let Some(entry) = fields.get("match").filter(|entry| entry.value.is_empty()) {
            let place = reader.key_place(entry);
            let finding = rules::EMPTY_MATCH.at(&place, "this `match` claims nothing", "");
            // `move` alone claims nothing.
            let names = MATCH.iter().map(|key| key.name).filter(|name| *name != "move");
            let names = listed(names);
            reader.report.push(finding.help(format!("give one of {names}, or drop it")));
        }
        let index = self.locate(reader, &entry.key, parent);
        let (below, each) = (fields.get("tenants"), fields.get("each"));
        if let Some(group) = below.or(each) {
            refuse_leaf_keys(reader, &fields, group);
        }
        if let Some(below) = below {
            tenant.tenants =
                self.tenants(reader, below, Some(index), depth + 1, &mut HashMap::new());
        }
        tenant.each = each.and_then(|each| self.template(reader, each, index)).map(Box::new);
        Some(tenant)
    }

    fn template(&mut self, reader: &mut Reader<'_>, each: &Entry, group: usize) -> Option<Tenant> {
        reader.scope = "each";
        let mut fields = reader.fields(TENANT, &each.value)?;
        fields.0.retain(|(key, entry)| {
            let is_groups = key.flags.contains(&Flag::Group);
            if is_groups {
                let message = format!("a template has no `{}`", key.name);
                let finding = rules::TEMPLATE_KEY.at(&reader.key_place(entry), message, "");
                let help = "what it finds has nothing below it: drop it, or give it to the group";
                reader.report.push(finding.help(help));
            }
            !is_groups
        });
        let mut template = Tenant::default();
        reader.values(&fields, &mut template);
        let place = reader.key_place(each);
        let index = self.locate(reader, "*", Some(group));
        self.located[index].each_at = Some(place);
        Some(template)
    }

    /// Stores the places of the keys; returns the number of the tenant.
    fn locate(&mut self, reader: &mut Reader<'_>, name: &str, parent: Option<usize>) -> usize {
        let path = match parent {
            Some(parent) => format!("{}/{name}", self.located[parent].path),
            None => name.to_string(),
        };
        let given = Places(std::mem::take(&mut reader.given));
        self.located.push(Located { path, parent, given, each_at: None });
        self.located.len() - 1
    }
}

fn refuse_leaf_keys(reader: &mut Reader<'_>, fields: &Fields<'_, Tenant>, below: &Entry) {
    let group = reader.key_place(below);
    for (key, entry) in fields.0.iter().filter(|(key, _)| key.flags.contains(&Flag::Leaf)) {
        let message = format!("a group has no `{}`", key.name);
        let finding = rules::GROUP_KEY.at(&reader.key_place(entry), message, "");
        let help = "a group runs nothing itself: give the key to the tenants below it";
        reader.report.push(finding.also(group.label("this makes it a group")).help(help));
    }
}
