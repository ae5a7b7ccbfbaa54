//! The tree of a text, read key by key into a [`Draft`]: typed values that still know their places.
//!
//! Every finding goes into the report and reading goes on, with the default in place of what was wrong; a
//! draft is only as good as its report is empty. What concerns one value alone is decided here, what
//! concerns several of them in [`super::check`].

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use super::draft::{AccountsDraft, BoundDraft, Draft, MatchDraft, TenantDraft};
use super::fields::{Fields, is_word};
use super::model::*;
use super::report::{Report, Source};
use super::rules::{self, NOT_YET_EFFECTIVE_KEYS};
use super::tree::{At, Entry, Kind, Node, Place, shortened};
use super::values::{CPU_NUMBERS, account_name, cgroup_path, cpu_list, safe_name, unit_name};
use crate::units::{Bytes, MilliCpus, Weight};

/// Groups within groups.
pub(super) const DEEPEST: usize = 16;
/// Tenants, groups included.
pub const MOST_TENANTS: usize = 10_000;

/// A map of the policy: what messages call it, and the keys it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name; keys are spoken of as `section.key`.
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [&'static str],
}

const POLICY: Section = Section {
    name: "policy",
    keys: &["version", "mode", "host", "control", "admission", "administrators", "tenants"],
};
const HOST: Section = Section { name: "host", keys: &["reserve", "hierarchy", "root"] };
const RESERVE: Section = Section { name: "reserve", keys: &["cpu", "memory"] };
const CONTROL: Section = Section {
    name: "control",
    keys: &["interval", "allocation", "oversubscription", "on_exit", "on_drift", "watch_policy"],
};
const ADMISSION: Section =
    Section { name: "admission", keys: &["discipline", "max_running", "running"] };
const TENANT: Section = Section {
    name: "tenant",
    keys: &["weight", "guarantee", "limit", "match", "owner", "dop", "cpus", "allow", "tenants"],
};
const WEIGHT: Section = Section { name: "weight", keys: &["cpu", "memory"] };
const GUARANTEE: Section = Section { name: "guarantee", keys: &["cpu", "memory"] };
const LIMIT: Section = Section { name: "limit", keys: &["cpu", "memory"] };
const MATCH: Section = Section { name: "match", keys: &["unit", "cgroup", "users", "groups"] };
const DOP: Section = Section { name: "dop", keys: &["manual", "max"] };
const ALLOW: Section = Section { name: "allow", keys: &["users", "groups"] };
const ADMINISTRATORS: Section = Section { name: "administrators", keys: &["users", "groups"] };

/// Every section, for the schema and its test.
pub const SECTIONS: &[Section] = &[
    POLICY,
    HOST,
    RESERVE,
    CONTROL,
    ADMISSION,
    ADMINISTRATORS,
    TENANT,
    WEIGHT,
    GUARANTEE,
    LIMIT,
    MATCH,
    DOP,
    ALLOW,
];

/// Keys that make no sense where tenants stand below: a group uses nothing itself.
const LEAF_KEYS: &[&str] = &["guarantee", "match", "dop", "cpus"];

/// Reads the trees of one policy, one file after the other.
pub(super) struct Reader<'r> {
    pub(super) report: &'r mut Report,
    pub(super) source: Arc<Source>,
    pub(super) draft: Draft,
    /// Where each top-level key was given, in whichever file.
    given: HashMap<&'static str, Place>,
    /// Where each top-level tenant was defined, in whichever file.
    names: HashMap<String, Place>,
    nr_tenants: usize,
}

impl<'r> Reader<'r> {
    pub(super) fn new(report: &'r mut Report) -> Self {
        let not_yet = vec![Vec::new(); NOT_YET_EFFECTIVE_KEYS.len()];
        Reader {
            report,
            source: Source::new("", ""),
            draft: Draft { not_yet, ..Draft::default() },
            given: HashMap::new(),
            names: HashMap::new(),
            nr_tenants: 0,
        }
    }

    pub(super) fn finish(self) -> Draft {
        self.draft
    }

    /// Reads one file.
    pub(super) fn file(&mut self, source: &Arc<Source>, root: &Node) {
        self.source = Arc::clone(source);
        let Some(fields) = self.fields(&POLICY, root) else { return };
        let mut fresh = Vec::new();
        for (key, entry) in fields.0 {
            let place = self.key_place(entry);
            match self.given.get(key) {
                // Tenants may be spread over files; all else is said in one place.
                Some(first) if key != "tenants" => {
                    let message = format!("`{key}` is given in two files");
                    let finding = rules::DUPLICATE_KEY.at(&place, message, "given again here");
                    self.report.push(
                        finding.also(first.label("first given here")).help("keep one of the two"),
                    );
                }
                _ => {
                    self.given.entry(key).or_insert(place);
                    fresh.push((key, entry));
                }
            }
        }
        self.top(&Fields(fresh));
    }

