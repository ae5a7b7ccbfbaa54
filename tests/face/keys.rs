//! Keys and mouse of `tenantctl top`: filter, tree, idle tenants, ends of lists, and actions on a process.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use tenantctl::args::SortKey;
use tenantctl::show::top::deed::{Deed, Target};
use tenantctl::show::top::draw;
use tenantctl::show::top::inspect::{Inspection, Process};
use tenantctl::show::top::view::{Key, Shown, View};
use tenantd_control::report::status::{Status, TenantStatus};
use tenantd_core::resource::{CPU, PerResource};
use tenantd_host::kernfs::RealKernFs;

use super::daemon::{Daemon, status};
use super::terminal::OnTerminal;
use super::top::{lines, picture};
use crate::util;

fn view() -> View {
    let mut view = View::new(SortKey::Policy, false);
    view.update(status(), Instant::now());
    view
}

/// A key as it comes from the keyboard; then the screen is drawn.
fn strike(view: &mut View, letter: char) {
    if let Some(key) = view.key_of(letter) {
        view.press(key);
    }
    draw_at(view, 80, 24);
}

fn draw_at(view: &mut View, width: u16, height: u16) {
    let mut terminal = picture(view, width, height);
    let mut shown = Shown::default();
    terminal.draw(|frame| shown = draw::screen(frame, view)).unwrap();
    view.shown(shown);
}

fn text(view: &View) -> String {
    lines(view, 100, 24).join("\n")
}

#[test]
fn a_slash_filters_by_name() {
    let mut view = view();
    "/NIGHTq".chars().for_each(|letter| strike(&mut view, letter));
    assert!(text(&view).contains("no name has the filter's text"), "{}", text(&view));
    view.press(Key::Erase);
    assert!(text(&view).contains("/NIGHT▏"), "{}", text(&view));
    assert!(text(&view).contains("ci/nightly") && !text(&view).contains("analytics "));
    // Enter keeps the filter and gives the keys back; Esc ends it.
    view.press(Key::Open);
    assert!(view.opened().is_none() && text(&view).contains("Esc ends /NIGHT"), "{}", text(&view));
    view.press(Key::Open);
    assert_eq!(view.opened().unwrap().name, "ci/nightly");
    view.press(Key::Leave);
    view.press(Key::Leave);
    assert!(text(&view).contains("analytics"), "{}", text(&view));
    "/we".chars().for_each(|letter| strike(&mut view, letter));
    view.press(Key::Leave);
    assert!(text(&view).contains("analytics") && !text(&view).contains("/we"));
    // Arrows select while the filter is typed; every length of it is drawn.
    strike(&mut view, '/');
    view.press(Key::Down);
    (0..99).for_each(|_| strike(&mut view, 'x'));
    draw_at(&mut view, 20, 5);
}

#[test]
fn t_shows_a_tree_that_sorts_siblings() {
    let mut view = view();
    strike(&mut view, 't');
    let names = |view: &View| -> Vec<String> {
        let drawn = lines(view, 100, 24);
        let rows = drawn[4..9].iter().map(|line| line.chars().skip(3).collect::<String>());
        rows.map(|row| row.split("  ").find(|it| !it.is_empty()).unwrap().to_string()).collect()
    };
    assert_eq!(names(&view), ["web", "analytics", "ci/", "nightly", "pull-requests"]);
    assert!(lines(&view, 100, 24)[7].contains("   nightly"), "indented below its group");
    strike(&mut view, 'n');
    assert_eq!(names(&view), ["analytics", "ci/", "nightly", "pull-requests", "web"]);
    strike(&mut view, 't');
    assert!(text(&view).contains("ci/nightly"));
}

#[test]
fn i_hides_idle_tenants() {
    let mut status = status();
    let idle = TenantStatus {
        name: "sleeper".into(),
        usage: PerResource([Some(0.0), Some(1e9)]),
        demand: PerResource([0.0, 1e9]),
        ..status.tenants[0].clone()
    };
    status.tenants.push(idle);
    let mut view = View::new(SortKey::Policy, false);
    view.update(status, Instant::now());
    view.press(Key::End);
    assert!(lines(&view, 100, 24).iter().any(|line| line.contains("›sleeper")), "{}", text(&view));
    strike(&mut view, 'i');
    assert!(!text(&view).contains("sleeper") && text(&view).contains("i show idle"));
    // One that could not be read is not idle, and the selection is still in the list.
    assert!(lines(&view, 100, 24).iter().any(|line| line.contains("›ci/pull-requests")));
    strike(&mut view, 'i');
    assert!(text(&view).contains("sleeper"));
}

