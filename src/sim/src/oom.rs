//! Choice of the OOM victim.
//!
//! The process with the most points below the reached limit: its anonymous pages, in memory or in swap, and
//! `oom_score_adj` thousandths of the limit, or of memory and swap together; -1000 exempts it. With
//! `memory.oom.group` all of the highest such cgroup between it and the limit (mm/oom_kill.c,
//! `oom_badness`; mm/memcontrol.c, `mem_cgroup_get_oom_group`). `oom` counts at the limit, `oom_kill` at
//! the victim. Page cache does not count: killing its reader would free none of it. Choice and kills are logged.

use std::cmp::Reverse;

use super::controller::Controller;
use super::population::Population;
use super::process::Process;
use super::tree::CgroupId;

/// Most unread records of the log.
const LOG_MAX: usize = 256;

impl Population {
    /// Ends the victim below `id`, on a host with this many pages of memory and swap.
    pub(super) fn out_of_memory(&mut self, id: CgroupId, total_pages: u64) {
        if self.tree[id].parent.is_some() {
            self.raise(id, |events| events.oom += 1);
        }
        let Some(victim) = self.oom_victim(id, total_pages) else { return };
        self.log_victim(victim, id);
        let Some(group) = self.oom_group(victim, id) else {
            self.oom_kill(victim);
            return;
        };
        self.raise(group, |events| events.oom_group_kill += 1);
        let cgroups = self.tree.subtree(group);
        let members = cgroups.iter().flat_map(|&id| &self.tree[id].processes).copied();
        let members: Vec<u32> = members.filter(|&pid| !self.is_exempt(pid)).collect();
        self.oom_kill(victim);
        let path = self.tree.path(group);
        self.log(format!("Tasks in {path} are going to be killed due to memory.oom.group set"));
        members.into_iter().for_each(|pid| self.oom_kill(pid));
    }

    /// Logs the choice of a victim below `limit`.
    fn log_victim(&mut self, victim: u32, limit: CgroupId) {
        let Some(process) = self.processes.get(&victim) else { return };
        let (cgroup, name, uid) = (self.memory_cgroup(process), &process.name, process.uid);
        let cgroup = self.tree.path(cgroup);
        let limit = match self.tree[limit].parent {
            Some(_) => format!("oom_memcg={}", self.tree.path(limit)),
            None => "global_oom".to_string(),
        };
        self.log(format!(
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,{limit},task_memcg={cgroup},\
             task={name},pid={victim},uid={uid}"
        ));
    }

    /// Adds a record of the kernel, in place of the oldest of many unread ones.
    fn log(&mut self, text: String) {
        if self.log.len() == LOG_MAX {
            self.log.remove(0);
        }
        self.log.push(format!("6,1,0,-;{text}\n"));
    }

    /// Process below `id` with the most points; the first of several equals.
    fn oom_victim(&self, id: CgroupId, total_pages: u64) -> Option<u32> {
        let thousandth = total_pages.min(self.tree[id].memory.max) as i64 / 1000;
        let hierarchy = self.tree.home_or_first(Controller::Memory);
        let below = |p: &Process| self.tree.lineage(p.cgroups[hierarchy]).any(|above| above == id);
        let candidates =
            self.processes.iter().filter(|(pid, p)| !self.is_exempt(**pid) && below(p));
        let candidates = candidates.filter(|(_, p)| p.oom_score_adj > -1000);
        let points =
            |p: &Process| p.pages().anonymous() as i64 + i64::from(p.oom_score_adj) * thousandth;
        candidates.max_by_key(|&(&pid, p)| (points(p), Reverse(pid))).map(|(&pid, _)| pid)
    }

    /// Highest cgroup from that of `victim` up to `limit` that is killed as a whole.
    fn oom_group(&self, victim: u32, limit: CgroupId) -> Option<CgroupId> {
        let from = self.memory_cgroup(self.processes.get(&victim)?);
        let mut up_to_limit = Vec::new();
        for above in self.tree.lineage(from) {
            up_to_limit.push(above);
            if above == limit {
                break;
            }
        }
        up_to_limit.into_iter().rfind(|&id| self.tree[id].memory.oom_group)
    }

    fn oom_kill(&mut self, pid: u32) {
        let Some(process) = self.processes.get(&pid) else { return };
        let cgroup = self.memory_cgroup(process);
        let (kib, name, uid) = (process.pages().resident() * 4, &process.name, process.uid);
        let text = format!(
            "Out of memory: Killed process {pid} ({name}) total-vm:{kib}kB, anon-rss:{kib}kB, file-rss:0kB, \
             shmem-rss:0kB, UID:{uid} pgtables:0kB oom_score_adj:0"
        );
        self.log(text);
        self.raise(cgroup, |events| events.oom_kill += 1);
        self.end(pid);
    }
}
