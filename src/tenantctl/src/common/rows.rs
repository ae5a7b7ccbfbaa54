//! Rows of a list of tenants: chosen, sorted, idle ones folded. `status`, `watch`, `top` and the page show the same rows.
//!
//! **Idle.** A tenant is idle if it uses no CPU, wants none, lacks nothing, and has no jobs. A tenant whose usage
//! could not be read is not idle.
//!
//! **Folding.** If a group has at least [`FOLD_MIN`] idle tenants directly in it, one row replaces them. In the
//! order of the policy it is the last one of the group, otherwise the last one of all.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

use crate::args::SortKey;
use tenantd_control::report::reason::SEEN_CORES_MIN;
use tenantd_control::report::status::{Line, Status, TenantStatus, Thresholds, group_of};
use tenantd_core::resource::{CPU, MEMORY};

/// Least number of idle tenants that one row replaces.
pub const FOLD_MIN: usize = 3;

/// Treatment of idle tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// They have rows like all others.
    #[default]
    Shown,
    /// One row for those of a group.
    Folded,
    /// They have no rows, and groups of idle tenants neither.
    Hidden,
}

/// Choice and order of the rows.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Only this tenant, or this group with its tenants.
    pub name: Option<String>,
    /// Only tenants that lack something.
    pub lacking: bool,
    /// Only names that contain this text, in any case.
    pub filter: String,
    /// Order.
    pub sort: SortKey,
    /// Sorts siblings only, so that each group precedes its tenants.
    pub is_tree: bool,
    /// Treatment of idle tenants.
    pub idle: Idle,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub enum Row<'a> {
    /// A tenant or group.
    Line(Line<'a>),
    /// Idle tenants of a group.
    Fold(Fold<'a>),
}

/// Idle tenants of a group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fold<'a> {
    /// The group.
    pub group: &'a str,
    /// Number of tenants.
    pub nr_tenants: usize,
    /// Memory that they hold.
    pub memory_bytes: f64,
}

/// True if a tenant gets less than its share, by the thresholds of the status.
pub fn lacks(tenant: &TenantStatus, thresholds: &Thresholds) -> bool {
    is_unfair(tenant, thresholds) || !tenant.reasons.is_empty()
}

/// True if the share error of a tenant is above its threshold.
pub(crate) fn is_unfair(tenant: &TenantStatus, thresholds: &Thresholds) -> bool {
    tenant.share_error.is_some_and(|error| error > thresholds.share_error_ratio)
}

fn is_idle(tenant: &TenantStatus, thresholds: &Thresholds) -> bool {
    let has_jobs = tenant.jobs.as_ref().is_some_and(|it| it.nr_running + it.nr_waiting > 0);
    tenant.usage[CPU].is_some_and(|cores| cores < SEEN_CORES_MIN)
        && tenant.demand[CPU] < SEEN_CORES_MIN
        && !lacks(tenant, thresholds)
        && !has_jobs
}

/// True if a choice of `name` includes `line`.
fn is_below(line: &str, name: &str) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Depth of a tenant or group in a tree, and its name there, without its groups.
pub(crate) fn place_in_tree(name: &str) -> (usize, &str) {
    match group_of(name) {
        "" => (0, name),
        group => (1 + group.matches('/').count(), &name[group.len() + 1..]),
    }
}

/// Names of the groups above `name`, the nearest first.
fn groups_above(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| Some(group_of(name)))
        .skip(1)
        .take_while(|it| !it.is_empty())
}

/// Tenants of `status` that a name selects.
pub(crate) fn is_chosen(name: &str, choice: &Choice) -> bool {
    choice.name.as_ref().is_none_or(|chosen| is_below(name, chosen))
        && (choice.filter.is_empty() || name.to_lowercase().contains(&choice.filter.to_lowercase()))
}

