//! The status page in a real browser: what it shows, at each size, in the light and in the dark, by mouse and by keyboard.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tenantd_control::report::status::{GroupStatus, Status, TenantStatus, group_of};
use tenantd_core::resource::PerResource;

use super::browser::Browser;
use super::daemon::{Daemon, job_list, status};
use super::serve::Server;
use crate::agent::history::limited_since;
use crate::util::{install, wait_until};

const NAMES: &str =
    "[...document.querySelectorAll('.tenants .row > th a')].map(link => link.textContent)";
const CHECKS: &str = include_str!("page_checks.js");
const FOCUSED: &str = "document.activeElement.id";
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

fn text_of(selector: &str) -> String {
    format!("document.querySelector({selector:?})?.textContent ?? ''")
}

/// True once the text of an element has `part`.
fn shows(browser: &mut Browser, selector: &str, part: &str) -> bool {
    browser.value(&text_of(selector)).as_str().is_some_and(|text| text.contains(part))
}

fn since_1970() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap()
}

/// A status of `count` tenants, in groups of ten: idle groups, some that lack something, and names that look like markup, are
/// longer than a screen is wide, and are deep in the tree.
fn many(count: usize) -> Status {
    let base = status();
    let name = |at: usize| match at {
        0 => HOSTILE.to_string(),
        1 => format!("w{}", "w".repeat(90)),
        2 => "a/b/c/d/e/f/g/deep'\"&amp;".to_string(),
        _ => format!("team-{}/user-{at}", at / 10),
    };
    let tenant = |at: usize| {
        let mut tenant = base.tenants[[0, 1, 2][at % 3]].clone();
        let is_idle = at % 20 >= 10;
        if is_idle {
            let amount = PerResource([Some(0.0), Some(1e6)]);
            tenant = TenantStatus { usage: amount, jobs: None, reasons: vec![], ..tenant };
            (tenant.demand, tenant.share_error) = (PerResource::default(), Some(0.0));
        }
        TenantStatus { name: name(at).into(), ..tenant }
    };
    let mut status = Status { groups: vec![], ..base.clone() };
    status.tenants = (0..count).map(tenant).collect();
    let mut names: Vec<String> = Vec::new();
    for tenant in &status.tenants {
        let mut above = vec![group_of(&tenant.name)];
        while let Some(group) = above.last().filter(|group| !group.is_empty()) {
            above.push(group_of(group));
        }
        for group in above.into_iter().rev().filter(|group| !group.is_empty()) {
            if !names.iter().any(|name| name == group) {
                names.push(group.to_string());
            }
        }
    }
    let group =
        |name: &String| GroupStatus { name: name.as_str().into(), ..base.groups[0].clone() };
    status.groups = names.iter().map(group).collect();
    status
}

#[test]
fn the_page_shows_the_tenants_and_whether_the_daemon_is_alive() {
    let Some(mut browser) = Browser::start() else { return };
    let daemon = Daemon::with(status());
    let server = Server::of(&daemon.socket);
    browser.open(&server, "");
    // Tenants that lack something are first.
    let names = browser.value(NAMES);
    assert_eq!(names, json!(["analytics", "web", "ci", "nightly", "pull-requests"]));
    let why = "analytics lacks 0.90 CPUs of its share: work of no tenant uses 3.10 CPUs";
    assert!(shows(&mut browser, "#verdict", why));
    // The reason has a row of its own, as wide as the table.
    assert!(shows(&mut browser, "#t-analytics .why td", "(stress-ng) 3.00"));
    let widths = browser.value(
        "['#t-analytics .why td', '.tenants'].map(it => document.querySelector(it).getBoundingClientRect().width)",
    );
    assert_eq!(widths[0], widths[1]);
    assert!(shows(
        &mut browser,
        "#t-ci\\%2Fnightly .why td",
        "it needs 4 slots, and 3 of 8 are free"
    ));
    let cells = "['.used', '.now', '.busy'].map(it => document.querySelector('#t-web td' + it).textContent)";
    assert_eq!(browser.value(cells), json!(["3.10", "3.40", "3.40"]));
    let titles = cells.replace("textContent", "title");
    let words = json!(["CPUs used", "share now (CPUs)", "share if busy (CPUs)"]);
    assert_eq!(browser.value(&titles), words);
    browser.hover(".tenants > thead .now .tip");
    wait_until("the explanation", || {
        browser.value("document.querySelector('#h-now').checkVisibility()") == true
    });
    assert!(shows(&mut browser, "#h-now", "Share now: with the present demands and other load."));
    let used = "Number(document.querySelector('#t-web .bar .used').getAttribute('width'))";
    let used = browser.value(used).as_f64().unwrap();
    assert!((used - 3.1 / 7.5 * 1000.0).abs() < 0.1, "{used}");
    assert!(shows(&mut browser, ".strips", "web0-3"));
    assert!(shows(&mut browser, "#findings", "cpu.stat cannot be read"));
    // The host is that of the daemon, not that of the browser's address.
    assert!(shows(&mut browser, "#where", "on stage") && shows(&mut browser, "#age", "live"));
    assert!(
        shows(&mut browser, "footer", "Tick 42 at 2030-01-02")
            && shows(&mut browser, "footer", concat!("tenantd ", env!("CARGO_PKG_VERSION")))
            && shows(&mut browser, "footer a[href='docs/using.md']", "Documentation")
    );

    // A daemon that answers and does not tick is not alive.
    let then = SystemTime::now() - Duration::from_secs(600);
    let time = Some(humantime::format_rfc3339_seconds(then).to_string());
    daemon.say(Status { tick: 43, time, ..status() });
    wait_until("the age of the tick", || shows(&mut browser, "#age", "stale: 10 min old"));
    assert_eq!(browser.value("document.body.className"), "stale");

    // The next tick makes it live again, and a name is text whatever is in it.
    let mut next = Status { tick: 44, ..status() };
    next.tenants.truncate(1);
    next.groups.clear();
    next.tenants[0].name = HOSTILE.into();
    daemon.say(next);
    wait_until("the next tick", || browser.value(NAMES) == json!([HOSTILE]));
    assert_eq!(browser.value("document.images.length"), 0);
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);

    // What was last known stays beside the alarm.
    daemon.leave();
    wait_until("the alarm", || {
        shows(&mut browser, "#away:not([hidden])", "systemctl start tenantd")
    });
    assert_eq!(browser.value(NAMES), json!([HOSTILE]));
}

