//! Texts of the unified hierarchy's files, as Linux 6.12 prints them.

use nix::errno::Errno;

use super::account::{Kind, MemoryEvents};
use super::controller::Controller;
use super::digits::number;
use super::disk::show_io_stat;
use super::files_v1::show_legacy;
use super::kernel::SimKernel;
use super::parse::{self, PAGE_BYTES, PAGES_MAX};
use super::population::Population;
use super::spec::File;
use super::tree::{Cgroup, CgroupId, Tree};

pub(super) fn show(kernel: &SimKernel, id: CgroupId, file: File) -> Result<String, Errno> {
    let tree = &kernel.live.tree;
    let cgroup = tree.get(id).ok_or(Errno::ENODEV)?;
    let or_max = |value: Option<u64>| value.map_or("max\n".into(), |v| format!("{v}\n"));
    Ok(match file {
        File::Type => match (tree.is_valid_domain(id), tree.is_thread_root(id)) {
            (false, _) => "domain invalid\n".into(),
            (true, true) => "domain threaded\n".into(),
            (true, false) => "domain\n".into(),
        },
        File::Procs => cgroup.processes.iter().map(|pid| format!("{pid}\n")).collect(),
        File::Threads => show_threads(&kernel.live, id),
        File::Controllers => cgroup.controllers.line(),
        File::SubtreeControl => cgroup.subtree_control.line(),
        File::Events => format!(
            "populated {}\nfrozen {}\n",
            u8::from(tree.is_populated(id)),
            u8::from(tree.is_frozen(id))
        ),
        File::MaxDescendants => or_max(cgroup.max_descendants),
        File::MaxDepth => or_max(cgroup.max_depth),
        File::Stat => show_cgroup_stat(tree, id),
        File::Freeze => format!("{}\n", u8::from(cgroup.frozen)),
        File::ShowsPressure => format!("{}\n", u8::from(cgroup.shows_pressure)),
        File::Pressure(_) if !kernel.host.psi => return Err(Errno::EOPNOTSUPP),
        File::Pressure(resource) => cgroup.pressure.text(resource),
        File::CpuStat => show_cpu_stat(cgroup),
        File::CpuWeight => format!("{}\n", cgroup.cpu.weight),
        File::CpuIdle => format!("{}\n", u8::from(cgroup.cpu.is_idle)),
        File::CpuMax => {
            let bandwidth = cgroup.cpu.bandwidth;
            let quota = bandwidth.quota_usec.map_or("max".into(), |quota| quota.to_string());
            format!("{quota} {}\n", bandwidth.period_usec)
        }
        File::CpusetCpus => parse::format_list(&cgroup.cpuset.cpus) + "\n",
        File::CpusetCpusEffective => {
            parse::format_list(&tree.effective_cpus(id, &kernel.cpu.online)) + "\n"
        }
        File::CpusetMems => parse::format_list(&cgroup.cpuset.mems) + "\n",
        File::CpusetMemsEffective if cgroup.cpuset.mems.is_empty() => {
            parse::format_list(&kernel.host.mems()) + "\n"
        }
        File::CpusetMemsEffective => parse::format_list(&cgroup.cpuset.mems) + "\n",
        File::CpusetPartition => "member\n".into(),
        File::IoStat => show_io_stat(&cgroup.disk),
        File::IoWeight => format!("default {}\n", cgroup.disk_knobs.weight),
        File::IoBfqWeight => format!("default {}\n", cgroup.disk_knobs.bfq),
        File::IoMax => cgroup.disk_knobs.show_max(),
        File::IoCostModel => kernel.host.queue.show_model(),
        File::IoCostQos => kernel.host.queue.show_qos(kernel.host.divider),
        File::MemoryCurrent => bytes(cgroup.memory_account.usage),
        File::MemoryPeak => bytes(cgroup.memory_account.peak),
        File::MemoryBound(bound) => match cgroup.memory.bound(bound) {
            PAGES_MAX => "max\n".into(),
            pages => bytes(pages),
        },
        File::MemoryEvents => show_events(&cgroup.memory_account.events),
        File::MemoryEventsLocal => show_events(&cgroup.memory_account.local_events),
        File::MemoryStat => show_memory_stat(kernel, id),
        File::MemoryOomGroup => format!("{}\n", u8::from(cgroup.memory.oom_group)),
        File::MemorySwapCurrent => bytes(cgroup.memory_account.swapped),
        File::PidsCurrent => format!("{}\n", tree.nr_processes(id)),
        File::PidsMax => or_max(cgroup.pids_max),
        File::PidsEvents => format!("max {}\n", cgroup.nr_refused_forks),
        File::Legacy(file) => return show_legacy(kernel, id, file),
        File::Kill | File::MemoryReclaim => return Err(Errno::EINVAL),
    })
}

/// Numbers of descendants, in all and per controller; a removed cgroup is never dying here.
fn show_cgroup_stat(tree: &Tree, id: CgroupId) -> String {
    let subtree = tree.subtree(id);
    let hierarchy = &tree.hierarchies[tree[id].hierarchy];
    let mut text = format!("nr_descendants {}\n", subtree.len() - 1);
    for controller in hierarchy.controllers.iter() {
        let has = |id: &&CgroupId| tree[**id].controllers.contains(controller);
        let count = subtree.iter().filter(has).count();
        text += &format!("nr_subsys_{} {count}\n", controller.name());
    }
    text += "nr_dying_descendants 0\n";
    for controller in hierarchy.controllers.iter() {
        text += &format!("nr_dying_subsys_{} 0\n", controller.name());
    }
    text
}

