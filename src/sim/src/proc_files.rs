//! `/proc`: the host's time and memory, and its processes.
//!
//! Times are in ticks of 1/100 s (`USER_HZ`), memory in kB of 1024 bytes. Memory hotplug, shared or mapped
//! files and writeback do not exist here: those lines are 0.

use nix::errno::Errno;

use super::account::Kind;
use super::cpu::Cpu;
use super::disk::show_diskstats;
use super::handles::{DirPlace, ProcFile};
use super::host::{Access, Layout, legacy_name};
use super::kernel::SimKernel;
use super::parse::{PAGE_BYTES, format_list};
use super::pressure::Resource;
use super::process::Process;
use super::rates::CpuTimes;
use super::tree::Version;

const TICK_NSEC: f64 = 10_000_000.0;

/// A typical slice of the scheduler, for the third number of `schedstat`.
const SLICE_NSEC: f64 = 3_000_000.0;

/// Boot time in seconds since 1970; the simulation has no calendar of its own.
const BOOT_TIME_SEC: u64 = 1_700_000_000;

/// Drivers of every machine.
const DEVICES: &str =
    "Character devices:\n  1 mem\n  5 /dev/tty\n 10 misc\n\nBlock devices:\n  7 loop\n";

pub(super) fn proc_file(place: &DirPlace, name: &str) -> Result<ProcFile, Errno> {
    let file = match (place, name) {
        (DirPlace::Proc, "stat") => ProcFile::Stat,
        (DirPlace::Proc, "meminfo") => ProcFile::Meminfo,
        (DirPlace::Proc, "devices") => ProcFile::Devices,
        (DirPlace::Proc, "uptime") => ProcFile::Uptime,
        (DirPlace::Proc, "diskstats") => ProcFile::Diskstats,
        (DirPlace::ProcPressure, "cpu") => ProcFile::Pressure(Resource::Cpu),
        (DirPlace::ProcPressure, "memory") => ProcFile::Pressure(Resource::Memory),
        (DirPlace::ProcPressure, "io") => ProcFile::Pressure(Resource::Io),
        (DirPlace::ProcVm, "min_free_kbytes") => ProcFile::MinFree,
        (DirPlace::Process(pid), "mountinfo") => ProcFile::Mountinfo(*pid),
        (DirPlace::Process(pid), "cgroup") => ProcFile::Cgroup(*pid),
        (DirPlace::Process(pid), "status") => ProcFile::Status(*pid),
        (DirPlace::Process(pid), "stat") => ProcFile::PidStat(*pid),
        (DirPlace::Process(pid), "statm") => ProcFile::Statm(*pid),
        (DirPlace::Process(pid), "comm") => ProcFile::Comm(*pid),
        (DirPlace::Process(pid), "io") => ProcFile::Io(*pid),
        (DirPlace::Process(pid), "oom_score_adj") => ProcFile::OomScoreAdj(*pid),
        (DirPlace::Process(pid), "schedstat") => ProcFile::Schedstat(*pid, *pid),
        (DirPlace::Task(pid, tid), "schedstat") => ProcFile::Schedstat(*pid, *tid),
        _ => return Err(Errno::ENOENT),
    };
    Ok(file)
}

/// Text of a file; ESRCH if its process or thread has ended.
pub(super) fn show_proc(kernel: &SimKernel, file: ProcFile) -> Result<String, Errno> {
    let process = |pid: u32| kernel.live.processes.get(&pid).ok_or(Errno::ESRCH);
    Ok(match file {
        ProcFile::Stat => show_stat(kernel),
        ProcFile::Meminfo => show_meminfo(kernel),
        ProcFile::Devices => DEVICES.to_string(),
        ProcFile::Uptime => {
            let idle: f64 = kernel.cpu.times.iter().map(|times| times.idle_nsec).sum();
            format!("{:.2} {:.2}\n", kernel.now_nsec as f64 * 1e-9, idle * 1e-9)
        }
        ProcFile::Pressure(resource) => {
            let hierarchy = kernel.live.tree.hierarchies.iter().find(|h| h.version == Version::V2);
            let root = hierarchy.ok_or(Errno::ENOENT)?.root;
            kernel.live.tree[root].pressure.text(resource)
        }
        // The high watermark, which ends reclaim, is half as much again.
        ProcFile::MinFree => {
            format!("{}\n", 2 * kernel.memory.reserve_pages() * PAGE_BYTES / 1024 * 2 / 3)
        }
        ProcFile::Diskstats => show_diskstats(&kernel.disk),
        ProcFile::Mountinfo(pid) => process(pid).map(|_| show_mountinfo(kernel))?,
        ProcFile::Cgroup(pid) => show_cgroup(kernel, process(pid)?),
        ProcFile::Status(pid) => show_status(kernel, pid, process(pid)?),
        ProcFile::PidStat(pid) => show_pid_stat(pid, process(pid)?),
        ProcFile::Statm(pid) => {
            let resident = process(pid)?.pages().of(Kind::Anon);
            format!("{resident} {resident} 0 0 0 {resident} 0\n")
        }
        ProcFile::Comm(pid) => format!("{}\n", process(pid)?.name),
        ProcFile::Io(pid) => show_io(process(pid)?),
        ProcFile::OomScoreAdj(pid) => format!("{}\n", process(pid)?.oom_score_adj),
        ProcFile::Schedstat(pid, tid) => {
            let thread = process(pid)?.threads.iter().find(|thread| thread.tid == tid);
            let thread = thread.ok_or(Errno::ESRCH)?;
            let slices = (thread.run_nsec / SLICE_NSEC).ceil() as u64;
            format!("{} {} {slices}\n", thread.run_nsec as u64, thread.wait_nsec as u64)
        }
    })
}

