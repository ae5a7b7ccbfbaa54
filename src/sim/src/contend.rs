//! Processes that want all of the disk: they get it by the weights of their cgroups, if its scheduler obeys them.

use nix::errno::Errno;

use super::controller::Controller;
use super::disk::{DEFAULT_WEIGHT, DiskWork, Divider, QUEUE};
use super::disk_queue::DiskQueue;
use super::kernel::SimKernel;
use super::parse;
use super::tree::CgroupId;

impl SimKernel {
    pub(super) fn write_qos(&mut self, text: &str) -> Result<(), Errno> {
        let is_on = self.host.divider.has_cost;
        self.host.divider.has_cost = self.host.queue.write_qos(text, is_on)?;
        self.sys = self.host.sys_files(&self.cpu.online);
        Ok(())
    }

    /// Writes a file of the disk's queue.
    pub(super) fn write_queue(&mut self, path: &str, value: &str) -> Result<(), Errno> {
        let file = path.strip_prefix(QUEUE).ok_or(Errno::EACCES)?;
        let value = value.trim();
        let queue = &mut self.host.queue;
        match file {
            "/scheduler" => {
                let is_known = matches!(value, "none" | "mq-deadline" | "bfq");
                if !is_known || value == "bfq" && queue.lacks_bfq {
                    return Err(Errno::EINVAL);
                }
                let before = self.host.divider;
                let divider =
                    Divider { is_bfq: value == "bfq", is_none: value == "none", ..before };
                if divider != before {
                    self.set_divider(divider);
                }
                return Ok(());
            }
            "/nr_requests" => queue.nr_requests = parse::unsigned(value)?,
            "/wbt_lat_usec" => queue.wbt_lat_usec = parse::unsigned(value)?,
            "/iosched/read_expire" => queue.read_expire = parse::unsigned(value)?,
            _ => return Err(Errno::EACCES),
        }
        self.sys = self.host.sys_files(&self.cpu.online);
        Ok(())
    }

    /// Removes the disk, and adds another of the same name and number.
    pub fn replace_disk(&mut self) {
        let life = self.host.queue.life + 1;
        self.host.queue = DiskQueue::default();
        self.host.queue.life = life;
        self.set_divider(Divider::default());
    }

    /// Chooses the scheduler of the disk, and switches `io.cost`. Weights of bfq begin at 100 again.
    pub fn set_divider(&mut self, divider: Divider) {
        let nr_choices = self.host.divider.nr_choices + 1;
        let tree = &mut self.live.tree;
        let roots: Vec<CgroupId> = tree.roots().collect();
        for id in roots {
            for at in tree.subtree(id).iter() {
                tree[*at].disk_knobs.bfq = DEFAULT_WEIGHT;
            }
        }
        self.host.queue.choose();
        self.host.divider = Divider { nr_choices, ..divider };
        self.live.tree.has_bfq = divider.is_bfq;
        self.sys = self.host.sys_files(&self.cpu.online);
    }

    /// Does `work` in the name of processes that all want more, divided by the weights of their cgroups if the disk obeys
    /// them, else equally. The weights of cgroups above them count among the siblings with one of these processes.
    ///
    /// # Errors
    /// ESRCH if a process has ended.
    pub fn contend(&mut self, pids: &[u32], work: DiskWork) -> Result<(), Errno> {
        let wants: Vec<(u32, f64)> = pids.iter().map(|pid| (*pid, 1.0)).collect();
        self.contend_for(&wants, work).map(|_| ())
    }

    /// The same for processes that want at most this part of `work`; others get the rest. Those that get less than they want
    /// wait all the time. Returns each process with its part.
    ///
    /// # Errors
    /// ESRCH if a process has ended.
    pub fn contend_for(
        &mut self,
        wants: &[(u32, f64)],
        work: DiskWork,
    ) -> Result<Vec<(u32, f64)>, Errno> {
        let mut left = 1.0;
        let mut open: Vec<(u32, f64)> = wants.to_vec();
        let mut got = Vec::with_capacity(wants.len());
        let mut waiting = Vec::new();
        while !open.is_empty() {
            let pids: Vec<u32> = open.iter().map(|(pid, _)| *pid).collect();
            let parts: Vec<f64> = self.parts(&pids)?.iter().map(|part| part * left).collect();
            let is_met = open.iter().zip(&parts).map(|((_, want), part)| want <= part);
            let is_met: Vec<bool> = is_met.collect();
            if !is_met.contains(&true) {
                for (pid, part) in pids.iter().zip(parts) {
                    self.use_disk(*pid, work.part(part))?;
                    got.push((*pid, part));
                }
                waiting = pids;
                break;
            }
            let (met, unmet): (Vec<_>, Vec<_>) =
                open.into_iter().zip(is_met).partition(|(_, is_met)| *is_met);
            for ((pid, want), _) in met {
                self.use_disk(pid, work.part(want))?;
                got.push((pid, want));
                left -= want;
            }
            open = unmet.into_iter().map(|(want, _)| want).collect();
        }
        self.wait_for_disk(&waiting, work.busy_msec)?;
        Ok(got)
    }

    /// Adds a time to the IO pressure of the cgroups of these processes, once to each.
    fn wait_for_disk(&mut self, pids: &[u32], msec: u64) -> Result<(), Errno> {
        let mut stalled: Vec<CgroupId> = Vec::new();
        for pid in pids {
            let process = self.live.processes.get(pid).ok_or(Errno::ESRCH)?;
            let tree = &self.live.tree;
            for own in &process.cgroups {
                let up = std::iter::successors(Some(*own), |id| tree[*id].parent);
                stalled.extend(up.filter(|id| !stalled.contains(id)).collect::<Vec<_>>());
            }
        }
        for id in stalled {
            self.live.tree[id].pressure.wait_for_disk(msec as f64 * 1e6);
        }
        Ok(())
    }

    fn parts(&self, pids: &[u32]) -> Result<Vec<f64>, Errno> {
        let tree = &self.live.tree;
        let divider = self.host.divider;
        let weight = |id: CgroupId| match (divider.is_bfq, divider.has_cost) {
            _ if divider.is_void => 1.0,
            (true, _) => tree[id].disk_knobs.bfq as f64,
            (_, true) => tree[id].disk_knobs.weight as f64,
            _ => 1.0,
        };
        let mut paths: Vec<Vec<CgroupId>> = Vec::new();
        for pid in pids {
            let process = self.live.processes.get(pid).ok_or(Errno::ESRCH)?;
            let hierarchies = tree.hierarchies.iter().zip(&process.cgroups);
            let mut with_io = hierarchies.filter(|(it, _)| it.controllers.contains(Controller::Io));
            let (_, own) = with_io.next().ok_or(Errno::ENODEV)?;
            let up = std::iter::successors(Some(*own), |id| tree[*id].parent);
            let mut path: Vec<CgroupId> = up.collect();
            path.reverse();
            paths.push(path);
        }
        let part = |path: &Vec<CgroupId>| {
            let levels = path.iter().enumerate().skip(1).map(|(depth, own)| {
                let mut siblings: Vec<CgroupId> = Vec::new();
                let beside = paths.iter().filter(|it| it.get(depth - 1) == path.get(depth - 1));
                for id in beside.filter_map(|it| it.get(depth)) {
                    if !siblings.contains(id) {
                        siblings.push(*id);
                    }
                }
                weight(*own) / siblings.into_iter().map(weight).sum::<f64>()
            });
            let shared = paths.iter().filter(|it| it.last() == path.last()).count() as f64;
            levels.product::<f64>() / shared
        };
        Ok(paths.iter().map(part).collect())
    }
}
