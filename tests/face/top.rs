//! `tenantctl top`: the picture for any size of the screen, and the program on a terminal of its own.

use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use ratatui::{Frame, Terminal};
use tenantctl::args::SortKey;
use tenantctl::show::top::bars::{self, Cell};
use tenantctl::show::top::draw;
use tenantctl::show::top::view::{Key, Shown, View};
use tenantd_control::report::status::{Status, TenantStatus, Thresholds};
use tenantd_core::resource::{CPU, MEMORY};

use super::daemon::{Daemon, nobody, status};
use super::terminal::{OnTerminal, Pty, terminal};
use crate::cli::deadline::Observer;
use crate::util;

pub(super) fn picture(view: &View, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw = |frame: &mut Frame<'_>| {
        draw::screen(frame, view);
    };
    terminal.draw(draw).unwrap();
    terminal
}

pub(super) fn lines(view: &View, width: u16, height: u16) -> Vec<String> {
    let terminal = picture(view, width, height);
    let cells = terminal.backend().buffer().content().chunks(usize::from(width).max(1));
    let lines = cells.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    lines.map(|line| line.trim_end().to_string()).collect()
}

fn view() -> View {
    let mut view = View::new(SortKey::Policy, false);
    for (tick, part) in [(40, 0.2), (41, 0.6), (42, 1.0)] {
        let mut status = Status { tick, ..status() };
        for tenant in &mut status.tenants {
            tenant.usage[CPU] = tenant.usage[CPU].map(|usage| usage * part);
        }
        view.update(status, Instant::now());
    }
    view
}

#[test]
fn the_picture_on_a_small_terminal() {
    let drawn = lines(&view(), 80, 24).join("\n") + "\n";
    let expected = include_str!("top-80x24.txt");
    assert!(drawn == expected, "drawn:\n{drawn}\nexpected:\n{expected}");
}

#[test]
fn every_size_is_drawn_with_the_most_important_parts() {
    let mut view = view();
    for with_help in [false, true] {
        for (width, height) in
            [(1, 1), (2, 3), (7, 2), (20, 5), (40, 10), (80, 24), (200, 60), (300, 100)]
        {
            let drawn = lines(&view, width, height);
            assert_eq!(drawn.len(), usize::from(height));
            if width >= 40 && height >= 10 && !with_help {
                let text = drawn.join("\n");
                for part in ["stage enforce", "web", "analytics", "now", "┃", "q quit"] {
                    assert!(text.contains(part), "{part} at {width}x{height}:\n{text}");
                }
            }
        }
        view.press(Key::Help);
    }
}