#[test]
fn the_page_is_legible_at_every_size_in_the_light_and_in_the_dark() {
    let Some(mut browser) = Browser::start() else { return };
    let daemon = Daemon::with(status());
    daemon.list(job_list());
    let server = Server::of(&daemon.socket);
    for count in [3, 30, 300] {
        daemon.say(many(count));
        let opened = if count == 30 { "?tenant=team-0%2Fuser-4&idle=shown" } else { "" };
        browser.open(&server, opened);
        let nr_groups = many(count).groups.len();
        wait_until("the rows", || {
            let nr_rows = browser.value(&format!("{NAMES}.length")).as_u64().unwrap() as usize;
            match count {
                // Idle tenants of a group are one row.
                300 => nr_rows > 150 && nr_rows < 300,
                _ => nr_rows == count + nr_groups,
            }
        });
        if count == 300 {
            assert!(shows(&mut browser, "#idle-team-1", "10 idle tenants in team-1, "));
        }
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            for width in [390, 800, 1280] {
                browser.resize(width);
                let faults = browser.value(CHECKS);
                assert_eq!(faults, json!([]), "{count} tenants, {width} px, {scheme}");
            }
        }
    }
    // Narrower and wider screens than those.
    for width in [320, 1920] {
        browser.resize(width);
        assert_eq!(browser.value(CHECKS), json!([]), "{width} px");
    }
    assert_eq!(browser.value("document.images.length"), 0);
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

/// Elements that a key can reach, and the state of the one that has the focus.
const REACHABLE: &str = "[...document.querySelectorAll('a[href], select, input:not([type=hidden]), .tip')]\
     .filter(node => node.checkVisibility())";