    fn top(&mut self, fields: &Fields<'_>) {
        if let Some(entry) = fields.get("version") {
            self.version(entry);
        }
        if let Some(node) = fields.value("mode") {
            let modes = [("observe", Mode::Observe), ("enforce", Mode::Enforce)];
            self.draft.mode = self.choice(node, &modes).unwrap_or_default();
        }
        if let Some(fields) = fields.value("host").and_then(|node| self.section(&HOST, node)) {
            self.host(&fields);
        }
        if let Some(fields) = fields.value("control").and_then(|node| self.section(&CONTROL, node))
        {
            self.control(&fields);
        }
        if let Some(fields) =
            fields.value("admission").and_then(|node| self.section(&ADMISSION, node))
        {
            self.admission(&fields);
        }
        if let Some(node) = fields.value("administrators") {
            self.draft.administrators = self.accounts(&ADMINISTRATORS, node);
        }
        if let Some(entry) = fields.get("tenants") {
            self.draft.tenants_at = Some(self.key_place(entry));
            let mut names = std::mem::take(&mut self.names);
            let tenants = self.tenants(entry, "", 1, &mut names);
            self.names = names;
            self.draft.tenants.extend(tenants);
        }
    }

    fn version(&mut self, entry: &Entry) {
        self.draft.version = Some(self.key_place(entry));
        match &entry.value.kind {
            Kind::Scalar { text, plain: true } if &**text == "1" => {}
            Kind::Scalar { text, plain: true } => {
                let message = format!("version `{}` is not supported", shortened(text));
                let finding = rules::UNKNOWN_VERSION.at(&self.place(&entry.value), message, "");
                self.report.push(finding.help("this program reads version 1: say `version: 1`"));
            }
            _ => self.wrong_type(&entry.value, "the number 1"),
        }
    }

    fn host(&mut self, fields: &Fields<'_>) {
        if let Some(node) = fields.value("reserve") {
            self.draft.reserve = self.bound(&RESERVE, node);
        }
        if let Some(node) = fields.value("hierarchy") {
            let choices = [
                ("auto", HierarchyChoice::Auto),
                ("unified", HierarchyChoice::Unified),
                ("legacy", HierarchyChoice::Legacy),
                ("simulated", HierarchyChoice::Simulated),
            ];
            self.draft.hierarchy = self.choice(node, &choices).unwrap_or_default();
        }
        if let Some(root) = fields.value("root").and_then(|node| self.text(node, "a cgroup path")) {
            match root.value.as_str() {
                "auto" => {}
                path => match cgroup_path(path, false) {
                    Ok(normal) if path.starts_with('/') => {
                        self.draft.root = RootChoice::Path(PathBuf::from(normal));
                    }
                    Ok(normal) => {
                        self.draft.root = RootChoice::Path(PathBuf::from(&normal[1..]));
                    }
                    Err(refusal) => self.refuse_path(&root.place, path, refusal),
                },
            }
        }
    }

    fn control(&mut self, fields: &Fields<'_>) {
        let mut control = ControlPolicy::default();
        if let Some(interval) = fields.value("interval").and_then(|node| self.interval(node)) {
            control.interval = interval;
        }
        if let Some(node) = fields.value("allocation") {
            let choices = [
                ("drf", Allocation::Drf),
                ("max-min", Allocation::MaxMin),
                ("static", Allocation::Static),
            ];
            control.allocation = self.choice(node, &choices).unwrap_or_default();
        }
        if let Some(node) = fields.value("oversubscription")
            && let Some(factor) = self.number(node)
        {
            match (0.1..=8.0).contains(&factor) {
                true => control.oversubscription = factor,
                false => self.out_of_range(node, "a number from 0.1 to 8"),
            }
        }
        if let Some(node) = fields.value("on_exit") {
            let choices = [("restore", OnExit::Restore), ("keep", OnExit::Keep)];
            control.on_exit = self.choice(node, &choices).unwrap_or_default();
        }
        if let Some(node) = fields.value("watch_policy") {
            let choices = [("false", false), ("true", true)];
            control.watch_policy = self.choice(node, &choices).unwrap_or_default();
        }
        if let Some(node) = fields.value("on_drift") {
            let choices = [("repair", OnDrift::Repair), ("accept", OnDrift::Accept)];
            control.on_drift = self.choice(node, &choices).unwrap_or_default();
        }
        self.draft.control = control;
    }