#[test]
fn without_colours_there_are_none() {
    let has_colour = |view: &View| {
        let terminal = picture(view, 80, 24);
        let cells = terminal.backend().buffer().content();
        cells.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    let mut plain = view();
    assert!(!has_colour(&plain));
    plain.press(Key::Help);
    assert!(!has_colour(&plain));
    let mut coloured = View::new(SortKey::Policy, true);
    coloured.update(status(), Instant::now());
    assert!(has_colour(&coloured));
}

#[test]
fn keys_sort_scroll_and_pause() {
    let mut view = view();
    let order = |view: &View| {
        let drawn: Vec<String> =
            lines(view, 120, 24).iter().map(|line| line.replace('›', " ")).collect();
        let mut names = vec!["web", "analytics", "ci/nightly", "ci/pull-requests"];
        names.sort_by_key(|name| {
            drawn.iter().position(|line| line[1..].contains(&format!(" {name} ")))
        });
        names
    };
    assert_eq!(order(&view), ["web", "analytics", "ci/nightly", "ci/pull-requests"]);
    view.press(Key::of_letter('e').unwrap());
    assert_eq!(order(&view)[0], "analytics");
    view.press(Key::of_letter('n').unwrap());
    assert_eq!(order(&view), ["analytics", "ci/nightly", "ci/pull-requests", "web"]);
    view.press(Key::of_letter('c').unwrap());
    assert_eq!(order(&view), ["web", "analytics", "ci/nightly", "ci/pull-requests"]);
    view.press(Key::Pause);
    view.update(Status { tick: 99, ..status() }, Instant::now());
    assert!(
        lines(&view, 120, 24)[0].contains("stage paused")
            && lines(&view, 120, 24)[0].ends_with("tick 42")
    );
    view.press(Key::Pause);
    view.update(Status { tick: 100, ..status() }, Instant::now());
    assert!(lines(&view, 120, 24)[0].contains("tick 100"));
    assert_eq!(Key::of_letter('x'), None);
    // Where not all fit, the rest is counted, and scrolling shows it.
    let short = lines(&view, 80, 7);
    assert!(short.join("\n").contains("more below"), "{short:#?}");
    (0..9).for_each(|_| view.press(Key::Down));
    let scrolled = lines(&view, 80, 7).join("\n");
    assert!(scrolled.contains("pull-requests") && !scrolled.contains("more below"), "{scrolled}");
    view.away("tenantd does not answer".into());
    assert!(lines(&view, 80, 24)[1].starts_with("! tenantd does not answer"));
}

/// What it takes to hold Down where not all tenants fit is as many times Up.
#[test]
fn scrolling_ends_at_the_last_tenant() {
    let mut view = View::new(SortKey::Policy, false);
    let mut many = status();
    many.tenants = (0..30)
        .map(|i| TenantStatus { name: format!("t{i:02}").into(), ..status().tenants[0].clone() })
        .collect();
    view.update(many, Instant::now());
    let press = |view: &mut View, key: Key| {
        let mut terminal = picture(view, 80, 24);
        let mut shown = Shown::default();
        terminal.draw(|frame| shown = draw::screen(frame, view)).unwrap();
        view.shown(shown);
        view.press(key);
        lines(view, 80, 24)
    };
    let mut drawn = Vec::new();
    (0..99).for_each(|_| drawn = press(&mut view, Key::Down));
    assert!(drawn.join("\n").contains("t29"), "{drawn:#?}");
    let after = press(&mut view, Key::Up);
    assert_ne!(drawn, after);
    view.update(Status { tick: 43, ..status() }, Instant::now());
    assert!(press(&mut view, Key::Up).join("\n").contains("web"));
}

/// A truncated figure would be a wrong figure.
#[test]
fn no_figure_loses_a_digit() {
    let mut large = status();
    large.host.cpus = 256;
    for tenant in &mut large.tenants {
        tenant.usage[CPU] = Some(127.5);
        tenant.allocation[CPU] = 127.5;
        tenant.usage[MEMORY] = Some(1023.0 * 1024.0 * 1024.0 * 1024.0);
        tenant.cpu_pressure_ratio = Some(1.0);
        tenant.fair_share_cores = 1127.5;
        tenant.dop = Some(8192);
    }
    let mut view = View::new(SortKey::Policy, false);
    view.update(large, Instant::now());
    for width in 1..=200 {
        let drawn = lines(&view, width, 24);
        let words = drawn[4].split_whitespace().skip(2);
        let figures = words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        for figure in figures {
            let known = ["127.50", "1127.50", "1023GiB", "8192", "100.0%"];
            assert!(known.contains(&figure), "{figure} at {width}:\n{}", drawn.join("\n"));
        }
        if width >= 80 {
            assert!(
                drawn[4].contains("127.50 127.50  1127.50"),
                "at {width}:\n{}",
                drawn.join("\n")
            );
        }
    }
}

#[test]
fn credit_has_a_column_where_the_policy_has_credits() {
    let drawn = |view: &View| lines(view, 120, 24).join("\n");
    let mut view = view();
    assert!(!drawn(&view).contains("credit"));
    let mut status = Status { tick: 43, ..status() };
    for (tenant, factor) in status.tenants.iter_mut().zip([19.2, 1.0]) {
        (tenant.credit_seconds, tenant.credit_factor) = (Some(44.4), Some(factor));
    }
    view.update(status, Instant::now());
    let drawn = drawn(&view);
    assert!(drawn.contains(" credit ") && drawn.contains(" 44s×19 "), "{drawn}");
    assert!(drawn.contains(" 44s "), "{drawn}");
}

#[test]
fn a_bar_shows_usage_demand_and_entitlement() {
    let drawn = |used, wants, entitled| -> String {
        bars::bar(used, wants, entitled, 8.0, 8).into_iter().map(Cell::symbol).collect()
    };
    assert_eq!(drawn(0.0, 0.0, 0.0), "········");
    assert_eq!(drawn(2.0, 4.0, 6.0), "██░░·┃··");
    assert_eq!(drawn(8.0, 8.0, 8.0), "███████┃");
    assert_eq!(drawn(2.5, 2.5, 0.0), "██▌·····");
    assert_eq!(drawn(99.0, 99.0, 99.0), "███████┃", "nothing beyond the end");
    assert!(bars::bar(1.0, 1.0, 1.0, 8.0, 0).is_empty());
    assert_eq!(bars::sparkline(&[Some(0.0), None, Some(4.0), Some(9.0)], 8.0), "▁ ▅█");
    assert_eq!(
        bars::map(2, &[(0, vec![0]), (1, vec![0, 3])]),
        [vec![0, 1], vec![], vec![], vec![1]]
    );
}

/// A daemon that stands still sends nothing: the age of its last tick is all there is to see.
#[test]
fn a_tick_that_is_too_old_is_marked_with_its_age() {
    let mut view = View::new(SortKey::Policy, false);
    let begin = Instant::now();
    let fresh = |view: &View| lines(view, 80, 24)[1].clone();
    view.update(Status { interval_seconds: 5.0, ..stale_after(11.0) }, begin);
    view.check_age(begin + Duration::from_secs(11));
    assert!(fresh(&view).starts_with("! 1 tenant lacks"), "{}", fresh(&view));
    view.check_age(begin + Duration::from_secs(14));
    assert!(fresh(&view).starts_with("! 14 s old: no tick from tenantd since"), "{}", fresh(&view));
    view.away("tenantd did not answer".into());
    assert!(fresh(&view).starts_with("! 14 s old: tenantd did not answer"), "{}", fresh(&view));
    // The same tick again is no news; the next one is.
    view.update(stale_after(11.0), begin + Duration::from_secs(15));
    view.check_age(begin + Duration::from_secs(15));
    assert!(fresh(&view).starts_with("! 15 s old"), "{}", fresh(&view));
    view.update(Status { tick: 43, ..stale_after(11.0) }, begin + Duration::from_secs(16));
    view.check_age(begin + Duration::from_secs(16));
    assert!(fresh(&view).starts_with("! 1 tenant lacks"), "{}", fresh(&view));
}

fn stale_after(stale_seconds: f64) -> Status {
    let thresholds = Thresholds { stale_seconds, ..Thresholds::default() };
    Status { thresholds, ..status() }
}

/// The thresholds are those of the status, not of the reader.
#[test]
fn a_tenant_is_marked_by_the_threshold_of_the_status() {
    let mut view = View::new(SortKey::Policy, false);
    let thresholds = Thresholds { share_error_ratio: 0.2, ..Thresholds::default() };
    let mut status = Status { thresholds, ..status() };
    view.update(status.clone(), Instant::now());
    assert!(lines(&view, 80, 24)[1].starts_with("! 1 tenant lacks a part of its share"));
    status.tenants.iter_mut().for_each(|tenant| tenant.reasons.clear());
    status.tick += 1;
    view.update(status, Instant::now());
    assert!(lines(&view, 80, 24)[1].starts_with("every tenant gets its share"));
}

#[test]
fn without_a_terminal_top_prints_one_table() {
    let daemon = Daemon::with(status());
    let ran = util::run(util::tenantctl().args(["top", "--socket"]).arg(&daemon.socket)).exits(0);
    assert!(ran.out.contains("analytics") && !ran.out.contains('\x1b'), "{}", ran.out);
    util::fits_a_terminal(&ran.out);
    let dir = util::scratch();
    let ran = util::run(util::tenantctl().args(["top", "--socket"]).arg(nobody(dir.path())));
    ran.exits(69).says_in_one_line("does not answer");
}

#[test]
fn on_a_terminal_top_uses_the_full_screen_and_restores_it() {
    let daemon = Daemon::with(status());
    let mut command = util::tenantctl();
    command.args(["top", "--color=never", "--socket"]).arg(&daemon.socket);
    let mut top = OnTerminal::start(&mut command);
    top.until("\x1b[?1049h");
    top.until("analytics");
    top.master.write_all(b"?").unwrap();
    top.until("open and close this help");
    daemon.say(Status { tick: 77, findings: vec!["news of the day".into()], ..status() });
    top.until("news of the day");
    daemon.leave();
    top.master.write_all(b"?q").unwrap();
    assert_eq!(top.end(), Some(0));

    let daemon = Daemon::with(status());
    let mut command = util::tenantctl();
    command.args(["top", "--socket"]).arg(&daemon.socket);
    let mut top = OnTerminal::start(&mut command);
    top.until("analytics");
    kill(Pid::from_raw(top.child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(top.end(), Some(0));
}

/// A stopped daemon (SIGSTOP) keeps its socket and sends nothing: the picture must not look alive.
#[test]
fn a_stopped_daemon_is_marked_on_the_screen() {
    let daemon = Observer::start();
    let mut command = daemon.ctl(&["top", "--color=never"]);
    let mut top = OnTerminal::start(&mut command);
    top.until("web");
    daemon.stop();
    top.until("no tick from tenantd since");
    top.master.write_all(b"q").unwrap();
    assert_eq!(top.end(), Some(0));
}

#[test]
fn top_ends_when_its_terminal_hangs_up() {
    let daemon = Daemon::with(status());
    let Pty { mut master, slave: held } = terminal();
    let slave = || Stdio::from(held.try_clone().unwrap());
    let mut command = util::tenantctl();
    command.args(["top", "--socket"]).arg(&daemon.socket).env("TERM", "xterm-256color");
    // It is in the session of this test, so that no signal tells it of the hangup.
    let mut child = command.stdin(slave()).stdout(slave()).stderr(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    let (mut bytes, mut text) = ([0; 4096], String::new());
    while !text.contains("analytics") {
        let count = master.read(&mut bytes).unwrap();
        assert_ne!(count, 0, "{text}");
        text += &String::from_utf8_lossy(&bytes[..count]);
    }
    drop((master, command, held));
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait()));
    let ended = ended.recv_timeout(util::PATIENCE);
    if ended.is_err() {
        kill(pid, Signal::SIGKILL).unwrap();
    }
    assert!(ended.is_ok(), "still running without a terminal");
}