/// Returns the rows of a list of the tenants and groups of `status`.
pub fn rows<'a>(status: &'a Status, choice: &Choice) -> Vec<Row<'a>> {
    let thresholds = &status.thresholds;
    let mut lines = status.lines();
    lines.retain(|line| is_chosen(line.name(), choice));
    if choice.lacking {
        lines.retain(|line| line.tenant().is_some_and(|tenant| lacks(tenant, thresholds)));
    }
    let is_idle = |line: &Line<'_>| line.tenant().is_some_and(|it| is_idle(it, thresholds));
    let mut folds = Vec::new();
    match choice.idle {
        Idle::Shown => {}
        Idle::Folded => folds = fold(&mut lines, is_idle),
        Idle::Hidden => hide(&mut lines, is_idle),
    }
    sort(&mut lines, choice, thresholds);
    let is_by_group = choice.is_tree || choice.sort == SortKey::Policy;
    insert(lines, folds, is_by_group)
}

/// Takes idle tenants out of `lines` if their group has enough of them.
fn fold<'a>(lines: &mut Vec<Line<'a>>, is_idle: impl Fn(&Line<'_>) -> bool) -> Vec<Fold<'a>> {
    let mut folds: BTreeMap<&'a str, Fold<'a>> = BTreeMap::new();
    for line in lines.iter().filter(|line| is_idle(line)) {
        let group = group_of(line.name());
        let fold = folds.entry(group).or_insert(Fold { group, ..Fold::default() });
        fold.nr_tenants += 1;
        fold.memory_bytes += line.usage()[MEMORY].unwrap_or(0.0);
    }
    folds.retain(|group, fold| !group.is_empty() && fold.nr_tenants >= FOLD_MIN);
    lines.retain(|line| !(is_idle(line) && folds.contains_key(group_of(line.name()))));
    // An inner group ends before the group around it.
    folds.into_values().rev().collect()
}

/// Takes idle tenants out of `lines`, and groups that have no others.
fn hide(lines: &mut Vec<Line<'_>>, is_idle: impl Fn(&Line<'_>) -> bool) {
    lines.retain(|line| !is_idle(line));
    let mut busy: Vec<&str> = Vec::new();
    for line in lines.iter().filter(|line| line.tenant().is_some()) {
        busy.extend(groups_above(line.name()));
    }
    busy.sort_unstable();
    lines.retain(|line| line.tenant().is_some() || busy.binary_search(&line.name()).is_ok());
}

fn sort(lines: &mut Vec<Line<'_>>, choice: &Choice, thresholds: &Thresholds) {
    let mut lacking = HashSet::new();
    if choice.sort == SortKey::Lacking {
        let all = lines.iter().filter(|line| line.tenant().is_some_and(|it| lacks(it, thresholds)));
        lacking.extend(all.flat_map(|line| groups_above(line.name()).chain([line.name()])));
    }
    let compare = |a: &Line<'_>, b: &Line<'_>| {
        let is_lacking = |line: &Line<'_>| lacking.contains(line.name());
        is_lacking(b).cmp(&is_lacking(a)).then_with(|| compare(a, b, choice.sort))
    };
    if choice.sort == SortKey::Policy {
        return;
    }
    if !choice.is_tree {
        lines.sort_by(compare);
        return;
    }
    let mut below: HashMap<&str, Vec<Line<'_>>> = HashMap::new();
    let mut shown: Vec<&str> = lines.iter().map(|line| line.name()).collect();
    shown.sort_unstable();
    for line in lines.drain(..) {
        // A group that the choice leaves out does not hide its tenants.
        let mut above = groups_above(line.name());
        let parent = above.find(|group| shown.binary_search(group).is_ok()).unwrap_or("");
        below.entry(parent).or_default().push(line);
    }
    for siblings in below.values_mut() {
        siblings.sort_by(compare);
        // The last one is taken first.
        siblings.reverse();
    }
    let mut left = below.remove("").unwrap_or_default();
    while let Some(line) = left.pop() {
        left.extend(below.remove(line.name()).into_iter().flatten());
        lines.push(line);
    }
}

