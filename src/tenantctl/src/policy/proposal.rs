//! From the work on a host to a policy: choice of tenants, their names, and the text.
//!
//! A service or slice becomes a tenant if it used a part of the machine that is worth dividing; the busiest
//! come first, at most [`MOST_TENANTS`]. Programs of the system itself are never tenants. Each logged-in
//! user is a tenant of one group: one alone by name, several by a template. A comment names the rest.
//!
//! **Every proposal is valid here.** Each tenant is tried with those before it, and dropped if `check` has
//! an error or a warning.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::survey::{Found, Survey};
use tenantd_core::kernel_text::cleaned;
use tenantd_core::units::{Bytes, MilliCpus};
use tenantd_policy::is_tenant_name;

/// Most tenants that are services, slices or containers.
pub const MOST_TENANTS: usize = 8;
/// Number of people from which a template finds them; fewer are named.
const SEVERAL: usize = 2;
const MOST_NAMED: usize = 12;

/// Smallest part of the machine's busy time, or of its memory, that makes a service a tenant.
const LEAST_CPU_RATIO: f64 = 0.01;
const LEAST_MEMORY_RATIO: f64 = 0.02;

/// Prefixes of units of the system itself. `host.reserve` covers their usage.
const OF_THE_SYSTEM: [&str; 16] = [
    "systemd-",
    "system-systemd",
    "system-getty",
    "system-serial",
    "system-modprobe",
    "getty@",
    "serial-getty@",
    "dbus",
    "polkit",
    "udisks",
    "user@",
    "user-runtime-dir@",
    "ssh.",
    "sshd.",
    "tenantd",
    "-.",
];

#[derive(Clone, Debug, PartialEq)]
struct Tenant {
    name: String,
    /// Its `match`, in YAML.
    rule: String,
    found: Found,
}

/// Proposes a policy for a host; `is_accepted` tries a text.
pub fn propose(survey: &Survey, is_accepted: impl Fn(&str) -> bool) -> String {
    let mut proposal = Proposal { survey, services: Vec::new(), people: Vec::new() };
    let mut names = BTreeSet::from(["people".to_string()]);
    let units: Vec<&Found> = survey.units.iter().chain(&survey.containers).collect();
    let mut worthy: Vec<&Found> = units.into_iter().filter(|it| is_worthy(survey, it)).collect();
    worthy.sort_by(|a, b| share(survey, b).total_cmp(&share(survey, a)));
    for found in worthy {
        let tenant = tenant(found, &mut names);
        proposal.take(tenant, MOST_TENANTS, &is_accepted, |it| &mut it.services);
    }
    let mut users: Vec<&Found> = survey.users.values().collect();
    users.sort_by(|a, b| share(survey, b).total_cmp(&share(survey, a)));
    // A template finds several people, including future ones.
    for found in users.into_iter().filter(|_| survey.users.len() < SEVERAL) {
        let rule = format!("{{ users: {} }}", quoted(&found.name));
        let person = Tenant { name: safe(&found.name), rule, found: found.clone() };
        proposal.take(person, SEVERAL, &is_accepted, |it| &mut it.people);
    }
    proposal.fill(&mut names, &is_accepted);
    proposal.text()
}

struct Proposal<'a> {
    survey: &'a Survey,
    services: Vec<Tenant>,
    people: Vec<Tenant>,
}

