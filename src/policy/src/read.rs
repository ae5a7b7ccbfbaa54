//! Reads the trees of a policy's files into one [`Draft`]: the model, and the places of all values.
//!
//! Every finding goes into the report and reading goes on, with the default in place of the wrong value; a
//! draft is valid only if its report has no errors. This file handles cases that the table of keys cannot
//! express: a policy may be in several files, and tenants nest.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::hint::{listed, nearest, oddity, shortened};
use super::key::{Fields, Flag, Row, names, rows};
use super::keys::{MATCH, POLICY, Policy, TENANT, Tenant};
use super::reader::{Given, Homes, POLICY_SCOPE, Reader};
use super::report::{Report, Source};
use super::rules;
use super::tree::{Entry, Kind, Node, Place};
use super::values::safe_name;
use super::words::instead;
use tenantd_core::resource::Resource;

const DEEPEST: usize = 16;
/// Most tenants, including groups.
pub const MOST_TENANTS: usize = 10_000;

/// Beginning of keys at the top that are not read, so that anchors have a place.
const FREE: &str = "x-";

/// Keys at the top and of a tenant, with those of their sections: a hostile file has a million unknown keys.
static TOP: LazyLock<Vec<Row>> = LazyLock::new(|| rows(POLICY));
static OF_TENANT: LazyLock<Vec<Row>> = LazyLock::new(|| rows(TENANT));

fn elsewhere(name: &str) -> Homes {
    let has = |rows: &[Row]| rows.iter().any(|row| row.name == name);
    let sections = |rows: &[Row]| -> Vec<&'static str> {
        rows.iter().filter(|section| has(&section.rows)).map(|section| section.name).collect()
    };
    Homes {
        sections: sections(&TOP),
        is_of_policy: has(&TOP),
        is_of_tenant: has(&OF_TENANT),
        in_tenant: sections(&OF_TENANT),
    }
}

fn is_key_of_tenant(name: &str) -> bool {
    TENANT.iter().any(|key| key.name == name)
}

/// The map to which an entry among tenants belongs, by its key and its value.
enum Misplaced {
    Tenant,
    Policy,
}

fn misplaced(entry: &Entry) -> Option<Misplaced> {
    let Kind::Map(entries) = &entry.value.kind else {
        let is_value = !matches!(entry.value.kind, Kind::Null);
        let of_tenant = is_key_of_tenant(&entry.key).then_some(Misplaced::Tenant);
        let of_policy = POLICY.iter().any(|key| *key.name == *entry.key);
        return of_tenant.or(of_policy.then_some(Misplaced::Policy)).filter(|_| is_value);
    };
    if entries.is_empty() || entries.iter().any(|it| is_key_of_tenant(&it.key)) {
        return None;
    }
    if is_key_of_tenant(&entry.key) {
        return Some(Misplaced::Tenant);
    }
    let section = TOP.iter().find(|row| *row.name == *entry.key)?;
    let is_in = |it: &Entry| section.rows.iter().any(|row| *row.name == *it.key);
    entries.iter().all(is_in).then_some(Misplaced::Policy)
}