/// Order of two lines; figures that are unknown, or that groups do not have, come last.
fn compare(a: &Line<'_>, b: &Line<'_>, key: SortKey) -> Ordering {
    let descending = |read: fn(&Line<'_>) -> Option<f64>| {
        let value = |line| read(line).unwrap_or(f64::NEG_INFINITY);
        value(b).total_cmp(&value(a))
    };
    match key {
        SortKey::Policy | SortKey::Lacking => Ordering::Equal,
        SortKey::Name => a.name().cmp(b.name()),
        SortKey::Cpu => descending(|line| line.usage()[CPU]),
        SortKey::Wanted => descending(|line| Some(line.demand()[CPU])),
        SortKey::ShareNow => descending(|line| Some(line.allocation()[CPU])),
        SortKey::ShareIfBusy => descending(|line| Some(line.share_if_busy()[CPU])),
        SortKey::Memory => descending(|line| line.usage()[MEMORY]),
        SortKey::Error => descending(|line| line.tenant()?.share_error),
        SortKey::Pressure => descending(|line| line.tenant()?.cpu_pressure_ratio),
    }
}

/// Puts each fold behind the last line of its group, or all of them behind the last line.
fn insert<'a>(lines: Vec<Line<'a>>, folds: Vec<Fold<'a>>, is_by_group: bool) -> Vec<Row<'a>> {
    let mut last: HashMap<&str, usize> = HashMap::new();
    if is_by_group && !folds.is_empty() {
        for (at, line) in lines.iter().enumerate() {
            for group in std::iter::once(line.name()).chain(groups_above(line.name())) {
                last.insert(group, at);
            }
        }
    }
    let mut behind: BTreeMap<usize, Vec<Fold<'a>>> = BTreeMap::new();
    for fold in folds {
        behind.entry(last.get(fold.group).copied().unwrap_or(usize::MAX)).or_default().push(fold);
    }
    let mut rows = Vec::with_capacity(lines.len() + behind.len());
    for (at, line) in lines.into_iter().enumerate() {
        rows.push(Row::Line(line));
        rows.extend(behind.remove(&at).into_iter().flatten().map(Row::Fold));
    }
    rows.extend(behind.into_values().flatten().map(Row::Fold));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_control::report::status::{GroupStatus, ReasonStatus};
    use tenantd_core::resource::PerResource;

    fn tenant(name: &str, cores: f64) -> TenantStatus {
        TenantStatus {
            name: name.into(),
            usage: PerResource([Some(cores), Some(1e6)]),
            demand: PerResource([cores, 0.0]),
            ..TenantStatus::default()
        }
    }

    fn status() -> Status {
        let group = |name: &str| GroupStatus { name: name.into(), ..GroupStatus::default() };
        let names = ["db", "ci/x/p", "ci/x/q", "ci/x/r", "ci/two", "ci/d", "ci/e", "ci/f", "web"];
        Status {
            tenants: names
                .map(|name| tenant(name, if name.starts_with("ci/x/") { 2.0 } else { 0.0 }))
                .into(),
            groups: ["ci", "ci/x"].map(group).into(),
            ..Status::default()
        }
    }

    fn shown(status: &Status, choice: &Choice) -> Vec<String> {
        let of = |row: Row<'_>| match row {
            Row::Line(line) => line.name().to_string(),
            Row::Fold(fold) => format!("{} in {}", fold.nr_tenants, fold.group),
        };
        rows(status, choice).into_iter().map(of).collect()
    }

    #[test]
    fn idle_tenants_of_a_group_are_one_row_behind_it() {
        let mut status = status();
        let folded = Choice { idle: Idle::Folded, ..Choice::default() };
        let expected = ["db", "ci", "ci/x", "ci/x/p", "ci/x/q", "ci/x/r", "4 in ci", "web"];
        assert_eq!(shown(&status, &folded), expected);
        status.tenants[1..4].iter_mut().for_each(|it| *it = tenant(&it.name.clone(), 0.0));
        let expected = ["db", "ci", "ci/x", "3 in ci/x", "4 in ci", "web"];
        assert_eq!(shown(&status, &folded), expected);
        // Unknown, short of something, or with a demand: not idle.
        status.tenants[1].usage[CPU] = None;
        status.tenants[4].reasons.push(ReasonStatus::default());
        status.tenants[5].demand[CPU] = 1.0;
        let expected = [
            "db", "ci", "ci/x", "ci/x/p", "ci/x/q", "ci/x/r", "ci/two", "ci/d", "ci/e", "ci/f",
            "web",
        ];
        assert_eq!(shown(&status, &folded), expected);
        let sorted = Choice { sort: SortKey::Name, ..folded };
        assert_eq!(shown(&status, &sorted).len(), expected.len());
    }

    #[test]
    fn hidden_are_idle_tenants_and_their_groups() {
        let mut status = status();
        let hidden = Choice { idle: Idle::Hidden, ..Choice::default() };
        assert_eq!(shown(&status, &hidden), ["ci", "ci/x", "ci/x/p", "ci/x/q", "ci/x/r"]);
        status.tenants.iter_mut().for_each(|it| *it = tenant(&it.name.clone(), 0.0));
        assert_eq!(shown(&status, &hidden), [""; 0]);
    }

    #[test]
    fn a_tree_sorts_siblings_and_a_list_all() {
        let mut status = status();
        status.groups[0].usage[CPU] = Some(6.0);
        status.groups[1].usage[CPU] = Some(6.0);
        status.tenants[8].usage[CPU] = Some(9.0);
        status.tenants[3].usage[CPU] = Some(3.0);
        let by_cpu = Choice { sort: SortKey::Cpu, is_tree: true, ..Choice::default() };
        let expected = ["web", "ci", "ci/x", "ci/x/r", "ci/x/p", "ci/x/q"];
        assert_eq!(shown(&status, &by_cpu)[..6], expected);
        let list = Choice { is_tree: false, ..by_cpu };
        assert_eq!(shown(&status, &list)[..4], ["web", "ci", "ci/x", "ci/x/r"]);
    }

    #[test]
    fn tenants_that_lack_something_are_first_with_their_groups() {
        let mut status = status();
        status.tenants[2].reasons.push(ReasonStatus::default());
        status.tenants[7].share_error = Some(0.5);
        let mut lacking = Choice { sort: SortKey::Lacking, is_tree: true, ..Choice::default() };
        let tree = ["ci", "ci/x", "ci/x/q", "ci/x/p", "ci/x/r", "ci/f", "ci/two", "ci/d", "ci/e"];
        assert_eq!(shown(&status, &lacking)[..9], tree);
        assert_eq!(shown(&status, &lacking)[9..], ["db", "web"]);
        lacking.is_tree = false;
        assert_eq!(shown(&status, &lacking)[..5], ["ci", "ci/x", "ci/x/q", "ci/f", "db"]);
        let places = ["web", "ci/two", "ci/x/p"].map(place_in_tree);
        assert_eq!(places, [(0, "web"), (1, "two"), (2, "p")]);
    }

    #[test]
    fn rows_are_chosen_by_name_filter_and_lack() {
        let mut status = status();
        let named = |name: &str| Choice { name: Some(name.into()), ..Choice::default() };
        assert_eq!(shown(&status, &named("ci/x")), ["ci/x", "ci/x/p", "ci/x/q", "ci/x/r"]);
        assert_eq!(shown(&status, &named("ci/t")), [""; 0]);
        let filter = Choice { filter: "/X".into(), ..Choice::default() };
        assert_eq!(shown(&status, &filter), ["ci/x", "ci/x/p", "ci/x/q", "ci/x/r"]);
        status.tenants[0].share_error = Some(0.5);
        let lacking = Choice { lacking: true, ..Choice::default() };
        assert_eq!(shown(&status, &lacking), ["db"]);
    }
}
