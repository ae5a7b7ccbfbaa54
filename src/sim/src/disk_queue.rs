//! Settings of the disk in `/sys/block/sda/queue`, and its lines in the files of `io.cost`.
//!
//! Choosing a scheduler resets the settings of schedulers and the number of requests, and bfq and `io.cost` switch the throttling
//! of writeback off, as in `block/elevator.c` and `block/blk-iocost.c`. A line of `io.cost` stays until the disk is removed.

use nix::errno::Errno;

use super::disk::{DEVICE, Divider, QUEUE, SETTINGS, vet};
use super::parse;

const READ_EXPIRE: u64 = 500;
const NR_REQUESTS: u64 = 256;
const QOS: [&str; 6] = ["rpct", "rlat", "wpct", "wlat", "min", "max"];
/// Parameters that the kernel chooses for a disk.
const AUTO_QOS: [f64; 6] = [95.0, 25_000.0, 95.0, 25_000.0, 1.0, 10_000.0];
const MODEL: [&str; 6] = ["rbps", "rseqiops", "rrandiops", "wbps", "wseqiops", "wrandiops"];
const AUTO_MODEL: [u64; 6] = [488_636_629, 8932, 8518, 427_891_549, 28_755, 21_940];

/// Settings of the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskQueue {
    /// True if bfq cannot be chosen.
    pub lacks_bfq: bool,
    /// Setting of mq-deadline, in ms.
    pub read_expire: u64,
    /// Requests in the queue.
    pub nr_requests: u64,
    /// Target of the throttling of writeback, in microseconds.
    pub wbt_lat_usec: u64,
    /// Number of disks of this name before.
    pub life: u64,
    /// True once the disk has lines in the files of `io.cost`.
    has_lines: bool,
    qos: Option<[f64; 6]>,
    model: Option<[u64; 6]>,
}

impl Default for DiskQueue {
    fn default() -> DiskQueue {
        DiskQueue {
            lacks_bfq: false,
            read_expire: READ_EXPIRE,
            nr_requests: NR_REQUESTS,
            wbt_lat_usec: 75_000,
            life: 0,
            has_lines: false,
            qos: None,
            model: None,
        }
    }
}

impl DiskQueue {
    /// The files of the disk below `/sys/block`.
    pub(super) fn files(&self, divider: Divider) -> Vec<(String, String)> {
        let chosen = match (divider.is_bfq, divider.is_none) {
            (true, _) => "bfq",
            (_, true) => "none",
            _ => "mq-deadline",
        };
        let names = ["none", "mq-deadline", "bfq"];
        let names = names.iter().filter(|name| **name != "bfq" || !self.lacks_bfq);
        let names = names.map(|it| if *it == chosen { format!("[{it}]") } else { it.to_string() });
        let names: Vec<String> = names.collect();
        let wbt = if divider.is_bfq || divider.has_cost { 0 } else { self.wbt_lat_usec };
        let mut files = vec![
            (QUEUE.replace("queue", "dev"), format!("{DEVICE}\n")),
            (format!("{QUEUE}/scheduler"), names.join(" ") + "\n"),
            (format!("{QUEUE}/nr_requests"), format!("{}\n", self.nr_requests)),
            (format!("{QUEUE}/wbt_lat_usec"), format!("{wbt}\n")),
        ];
        if divider.is_bfq {
            let strict = u8::from(divider.is_strict);
            files.push((format!("{SETTINGS}/strict_guarantees"), format!("{strict}\n")));
        } else if !divider.is_none {
            files.push((format!("{SETTINGS}/read_expire"), format!("{}\n", self.read_expire)));
        }
        files
    }

    /// Resets what a choice of a scheduler resets.
    pub(super) fn choose(&mut self) {
        (self.read_expire, self.nr_requests) = (READ_EXPIRE, NR_REQUESTS);
    }

    /// `io.cost.qos`.
    pub(super) fn show_qos(&self, divider: Divider) -> String {
        if !self.has_lines && !divider.has_cost {
            return String::new();
        }
        let [rpct, rlat, wpct, wlat, min, max] = self.qos.unwrap_or(AUTO_QOS);
        let (enable, ctrl) = (u8::from(divider.has_cost), ctrl(self.qos.is_some()));
        format!(
            "{DEVICE} enable={enable} ctrl={ctrl} rpct={rpct:.2} rlat={rlat} wpct={wpct:.2} wlat={wlat} min={min:.2} max={max:.2}\n"
        )
    }

    /// `io.cost.model`.
    pub(super) fn show_model(&self) -> String {
        if !self.has_lines {
            return String::new();
        }
        let values = self.model.unwrap_or(AUTO_MODEL);
        let each = MODEL.iter().zip(values).map(|(key, value)| format!(" {key}={value}"));
        let each: String = each.collect();
        format!("{DEVICE} ctrl={} model=linear{each}\n", ctrl(self.model.is_some()))
    }

    /// Writes `io.cost.qos`; returns true if `io.cost` is on then.
    pub(super) fn write_qos(&mut self, text: &str, is_on: bool) -> Result<bool, Errno> {
        let mut words = text.split_ascii_whitespace();
        vet(words.next())?;
        let mut values = self.qos.unwrap_or(AUTO_QOS);
        let (mut is_of_user, mut is_on) = (self.qos.is_some(), is_on);
        for word in words {
            match word.split_once('=').ok_or(Errno::EINVAL)? {
                ("enable", value) => is_on = parse::switch(value)?,
                ("ctrl", value) => is_of_user = value == "user",
                (key, value) => {
                    let at = QOS.iter().position(|it| *it == key).ok_or(Errno::EINVAL)?;
                    values[at] = value.parse().map_err(|_| Errno::EINVAL)?;
                    is_of_user = true;
                }
            }
        }
        (self.has_lines, self.qos) = (true, is_of_user.then_some(values));
        Ok(is_on)
    }

    pub(super) fn write_model(&mut self, text: &str) -> Result<(), Errno> {
        let mut words = text.split_ascii_whitespace();
        vet(words.next())?;
        let mut values = self.model.unwrap_or(AUTO_MODEL);
        let mut is_of_user = self.model.is_some();
        for word in words {
            match word.split_once('=').ok_or(Errno::EINVAL)? {
                ("ctrl", value) => is_of_user = value == "user",
                ("model", "linear") => {}
                (key, value) => {
                    let at = MODEL.iter().position(|it| *it == key).ok_or(Errno::EINVAL)?;
                    values[at] = parse::unsigned(value)?;
                    is_of_user = true;
                }
            }
        }
        (self.has_lines, self.model) = (true, is_of_user.then_some(values));
        Ok(())
    }
}

fn ctrl(is_of_user: bool) -> &'static str {
    if is_of_user { "user" } else { "auto" }
}