#[test]
fn everything_is_reached_by_keyboard() {
    let Some(mut browser) = Browser::start() else { return };
    let mut present = status();
    let daemon = Daemon::with(present.clone());
    daemon.list(job_list());
    let server = Server::of(&daemon.socket);
    browser.resize(1280);
    browser.open(&server, "");
    let count = browser.value(&format!("{REACHABLE}.length")).as_u64().unwrap();
    assert!(count > 25, "{count}");
    let mut reached = Vec::new();
    for _ in 0..count {
        browser.press("Tab");
        let state = browser.value(&format!(
            "(() => {{ const node = document.activeElement, style = getComputedStyle(node); \
             const tip = node.matches('.tip, th a') ? node.nextElementSibling : null; \
             const box = tip?.getBoundingClientRect(); \
             return {{ at: {REACHABLE}.indexOf(node), \
             is_outlined: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2, \
             has_tip: !tip || (tip.checkVisibility() && box.left >= 0 && box.right <= innerWidth) }}; }})()"
        ));
        assert!(state["is_outlined"] == true && state["has_tip"] == true, "{state}");
        reached.push(state["at"].as_u64());
    }
    let all: Vec<Option<u64>> = (0..count).map(Some).collect();
    assert_eq!(reached, all, "in the order of the page");
    let unnamed = "[...document.querySelectorAll('select, input:not([type=hidden])')].filter(it => !it.labels.length).length";
    assert_eq!(browser.value(unnamed), 0);

    // Enter opens, the focus stays there over ticks, Escape closes.
    browser.value("document.querySelector('#a-web').focus()");
    browser.press("Enter");
    wait_until("the panel", || browser.value(FOCUSED) == "opened");
    assert!(shows(&mut browser, "#explanation", "web: <b>a finding</b> & \"quotes\""));
    assert_eq!(browser.value("location.search"), "?tenant=web");
    for tick in 43..45 {
        present.tick = tick;
        // The open row moves: another tenant lacks something no longer.
        (present.tenants[1].share_error, present.tenants[1].reasons) = (Some(0.0), vec![]);
        daemon.say(present.clone());
        wait_until("the next tick", || shows(&mut browser, "footer", &format!("Tick {tick} ")));
        assert_eq!(browser.value(FOCUSED), "opened");
    }
    browser.press("Escape");
    wait_until("the end of the panel", || {
        browser.value("document.querySelector('#opened')").is_null()
    });
    assert_eq!(browser.value(FOCUSED), "a-web");
    assert_eq!(browser.value("location.search"), "");

    // The filter and the order take effect at once, and the address has them.
    browser.value("document.querySelector('[name=filter]').focus()");
    browser.call("Input.insertText", json!({ "text": "NIGHT" }));
    wait_until("the filter", || browser.value(NAMES) == json!(["nightly"]));
    assert_eq!(browser.value("location.search"), "?sort=lacking&filter=NIGHT");
    assert_eq!(browser.value("document.activeElement.name"), "filter");
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

#[test]
fn a_click_opens_a_tenant_with_its_processes_and_its_last_hour() {
    let Some(mut browser) = Browser::start() else { return };
    let (recording, _scratch) = limited_since(since_1970().as_secs() - 900);
    let mut present = status();
    present.tenants[0].name = "a".into();
    present.tenants[1].name = HOSTILE.into();
    let daemon = Daemon::with(present);
    daemon.record(&recording);
    // A process with a hostile name, in the cgroup of every tenant.
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("<b>&\u{202e}x");
    install(std::path::Path::new("/bin/sleep"), &program);
    let mut sleeper = std::process::Command::new(&program).args(["600", "0"]).spawn().unwrap();
    std::fs::write(daemon.home.join("cgroup.procs"), format!("{}\n", sleeper.id())).unwrap();
    let server = Server::of(&daemon.socket);
    browser.resize(1280);
    browser.open(&server, "");
    browser.click("#t-a td.now");
    wait_until("the panel", || browser.value(FOCUSED) == "opened");
    wait_until("the chart", || shows(&mut browser, "#hour", "CPUs, up to"));
    let hour = browser.value(&text_of("#hour"));
    assert!(
        hour.as_str().unwrap().contains(" lacked ") && hour.as_str().unwrap().contains("limit"),
        "{hour}"
    );
    let marks = browser
        .value("document.querySelectorAll('#hour svg')[0].querySelectorAll('.short').length");
    assert!((2..=5).contains(&marks.as_u64().unwrap()), "three minutes lacked: {marks}");
    let processes = browser.value(&text_of("#processes tbody"));
    let processes = processes.as_str().unwrap();
    assert!(
        processes.contains("<b>&\u{fffd}x") && processes.contains(&sleeper.id().to_string()),
        "{processes}"
    );
    assert!(!processes.contains("600"), "arguments are not shown: {processes}");
    for (scheme, width) in [("light", 390), ("dark", 1280)] {
        browser.prefer(scheme);
        browser.resize(width);
        assert_eq!(browser.value(CHECKS), json!([]), "{width} px");
    }
    browser.click("#close");
    wait_until("the end of the panel", || {
        browser.value("document.querySelector('#opened')").is_null()
    });
    // A name of another tenant leads to that tenant.
    browser.value("document.querySelector('.lacks a').click()");
    wait_until("the other panel", || shows(&mut browser, "#explanation", HOSTILE));
    assert!(shows(&mut browser, "#hour", "not in the recording"));
    assert_eq!(
        browser.value("[document.images.length, document.querySelectorAll('b b, dd b').length]"),
        json!([0, 0])
    );
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn the_page_is_whole_without_a_script() {
    let Some(mut browser) = Browser::start() else { return };
    let daemon = Daemon::with(status());
    daemon.list(job_list());
    let server = Server::of(&daemon.socket);
    browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    browser.resize(1280);
    browser.open(&server, "");
    assert_eq!(browser.value(NAMES).as_array().map(Vec::len), Some(5));
    assert!(shows(&mut browser, ".jobs", "nightly") && shows(&mut browser, "#choice", "Show"));
    browser.click("#a-web");
    wait_until("the panel", || shows(&mut browser, "#explanation", "a finding"));
    browser.click("[name=idle]");
    browser.click("#choice button");
    let search = "?sort=lacking&filter=&idle=shown&tenant=web";
    wait_until("the form", || browser.value("location.search") == search);
    // The address is known before the page of it.
    wait_until("the panel of the form", || shows(&mut browser, "#explanation", "a finding"));
    browser.click("#close");
    wait_until("the end of the panel", || {
        browser.value("document.querySelector('#opened')") == Value::Null
    });
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}
