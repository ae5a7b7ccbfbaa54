//! Cgroups that match patterns, as they come and go.
//!
//! **Problem.** Containers, jobs and runners have cgroups that start and end while the policy stays, and the
//! owner of a delegated subtree may make thousands of them.
//!
//! **Algorithm.** Each directory in which patterns begin has a *search*, breadth first from the part before the
//! first wildcard. Cgroups below a match are part of it and are not searched. A tick lists at most
//! [`LISTINGS_A_TICK`] cgroups, one of each search in turn, and adds at most [`NEW_A_TICK`] matches, so that no
//! search waits for a large one. A complete search starts again in the next tick, or later if there are
//! hundreds of cgroups. At most [`MATCHES_MAX`] cgroups of one pattern are members; further ones are counted.
//! An ended match stays for [`LINGER_TICKS`], and leaves together with all others that have ended.
//!
//! Names are compared as texts ([`tenantd_core::kernel_text`]): in a name that is not UTF-8 a `?` matches one
//! character of an escape. In cgroup v1 the search uses the cpu hierarchy.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::access::HostAccess;
use super::location::{Location, Sources};
use super::on_host::Ground;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_core::kernel_text::text_of_name;
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_host::kernfs::{KernError, KernFs};
use tenantd_policy::pattern;

/// Least ticks that an ended member stays.
pub(super) const LINGER_TICKS: u64 = 30;
const LISTINGS_A_TICK: usize = 64;
const NEW_A_TICK: usize = 64;
/// The pause between two rounds grows by one tick for this many cgroups.
const CGROUPS_A_TICK: usize = 100;
const MATCHES_MAX: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct Discovery {
    /// Found members of each pattern, as units or by path, with the tick in which each was last seen.
    matches: BTreeMap<String, BTreeMap<String, u64>>,
    searches: Vec<Search>,
    turn: usize,
    is_current: bool,
}

/// Index of a pattern, and its names reached so far by a path.
type Reached = (usize, Vec<usize>);

#[derive(Debug, Default)]
struct Search {
    dir: String,
    patterns: Vec<Pattern>,
    began: u64,
    next_at: u64,
    /// Cgroups whose children are still to be listed, each with the patterns that may match below it.
    left: VecDeque<(String, Vec<Reached>)>,
    nr_listed: usize,
    is_partial: bool,
    findings: Vec<(Code, String)>,
    told: Vec<(Code, String)>,
}

#[derive(Debug)]
struct Pattern {
    text: String,
    /// Key of the matches. Those of a template are separate, and are paths.
    key: String,
    is_template: bool,
    /// True if the agent writes the files of units too.
    is_direct: bool,
    nr_beyond: usize,
}

impl Discovery {
    pub(super) fn of(&self, pattern: &str) -> impl Iterator<Item = &str> {
        let matches = self.matches.get(&key(pattern, false));
        matches.into_iter().flat_map(BTreeMap::keys).map(String::as_str)
    }

    pub(super) fn of_template(&self, pattern: &str) -> impl Iterator<Item = &str> {
        let matches = self.matches.get(&key(pattern, true));
        matches.into_iter().flat_map(BTreeMap::keys).map(String::as_str)
    }

    pub(super) fn findings(&self, tenant: &str, sources: &Sources) -> Vec<Finding> {
        let is_its = |pattern: &Pattern| sources.cgroup_patterns.contains(&pattern.text);
        let searches = self.searches.iter().filter(|search| !search.told.is_empty());
        let told =
            searches.filter(|search| search.patterns.iter().any(is_its)).flat_map(|it| &it.told);
        told.map(|(code, what)| Finding::of(tenant, *code, what.as_str())).collect()
    }

    /// Takes the patterns anew at the next tick. Finds of remaining patterns stay.
    pub(super) fn restart(&mut self) {
        self.is_current = false;
    }

