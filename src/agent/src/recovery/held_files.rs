//! Restoring the values of cgroup files.
//!
//! **Problem.** The kernel bounds some values of a cgroup by those of its parent and children: quotas and CPUs
//! in cgroup v1. Whether it accepts a value depends on the values restored already, and no fixed order works: a
//! raised limit must be restored in the child first, a lowered one in the parent first.
//!
//! **Algorithm.** Refused files are tried again in rounds, until a round restores none, and once more after the
//! agent's cgroups are removed. A quota that others bound by then is fitted to their value
//! ([`super::fitted_quota`]). Other refused files are reported and owed.
//!
//! **Termination.** Each round but the last restores at least one file. Two cgroups cannot block each other:
//! let `a` below `A` be the present values, and `b` below `B` the old ones. A refused child means `b > A`, a
//! refused parent `B < a`; together `b > A >= a > B >= b`, a contradiction.
//!
//! A cgroup v1 quota is a pair of two files, and the kernel checks their quotient at every write of either. To
//! restore the period, the quota is lifted and restored at once after it; if that is refused, both keep their
//! values.

use std::path::Path;

use nix::errno::Errno;
use tracing::info;

use super::fitted_quota;
use super::restored::{NotBack, Restored};
use super::unpin::{bring_back, unpin};
use tenantd_control::words::knob::Knob;
use tenantd_core::units::{Bytes, Limit};
use tenantd_dop::CpuSet;
use tenantd_host::cgroup::dialect::{LEGACY_EFFECTIVE_CPUS, LEGACY_NO_QUOTA};
use tenantd_host::cgroup::{self, disk_limits, parse};
use tenantd_host::enforce::{cpus_of, remedy};
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::{DirId, KernError, KernFs};
use tenantd_host::knobs::{LEGACY_PERIOD, LEGACY_QUOTA, is_by_line, kills, row_of};

pub(super) struct HeldFiles<'a> {
    entries: &'a [Entry],
}

pub(crate) struct Refused<'a> {
    entry: &'a Entry,
    why: NotBack,
}

impl<'a> HeldFiles<'a> {
    pub(super) fn of(entries: &'a [Entry]) -> HeldFiles<'a> {
        HeldFiles { entries }
    }

    /// Restores the file of `entry`; a missing one needs nothing.
    pub(super) fn write_back(
        &self,
        kernel: &mut impl KernFs,
        entry: &'a Entry,
        restored: &mut Restored,
    ) -> Option<Refused<'a>> {
        let Entry::Held { path, inode, file, value } = entry else { return None };
        match self.write_back_to(kernel, (path, *inode), file, value) {
            Err(why) if !why.is_gone() => Some(Refused { entry, why }),
            outcome => {
                restored.note(outcome, [entry], |restored| restored.nr_files += 1);
                None
            }
        }
    }