fn show_stat(kernel: &SimKernel) -> String {
    let ticks = |nsec: f64| (nsec / TICK_NSEC) as u64;
    let line = |name: &str, user: f64, system: f64, idle: f64| {
        let (user, system, idle) = (ticks(user), ticks(system), ticks(idle));
        format!("{name} {user} 0 {system} {idle} 0 0 0 0 0 0\n")
    };
    let Cpu { times, online, .. } = &kernel.cpu;
    let sum = |part: fn(&CpuTimes) -> f64| times.iter().map(part).sum();
    let mut text = line("cpu ", sum(|t| t.user_nsec), sum(|t| t.system_nsec), sum(|t| t.idle_nsec));
    for (cpu, times) in (0..).zip(times).filter(|(cpu, _)| online.contains(cpu)) {
        text += &line(&format!("cpu{cpu}"), times.user_nsec, times.system_nsec, times.idle_nsec);
    }
    let runnable: u32 =
        kernel.live.processes.values().filter(|p| p.load.duty > 0.0).map(|p| p.load.threads).sum();
    text += &format!(
        "intr 0\nctxt 0\nbtime {BOOT_TIME_SEC}\nprocesses {}\nprocs_running {runnable}\n\
         procs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n",
        kernel.live.processes.len()
    );
    text
}

fn show_meminfo(kernel: &SimKernel) -> String {
    let kb = |pages: u64| pages * (PAGE_BYTES / 1024);
    let pages = kernel.live.pages_below(kernel.live.memory_root());
    let (free, file, locked) =
        (kernel.memory.free_pages(&kernel.live), pages.file(), pages.of(Kind::Locked));
    let (anon, slots) = (pages.of(Kind::Anon) + locked, kernel.memory.swap_slots());
    let available = free.saturating_sub(kernel.memory.reserve_pages()) + file;
    let (active_file, inactive_file) = (pages.of(Kind::ActiveFile), pages.of(Kind::InactiveFile));
    let lines = [
        ("MemTotal", kernel.memory.total_pages),
        ("MemFree", free),
        ("MemAvailable", available),
        ("Buffers", 0),
        ("Cached", file),
        ("SwapCached", 0),
        ("Active", anon - locked + active_file),
        ("Inactive", inactive_file),
        ("Active(anon)", anon - locked),
        ("Inactive(anon)", 0),
        ("Active(file)", active_file),
        ("Inactive(file)", inactive_file),
        ("Unevictable", locked),
        ("Mlocked", locked),
        ("SwapTotal", slots),
        ("SwapFree", slots - kernel.memory.swapped_pages(&kernel.live)),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", anon),
        ("Mapped", 0),
        ("Shmem", 0),
        ("KReclaimable", 0),
        ("Slab", 0),
        ("SReclaimable", 0),
        ("SUnreclaim", 0),
        ("KernelStack", pages.of(Kind::Kernel)),
        ("Committed_AS", anon),
        ("VmallocTotal", 0),
        ("VmallocUsed", 0),
        ("VmallocChunk", 0),
    ];
    let line =
        |(name, pages): (&str, u64)| format!("{:<16}{:>8} kB\n", format!("{name}:"), kb(pages));
    lines.into_iter().map(line).collect()
}