    /// Continues the searches; returns true if matches came or went. `locations` are those of all tenants,
    /// `templates` the sources of templates.
    pub(super) fn proceed<'a, K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        (locations, templates): (impl Iterator<Item = &'a Location>, &[(String, Sources)]),
        ground: impl FnOnce(&K) -> Ground,
        tick: u64,
    ) -> bool {
        let mut has_changed = !self.is_current && self.take_patterns(locations, templates);
        if self.searches.is_empty() {
            return has_changed;
        }
        let ground = ground(&host.kernel);
        let (mut nr_lists, mut nr_idle, mut nr_new) = (0, 0, 0);
        while nr_lists < LISTINGS_A_TICK && nr_idle < self.searches.len() {
            self.turn = (self.turn + 1) % self.searches.len();
            let search = &mut self.searches[self.turn];
            let Some((dir, reached)) = search.next(tick) else {
                nr_idle += 1;
                continue;
            };
            (nr_lists, nr_idle) = (nr_lists + 1, 0);
            match list(host, &dir) {
                Ok(names) => {
                    for found in search.descend(&dir, &reached, names) {
                        let is_new = take_in(
                            &mut self.matches,
                            search,
                            (&host.layout, &ground),
                            found,
                            (tick, nr_new),
                        );
                        nr_new += usize::from(is_new);
                    }
                }
                Err(error) if error.is_gone() => {}
                Err(error) => search.findings.push((Code::Unreadable, error.to_string())),
            }
            if search.left.is_empty() {
                has_changed |= search.end(&mut self.matches, tick);
            }
        }
        has_changed || nr_new > 0
    }

    /// Takes the patterns of these locations; returns true if matches went with removed patterns.
    fn take_patterns<'a>(
        &mut self,
        locations: impl Iterator<Item = &'a Location>,
        templates: &[(String, Sources)],
    ) -> bool {
        self.is_current = true;
        let mut searches: BTreeMap<String, Search> = BTreeMap::new();
        let mut known = BTreeSet::new();
        let of_tenants = locations.filter_map(|location| match location {
            Location::Members(sources) => Some((sources, false)),
            _ => None,
        });
        let of_templates = templates.iter().map(|(_, sources)| (sources, true));
        for (sources, is_template) in of_tenants.chain(of_templates) {
            for text in &sources.cgroup_patterns {
                let names = pattern::names_of(text);
                // A path without wildcards is looked for in its parent.
                let above = names.iter().take(names.len().saturating_sub(1));
                let fixed = above.take_while(|name| !pattern::has_wildcard(name));
                let dir: String = fixed.map(|name| format!("/{name}")).collect();
                let search = searches.entry(dir).or_default();
                let (text, key) = (text.clone(), key(text, is_template));
                let is_direct = sources.is_direct;
                known.insert(key.clone());
                let pattern = Pattern { text, key, is_template, is_direct, nr_beyond: 0 };
                search.patterns.push(pattern);
            }
        }
        let named = |(dir, search)| Search { dir, ..search };
        (self.searches, self.turn) = (searches.into_iter().map(named).collect(), 0);
        let nr_before = self.matches.len();
        self.matches.retain(|pattern, _| known.contains(pattern));
        self.matches.len() != nr_before
    }
}

fn key(pattern: &str, is_template: bool) -> String {
    format!("{}{pattern}", if is_template { "each " } else { "" })
}

/// Adds a match; returns true if it is new. `nr_new` counts the new matches of this tick.
fn take_in(
    matches: &mut BTreeMap<String, BTreeMap<String, u64>>,
    search: &mut Search,
    (layout, ground): (&Layout, &Ground),
    (number, path): (usize, String),
    (tick, nr_new): (u64, usize),
) -> bool {
    let pattern = &mut search.patterns[number];
    let member = match ground.settle(layout, &path, pattern.is_direct) {
        Ok(Location::Unit(unit)) if !pattern.is_template => unit,
        Ok(_) => path,
        Err(why) => {
            search.findings.push((Code::NotAttached, why));
            return false;
        }
    };
    let known = matches.entry(pattern.key.clone()).or_default();
    if let Some(seen) = known.get_mut(&member) {
        *seen = tick;
    } else if known.len() >= MATCHES_MAX {
        pattern.nr_beyond += 1;
    } else if nr_new >= NEW_A_TICK {
        search.is_partial = true;
    } else {
        known.insert(member, tick);
        return true;
    }
    false
}