    /// Tries refused files in rounds, as long as a round restores any; returns the others.
    pub(super) fn try_again(
        &self,
        kernel: &mut impl KernFs,
        mut refused: Vec<Refused<'a>>,
        restored: &mut Restored,
    ) -> Vec<Refused<'a>> {
        // Files restored since may be those that they waited for.
        while !refused.is_empty() {
            let before = refused.len();
            let again =
                refused.iter().filter_map(|one| self.write_back(kernel, one.entry, restored));
            refused = again.collect();
            if refused.len() == before {
                break;
            }
        }
        let mut left = Vec::new();
        for one in refused.into_iter().rev() {
            if one.why.is_about_cpus() && narrow(kernel, one.entry).is_some() {
                restored.nr_files += 1
            } else {
                left.push(one)
            }
        }
        left.reverse();
        left
    }

    /// Tries the refused files once more after the agent's own cgroups are gone, and records the others. If
    /// `is_all`, quotas that others bound are fitted.
    pub(super) fn settle(
        &self,
        kernel: &mut impl KernFs,
        refused: Vec<Refused<'a>>,
        is_all: bool,
        restored: &mut Restored,
    ) {
        let mut refused = self.try_again(kernel, refused, restored);
        if is_all {
            refused = self.fit_all(kernel, refused, restored);
        }
        for refused in refused.into_iter().rev() {
            restored.fail(said_of(kernel, &refused), refused.entry);
        }
    }

    /// Fits quotas in rounds, as long as a round restores any file; returns the others.
    fn fit_all(
        &self,
        kernel: &mut impl KernFs,
        mut refused: Vec<Refused<'a>>,
        restored: &mut Restored,
    ) -> Vec<Refused<'a>> {
        let mut before = refused.len() + 1;
        while !refused.is_empty() && refused.len() < before {
            before = refused.len();
            let mut left: Vec<Refused<'a>> = Vec::new();
            while let Some(one) = refused.pop() {
                // Its parent may have been fitted just now.
                let Some(one) = self.write_back(kernel, one.entry, restored) else { continue };
                let waits = || refused.iter().chain(&left).map(|other| other.entry);
                let is_owed = |path: &Path| {
                    waits().chain(&restored.owed).any(|entry| quota_at(entry) == Some(path))
                };
                let Some(said) = self.fit(kernel, &one, is_owed) else {
                    left.push(one);
                    continue;
                };
                restored.nr_files += 1;
                restored.fitted.push(said);
                // Quota and period are one value.
                let is_other = |other: &Refused<'a>| quota_at(other.entry) != quota_at(one.entry);
                refused.retain(is_other);
                left.retain(is_other);
            }
            left.reverse();
            refused = left;
        }
        refused
    }

    /// Fits the quota of a refused file and returns the message; `None` if a bound was not the reason.
    fn fit(
        &self,
        kernel: &mut impl KernFs,
        refused: &Refused<'a>,
        is_owed: impl Fn(&Path) -> bool,
    ) -> Option<String> {
        let Entry::Held { path, inode, .. } = refused.entry else { return None };
        quota_at(refused.entry).filter(|_| refused.why.is_invalid())?;
        // A quota that is not the agent's to restore may be changed only by its owner.
        let held = (self.period_of(path, *inode), self.quota_of(path, *inode)?);
        let dir = open_same(kernel, path, *inode).ok()??;
        let fitted = fitted_quota::fit(kernel, dir, held, is_owed);
        let said = fitted.and_then(|bound| {
            write_pair(kernel, dir, &bound.period(), &bound.quota()).ok()?;
            Some(bound.said(path))
        });
        kernel.close_dir(dir);
        said
    }

    fn write_back_to(
        &self,
        kernel: &mut impl KernFs,
        (path, inode): (&Path, u64),
        file: &str,
        value: &str,
    ) -> Result<(), NotBack> {
        let Some(dir) = open_same(kernel, path, inode)? else { return Ok(()) };
        let outcome = match write_back_in(kernel, dir, file, value) {
            Err(NotBack::Kernel(error)) if file == LEGACY_PERIOD => {
                let outcome = match self.quota_of(path, inode) {
                    Some(quota) if error.errno == Errno::EINVAL => {
                        write_pair(kernel, dir, value, quota)
                    }
                    _ => Err(error),
                };
                outcome.map_err(NotBack::from)
            }
            outcome => outcome,
        };
        kernel.close_dir(dir);
        outcome
    }

    fn quota_of(&self, of: &Path, nr: u64) -> Option<&'a str> {
        self.held_in(of, nr, LEGACY_QUOTA)
    }

    fn period_of(&self, of: &Path, nr: u64) -> Option<&'a str> {
        self.held_in(of, nr, LEGACY_PERIOD)
    }

    fn held_in(&self, of: &Path, nr: u64, name: &str) -> Option<&'a str> {
        let is_quota =
            |path: &Path, inode: u64, file: &str| path == of && inode == nr && file == name;
        let mut held = None;
        for entry in self.entries {
            match entry {
                Entry::Theirs { path, inode, file } if is_quota(path, *inode, file) => return None,
                Entry::Held { path, inode, file, value } if is_quota(path, *inode, file) => {
                    held = Some(&**value);
                }
                _ => {}
            }
        }
        held
    }
}

fn quota_at(entry: &Entry) -> Option<&Path> {
    match entry {
        Entry::Held { path, file, .. } if [LEGACY_QUOTA, LEGACY_PERIOD].contains(&&**file) => {
            Some(path)
        }
        _ => None,
    }
}

fn said_of(kernel: &mut impl KernFs, Refused { entry, why }: &Refused<'_>) -> String {
    let mut helps = || {
        let (Entry::Held { path, inode, file, value }, NotBack::Kernel(error)) = (entry, why)
        else {
            return None;
        };
        let dir = open_same(kernel, path, *inode).ok()??;
        let helps = remedy(kernel, dir, (file, value), error);
        kernel.close_dir(dir);
        helps
    };
    helps().map_or_else(|| why.to_string(), |helps| format!("{why}: {helps}"))
}

