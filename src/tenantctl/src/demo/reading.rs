//! CPU time and reads of the processes of the loads, from `/proc`: the same with and without an agent.

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    pub(crate) cpu_sec: f64,
    /// Bytes read from files; `None` if the kernel does not count them.
    pub(crate) read_bytes: Option<f64>,
    pub(crate) disk_bytes: Option<f64>,
}

impl Reading {
    pub(crate) fn parse(stat: &str, io: Option<&str>, ticks_per_sec: f64) -> Option<Reading> {
        // The name may contain any character; the numbers follow its last bracket (proc_pid_stat(5)).
        let (_, fields) = stat.rsplit_once(')')?;
        let ticks = |index: usize| fields.split_whitespace().nth(index)?.parse::<f64>().ok();
        let count = |key: &str| {
            let line = io?.lines().find_map(|line| line.strip_prefix(key))?;
            line.strip_prefix(':')?.trim().parse().ok()
        };
        Some(Reading {
            cpu_sec: (ticks(11)? + ticks(12)?) / ticks_per_sec,
            read_bytes: count("rchar"),
            disk_bytes: count("read_bytes"),
        })
    }

    pub(crate) fn since(&self, before: &Reading) -> Reading {
        let less = |now: Option<f64>, then: Option<f64>| Some((now? - then?).max(0.0));
        Reading {
            cpu_sec: (self.cpu_sec - before.cpu_sec).max(0.0),
            read_bytes: less(self.read_bytes, before.read_bytes),
            disk_bytes: less(self.disk_bytes, before.disk_bytes),
        }
    }

    /// Part of the reads served from memory, 0 ..= 1; `None` for almost no reads.
    pub(crate) fn cached_ratio(&self) -> Option<f64> {
        let read = self.read_bytes.filter(|read| *read >= f64::from(1 << 20))?;
        Some((1.0 - self.disk_bytes? / read).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_read() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 0 0 0 0 150 50 0 0 20 0 2 0 0 0 0";
        let io = "rchar: 8388608\nwchar: 0\nread_bytes: 2097152\n";
        let reading = Reading::parse(stat, Some(io), 100.0).unwrap();
        assert_eq!(reading.cpu_sec, 2.0);
        assert_eq!(reading.cached_ratio(), Some(0.75));
        let later = Reading { cpu_sec: 3.5, disk_bytes: Some(2097152.0), ..reading };
        assert_eq!(later.since(&reading).cpu_sec, 1.5);
        assert_eq!(later.since(&reading).cached_ratio(), None, "nothing was read meanwhile");
        assert_eq!(Reading::parse(stat, None, 100.0).unwrap().cached_ratio(), None);
        for bad in ["", "7 (a", "7 (a) R 1", "7 (a) R 1 7 7 0 -1 0 0 0 0 0 x y"] {
            assert_eq!(Reading::parse(bad, Some(io), 100.0), None, "{bad}");
        }
    }
}