    fn admission(&mut self, fields: &Fields<'_>) {
        let mut admission = AdmissionPolicy::default();
        if let Some(node) = fields.value("discipline") {
            let choices = [
                ("fifo", Discipline::Fifo),
                ("priority", Discipline::Priority),
                ("round-robin", Discipline::RoundRobin),
                ("fq", Discipline::Fq),
                ("wfq", Discipline::Wfq),
                ("wf2q", Discipline::Wf2q),
                ("2dfq", Discipline::TwoDfq),
                ("2dfq-e", Discipline::TwoDfqE),
                ("drf", Discipline::Drf),
            ];
            admission.discipline = self.choice(node, &choices).unwrap_or_default();
        }
        match fields.value("max_running") {
            Some(node) if !is_word(node, "auto") => {
                admission.max_running = self.whole(node, 1..=100_000, "`auto` or a number");
            }
            _ => {}
        }
        if let Some(node) = fields.value("running") {
            let choices =
                [("equal", RunningShares::Equal), ("multilevel", RunningShares::Multilevel)];
            admission.running = self.choice(node, &choices).unwrap_or_default();
        }
        self.draft.admission = admission;
    }

    /// The tenants under one `tenants` key.
    fn tenants(
        &mut self,
        entry: &Entry,
        prefix: &str,
        depth: usize,
        names: &mut HashMap<String, Place>,
    ) -> Vec<TenantDraft> {
        let entries = match &entry.value.kind {
            Kind::Map(entries) if !entries.is_empty() => entries,
            Kind::Map(_) | Kind::Null => {
                let place = self.key_place(entry);
                let finding = rules::NO_TENANTS.at(&place, "`tenants` names no tenant", "");
                self.report.push(finding.help("name one: `web: { weight: 100 }`"));
                return Vec::new();
            }
            _ => {
                self.wrong_type(&entry.value, "a map of tenants (`web: { weight: 100 }`)");
                return Vec::new();
            }
        };
        if depth > DEEPEST {
            let place = self.key_place(entry);
            let message = format!("groups are nested more than {DEEPEST} deep");
            let finding = rules::TOO_DEEP.at(&place, message, "one level too many");
            self.report.push(finding.help("weights of groups multiply: fewer levels say the same"));
            return Vec::new();
        }
        let mut drafts = Vec::new();
        for entry in entries {
            let place = self.key_place(entry);
            self.nr_tenants += 1;
            if self.nr_tenants > MOST_TENANTS {
                if self.nr_tenants == MOST_TENANTS + 1 {
                    let message = format!("more than {MOST_TENANTS} tenants");
                    self.report.push(rules::TOO_MANY.at(&place, message, "one too many"));
                }
                break;
            }
            self.name(&entry.key, &place);
            match names.get(&*entry.key) {
                Some(first) => {
                    let message = format!("tenant `{}` is defined twice", shortened(&entry.key));
                    let finding = rules::DUPLICATE_TENANT.at(&place, message, "defined again here");
                    self.report.push(
                        finding
                            .also(first.label("first defined here"))
                            .help("rename one of the two, or merge them"),
                    );
                }
                None => {
                    names.insert(entry.key.to_string(), place);
                }
            }
            drafts.extend(self.tenant(entry, prefix, depth));
        }
        drafts
    }

    fn name(&mut self, name: &str, place: &Place) {
        if let Err(help) = safe_name(name) {
            let message = format!("`{}` cannot be the name of a tenant", shortened(name));
            self.report.push(rules::BAD_NAME.at(place, message, "").help(help));
        }
    }

    fn tenant(&mut self, entry: &Entry, prefix: &str, depth: usize) -> Option<TenantDraft> {
        let name = At { value: entry.key.to_string(), place: self.key_place(entry) };
        let path = match prefix {
            "" => name.value.clone(),
            _ => format!("{prefix}/{}", name.value),
        };
        let fields = self.section(&TENANT, &entry.value)?;
        let weight = fields.value("weight").map(|node| self.weight(node)).unwrap_or_default();
        let guarantee =
            fields.value("guarantee").map(|node| self.bound(&GUARANTEE, node)).unwrap_or_default();
        let limit = fields.value("limit").map(|node| self.limit(node)).unwrap_or_default();
        let matches = fields.get("match").map(|entry| self.matches(entry)).unwrap_or_default();
        let owner = fields.value("owner").and_then(|node| self.owner(node));
        let dop = fields.value("dop").and_then(|node| self.dop(node));
        let cpus = fields.value("cpus").and_then(|node| self.cpus(node));
        let allow =
            fields.value("allow").map(|node| self.accounts(&ALLOW, node)).unwrap_or_default();
        let mut tenants = Vec::new();
        if let Some(below) = fields.get("tenants") {
            self.refuse_leaf_keys(&fields, below);
            tenants = self.tenants(below, &path, depth + 1, &mut HashMap::new());
        }
        Some(TenantDraft {
            path,
            name,
            weight,
            guarantee,
            limit,
            matches,
            owner,
            dop,
            cpus,
            allow,
            tenants,
        })
    }