/// True if an unknown key of the map `of`, which has the keys `known`, is a tenant, by its value; with `or_empty` also
/// a map without keys.
fn is_stray(of: &str, entry: &Entry, known: &[&'static str], or_empty: bool) -> bool {
    let key = &*entry.key;
    let is_tenant = match &entry.value.kind {
        Kind::Map(entries) if !entries.is_empty() => {
            entries.iter().all(|entry| is_key_of_tenant(&entry.key))
        }
        Kind::Map(_) | Kind::Null => or_empty,
        _ => false,
    };
    is_tenant
        && safe_name(key.trim()).is_ok()
        && nearest(key, known.iter().copied()).is_none()
        && instead(of, key, None).is_none()
        && elsewhere(key) == Homes::default()
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
    /// Its name, or the key of a template.
    pub(super) at: Place,
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
        let mut reader = Reader::new(report, source, elsewhere, POLICY_SCOPE);
        let Some(mut fields) = reader.entries(POLICY, root) else { return };
        fields.unknown.retain(|(entry, _)| !entry.key.starts_with(FREE));
        let has_strays = self.refuse_unknown(&mut reader, &fields);
        fields.known.retain(|(key, entry)| match self.given.key(key.name) {
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
        let tenants = fields.get("tenants");
        // Strays are one finding, not two.
        if let Some(entry) = tenants.filter(|entry| !(has_strays && entry.value.is_empty())) {
            let mut names = std::mem::take(&mut self.names);
            let tenants = self.tenants(&mut reader, entry, None, 1, &mut names);
            self.names = names;
            self.policy.tenants.extend(tenants);
        }
        self.misspelt.append(&mut reader.misspelt);
    }

    /// Reports the unknown keys at the top; returns true if tenants are among them.
    fn refuse_unknown(&mut self, reader: &mut Reader<'_>, fields: &Fields<'_, Policy>) -> bool {
        let known = names(POLICY);
        let tenants = fields.get("tenants");
        let (strays, others): (Vec<_>, Vec<_>) = fields.unknown.iter().partition(|(entry, _)| {
            let or_empty = tenants.is_none_or(|it| it.value.is_empty());
            is_stray(POLICY_SCOPE, entry, &known, or_empty)
        });
        let strays: Vec<&Entry> = strays.into_iter().map(|(entry, _)| entry).collect();
        if !strays.is_empty() {
            let help = match tenants {
                Some(_) => "indent it below `tenants`",
                None => "write `tenants:` above it, and indent it below that",
            };
            refuse_strays(reader, &strays, help.to_string());
            self.misspelt.push("tenants");
        }
        let is_unrelated = |key: &str| {
            nearest(key, known.iter().copied()).is_none()
                && oddity(key).is_none()
                && elsewhere(key) == Homes::default()
        };
        let nr_unrelated = others.iter().filter(|(entry, _)| is_unrelated(&entry.key)).count();
        let is_foreign =
            fields.known.is_empty() && strays.is_empty() && 2 * nr_unrelated > others.len();
        if let Some(((first, _), true)) = others.first().map(|first| (first, is_foreign)) {
            let and_more = match others.len() {
                1 => String::new(),
                nr => format!(", nor are the {} others", nr - 1),
            };
            let key = shortened(&first.key);
            let message = format!("`{key}` is not a key of a policy{and_more}");
            let finding = rules::UNKNOWN_KEY.at(&reader.key_place(first), message, "");
            let help = "is this the file of another program? A policy begins with `version: 1` and has `tenants:`; \
                        `tenantctl init` proposes one";
            reader.report.push(finding.help(help));
            self.misspelt.extend(known);
            return false;
        }
        for (entry, above) in others {
            reader.unknown_key(&known, entry, above);
            // Tenants under another name.
            let is_map = !matches!(entry.value.kind, Kind::Scalar { .. });
            self.misspelt.extend(is_map.then_some("tenants"));
        }
        !strays.is_empty()
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
                let name = match &entry.value.kind {
                    Kind::Scalar { text, .. } if safe_name(text).is_ok() => text,
                    _ => "web",
                };
                let help = if is_list {
                    "each tenant is a key, without `-`".to_string()
                } else {
                    format!("write a key for each: `{name}: {{}}`")
                };
                reader.wrong_type(&entry.value, expected, &help);
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
            if let Some(misplaced) = misplaced(entry) {
                refuse_misplaced(reader, entry, &misplaced, above);
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
        let fields = reader.entries(TENANT, &entry.value)?;
        refuse_unknown_in_tenant(reader, &fields);
        let mut tenant = Tenant { name: entry.key.to_string(), ..Tenant::default() };
        reader.values(&fields, &mut tenant);
        // A key below it that is not indented has a finding.
        let is_above = |match_at: &Entry| {
            let above = fields.unknown.iter().filter_map(|(_, above)| *above);
            above.into_iter().any(|above| std::ptr::eq(above, match_at))
        };
        let empty = fields.get("match").filter(|entry| entry.value.is_empty());
        if let Some(entry) = empty.filter(|entry| !is_above(entry)) {
            let place = reader.key_place(entry);
            let finding = rules::EMPTY_MATCH.at(&place, "this `match` claims nothing", "");
            // `move` alone claims nothing.
            let names = MATCH.iter().map(|key| key.name).filter(|name| *name != "move");
            let names = listed(names);
            reader.report.push(finding.help(format!("give one of {names}, or drop it")));
        }
        let at = reader.key_place(entry);
        let index = self.locate(reader, &entry.key, parent, at);
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
        fields.known.retain(|(key, entry)| {
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
        let of_match = |entry: &Entry| MATCH.iter().any(|key| *key.name == *entry.key);
        if let Some((entry, _)) = fields.unknown.iter().find(|(entry, _)| of_match(entry)) {
            // A key of `match` beside it is one finding, and so no match is missing.
            let key = reader.key_place(entry);
            reader.given.push(Given { path: "match".to_string(), key, values: Vec::new() });
        }
        let place = reader.key_place(each);
        let index = self.locate(reader, "*", Some(group), place.clone());
        self.located[index].each_at = Some(place);
        Some(template)
    }

    /// Stores the places of the keys; returns the number of the tenant.
    fn locate(
        &mut self,
        reader: &mut Reader<'_>,
        name: &str,
        parent: Option<usize>,
        at: Place,
    ) -> usize {
        let path = match parent {
            Some(parent) => format!("{}/{name}", self.located[parent].path),
            None => name.to_string(),
        };
        let given = Places(std::mem::take(&mut reader.given));
        self.located.push(Located { path, parent, at, given, each_at: None });
        self.located.len() - 1
    }
}

/// Reports a key among tenants; `above` is the tenant above it.
fn refuse_misplaced(
    reader: &mut Reader<'_>,
    entry: &Entry,
    misplaced: &Misplaced,
    above: Option<&Entry>,
) {
    let (of, help) = match (misplaced, above.map(|above| shortened(&above.key))) {
        (Misplaced::Policy, _) => {
            ("the policy", "write it at the top, without indentation".to_string())
        }
        (Misplaced::Tenant, Some(name)) => {
            ("a tenant", format!("indent it more than `{name}`, whose key it is"))
        }
        (Misplaced::Tenant, None) => {
            ("a tenant", format!("name the tenant: `web: {{ {}: … }}`", entry.key))
        }
    };
    let message = format!("`{}` is a key of {of}, not a tenant", entry.key);
    let place = reader.key_place(entry);
    reader.report.push(rules::UNKNOWN_KEY.at(&place, message, "").help(help));
}

/// Reports the unknown keys of a tenant.
fn refuse_unknown_in_tenant(reader: &mut Reader<'_>, fields: &Fields<'_, Tenant>) {
    let known = names(TENANT);
    let (strays, others): (Vec<_>, Vec<_>) = (fields.unknown.iter())
        .partition(|(entry, _)| is_stray(reader.scope, entry, &known, false));
    let strays: Vec<&Entry> = strays.into_iter().map(|(entry, _)| entry).collect();
    if let Some(first) = strays.first() {
        let help = format!("write `tenants: {{ {}: … }}`, a level deeper", shortened(&first.key));
        refuse_strays(reader, &strays, help);
    }
    others.iter().for_each(|(entry, above)| reader.unknown_key(&known, entry, *above));
}

/// Reports tenants outside of `tenants`, as one finding.
fn refuse_strays(reader: &mut Reader<'_>, strays: &[&Entry], help: String) {
    let [first, others @ ..] = strays else { return };
    let mut message = format!("`{}` is not in `tenants`", shortened(first.key.trim()));
    if !others.is_empty() {
        message += &format!(" ({} tenants)", strays.len());
    }
    let help = oddity(&first.key).map_or(help, str::to_string);
    let finding = rules::UNKNOWN_KEY.at(&reader.key_place(first), message, "");
    reader.report.push(finding.help(help));
}

fn refuse_leaf_keys(reader: &mut Reader<'_>, fields: &Fields<'_, Tenant>, below: &Entry) {
    let group = reader.key_place(below);
    for (key, entry) in fields.known.iter().filter(|(key, _)| key.flags.contains(&Flag::Leaf)) {
        let message = format!("a group has no `{}`", key.name);
        let finding = rules::GROUP_KEY.at(&reader.key_place(entry), message, "");
        let help = "a group runs nothing itself: give the key to the tenants below it";
        reader.report.push(finding.also(group.label("this makes it a group")).help(help));
    }
}
