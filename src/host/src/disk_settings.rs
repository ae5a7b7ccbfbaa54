//! Settings of a disk that the policy divides: its scheduler, or its lines of `io.cost`.
//!
//! | way | written | if it has another value |
//! |---|---|---|
//! | `bfq` | `queue/scheduler` | `bfq` |
//! | `cost` | `queue/scheduler` | `none` in place of bfq; others stay |
//! | | `io.cost.model` of the top cgroup | the measured speed |
//! | | `io.cost.qos` of the top cgroup | on, with a target or a fixed rate |
//!
//! **Which rate.** With a latency the model is 1.5 times the measured speed, and the kernel adapts the rate to keep that latency:
//! the measured speed itself need not be exact, and a disk with several channels is divided. Without one the rate is fixed at 0.9
//! of the measured speed. A fixed rate near the disk's own divides nothing, because then the disk is the bottleneck and not
//! `io.cost`.
//!
//! **Old values.** Choosing a scheduler resets the settings of the one before (`iosched`), the number of requests and
//! the throttling of writeback (`wbt_lat_usec`), which `io.cost` switches off as well. All are recorded with it.

use std::path::PathBuf;

use crate::cgroup::Layout;
use crate::kernfs::{DirId, KernError, KernFs};
use crate::ways::{queue, schedulers};
use tenantd_control::measure::ways::BFQ;
use tenantd_core::kernel_text::text_of;
use tenantd_policy::model::{CostModel, DividedBy, DividedDisk};

/// File with the scheduler, in the directory of the queue.
pub const SCHEDULER: &str = "scheduler";
/// Files of the top cgroup of cgroup v2, with a line for each disk.
pub const MODEL: &str = "io.cost.model";
/// The same, with the switch.
pub const QOS: &str = "io.cost.qos";
const NO_SCHEDULER: &str = "none";
/// Settings that a choice of another scheduler resets, in the reverse order of restoring.
const RESET: [&str; 2] = ["wbt_lat_usec", "nr_requests"];
/// Settings of schedulers.
const OF_SCHEDULERS: [&str; 19] = [
    "read_expire",
    "write_expire",
    "writes_starved",
    "front_merges",
    "async_depth",
    "fifo_batch",
    "prio_aging_expire",
    "read_lat_nsec",
    "write_lat_nsec",
    "fifo_expire_sync",
    "fifo_expire_async",
    "back_seek_max",
    "back_seek_penalty",
    "slice_idle",
    "slice_idle_us",
    "max_budget",
    "timeout_sync",
    "strict_guarantees",
    "low_latency",
];
/// Speed of the model in parts of the measured one, with a latency and without.
const MODEL_RATIO: [f64; 2] = [1.5, 0.9];

/// A setting to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Directory of the file.
    pub dir: PathBuf,
    /// Its name.
    pub file: &'static str,
    /// Present value; of a file with lines that of the disk.
    pub held: String,
    /// Text to write.
    pub to: String,
}

/// Reason for which a disk is not divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// There is no such disk, or it has no scheduler.
    Absent,
    /// bfq cannot be chosen for it.
    NoBfq,
    /// The kernel has no `io.cost`, or the hierarchy is that of cgroup v1.
    NoCost,
    /// `io.cost` is on, and another program switched it on.
    OthersCost,
}

/// Settings of a disk, as found.
#[derive(Debug)]
pub struct Found {
    /// Directory of its queue.
    pub queue: PathBuf,
    /// Inode number of that directory: distinguishes disks of the same name.
    pub inode: u64,
    scheduler: String,
    offers_bfq: bool,
    top: PathBuf,
    number: String,
    /// Lines of the disk in [`MODEL`] and [`QOS`]; empty without one, `None` without the files.
    lines: Option<[String; 2]>,
}