    fn refuse_leaf_keys(&mut self, fields: &Fields<'_>, below: &Entry) {
        let group = self.key_place(below);
        for key in LEAF_KEYS {
            if let Some(entry) = fields.get(key) {
                let message = format!("a group has no `{key}`");
                let finding = rules::GROUP_KEY.at(&self.key_place(entry), message, "");
                self.report.push(
                    finding
                        .also(group.label("this makes it a group"))
                        .help("a group only shares out: give the key to the tenants below it"),
                );
            }
        }
    }

    fn weight(&mut self, node: &Node) -> Weights {
        let fields = match &node.kind {
            Kind::Map(_) => self.fields(&WEIGHT, node),
            _ => {
                let weight = self.one_weight(node);
                return Weights { cpu: weight, memory: weight };
            }
        };
        let fields = fields.unwrap_or(Fields(Vec::new()));
        Weights {
            cpu: fields.value("cpu").map(|node| self.one_weight(node)).unwrap_or_default(),
            memory: fields.value("memory").map(|node| self.one_weight(node)).unwrap_or_default(),
        }
    }

    fn one_weight(&mut self, node: &Node) -> Weight {
        let Some(number) = self.number(node) else { return Weight::default() };
        Weight::try_new(number).unwrap_or_else(|error| {
            let message = format!("{} is not a weight", node.describe());
            self.report.push(rules::BAD_WEIGHT.at(&self.place(node), message, "").help(error.help));
            Weight::default()
        })
    }

    fn bound(&mut self, section: &'static Section, node: &Node) -> BoundDraft {
        let Some(fields) = self.fields(section, node) else { return BoundDraft::default() };
        BoundDraft {
            cpu: fields.value("cpu").and_then(|node| self.quantity(node, &rules::BAD_CPUS)),
            memory: fields.value("memory").and_then(|node| self.quantity(node, &rules::BAD_MEMORY)),
        }
    }

    /// A limit also knows `max`, and must leave enough to run at all.
    fn limit(&mut self, node: &Node) -> BoundDraft {
        /// The kernel's smallest quota: 1 ms in the period of 100 ms (`min_cfs_quota_period`).
        const LEAST_CPU: MilliCpus = MilliCpus(10);
        const LEAST_MEMORY: Bytes = Bytes::mib(1);
        let Some(fields) = self.fields(&LIMIT, node) else { return BoundDraft::default() };
        let finite = |key: &str| fields.value(key).filter(|node| !is_word(node, "max"));
        let bound = BoundDraft {
            cpu: finite("cpu").and_then(|node| self.quantity(node, &rules::BAD_CPUS)),
            memory: finite("memory").and_then(|node| self.quantity(node, &rules::BAD_MEMORY)),
        };
        if let Some(cpu) = bound.cpu.as_ref().filter(|cpu| cpu.value < LEAST_CPU) {
            self.too_small(&cpu.place, cpu.value, "10m, the kernel's smallest quota");
        }
        if let Some(memory) = bound.memory.as_ref().filter(|memory| memory.value < LEAST_MEMORY) {
            self.too_small(&memory.place, memory.value, "1MiB: less holds no process");
        }
        bound
    }

    fn too_small(&mut self, place: &Place, value: impl Display, least: &str) {
        let message = format!("a limit of {value} would stop the tenant");
        let finding = rules::OUT_OF_RANGE.at(place, message, "");
        self.report.push(finding.help(format!("the smallest limit is {least}")));
    }

