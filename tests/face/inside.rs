//! `tenantctl top TENANT`: members and processes, as found and as drawn, and the keys that lead there and back.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use tenantctl::args::SortKey;
use tenantctl::show::top::inspect::{Inspection, Inspector, Member, Process, homes};
use tenantctl::show::top::view::{Key, Shown, View};
use tenantd_control::report::explanation::{Explanation, MemberStep, ValueStep};
use tenantd_control::report::status::Status;
use tenantd_sim::{Layout, Load, SimHost, SimKernel, Workload};

use super::daemon::{Daemon, explanation, status};
use super::terminal::OnTerminal;
use super::top::lines;
use crate::util;

const MIB: u64 = 1 << 20;

/// What is in a cgroup and below it, its rates, and nothing that a terminal would obey.
#[test]
fn members_and_processes_are_found_with_their_rates() {
    for (layout, tree, [weight, low]) in [
        (Layout::Unified, ["", ""], ["cpu.weight", "memory.low"]),
        (Layout::Legacy, ["cpu/", "memory/"], ["cpu.shares", "memory.soft_limit_in_bytes"]),
    ] {
        let mut kernel = SimKernel::new(SimHost { layout, ..SimHost::default() });
        kernel.make_cgroup("/web/workers").unwrap();
        let evil = Workload::constant("a\x1b[2Jb", Load::busy(1).with_working_set(64 * MIB));
        let busy = kernel.spawn("/web/workers", evil).unwrap();
        let idle = kernel.spawn("/web/workers", Load::idle()).unwrap();
        kernel.spawn("/", Load::busy(1)).unwrap();
        let file = |name: String| ValueStep { path: name, ..ValueStep::default() };
        let at = |tree: &str, name: &str| file(format!("/sys/fs/cgroup/{tree}web/{name}"));
        let values = vec![at(tree[0], weight), at(tree[1], low), at(tree[0], "cpu.max")];
        let gone = vec![file(format!("/sys/fs/cgroup/gone/{weight}"))];
        let one = Explanation { values: values.clone(), ..Explanation::default() };
        assert_eq!(homes(&one).len(), 1);
        let member = |values| MemberStep { values, ..MemberStep::default() };
        let members = [values, gone].map(member).into();
        let homes = homes(&Explanation { tenant: "web".into(), members, ..Explanation::default() });
        let (mut inspector, begin) = (Inspector::default(), Instant::now());
        let first = inspector.look(&mut kernel, ("web", &homes), begin);
        assert!(first.processes.iter().all(|process| process.cpu_cores.is_none()));
        kernel.advance(Duration::from_secs(2));
        let later = begin + Duration::from_secs(2);
        let mut found = inspector.look(&mut kernel, ("web", &homes), later);
        found.sort(false);
        let pids: Vec<u32> = found.processes.iter().map(|process| process.pid).collect();
        assert_eq!(pids, [busy, idle], "{found:?}");
        let largest = &found.processes[0];
        assert!(largest.cpu_cores.is_some_and(|cores| (cores - 1.0).abs() < 0.05), "{largest:?}");
        assert_eq!((&*largest.command, largest.resident_bytes), ("a\u{fffd}[2Jb", 64 * MIB));
        let [member, gone] = &found.members[..] else { panic!("{found:?}") };
        assert_eq!((member.nr_processes, gone.nr_processes), (Some(2), None));
        assert!(member.memory_bytes.is_some_and(|bytes| bytes >= 64 * MIB), "{member:?}");
        assert_eq!(member.cgroup, Path::new(&format!("/sys/fs/cgroup/{}web", tree[0])));
    }
}

fn found(nr_processes: u32) -> Inspection {
    let process = |number: u32| Process {
        pid: 1000 + number,
        command: format!("worker --number {number} {}", "and so on ".repeat(20)),
        cpu_cores: Some(f64::from(number) / 100.0),
        resident_bytes: u64::from(100 - number) * MIB,
        start_ticks: 77,
    };
    let member = |cgroup: &str, nr_processes| Member {
        tenant: "web".into(),
        cgroup: cgroup.into(),
        nr_processes,
        cpu_cores: Some(1.25),
        memory_bytes: nr_processes.map(|_| 300 * MIB),
    };
    Inspection {
        name: "web".into(),
        members: vec![
            member("/sys/fs/cgroup/system.slice/web.service", Some(2)),
            member("/sys/fs/cgroup/system.slice/gone.service", None),
        ],
        processes: (0..nr_processes).map(process).collect(),
        ..Inspection::default()
    }
}

fn view() -> View {
    let mut view = View::new(SortKey::Policy, false);
    view.update(status(), Instant::now());
    view
}