fn show_mountinfo(kernel: &SimKernel) -> String {
    let mut text = "22 27 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw\n\
         23 27 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:6 - sysfs sysfs rw\n\
         27 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        .to_string();
    let mode = if kernel.host.access == Access::ReadOnlyMount { "ro" } else { "rw" };
    if kernel.host.layout == Layout::Legacy {
        text += "29 23 0:25 / /sys/fs/cgroup rw,nosuid,nodev,noexec shared:9 - tmpfs tmpfs rw,mode=755\n";
    }
    for (id, hierarchy) in (30..).zip(&kernel.live.tree.hierarchies) {
        let (fs, options) = match hierarchy.version {
            Version::V2 if kernel.host.memory_recursiveprot => {
                ("cgroup2", "rw,nsdelegate,memory_recursiveprot".to_string())
            }
            Version::V2 => ("cgroup2", "rw".to_string()),
            Version::V1 => {
                let names: Vec<&str> = hierarchy.controllers.iter().map(legacy_name).collect();
                ("cgroup", format!("rw,{}", names.join(",")))
            }
        };
        text += &format!(
            "{id} 23 0:{id} / {} {mode},nosuid,nodev,noexec,relatime shared:{id} - {fs} {fs} {options}\n",
            hierarchy.mount
        );
    }
    text
}

fn show_cgroup(kernel: &SimKernel, process: &Process) -> String {
    let lines = kernel.live.tree.hierarchies.iter().enumerate().rev().map(|(index, hierarchy)| {
        let path = kernel.live.tree.path(process.cgroups[index]);
        let names: Vec<&str> = hierarchy.controllers.iter().map(legacy_name).collect();
        match hierarchy.version {
            Version::V1 => (index + 1, format!("{}:{}:{path}\n", index + 1, names.join(","))),
            Version::V2 => (0, format!("0::{path}\n")),
        }
    });
    let mut lines: Vec<(usize, String)> = lines.collect();
    // The unified hierarchy is number 0 and comes last.
    lines.sort_by_key(|&(number, _)| std::cmp::Reverse(number));
    lines.into_iter().map(|(_, line)| line).collect()
}

fn show_status(kernel: &SimKernel, pid: u32, process: &Process) -> String {
    let Process { name, uid, gid, .. } = process;
    let real = process.real_uid.unwrap_or(*uid);
    let pages = process.pages();
    let anon_kb = pages.of(Kind::Anon) * PAGE_BYTES / 1024;
    let state = if process.load.duty > 0.0 { "R (running)" } else { "S (sleeping)" };
    format!(
        "Name:\t{name}\nUmask:\t0022\nState:\t{state}\nTgid:\t{pid}\nNgid:\t0\nPid:\t{pid}\n\
         PPid:\t{}\nTracerPid:\t0\nUid:\t{real}\t{uid}\t{uid}\t{uid}\n\
         Gid:\t{gid}\t{gid}\t{gid}\t{gid}\nFDSize:\t64\nGroups:\t{gid} \nVmRSS:\t{anon_kb:8} kB\n\
         RssAnon:\t{anon_kb:8} kB\nRssFile:\t{:8} kB\nRssShmem:\t{:8} kB\nVmSwap:\t{:8} kB\n\
         Threads:\t{}\nCpus_allowed_list:\t{}\n",
        u32::from(pid != 1),
        0,
        0,
        0,
        process.threads.len(),
        format_list(&kernel.cpu.allowed(&kernel.live.tree, process)),
    )
}

/// `/proc/PID/io` (proc_pid_io(5)): nothing is ever written to a file.
fn show_io(process: &Process) -> String {
    let (all, from_disk) = (process.read_bytes, process.disk_read_bytes);
    format!(
        "rchar: {all}\nwchar: 0\nsyscr: {}\nsyscw: 0\nread_bytes: {from_disk}\nwrite_bytes: 0\n\
         cancelled_write_bytes: 0\n",
        all / PAGE_BYTES
    )
}

/// The 52 fields of `/proc/PID/stat` (proc_pid_stat(5)); unused fields are 0.
fn show_pid_stat(pid: u32, process: &Process) -> String {
    let ticks = |nsec: f64| (nsec / TICK_NSEC) as u64;
    let state = if process.load.duty > 0.0 { 'R' } else { 'S' };
    let resident = process.pages().of(Kind::Anon);
    format!(
        "{pid} ({}) {state} {} {pid} {pid} 0 -1 4194304 0 0 0 0 {} {} 0 0 20 0 {} 0 {} {} {resident} \
         18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
        process.name,
        u32::from(pid != 1),
        ticks(process.user_nsec),
        ticks(process.system_nsec),
        process.threads.len(),
        ticks(process.started_nsec as f64),
        resident * PAGE_BYTES,
    )
}