impl Search {
    fn next(&mut self, tick: u64) -> Option<(String, Vec<Reached>)> {
        if self.left.is_empty() {
            if tick < self.next_at {
                return None;
            }
            let at_dir = |(number, pattern): (usize, &Pattern)| {
                let names = pattern::names_of(&pattern.text);
                let below = pattern::names_of(&self.dir);
                let begin = pattern::begin(&names);
                let step = |at: Vec<usize>, name: &&str| pattern::step(&names, &at, name);
                (number, below.iter().fold(begin, step))
            };
            let reached = self.patterns.iter().enumerate().map(at_dir).collect();
            self.left.push_back((self.dir.clone(), reached));
            (self.began, self.nr_listed, self.is_partial) = (tick, 0, false);
            self.patterns.iter_mut().for_each(|pattern| pattern.nr_beyond = 0);
        }
        self.left.pop_front()
    }

    /// Adds the cgroups in `dir` to the search; returns the matching ones, each with the number of its pattern.
    fn descend(
        &mut self,
        dir: &str,
        reached: &[Reached],
        mut names: Vec<String>,
    ) -> Vec<(usize, String)> {
        names.sort_unstable();
        self.nr_listed += names.len();
        let split = |(number, at): &Reached| {
            (*number, pattern::names_of(&self.patterns[*number].text), at.clone())
        };
        let patterns: Vec<(usize, Vec<&str>, Vec<usize>)> = reached.iter().map(split).collect();
        let mut matches = Vec::new();
        for name in names {
            let mut below = Vec::new();
            let mut is_match = false;
            for (number, pattern, at) in &patterns {
                let next = pattern::step(pattern, at, &name);
                if pattern::is_match(pattern, &next) {
                    matches.push((*number, format!("{dir}/{name}")));
                    is_match = true;
                    break;
                }
                if !next.is_empty() {
                    below.push((*number, next));
                }
            }
            if !is_match && !below.is_empty() {
                self.left.push_back((format!("{dir}/{name}"), below));
            }
        }
        matches
    }

    fn end(&mut self, matches: &mut BTreeMap<String, BTreeMap<String, u64>>, tick: u64) -> bool {
        let pause = self.nr_listed / CGROUPS_A_TICK;
        self.next_at = tick + 1 + if self.is_partial { 0 } else { pause as u64 };
        self.told = std::mem::take(&mut self.findings);
        let mut has_changed = false;
        for pattern in &self.patterns {
            let (text, nr) = (&pattern.text, pattern.nr_beyond);
            if nr > 0 {
                let what = format!(
                    "{text} matches {nr} cgroups more than {MATCHES_MAX}: those are not weighed; name what is above them"
                );
                self.told.push((Code::NotAttached, what));
            }
            let Some(known) = matches.get_mut(&pattern.key) else { continue };
            // All ended matches leave with the first.
            if known.values().any(|seen| *seen < self.began && tick > seen + LINGER_TICKS) {
                known.retain(|_, seen| *seen >= self.began);
                has_changed = true;
            }
        }
        has_changed
    }
}

pub(super) fn list<K: KernFs>(
    host: &mut HostAccess<K>,
    path: &str,
) -> Result<Vec<String>, KernError> {
    let tree = &host.layout.trees[host.layout.tree(Facet::Cpu).unwrap_or(0)];
    let dir = host.kernel.open_dir(&tree.dir_of(path))?;
    let names = host.kernel.list_dirs(dir);
    host.kernel.close_dir(dir);
    Ok(names?.iter().map(|name| text_of_name(name)).collect())
}
