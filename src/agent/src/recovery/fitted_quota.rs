//! Cgroup v1 quotas that the kernel refuses to restore, because others have set quotas above or below since.
//!
//! **Problem.** In cgroup v1 the kernel allows no cgroup a larger part of a CPU than its parent. While the
//! agent's value was in force, an administrator may have set less above, or more below, than the old value
//! allows.
//!
//! **Algorithm.** The cgroup gets as much as the cgroup that bounds it, in its old period: the nearest value to
//! its own that the kernel takes. Keeping the agent's value and owing the old one would make every stop fail
//! for as long as the administrator's value stays. A bound that itself must still be restored does not count:
//! then the old value is owed.

use std::path::{Path, PathBuf};

use super::processes::nested;
use tenantd_host::cgroup::dialect::LEGACY_NO_QUOTA;
use tenantd_host::kernfs::{DirId, KernFs};
use tenantd_host::knobs::{LEGACY_PERIOD, LEGACY_QUOTA};

/// Part of a CPU, in microseconds of each period; `None` is all of it.
#[derive(Clone, Copy, Debug)]
struct Part {
    quota: Option<u64>,
    period: u64,
}

/// The part of another cgroup: the nearest that the kernel takes.
#[derive(Debug)]
pub(super) struct Bound {
    period: u64,
    quota: u64,
    held: Part,
    of: PathBuf,
}

impl Part {
    fn parse(period: &str, quota: &str) -> Option<Part> {
        let quota = match quota.trim_end() {
            LEGACY_NO_QUOTA => None,
            quota => Some(quota.parse().ok()?),
        };
        Some(Part { quota, period: period.trim_end().parse().ok()? })
    }

    fn read(kernel: &mut impl KernFs, path: &Path) -> Option<Part> {
        let dir = kernel.open_dir(path).ok()?;
        let part = Part::read_in(kernel, dir);
        kernel.close_dir(dir);
        part
    }

    fn read_in(kernel: &mut impl KernFs, dir: DirId) -> Option<Part> {
        let mut text = |file| {
            let text = kernel.read_once(dir, file).ok()?;
            Some(String::from_utf8_lossy(text).into_owned())
        };
        Part::parse(&text(LEGACY_PERIOD)?, &text(LEGACY_QUOTA)?)
    }

    /// Quota of the same part in another period, rounded up if requested, and not below the minimum.
    fn quota_in(self, period: u64, is_rounded_up: bool) -> Option<u64> {
        let product = u128::from(self.quota?) * u128::from(period);
        let whole = u128::from(self.period.max(1));
        let quota = if is_rounded_up { product.div_ceil(whole) } else { product / whole };
        u64::try_from(quota).ok()
    }

    fn exceeds(self, other: Part) -> bool {
        match (self.quota, other.quota) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(quota), Some(than)) => {
                u128::from(quota) * u128::from(other.period)
                    > u128::from(than) * u128::from(self.period)
            }
        }
    }
}

impl Bound {
    pub(super) fn period(&self) -> String {
        self.period.to_string()
    }

    pub(super) fn quota(&self) -> String {
        self.quota.to_string()
    }

    pub(super) fn said(&self, path: &Path) -> String {
        let held = self.held.quota.map_or(LEGACY_NO_QUOTA.to_string(), |quota| quota.to_string());
        format!(
            "{}: the CPU quota is {} of {} us and was {held} of {} us before tenantd: {} has as much now, which \
             somebody else has set since",
            path.display(),
            self.quota,
            self.period,
            self.held.period,
            self.of.display()
        )
    }
}

/// Returns the part that the cgroup `dir` can have instead of its old period and quota (the period only if it
/// was changed). `None` if no cgroup is in the way, or only one that `is_owed` its own value.
pub(super) fn fit(
    kernel: &mut impl KernFs,
    dir: DirId,
    (period, quota): (Option<&str>, &str),
    is_owed: impl Fn(&Path) -> bool,
) -> Option<Bound> {
    let now = Part::read_in(kernel, dir)?;
    let held = Part::parse(period.unwrap_or(&now.period.to_string()), quota)?;
    held.quota?;
    let path = kernel.dir_path(dir);
    let above = path.ancestors().skip(1).map_while(|up| {
        let part = Part::read(kernel, up)?;
        Some((up.to_path_buf(), part))
    });
    let above: Vec<(PathBuf, Part)> = above.collect();
    let below = nested(kernel, &path).ok()?.into_iter().filter(|below| *below != path);
    let below: Vec<(PathBuf, Part)> = below
        .filter_map(|below| {
            let part = Part::read(kernel, &below)?;
            Some((below, part))
        })
        .filter(|(_, part)| part.quota.is_some())
        .collect();
    let tightest =
        above.into_iter().reduce(|least, one| if least.1.exceeds(one.1) { one } else { least });
    let widest =
        below.into_iter().reduce(|most, one| if one.1.exceeds(most.1) { one } else { most });
    let less = tightest.filter(|(_, above)| held.exceeds(*above)).map(|bound| (bound, false));
    let more = || widest.filter(|(_, below)| below.exceeds(held)).map(|bound| (bound, true));
    let ((of, bound), is_below) = less.or_else(more).filter(|((of, _), _)| !is_owed(of))?;
    Some(Bound { period: held.period, quota: bound.quota_in(held.period, is_below)?, held, of })
}