fn show_threads(live: &Population, id: CgroupId) -> String {
    let members = live.tree[id].processes.iter().filter_map(|pid| live.processes.get(pid));
    members.flat_map(|p| &p.threads).map(|thread| format!("{}\n", thread.tid)).collect()
}

fn show_cpu_stat(cgroup: &Cgroup) -> String {
    let account = &cgroup.cpu_account;
    let usage_usec = (account.usage_nsec / 1000.0) as u64;
    let system_usec = ((account.system_nsec / 1000.0) as u64).min(usage_usec);
    let lines = [
        ("usage_usec", usage_usec),
        ("user_usec", usage_usec - system_usec),
        ("system_usec", system_usec),
        ("nice_usec", 0),
        ("nr_periods", account.nr_periods),
        ("nr_throttled", account.nr_throttled),
        ("throttled_usec", (account.throttled_nsec / 1000.0) as u64),
        ("nr_bursts", 0),
        ("burst_usec", 0),
    ];
    let has_quota = cgroup.controllers.contains(Controller::Cpu);
    named(if has_quota { &lines } else { &lines[..4] })
}

/// `memory.stat` in the order of `memory_stats[]` and `memcg_vm_event_stat[]` of mm/memcontrol.c.
fn show_memory_stat(kernel: &SimKernel, id: CgroupId) -> String {
    let pages = kernel.live.pages_below(id);
    let of = |kind| pages.of(kind) * PAGE_BYTES;
    // With generations, file pages that are read and not mapped stay in the older ones.
    let active = if kernel.host.has_generations { 0 } else { pages.of(Kind::ActiveFile) };
    let (active_file, inactive_file) = (active * PAGE_BYTES, (pages.file() - active) * PAGE_BYTES);
    let counters = &kernel.live.tree[id].memory_account.counters;
    let lines: &[(&str, u64)] = &[
        ("anon", (pages.of(Kind::Anon) + pages.of(Kind::Locked)) * PAGE_BYTES),
        ("file", pages.file() * PAGE_BYTES),
        ("kernel", of(Kind::Kernel)),
        ("kernel_stack", of(Kind::Kernel)),
        ("pagetables", 0),
        ("sec_pagetables", 0),
        ("percpu", 0),
        ("sock", 0),
        ("vmalloc", 0),
        ("shmem", 0),
        ("file_mapped", 0),
        ("file_dirty", 0),
        ("file_writeback", 0),
        ("swapcached", 0),
        ("anon_thp", 0),
        ("file_thp", 0),
        ("shmem_thp", 0),
        ("inactive_anon", 0),
        ("active_anon", of(Kind::Anon)),
        ("inactive_file", inactive_file),
        ("active_file", active_file),
        ("unevictable", of(Kind::Locked)),
        ("slab_reclaimable", 0),
        ("slab_unreclaimable", 0),
        ("slab", 0),
        ("workingset_refault_anon", counters.refault_anon),
        ("workingset_refault_file", counters.refault_file),
        ("workingset_activate_anon", 0),
        ("workingset_activate_file", counters.refault_file),
        ("workingset_restore_anon", 0),
        ("workingset_restore_file", counters.refault_file),
        ("workingset_nodereclaim", 0),
        ("pgdemote_kswapd", 0),
        ("pgdemote_direct", 0),
        ("pgdemote_khugepaged", 0),
        ("pgpromote_success", 0),
        ("pgscan", counters.scan_background + counters.scan_direct),
        ("pgsteal", counters.steal_background + counters.steal_direct),
        ("pgscan_kswapd", counters.scan_background),
        ("pgscan_direct", counters.scan_direct),
        ("pgscan_khugepaged", 0),
        ("pgsteal_kswapd", counters.steal_background),
        ("pgsteal_direct", counters.steal_direct),
        ("pgsteal_khugepaged", 0),
        ("pgfault", counters.fault),
        ("pgmajfault", counters.major_fault),
        ("pgrefill", 0),
        ("pgactivate", 0),
        ("pgdeactivate", 0),
        ("pglazyfree", 0),
        ("pglazyfreed", 0),
        ("swpin_zero", 0),
        ("swpout_zero", 0),
        ("thp_fault_alloc", 0),
        ("thp_collapse_alloc", 0),
        ("thp_swpout", 0),
        ("thp_swpout_fallback", 0),
        ("numa_pages_migrated", 0),
        ("numa_pte_updates", 0),
        ("numa_hint_faults", 0),
    ];
    named(lines)
}

fn bytes(pages: u64) -> String {
    let mut text = String::with_capacity(21);
    number(&mut text, pages * PAGE_BYTES);
    text.push('\n');
    text
}

fn named(lines: &[(&str, u64)]) -> String {
    let mut text = String::with_capacity(32 * lines.len());
    for &(name, value) in lines {
        text += name;
        text.push(' ');
        number(&mut text, value);
        text.push('\n');
    }
    text
}

fn show_events(events: &MemoryEvents) -> String {
    named(&[
        ("low", events.low),
        ("high", events.high),
        ("max", events.max),
        ("oom", events.oom),
        ("oom_kill", events.oom_kill),
        ("oom_group_kill", events.oom_group_kill),
    ])
}