    fn matches(&mut self, entry: &Entry) -> MatchDraft {
        let mut matches = MatchDraft::default();
        let fields = match &entry.value.kind {
            Kind::Null => Some(Fields(Vec::new())),
            _ => self.fields(&MATCH, &entry.value),
        };
        let Some(fields) = fields else { return matches };
        if fields.0.is_empty() && self.is_bare(&entry.value) {
            let place = self.key_place(entry);
            let finding = rules::EMPTY_MATCH.at(&place, "this `match` claims nothing", "");
            self.report
                .push(finding.help("name a `unit`, `cgroup`, `users` or `groups`, or drop it"));
        }
        if let Some(node) = fields.value("unit") {
            matches.units = self.names_of(node, "a systemd unit", unit_name);
        }
        if let Some(node) = fields.value("cgroup") {
            for path in self.texts(node, "a cgroup path") {
                match cgroup_path(&path.value, true) {
                    Ok(normal) => matches.cgroups.push(At { value: normal, place: path.place }),
                    Err(refusal) => self.refuse_path(&path.place, &path.value, refusal),
                }
            }
        }
        if let Some(node) = fields.value("users") {
            matches.users = self.names_of(node, "a user", account_name);
        }
        if let Some(node) = fields.value("groups") {
            matches.groups = self.names_of(node, "a group of users", account_name);
        }
        matches
    }

    /// Whether a map holds nothing at all, unknown keys included.
    fn is_bare(&self, node: &Node) -> bool {
        match &node.kind {
            Kind::Map(entries) => entries.is_empty(),
            _ => true,
        }
    }

    fn owner(&mut self, node: &Node) -> Option<At<OwnerChoice>> {
        let choices = [
            ("auto", OwnerChoice::Auto),
            ("direct", OwnerChoice::Direct),
            ("systemd", OwnerChoice::Systemd),
        ];
        let value = self.choice(node, &choices)?;
        Some(At { value, place: self.place(node) })
    }

    fn dop(&mut self, node: &Node) -> Option<At<DopPolicy>> {
        if let Kind::Scalar { .. } = node.kind {
            let choices = [("auto", DopPolicy::Auto), ("imci", DopPolicy::Imci)];
            let value = self.choice(node, &choices)?;
            return Some(At { value, place: self.place(node) });
        }
        let fields = self.fields(&DOP, node)?;
        if let (Some(manual), Some(max)) = (fields.get("manual"), fields.get("max")) {
            let message = "`dop` is both `manual` and bounded by `max`";
            let finding = rules::DOP_TWICE.at(&self.key_place(max), message, "");
            let manual = self.key_place(manual).label("exactly this wide");
            self.report.push(finding.also(manual).help("keep one of the two"));
            return None;
        }
        const WIDEST: RangeInclusive<u32> = 1..=CPU_NUMBERS;
        if let Some(node) = fields.value("manual") {
            let value = DopPolicy::Manual(self.whole(node, WIDEST, "a number of CPUs")?);
            return Some(At { value, place: self.place(node) });
        }
        let node = fields.value("max")?;
        let value = DopPolicy::AtMost(self.whole(node, WIDEST, "a number of CPUs")?);
        Some(At { value, place: self.place(node) })
    }

    fn cpus(&mut self, node: &Node) -> Option<At<CpusPolicy>> {
        let text = self.text(node, "`shared`, `dop`, `exclusive` or a list of CPUs")?;
        let plain_number = matches!(&node.kind, Kind::Scalar { text, plain: true } if text.bytes().all(|b| b.is_ascii_digit()));
        let value = match text.value.as_str() {
            "shared" => CpusPolicy::Shared,
            "dop" => CpusPolicy::Dop,
            "exclusive" => CpusPolicy::Exclusive,
            number if plain_number => {
                let message = format!("`cpus: {number}` could be CPU {number}, or {number} CPUs");
                let help = format!(
                    "say `cpus: \"{number}\"` for CPU {number}, or `dop: {{ max: {number} }}` for that many"
                );
                self.report.push(rules::BAD_CPU_LIST.at(&text.place, message, "").help(help));
                return None;
            }
            word if word.starts_with(|c: char| c.is_alphabetic()) => {
                self.unknown_word(
                    node,
                    word,
                    &["shared", "dop", "exclusive"],
                    " or a list such as `0-3,8`",
                );
                return None;
            }
            list => match cpu_list(list) {
                Ok(cpus) => CpusPolicy::Fixed(cpus),
                Err(help) => {
                    let message = format!("`{}` is not a list of CPUs", shortened(list));
                    self.report.push(rules::BAD_CPU_LIST.at(&text.place, message, "").help(help));
                    return None;
                }
            },
        };
        Some(At { value, place: text.place })
    }

    /// Users and groups of users.
    fn accounts(&mut self, section: &'static Section, node: &Node) -> AccountsDraft {
        let Some(fields) = self.section(section, node) else { return AccountsDraft::default() };
        let mut names = |key: &str, what: &str| {
            fields
                .value(key)
                .map(|node| self.names_of(node, what, account_name))
                .unwrap_or_default()
        };
        AccountsDraft {
            users: names("users", "a user"),
            groups: names("groups", "a group of users"),
        }
    }
}