#[test]
fn enter_opens_what_is_selected_and_esc_goes_back() {
    let mut view = view();
    let selected = |view: &View| {
        let drawn = lines(view, 100, 24);
        drawn.iter().find(|line| line.contains('›')).unwrap().clone()
    };
    assert!(selected(&view).contains("web"));
    for (key, name) in [
        (Key::Down, "analytics"),
        (Key::Down, "ci/ "),
        (Key::PageDown, "ci/pull-requests"),
        (Key::Up, "ci/nightly"),
        (Key::Home, "web"),
    ] {
        view.press(key);
        assert!(selected(&view).contains(name), "{name}: {}", selected(&view));
    }
    view.press(Key::Open);
    assert_eq!(view.opened().unwrap().tenants, ["web"]);
    let text = lines(&view, 100, 24).join("\n");
    assert!(text.contains("reading its processes") && text.contains("Esc back"), "{text}");
    // What another tenant has, arriving late, is not shown.
    view.inspect(Inspection { name: "analytics".into(), ..found(3) });
    assert!(lines(&view, 100, 24).join("\n").contains("reading its processes"));
    view.inspect(found(3));
    let text = lines(&view, 100, 24).join("\n");
    for part in [
        "web  3.10 CPUs, share now 3.40, if busy 3.40",
        "system.slice/web.service",
        "gone.service (not there)",
        "   1002    0.02    98MiB  worker --number 2",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.find("number 2 ") < text.find("number 1 "), "the busiest first: {text}");
    view.press(Key::of_letter('m').unwrap());
    let text = lines(&view, 100, 24).join("\n");
    assert!(text.find("number 0 ") < text.find("number 2 "), "the largest first: {text}");
    view.press(Key::Help);
    view.press(Key::Leave);
    assert!(view.opened().is_some(), "only the help was closed");
    view.press(Key::Leave);
    assert!(view.opened().is_none() && lines(&view, 100, 24).join("\n").contains("analytics"));
    // A group is its tenants.
    (0..2).for_each(|_| view.press(Key::Down));
    view.press(Key::of_letter('p').unwrap());
    (0..2).for_each(|_| view.press(Key::Down));
    view.press(Key::Open);
    assert_eq!(view.opened().unwrap().tenants, ["ci/nightly", "ci/pull-requests"]);
    // Its tenants may be gone from the policy.
    let mut without = Status { tick: 43, ..status() };
    without.groups.clear();
    without.tenants.truncate(1);
    view.update(without, Instant::now());
    assert!(lines(&view, 100, 24).join("\n").contains("no such tenant any more"));
}

#[test]
fn processes_scroll_to_their_end_and_every_size_is_drawn() {
    let mut view = view();
    view.press(Key::Open);
    view.inspect(found(90));
    (0..200).for_each(|_| {
        view.press(Key::Down);
        view.shown(Shown { top: 7, nr_rows: 16 });
    });
    let end = lines(&view, 80, 24).join("\n");
    assert!(end.contains("number 0 "), "{end}");
    view.press(Key::Up);
    assert_ne!(lines(&view, 80, 24).join("\n"), end);
    for (width, height) in [(1, 1), (2, 3), (7, 2), (20, 5), (40, 10), (200, 60), (300, 100)] {
        assert_eq!(lines(&view, width, height).len(), usize::from(height));
    }
}

/// The reason in words, and who is behind it.
#[test]
fn a_tenant_that_lacks_something_shows_why_and_who_takes_it() {
    let mut view = view();
    view.press(Key::Down);
    view.press(Key::Open);
    view.inspect(Inspection { name: "analytics".into(), ..found(40) });
    for (width, height) in [(80, 24), (120, 40)] {
        let text = lines(&view, width, height).join("\n");
        for part in ["! analytics lacks 0.90 CPUs: ", "   3.00  /user.slice (stress-ng)", "member"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("number 39 "), "{text}");
    }
    let daemon = Daemon::with(status());
    furnish(&daemon.home);
    let mut command = util::tenantctl();
    let ran =
        util::run(command.args(["top", "analytics", "--socket"]).arg(&daemon.socket)).exits(0);
    assert!(ran.out.contains("/user.slice (stress-ng)"), "{}", ran.out);
    util::fits_a_terminal(&ran.out);
}

/// A directory with the files of a cgroup is as good as one to a reader.
fn furnish(home: &Path) {
    std::fs::write(home.join("cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
    std::fs::write(home.join("memory.current"), format!("{}\n", 300 * MIB)).unwrap();
    std::fs::write(home.join("memory.stat"), "inactive_file 0\nactive_file 0\n").unwrap();
}

#[test]
fn without_a_terminal_one_tenant_is_printed() {
    let daemon = Daemon::with(status());
    furnish(&daemon.home);
    let top = |name: &str| {
        let mut command = util::tenantctl();
        util::run(command.args(["top", name, "--socket"]).arg(&daemon.socket))
    };
    let ran = top("web").exits(0);
    assert!(ran.out.contains("300MiB") && ran.out.contains(&std::process::id().to_string()));
    util::fits_a_terminal(&ran.out);
    assert_eq!(homes(&explanation("web", &daemon.home)).len(), 1);
    top("wen").exits(1).says_in_one_line("`tenantctl status` lists them");
}

#[test]
fn on_a_terminal_a_tenant_opens_and_closes() {
    let daemon = Daemon::with(status());
    furnish(&daemon.home);
    let mut command = util::tenantctl();
    command.args(["top", "--color=never", "--socket"]).arg(&daemon.socket);
    let mut top = OnTerminal::start(&mut command);
    top.until("analytics");
    top.master.write_all(b"\r").unwrap();
    top.until("Esc back");
    top.until(&std::process::id().to_string());
    top.master.write_all(b"\x1b").unwrap();
    top.until("Enter open");
    top.master.write_all(b"q").unwrap();
    assert_eq!(top.end(), Some(0));
}
