//! Writing values, with checks before and after.

use nix::errno::Errno;

use super::enforcer::Enforcer;
use super::error::EnforceError;
use super::remedy::remedy;
use crate::cgroup::dialect::{LEGACY_NO_QUOTA, Spelling};
use crate::cgroup::disk_limits::{self, Line};
use crate::cgroup::{self, Cgroup};
use crate::journal::Entry;
use crate::kernfs::{DirId, KernError, KernFs};
use crate::knobs::{Hazard, LEGACY_PERIOD, row_of};
use tenantd_control::words::knob::{Action, Value};
use tenantd_core::resource::Resource;
use tenantd_core::units::{Bytes, Limit};
use tenantd_dop::CpuSet;

impl<K: KernFs> Enforcer<'_, K> {
    /// Writes one action's value, checks the file, and returns the resulting value. On an error the file has
    /// its old value, or the one in the message.
    pub fn apply(&mut self, action: &Action, cgroup: &Cgroup) -> Result<Value, EnforceError> {
        let dir = cgroup.knob_dir(self.layout, action.knob)?;
        if let Some(from) = action.from.as_ref().filter(|_| self.leaves_drift) {
            let now = cgroup.observe(self.kernel, self.layout, action.knob)?;
            if now != *from {
                return Err(EnforceError::Overtaken(now));
            }
        }
        match (row_of(action.knob).hazard, &action.to) {
            (Hazard::Kills, Value::Amount(_, Limit::Finite(limit))) => {
                self.check_limit_is_safe(dir, *limit)?;
            }
            (Hazard::Blocks, _) => return self.bound(action, dir),
            _ => {}
        }
        let mut is_written = false;
        self.write_and_verify(action, cgroup, dir, &mut is_written).map_err(|error| match error {
            EnforceError::NotTaken { .. } => error,
            error if is_written => EnforceError::Unverified(Box::new(error)),
            error => error,
        })
    }

    /// Writes different values, and reads them back. After an error `is_written` is true if a value was
    /// written.
    fn write_and_verify(
        &mut self,
        action: &Action,
        cgroup: &Cgroup,
        dir: DirId,
        is_written: &mut bool,
    ) -> Result<Value, EnforceError> {
        for spelling in self.layout.spell(action.knob, &action.to) {
            if !self.record_other(dir, &spelling)? {
                continue;
            }
            if spelling.file == LEGACY_PERIOD {
                *is_written |= self.lift_quota(dir, self.layout.file(action.knob))?;
            }
            self.write_one(dir, &spelling)?;
            *is_written = true;
        }
        let found = cgroup.observe(self.kernel, self.layout, action.knob)?;
        self.check_effective(action, cgroup)?;
        if taken(&found, &action.to) {
            Ok(found)
        } else {
            Err(EnforceError::NotTaken {
                path: self
                    .kernel
                    .dir_path(dir)
                    .join(self.layout.file(action.knob))
                    .display()
                    .to_string(),
                written: action.to.to_string(),
                found: found.to_string(),
            })
        }
    }

    fn write_one(
        &mut self,
        dir: DirId,
        Spelling { file, text }: &Spelling,
    ) -> Result<(), EnforceError> {
        self.kernel.write(dir, file, text).map_err(|error| {
            match remedy(self.kernel, dir, (file, text), &error) {
                Some(remedy) => EnforceError::Invalid { error, remedy },
                None => error.into(),
            }
        })
    }

    /// Writes a memory bound. A lower one lets the kernel reclaim before the write returns, which may take
    /// long: another thread waits for it, and a later tick reads the file again.
    fn bound(&mut self, action: &Action, dir: DirId) -> Result<Value, EnforceError> {
        for spelling in self.layout.spell(action.knob, &action.to) {
            if !self.record_other(dir, &spelling)? {
                continue;
            }
            let Spelling { file, text } = spelling;
            if action.shrinks() {
                match self.kernel.write_aside(dir, file, &text) {
                    Err(error) if error.errno == Errno::EAGAIN => {
                        return Err(EnforceError::Deferred(format!(
                            "memory bound {} not set yet: the kernel still reclaims for the last one",
                            action.to
                        )));
                    }
                    outcome => outcome?,
                }
            } else {
                self.kernel.write(dir, file, &text)?
            }
        }
        Ok(action.to.clone())
    }

    /// Records the present value of a file if it differs from the wanted one; returns true if it does.
    fn record_other(&mut self, dir: DirId, wanted: &Spelling) -> Result<bool, EnforceError> {
        let held = self.kernel.read_once(dir, wanted.file)?.trim_ascii_end().to_vec();
        if let Some(line) = disk_limits::line(wanted.file, &wanted.text, &held) {
            let is_other = line.held != wanted.text;
            if is_other {
                self.record_held(dir, &line.name, &line.held)?;
            }
            return Ok(is_other);
        }
        let is_other = held != wanted.text.as_bytes();
        if is_other {
            self.record_held(dir, wanted.file, &String::from_utf8_lossy(&held))?;
        }
        Ok(is_other)
    }

    /// Records the present values of the files of `actions`, in one write to disk, except those that may not be
    /// written: a memory limit may be postponed, and a value that another program set meanwhile may be left
    /// alone. On an error nothing is recorded.
    pub fn record<'a>(
        &mut self,
        actions: impl Iterator<Item = (&'a Action, &'a Cgroup)>,
    ) -> Result<(), EnforceError> {
        let mut entries = Vec::new();
        for (action, cgroup) in
            actions.filter(|(action, _)| row_of(action.knob).hazard != Hazard::Kills)
        {
            if self.leaves_drift {
                break;
            }
            let dir = cgroup.knob_dir(self.layout, action.knob)?;
            let (path, inode) = (self.kernel.dir_path(dir), self.kernel.inode(dir)?);
            for Spelling { file, text } in self.layout.spell(action.knob, &action.to) {
                if self.journal.knows(&path, inode, file) {
                    continue;
                }
                let contents = self.kernel.read_once(dir, file)?;
                let line = disk_limits::line(file, &text, contents);
                let whole = || {
                    let held = String::from_utf8_lossy(contents).trim_ascii_end().to_string();
                    Line { name: file.to_string(), held }
                };
                let Line { name, held } = line.unwrap_or_else(whole);
                if held != text {
                    let (path, file, value) = (path.clone(), name.into(), held.into());
                    entries.push(Entry::Held { path, inode, file, value });
                }
            }
        }
        Ok(self.journal.record_all(entries)?)
    }

    /// Writes lower memory protection to a file of systemd's, which gets an order for the same value. The
    /// journal has the unit's own value.
    pub fn write_relief(&mut self, action: &Action, cgroup: &Cgroup) -> Result<(), EnforceError> {
        let dir = cgroup.knob_dir(self.layout, action.knob)?;
        for spelling in self.layout.spell(action.knob, &action.to) {
            self.kernel.write(dir, spelling.file, &spelling.text)?;
        }
        Ok(())
    }

    /// Lifts a v1 quota while its period changes. Otherwise the old quota with the new period, or the reverse,
    /// may be more than a parent or less than a child allows, which the kernel refuses. Returns true if there
    /// was one.
    fn lift_quota(&mut self, dir: DirId, file: &'static str) -> Result<bool, EnforceError> {
        let held = self.kernel.read_once(dir, file)?.trim_ascii_end().to_vec();
        let is_limited = held != LEGACY_NO_QUOTA.as_bytes();
        if is_limited {
            self.record_held(dir, file, &String::from_utf8_lossy(&held))?;
            self.kernel.write(dir, file, LEGACY_NO_QUOTA)?;
        }
        Ok(is_limited)
    }

    /// Checks that ancestors do not restrict a set of CPUs that the kernel took.
    pub fn check_effective(
        &mut self,
        action: &Action,
        cgroup: &Cgroup,
    ) -> Result<(), EnforceError> {
        let Value::CpuList(wanted) = &action.to else { return Ok(()) };
        let dir = cgroup.knob_dir(self.layout, action.knob)?;
        let file = self.layout.effective_cpus();
        let found = self.kernel.read_once(dir, file)?.trim_ascii_end();
        let found = String::from_utf8_lossy(found).into_owned();
        if found.parse::<CpuSet>().is_ok_and(|effective| effective == *wanted) {
            Ok(())
        } else {
            Err(EnforceError::NotTaken {
                path: self.kernel.dir_path(dir).join(file).display().to_string(),
                written: wanted.to_string(),
                found,
            })
        }
    }

    /// Fails if a limit is below the memory that cannot be reclaimed: it would kill the tenant (v1 refuses it).
    ///
    /// Read again for each write: a sample may be an interval old, and groups are not sampled.
    pub fn check_limit_is_safe(
        &mut self,
        dir: DirId,
        limit_bytes: u64,
    ) -> Result<(), EnforceError> {
        let memory = cgroup::memory_sample(self.kernel, self.layout, dir)?;
        if memory.fits(limit_bytes) {
            Ok(())
        } else {
            Err(EnforceError::Deferred(format!(
                "memory limit {} not set yet: {} cannot be reclaimed, and the kernel would kill for it; end \
                 some of its processes, or raise the limit",
                Bytes(limit_bytes),
                Bytes(memory.unreclaimable_bytes()).rounded()
            )))
        }
    }
}