impl Proposal<'_> {
    /// Takes a tenant if there are fewer than `most`, and the policy is accepted with it.
    fn take(
        &mut self,
        tenant: Tenant,
        most: usize,
        is_accepted: &impl Fn(&str) -> bool,
        list: impl Fn(&mut Self) -> &mut Vec<Tenant>,
    ) {
        if list(self).len() < most && !list(self).iter().any(|it| it.name == tenant.name) {
            list(self).push(tenant);
            if !is_accepted(&self.text()) {
                list(self).pop();
            }
        }
    }

    /// Adds the slices of all users and of all services, if no single ones were taken.
    fn fill(&mut self, names: &mut BTreeSet<String>, is_accepted: &impl Fn(&str) -> bool) {
        let slices = [
            ("services", &self.survey.system_slice, self.services.is_empty()),
            ("users", &self.survey.user_slice, self.survey.users.is_empty()),
        ];
        for (name, slice, is_empty) in slices {
            if let Some(found) = slice.as_ref().filter(|_| is_empty) {
                let rule = format!("{{ unit: {} }}", found.name);
                let tenant = Tenant { name: unused(name, names), rule, found: found.clone() };
                self.take(tenant, usize::MAX, is_accepted, |it| &mut it.services);
            }
        }
    }

    fn text(&self) -> String {
        let survey = self.survey;
        let (cpus, memory) = (survey.nr_cpus, Bytes(survey.memory_bytes).rounded());
        let (reserved_cpus, reserved_memory) = reserve(survey);
        let mut text = format!(
            "\
# Proposed by `tenantctl init` for this machine: {cpus} CPUs, {memory}. tenantd.policy(5) has all keys.
#
# After a change:       tenantctl check FILE; systemctl reload tenantd
# What it would do:     tenantctl status; tenantctl plan
# Put it into force:    tenantctl mode enforce, or `mode: enforce` here
version: 1

# observe: compute and report. enforce: write what was computed.
mode: observe

host:
  # Kept for the system, and not divided among the tenants. Or percentages: {{ cpu: 5%, memory: 5% }}
  reserve: {{ cpu: {reserved_cpus}, memory: {reserved_memory} }}

# Weights are relative to one another: a tenant of 200 gets twice as much as one of 100 while both want more.
# A guarantee is what a tenant gets whenever it wants it, a limit what it never exceeds:
#   guarantee: {{ cpu: 500m, memory: 10% }}
#   limit: {{ cpu: 50%, memory: 75%, pids: 4096 }}
tenants:
"
        );
        for tenant in &self.services {
            tenant.write(&mut text);
        }
        self.write_people(&mut text);
        if self.services.is_empty() && self.people.is_empty() {
            text += "  # Nothing was found that could be one. This is a cgroup made below tenantd's own: write the\n\
                     \x20 # numbers of processes into its cgroup.procs.\n  jobs:\n    weight: 100\n";
        }
        self.write_rest(&mut text);
        text
    }

    fn write_people(&self, text: &mut String) {
        let are_several = self.survey.users.len() >= SEVERAL;
        if self.people.is_empty() && !are_several {
            return;
        }
        *text += "\n  # Users with running processes, as one group: it is weighed against the tenants above, and they\n  \
                  # against one another.\n";
        *text += match (&self.survey.user_slice, self.survey.has_units) {
            (Some(_), _) => {
                "  # All users together as one tenant: say, with nothing else below but the weight,\n  \
                 #   match: { unit: user.slice }\n"
            }
            (None, true) => "",
            (None, false) => {
                "  # This host has no slices of users: in mode enforce their processes are moved into cgroups made\n  \
                 # for them, and back at the end.\n"
            }
        };
        *text += "  people:\n    weight: 100\n    # limit: { memory: 75% }\n";
        if are_several {
            *text += "    # Each of them, also those to come, is a tenant while something of theirs runs. Those whom `tenants:`\n    \
                      # names come first, as in\n    \
                      #   tenants: { ana: { weight: 300, match: { users: ana } } }\n    \
                      each:\n      match: { users: \"*\" }\n      weight: 100\n";
            return self.write_present(text);
        }
        *text += "    tenants:\n";
        for tenant in &self.people {
            let Tenant { name, rule, found } = tenant;
            let name = quoted(name);
            let used = used(found);
            writeln!(text, "      {name}: {{ weight: 100, match: {rule} }}   # {used}").ok();
        }
    }

    fn write_present(&self, text: &mut String) {
        *text += "    # Now:\n";
        let users = self.survey.users.values();
        for found in users.clone().take(MOST_NAMED) {
            writeln!(text, "    #   {}, {}", cleaned(&found.name), used(found)).ok();
        }
        if users.len() > MOST_NAMED {
            writeln!(text, "    #   and {} more", users.len() - MOST_NAMED).ok();
        }
    }

    fn write_rest(&self, text: &mut String) {
        let is_taken = |found: &Found| {
            self.services.iter().chain(&self.people).any(|it| it.found.name == found.name)
        };
        let rest = |all: &[Found], shown: fn(&Found) -> String| -> Vec<String> {
            all.iter().filter(|found| !is_taken(found)).map(shown).collect()
        };
        let units = rest(&self.survey.units, |it| format!("{} ({})", it.name, used(it)));
        let containers = rest(&self.survey.containers, |it| {
            format!("{} of {} ({})", it.nr_parts, it.name, used(it))
        });
        let cgroups = rest(&self.survey.cgroups, |it| format!("{} ({})", it.name, used(it)));
        let users: Vec<Found> = self.survey.users.values().cloned().collect();
        let users =
            if users.len() < SEVERAL { rest(&users, |it| it.name.clone()) } else { Vec::new() };
        for (what, remedy, rest) in [
            ("Also running, and no tenant", "match: { unit: NAME }", units),
            ("Containers in scopes of their own", "match: { unit: NAME }", containers),
            ("Cgroups that are no units", "match: { cgroup: PATH }", cgroups),
            ("More people", "match: { users: NAME }", users),
        ] {
            if rest.is_empty() {
                continue;
            }
            let more = rest.len().saturating_sub(MOST_NAMED);
            writeln!(text, "\n  # {what} (to make it one: `{remedy}`):").ok();
            for one in rest.iter().take(MOST_NAMED) {
                writeln!(text, "  #   {}", cleaned(one)).ok();
            }
            if more > 0 {
                writeln!(text, "  #   and {more} more").ok();
            }
        }
    }
}