/// Reads the settings of a disk; `None` if there is no such disk, or it has no scheduler.
///
/// # Errors
/// A file could not be read for another reason.
pub fn read(
    kernel: &mut impl KernFs,
    layout: &Layout,
    name: &str,
) -> Result<Option<Found>, KernError> {
    let path = queue(name);
    let dir = match kernel.open_dir(&path) {
        Ok(dir) => dir,
        Err(error) if error.is_gone() => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = read_in(kernel, layout, (dir, path));
    kernel.close_dir(dir);
    match found {
        Err(error) if error.is_gone() => Ok(None),
        outcome => outcome,
    }
}

fn read_in(
    kernel: &mut impl KernFs,
    layout: &Layout,
    (dir, queue): (DirId, PathBuf),
) -> Result<Option<Found>, KernError> {
    let (scheduler, offers_bfq) = schedulers(kernel.read_once(dir, SCHEDULER)?);
    let scheduler = scheduler.to_string();
    if scheduler.is_empty() {
        return Ok(None);
    }
    let inode = kernel.inode(dir)?;
    let block = kernel.open_dir(queue.parent().unwrap_or(&queue))?;
    let number = kernel.read_once(block, "dev").map(text);
    kernel.close_dir(block);
    let number = number?;
    let top = layout.trees[0].mount.clone();
    let lines = match kernel.open_dir(&top) {
        Ok(dir) if layout.is_unified() => {
            let lines =
                [MODEL, QOS].map(|file| Some(line(kernel.read_once(dir, file).ok()?, &number)));
            kernel.close_dir(dir);
            let [model, qos] = lines;
            model.zip(qos).map(|(model, qos)| [model, qos])
        }
        Ok(dir) => {
            kernel.close_dir(dir);
            None
        }
        Err(error) => return Err(error),
    };
    Ok(Some(Found { queue, inode, scheduler, offers_bfq, top, number, lines }))
}

fn text(bytes: &[u8]) -> String {
    text_of(bytes.trim_ascii())
}

/// Line of a disk, or nothing.
fn line(text: &[u8], number: &str) -> String {
    let of = |line: &&[u8]| {
        let rest = line.strip_prefix(number.as_bytes());
        rest.is_some_and(|rest| rest.first() == Some(&b' '))
    };
    text_of(text.split(|byte| *byte == b'\n').find(of).unwrap_or_default())
}

fn has(line: &str, word: &str) -> bool {
    line.split(' ').any(|it| it == word)
}

impl Found {
    /// Settings that differ from those of the policy, in the order of writing. `is_ours` is true if the agent switched
    /// `io.cost` on.
    ///
    /// # Errors
    /// The disk cannot be divided in this way.
    pub fn changes(&self, disk: &DividedDisk, is_ours: bool) -> Result<Vec<Change>, Obstacle> {
        let has_cost = self.lines.as_ref().is_some_and(|[_, qos]| has(qos, "enable=1"));
        if has_cost && !is_ours {
            return Err(Obstacle::OthersCost);
        }
        let model = match &disk.way {
            DividedBy::Bfq if self.scheduler == BFQ => return Ok(Vec::new()),
            DividedBy::Bfq if self.offers_bfq => return Ok(vec![self.choose(BFQ)]),
            DividedBy::Bfq => return Err(Obstacle::NoBfq),
            DividedBy::Cost(model) => model,
        };
        let Some(lines) = &self.lines else { return Err(Obstacle::NoCost) };
        let mut changes = Vec::new();
        if self.scheduler == BFQ {
            changes.push(self.choose(NO_SCHEDULER));
        }
        for (file, held, to) in
            [(MODEL, &lines[0], model_line(model)), (QOS, &lines[1], qos_line(model))]
        {
            if !holds(held, &to) {
                let (dir, held) = (self.top.clone(), held.clone());
                changes.push(Change { dir, file, held, to: format!("{} {to}", self.number) });
            }
        }
        Ok(changes)
    }

    fn choose(&self, scheduler: &str) -> Change {
        let (dir, held) = (self.queue.clone(), self.scheduler.clone());
        Change { dir, file: SCHEDULER, held, to: scheduler.to_string() }
    }

    /// Text that sets the present value of a changed file again. Parameters of `io.cost` that the kernel chose are its to
    /// choose again; a line never goes away.
    pub fn old_text(&self, change: &Change) -> String {
        let (held, number) = (&change.held, &self.number);
        let is_of_user = has(held, "ctrl=user");
        let is_on = u8::from(has(held, "enable=1"));
        match change.file {
            MODEL | QOS if is_of_user => held.clone(),
            QOS => format!("{number} enable={is_on} ctrl=auto"),
            MODEL => format!("{number} ctrl=auto"),
            _ => held.clone(),
        }
    }

    /// Settings that the changes reset, with their values, in the reverse order of restoring.
    pub fn reset_by(&self, kernel: &mut impl KernFs, changes: &[Change]) -> Vec<(String, String)> {
        let Ok(dir) = kernel.open_dir(&self.queue) else { return Vec::new() };
        let chooses = changes.iter().any(|change| change.file == SCHEDULER);
        let of_scheduler = OF_SCHEDULERS.map(|name| format!("iosched/{name}"));
        let names = RESET.iter().map(|name| (*name).to_string());
        let names = names.chain(of_scheduler).take(if chooses { usize::MAX } else { 1 });
        // Schedulers have only some of them.
        let held = names.filter_map(|name| {
            let value = text(kernel.read_once(dir, &name).ok()?);
            Some((name, value))
        });
        let held: Vec<(String, String)> = held.collect();
        kernel.close_dir(dir);
        held
    }
}

fn scaled(rate: Option<u64>, model: &CostModel) -> u64 {
    let ratio = MODEL_RATIO[usize::from(model.latency.is_none())];
    // The rate is 1 at least: the kernel takes 0 for a cost of nothing.
    ((rate.unwrap_or(0) as f64 * ratio).round() as u64).max(1)
}

/// Words of the model.
fn model_line(model: &CostModel) -> String {
    let [rbps, riops] = [model.read, model.read_iops].map(|rate| scaled(rate, model));
    let wbps = scaled(model.write.or(model.read), model);
    let wiops = scaled(model.write_iops.or(model.read_iops), model);
    format!(
        "ctrl=user model=linear rbps={rbps} rseqiops={riops} rrandiops={riops} \
         wbps={wbps} wseqiops={wiops} wrandiops={wiops}"
    )
}

/// Words of the switch. The rate of the model is 100 %.
fn qos_line(model: &CostModel) -> String {
    match model.latency.map(|latency| latency.as_micros()) {
        Some(usec) => format!(
            "enable=1 ctrl=user rpct=90.00 rlat={usec} wpct=90.00 wlat={usec} min=10.00 max=200.00"
        ),
        None => "enable=1 ctrl=user rpct=0.00 rlat=0 wpct=0.00 wlat=0 min=100.00 max=100.00".into(),
    }
}

/// True if a line has all of these words.
fn holds(line: &str, words: &str) -> bool {
    words.split(' ').all(|word| has(line, word))
}

/// True if the file holds the value that `text` sets; `contents` are those of the whole file.
pub fn is_held(file: &str, contents: &[u8], value: &str) -> bool {
    match file {
        SCHEDULER => schedulers(contents).0.to_string() == value,
        MODEL | QOS => {
            let (number, words) = value.split_once(' ').unwrap_or_default();
            holds(&line(contents, number), words)
        }
        _ => text(contents) == value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn found(scheduler: &str, qos: &str) -> Found {
        Found {
            queue: queue("sda"),
            inode: 1,
            scheduler: scheduler.to_string(),
            offers_bfq: true,
            top: "/sys/fs/cgroup".into(),
            number: "8:0".to_string(),
            lines: Some([String::new(), qos.to_string()]),
        }
    }

    fn by(way: DividedBy) -> DividedDisk {
        DividedDisk { name: "sda".to_string(), way }
    }

    fn model(latency: Option<Duration>) -> CostModel {
        let (read, read_iops) = (Some(1000), Some(100));
        CostModel { read, read_iops, write: Some(500), write_iops: None, latency }
    }

    #[test]
    fn a_target_raises_the_model_and_a_fixed_rate_stays_below_the_disk() {
        let to = |latency| {
            let disk = by(DividedBy::Cost(model(latency)));
            let changes = found("bfq", "").changes(&disk, false).unwrap();
            changes.into_iter().map(|change| change.to).collect::<Vec<_>>()
        };
        assert_eq!(
            to(Some(Duration::from_millis(4))),
            [
                "none",
                "8:0 ctrl=user model=linear rbps=1500 rseqiops=150 rrandiops=150 wbps=750 wseqiops=150 wrandiops=150",
                "8:0 enable=1 ctrl=user rpct=90.00 rlat=4000 wpct=90.00 wlat=4000 min=10.00 max=200.00",
            ]
        );
        let fixed = to(None);
        assert!(fixed[1].contains("rbps=900 rseqiops=90 "), "{fixed:?}");
        assert!(fixed[2].ends_with("min=100.00 max=100.00"), "{fixed:?}");
    }

    #[test]
    fn only_what_differs_is_changed() {
        let cost = by(DividedBy::Cost(model(None)));
        let on = format!("8:0 {}", qos_line(&model(None)));
        let files = |found: &Found, disk, is_ours| {
            let changes = found.changes(disk, is_ours)?;
            Ok(changes.iter().map(|change| change.file).collect::<Vec<_>>())
        };
        assert_eq!(files(&found("none", &on), &cost, true), Ok(vec![MODEL]));
        assert_eq!(files(&found("none", &on), &cost, false), Err(Obstacle::OthersCost));
        let bfq = by(DividedBy::Bfq);
        assert_eq!(files(&found("none", ""), &bfq, false), Ok(vec![SCHEDULER]));
        assert_eq!(files(&found("bfq", ""), &bfq, false), Ok(vec![]));
        assert_eq!(files(&found("none", &on), &bfq, false), Err(Obstacle::OthersCost));
        let without = Found { offers_bfq: false, lines: None, ..found("none", "") };
        assert_eq!(files(&without, &bfq, false), Err(Obstacle::NoBfq));
        assert_eq!(files(&without, &cost, false), Err(Obstacle::NoCost));
    }

    #[test]
    fn old_lines_of_io_cost_are_set_again_as_they_were() {
        let of = |file, held: &str| {
            let held = held.to_string();
            let change = Change { dir: PathBuf::new(), file, held, to: String::new() };
            found("none", "").old_text(&change)
        };
        assert_eq!(of(QOS, ""), "8:0 enable=0 ctrl=auto");
        assert_eq!(of(QOS, "8:0 enable=0 ctrl=auto rpct=95.00"), "8:0 enable=0 ctrl=auto");
        assert_eq!(of(MODEL, "8:0 ctrl=auto model=linear rbps=5"), "8:0 ctrl=auto");
        let of_user = "8:0 enable=0 ctrl=user rpct=95.00 rlat=7";
        assert_eq!(of(QOS, of_user), of_user);
        assert!(is_held(QOS, b"8:0 enable=0 ctrl=auto rpct=95.00\n", "8:0 enable=0 ctrl=auto"));
        assert!(!is_held(QOS, b"8:16 enable=0 ctrl=auto\n", "8:0 enable=0 ctrl=auto"));
        assert!(is_held(SCHEDULER, b"[none] bfq\n", "none"));
    }
}