/// Set of CPUs that `file` in `dir` lists; `None` if malformed.
pub fn cpus_of(
    kernel: &mut impl KernFs,
    dir: DirId,
    file: &str,
) -> Result<Option<CpuSet>, KernError> {
    let text = kernel.read_once(dir, file)?;
    Ok(std::str::from_utf8(text).ok().and_then(|text| text.trim_end().parse().ok()))
}

/// True if `found` is the result of writing `written`: weights and pages are rounded.
pub fn taken(found: &Value, written: &Value) -> bool {
    match (found, written) {
        (Value::Weight(found), Value::Weight(written)) => {
            // One unit of cpu.weight or cpu.shares, the coarser of the two at this size.
            (found - written.clamp(1.0, 10_000.0)).abs() <= 1.0
        }
        (
            Value::Amount(Resource::Memory, Limit::Finite(found)),
            Value::Amount(_, Limit::Finite(written)),
        ) => found.abs_diff(*written) < 4096,
        (
            Value::Amount(Resource::Cpu, Limit::Finite(found)),
            Value::Amount(_, Limit::Finite(written)),
        ) => {
            // The kernel takes no quota below a hundredth of a CPU.
            found.abs_diff((*written).max(10)) <= 1
        }
        (found, Value::Disks(_)) => found.has_limits_of(written),
        (found, written) => found == written,
    }
}