impl Tenant {
    fn write(&self, text: &mut String) {
        let Tenant { name, rule, found } = self;
        let name = quoted(name);
        let guarantee = found.memory_bytes.map_or_else(|| "10%".to_string(), guarantee);
        let used = used(found);
        write!(
            text,
            "  {name}:   # {used}
    weight: 100
    match: {rule}
    # guarantee: {{ memory: {guarantee} }}
"
        )
        .ok();
    }
}

/// Used part of the machine: the larger of the CPU and memory parts.
fn share(survey: &Survey, found: &Found) -> f64 {
    let [cpu, memory] = ratios(survey, found);
    cpu.max(memory)
}

fn ratios(survey: &Survey, found: &Found) -> [f64; 2] {
    let ratio = |part: Option<u64>, all: u64| part.unwrap_or(0) as f64 / all.max(1) as f64;
    [ratio(found.usage_usec, survey.busy_usec), ratio(found.memory_bytes, survey.memory_bytes)]
}

fn is_worthy(survey: &Survey, found: &Found) -> bool {
    let [cpu, memory] = ratios(survey, found);
    let is_large = cpu >= LEAST_CPU_RATIO || memory >= LEAST_MEMORY_RATIO;
    is_large && !OF_THE_SYSTEM.iter().any(|prefix| found.name.starts_with(prefix))
}

fn tenant(found: &Found, names: &mut BTreeSet<String>) -> Tenant {
    let stem = found.name.rsplit_once('.').map_or(&*found.name, |(stem, _)| stem);
    let is_slice = found.name.ends_with(".slice");
    let stem = stem.strip_prefix("system-").filter(|_| is_slice).unwrap_or(stem);
    let name = unused(&safe(stem.trim_end_matches("-*")), names);
    Tenant { name, rule: format!("{{ unit: {} }}", quoted(&found.name)), found: found.clone() }
}

fn safe(name: &str) -> String {
    // Systemd escapes a dash in this way.
    let name = name.replace("\\x2d", "-");
    let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = name.chars().map(|c| if is_safe(c) { c } else { '-' }).take(48).collect();
    let name = name.trim_matches('-');
    if is_tenant_name(name) { name.to_string() } else { format!("tenant-{name}") }
}

fn unused(name: &str, names: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let free = std::iter::once(name.to_string()).chain(numbered).find(|it| !names.contains(it));
    let name = free.unwrap_or_default();
    names.insert(name.clone());
    name
}

/// Quotes a text for YAML, unless it can only be a text.
fn quoted(text: &str) -> String {
    const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let is_plain = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.@-".contains(c))
        && !WORDS.contains(&text);
    if is_plain { text.to_string() } else { serde_json::Value::from(text).to_string() }
}

fn used(found: &Found) -> String {
    let cpu = found.usage_usec.map(|usec| format!("{} s of CPU time", usec / 1_000_000));
    let memory = found.memory_bytes.map(|bytes| format!("{} in use", Bytes(bytes).rounded()));
    let both: Vec<String> = memory.into_iter().chain(cpu).collect();
    match found.nr_parts {
        _ if !both.is_empty() => both.join(", "),
        1 => "1 process".to_string(),
        nr_parts => format!("{nr_parts} processes"),
    }
}

/// A guarantee of about the used memory, in whole steps of 16 MiB.
fn guarantee(bytes: u64) -> String {
    const STEP: u64 = 16 << 20;
    Bytes(bytes.div_ceil(STEP).max(1) * STEP).to_string()
}

/// Reserve for the system: a twentieth, within bounds, and never more than a quarter.
fn reserve(survey: &Survey) -> (String, String) {
    let milli = u64::from(survey.nr_cpus) * 1000;
    let cpus = (milli / 20).clamp(100, 2000).min(milli / 4) / 50 * 50;
    let mib = survey.memory_bytes >> 20;
    let memory = (mib / 20).clamp(128, 4096).min(mib / 4) / 32 * 32;
    (MilliCpus(cpus).to_string(), Bytes(memory << 20).to_string())
}
