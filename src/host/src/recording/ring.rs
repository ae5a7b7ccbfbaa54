//! The directory of a recording, and the removal of old segments.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::segment::{self, HEAD_BYTES, Head, LAYOUT};
use tenantd_policy::model::HistoryPolicy;

const EXTENSION: &str = "rec";
/// Segments in a full ring; one of them is dropped at once.
const PARTS: u64 = 16;
/// Longest segment: it is replayed from its beginning, so a short one answers soon.
const SEGMENT_TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// The bounds of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of all segments together; 0 disables recording.
    pub max_bytes: u64,
    /// Age at which segments are dropped.
    pub max_age: Duration,
}

impl Bounds {
    /// Bounds of a policy.
    pub fn of(history: &HistoryPolicy) -> Bounds {
        Bounds { max_bytes: history.max_size, max_age: history.max_age }
    }

    /// Most bytes of one segment.
    pub fn segment_bytes(&self) -> u64 {
        self.max_bytes / PARTS
    }

    /// Longest time of one segment.
    pub fn segment_time(&self) -> Duration {
        SEGMENT_TIME_MAX.min(self.max_age / PARTS as u32)
    }
}

/// Segments in `dir` with their numbers, oldest first.
pub fn segments(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_segment = path.extension().is_some_and(|extension| extension == EXTENSION);
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        if let Some(number) = number.filter(|_| is_segment) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found)
}

/// A directory that one process records to.
#[derive(Debug)]
pub struct Ring {
    dir: PathBuf,
    bounds: Bounds,
    open: Option<File>,
    last: u64,
    /// Age of each finished segment, and when it had that. The clock of the host may step, so times of files are compared
    /// once, when the directory is taken up.
    ages: BTreeMap<u64, (Duration, Instant)>,
}

impl Ring {
    /// Opens a directory, makes it if it is missing, and removes the torn tail of the last segment.
    ///
    /// Its group may read it, as the group of the socket may read the status.
    pub fn open(dir: &Path, bounds: Bounds) -> io::Result<Ring> {
        fs::DirBuilder::new().recursive(true).mode(0o750).create(dir)?;
        let all = segments(dir)?;
        let now = (SystemTime::now(), Instant::now());
        // A time in the future says nothing of the age.
        let age = |path: &Path| {
            let changed = fs::metadata(path).and_then(|meta| meta.modified()).ok();
            changed.and_then(|at| now.0.duration_since(at).ok()).unwrap_or_default()
        };
        let ages = all.iter().map(|(number, path)| (*number, (age(path), now.1))).collect();
        if let Some((_, path)) = all.last() {
            cut(path)?;
        }
        let last = all.last().map_or(0, |(number, _)| *number);
        Ok(Ring { dir: dir.to_path_buf(), bounds, open: None, last, ages })
    }

    /// Sets other bounds from the next chunk on.
    pub fn bound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Bytes of the present segment.
    pub fn segment_bytes(&self) -> u64 {
        self.open.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len())
    }

    /// Begins a segment with this chunk. On an error the segment does not exist.
    pub fn begin(&mut self, head: Head, first: &[u8]) -> io::Result<()> {
        self.open = None;
        self.ages.entry(self.last).or_insert((Duration::ZERO, Instant::now()));
        self.last += 1;
        let path = self.dir.join(format!("{:08}.{EXTENSION}", self.last));
        let mut file = OpenOptions::new().append(true).create_new(true).mode(0o640).open(&path)?;
        // Independent of the umask of the process.
        file.set_permissions(fs::Permissions::from_mode(0o640))?;
        let bytes = [&head.bytes()[..], &segment::chunk(first)].concat();
        if let Err(error) = file.write_all(&bytes) {
            // A segment without its beginning is useless.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        self.open = Some(file);
        self.drop_old()
    }

    /// Appends a chunk to the present segment, if any. On an error the segment ends before the chunk.
    pub fn append(&mut self, data: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.open else { return Ok(()) };
        if let Err(error) = file.write_all(&segment::chunk(data)) {
            self.open = None;
            return Err(error);
        }
        self.drop_old()
    }

    /// Removes what is beyond the bounds, never the segment that is written.
    fn drop_old(&mut self) -> io::Result<()> {
        let mut segments = segments(&self.dir)?;
        segments.retain(|(number, _)| *number != self.last);
        let size = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
        let mut bytes = size(&self.dir.join(format!("{:08}.{EXTENSION}", self.last)));
        let now = Instant::now();
        let is_old = |number: &u64| {
            let known = self.ages.get(number);
            known.is_some_and(|(age, at)| {
                age.saturating_add(now.saturating_duration_since(*at)) > self.bounds.max_age
            })
        };
        // Segments older than a dropped one are dropped as well.
        let mut goes = false;
        let mut left = None;
        for (number, path) in segments.iter().rev() {
            bytes += size(path);
            goes |= bytes > self.bounds.max_bytes || is_old(number);
            if goes { fs::remove_file(path)? } else { left = Some(*number) }
        }
        let left = left.unwrap_or(self.last);
        self.ages.retain(|number, _| *number >= left);
        Ok(())
    }
}

fn cut(path: &Path) -> io::Result<()> {
    let bytes = fs::read(path)?;
    if Head::of(&bytes).is_some_and(|head| head.layout != LAYOUT) {
        // Only its own version finds its tail, and may still replay it.
        return Ok(());
    }
    let whole = segment::whole_bytes(&bytes);
    if whole <= HEAD_BYTES {
        return fs::remove_file(path);
    }
    if whole < bytes.len() {
        OpenOptions::new().write(true).open(path)?.set_len(whole as u64)?;
    }
    Ok(())
}