/// Opens `path` if it is still the cgroup with this inode number.
pub(super) fn open_same(
    kernel: &mut impl KernFs,
    path: &Path,
    inode: u64,
) -> Result<Option<DirId>, KernError> {
    let dir = kernel.open_dir(path)?;
    match kernel.inode(dir) {
        Ok(found) if found == inode => Ok(Some(dir)),
        other => {
            kernel.close_dir(dir);
            other.map(|_| None)
        }
    }
}

fn write_back_in(
    kernel: &mut impl KernFs,
    dir: DirId,
    file: &str,
    value: &str,
) -> Result<(), NotBack> {
    if let Some(file) = disk_limits::file_of_line(file) {
        let is_there = disk_limits::holds_line(file, value, kernel.read_once(dir, file)?);
        return if is_there { Ok(()) } else { Ok(kernel.write(dir, file, value)?) };
    }
    if kernel.read_once(dir, file)?.trim_ascii_end() == value.as_bytes() {
        if value.is_empty() {
            bring_back(kernel, dir)?;
        }
        return Ok(());
    }
    if kills(file)
        && let Ok(Limit::Finite(limit)) = parse::limit(value.as_bytes())
    {
        let memory = cgroup::memory_sample_of_unit(kernel, dir)?;
        if !memory.fits(limit) {
            return Err(NotBack::WouldKill {
                path: kernel.dir_path(dir).join(file).display().to_string(),
                limit: Bytes(limit).rounded(),
                needed: Bytes(memory.unreclaimable_bytes()).rounded(),
            });
        }
    }
    if is_by_line(file) {
        return Ok(value.lines().try_for_each(|line| kernel.write(dir, file, line))?);
    }
    // An empty text would be no write at all: the kernel takes a newline for "nothing".
    match kernel.write(dir, file, if value.is_empty() { "\n" } else { value }) {
        Err(error) if value.is_empty() && error.errno == Errno::ENOSPC => {
            Ok(unpin(kernel, dir, file)?)
        }
        Ok(()) if value.is_empty() => Ok(bring_back(kernel, dir)?),
        outcome => Ok(outcome?),
    }
}

/// Writes the part of a CPU list that the parent has. The kernel removes a CPU that goes offline from all lists
/// of cgroup v1 permanently, and accepts no list with it. `None` if no CPU remains, or the kernel refused.
fn narrow(kernel: &mut impl KernFs, entry: &Entry) -> Option<()> {
    let Entry::Held { path, inode, file, value } = entry else { return None };
    if !row_of(Knob::Cpus).is_in(file) {
        return None;
    }
    let above = kernel.open_dir(path.parent()?).ok()?;
    let there = cpus_of(kernel, above, LEGACY_EFFECTIVE_CPUS);
    kernel.close_dir(above);
    let left = value.parse::<CpuSet>().ok()?.intersection(&there.ok()??);
    let dir = open_same(kernel, path, *inode).ok()?.filter(|_| !left.is_empty())?;
    let outcome = kernel.write(dir, file, &left.to_string());
    kernel.close_dir(dir);
    outcome.ok()?;
    info!(path = %path.display(), "{file} is {left} and not {value}: the other CPUs are offline");
    Some(())
}

/// Writes a cgroup v1 period and quota if the kernel refuses their combinations with the present values. It
/// lifts the quota first, because every period is allowed without one. If the pair is refused too, both keep
/// their values.
fn write_pair(
    kernel: &mut impl KernFs,
    dir: DirId,
    period: &str,
    quota: &str,
) -> Result<(), KernError> {
    let file = LEGACY_QUOTA;
    let period_before = kernel.read_once(dir, LEGACY_PERIOD)?.trim_ascii_end().to_vec();
    let quota_before = kernel.read_once(dir, file)?.trim_ascii_end().to_vec();
    kernel.write(dir, file, LEGACY_NO_QUOTA)?;
    let mut outcome = kernel.write(dir, LEGACY_PERIOD, period);
    if outcome.is_ok() {
        outcome = kernel.write(dir, file, quota);
    }
    if outcome.is_err() {
        let again = [(LEGACY_PERIOD, period_before), (file, quota_before)];
        for (file, text) in again {
            kernel.write(dir, file, &String::from_utf8_lossy(&text))?;
        }
    }
    outcome
}