#[test]
fn every_sort_key_has_a_letter() {
    let mut status = status();
    status.tenants[1].fair_share_cores = 9.0;
    status.tenants[2].allocation[CPU] = 8.0;
    let mut view = View::new(SortKey::Policy, false);
    view.update(status, Instant::now());
    for (letter, first) in [
        ('d', "analytics"),
        ('s', "ci/nightly"),
        ('b', "analytics"),
        ('m', "web"),
        ('w', "web"),
        ('c', "web"),
        ('e', "analytics"),
        ('n', "analytics"),
        ('p', "web"),
    ] {
        strike(&mut view, letter);
        let drawn = lines(&view, 100, 24);
        assert!(drawn[4].contains(&format!("›{first} ")), "{letter}: {}", drawn.join("\n"));
        assert!(matches!(letter, 'p' | 'd') || drawn[2..4].concat().contains('▼'), "{letter}");
    }
}

#[test]
fn home_end_and_the_wheel_walk_through_a_long_list() {
    let mut view = View::new(SortKey::Policy, false);
    let tenant = |number: usize| TenantStatus {
        name: format!("t{number:03}").into(),
        ..status().tenants[0].clone()
    };
    view.update(Status { tenants: (0..300).map(tenant).collect(), ..status() }, Instant::now());
    let selected = |view: &mut View, key: Key| {
        draw_at(view, 80, 24);
        view.press(key);
        draw_at(view, 80, 24);
        let drawn = lines(view, 80, 24);
        let row = drawn.iter().position(|line| line.contains('›')).unwrap();
        (row as u16, drawn[row].chars().skip(3).take(4).collect::<String>())
    };
    assert_eq!(selected(&mut view, Key::End).1, "t299");
    assert_eq!(selected(&mut view, Key::WheelUp).1, "t296");
    assert_eq!(selected(&mut view, Key::WheelDown).1, "t299");
    assert_eq!(selected(&mut view, Key::Home), (4, "t000".to_string()));
    // A click selects, and opens the selected one; a click elsewhere does nothing.
    assert_eq!(selected(&mut view, Key::Click(6)), (6, "t002".to_string()));
    assert_eq!(selected(&mut view, Key::Click(1)).1, "t002");
    assert_eq!(selected(&mut view, Key::Click(23)).1, "t002");
    view.press(Key::Click(6));
    assert_eq!(view.opened().unwrap().name, "t002");
}

fn inspected(numbers: &[u32]) -> Inspection {
    let process = |number: &u32| Process {
        pid: 1000 + number,
        start_ticks: 77,
        command: format!("worker {number}"),
        cpu_cores: Some(f64::from(*number)),
        resident_bytes: 1 << 20,
    };
    let processes = numbers.iter().map(process).collect();
    Inspection { name: "web".into(), processes, ..Inspection::default() }
}

fn opened(is_root: bool) -> View {
    let mut view = view();
    if is_root {
        view.permit_deeds();
    }
    view.press(Key::Open);
    view.inspect(inspected(&[1, 2, 3]));
    draw_at(&mut view, 80, 24);
    view
}

#[test]
fn k_and_r_ask_before_they_act_on_the_selected_process() {
    let target = Target { pid: 1002, start_ticks: 77, command: "worker 2".into() };
    let mut view = opened(true);
    view.press(Key::Down);
    strike(&mut view, 'k');
    assert!(text(&view).contains("end 1002 (worker 2)? y: SIGTERM, 9: SIGKILL"), "{}", text(&view));
    // The target is that of the question, also when others come first meanwhile.
    view.inspect(inspected(&[1, 2, 3, 4, 5]));
    strike(&mut view, 'y');
    assert_eq!((view.take_deed(), view.take_deed()), (Some(Deed::End(target.clone())), None));
    assert!(
        lines(&view, 80, 24).iter().any(|line| line.starts_with("›   1002")),
        "{}",
        text(&view)
    );
    strike(&mut view, 'k');
    strike(&mut view, '9');
    assert_eq!(view.take_deed(), Some(Deed::Kill(target.clone())));
    for no in ['n', 'k', 'q', ' '] {
        strike(&mut view, 'k');
        strike(&mut view, no);
        assert_eq!(view.take_deed(), None, "{no}");
    }
    "r-x5".chars().for_each(|letter| strike(&mut view, letter));
    assert!(text(&view).contains("1002 (worker 2) nice (-20 to 19): -5▏"), "{}", text(&view));
    view.press(Key::Open);
    assert_eq!(view.take_deed(), Some(Deed::Renice(target, -5)));
    for wrong in ["r20", "r", "r-"] {
        wrong.chars().for_each(|letter| strike(&mut view, letter));
        view.press(Key::Open);
        assert!(text(&view).contains("is not a nice value from -20 to 19"), "{wrong}");
        assert_eq!(view.take_deed(), None, "{wrong}");
    }
    view.tell("process 1002 got SIGTERM".into());
    assert!(text(&view).contains("process 1002 got SIGTERM"));
    view.press(Key::Down);
    assert!(!text(&view).contains("got SIGTERM"), "until the next key");
    view.press(Key::End);
    assert!(
        lines(&view, 80, 24).iter().any(|line| line.starts_with("›   1001")),
        "{}",
        text(&view)
    );
}

#[test]
fn only_root_may_act_on_processes() {
    let mut view = opened(false);
    for letter in ['k', 'r'] {
        strike(&mut view, letter);
        assert!(text(&view).contains("only root may end and renice"), "{}", text(&view));
        strike(&mut view, 'y');
        assert_eq!(view.take_deed(), None);
    }
    let mut view = opened(true);
    view.inspect(inspected(&[]));
    strike(&mut view, 'k');
    assert!(text(&view).contains("no process is selected"), "{}", text(&view));
}

/// A process of this test, never another one with its number.
#[test]
fn a_deed_reaches_its_process_only() {
    let mut child = Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let start_ticks = after_name.split(' ').nth(19).unwrap().parse().unwrap();
    let mut kernel = RealKernFs::new();
    let target = Target { pid, start_ticks, command: "sleep".into() };
    let other = Target { start_ticks: start_ticks + 1, ..target.clone() };
    let ended = format!("process {pid} has ended");
    assert_eq!(Deed::Kill(other.clone()).carry_out(&mut kernel), ended);
    assert_eq!(Deed::Renice(other, 5).carry_out(&mut kernel), ended);
    let nice = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
    };
    let nicer = (nice(pid) + 1).min(19);
    let told = Deed::Renice(target.clone(), nicer).carry_out(&mut kernel);
    assert_eq!(told, format!("1 thread of process {pid} has the nice value {nicer}"));
    assert_eq!(nice(pid), nicer);
    let told = Deed::End(target.clone()).carry_out(&mut kernel);
    assert_eq!(told, format!("process {pid} got SIGTERM"));
    assert!(!util::ended(&mut child).success());
    assert_eq!(Deed::End(target).carry_out(&mut kernel), ended);
}

#[test]
fn on_a_terminal_keys_and_mouse_arrive() {
    let daemon = Daemon::with(status());
    let mut command = util::tenantctl();
    command.args(["top", "--color=never", "--socket"]).arg(&daemon.socket);
    let mut top = OnTerminal::start(&mut command);
    top.until("\x1b[?1000h");
    top.until("analytics");
    // Presses the button on the line of ci/nightly twice: selects, and opens. Its job needs slots.
    top.master.write_all(b"\x1b[<0;5;8M\x1b[<0;5;8m\x1b[<0;5;8M").unwrap();
    top.until("needs");
    top.master.write_all(b"q").unwrap();
    top.until("\x1b[?1000l");
    assert_eq!(top.end(), Some(0));

    let mut top = OnTerminal::start(&mut command);
    top.until("analytics");
    top.master.write_all(b"/nightq\x7f\r\r").unwrap();
    top.until("needs");
    top.master.write_all(b"q").unwrap();
    assert_eq!(top.end(), Some(0));
}

#[test]
fn a_dumb_terminal_gets_text() {
    let daemon = Daemon::with(status());
    let mut command = util::tenantctl();
    command.args(["top", "--socket"]).arg(&daemon.socket);
    let (status, shown) = super::terminal::transcript_on("dumb", command);
    assert!(
        status.success() && shown.contains("analytics") && !shown.contains('\x1b'),
        "{shown:?}"
    );
}
