//! The status page in a real browser: Chromium without a window, driven over its own protocol.
//!
//! The protocol (<https://chromedevtools.github.io/devtools-protocol/>) is JSON with a NUL byte behind each
//! message, over two pipes: descriptor 3 in, descriptor 4 out.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use tenantd_control::report::status::Status;

use super::daemon::{Daemon, status};
use super::serve::Server;
use crate::util::{self, wait_until};

/// A browser with one page, until it is dropped.
struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    nr_calls: u64,
    session: Option<String>,
    /// What the page complained of: exceptions, violations of its policy, failed loads.
    complaints: Vec<String>,
    _dir: tempfile::TempDir,
}

impl Browser {
    /// `None`, said in one line, where there is no Chromium.
    fn start() -> Option<Browser> {
        util::optional("chromium", "chromium")?;
        let dir = tempfile::tempdir().unwrap();
        let (input, output) = (dir.path().join("in"), dir.path().join("out"));
        mkfifo(&input, Mode::S_IRWXU).unwrap();
        mkfifo(&output, Mode::S_IRWXU).unwrap();
        let child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<\"$IN\" 4>\"$OUT\"", "sh"])
            .args(["--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"])
            // Its sandbox wants to be another user, which a container may not let it be.
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--no-proxy-server"])
            .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
            .arg("about:blank")
            .env("IN", &input)
            .env("OUT", &output)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Opening waits for the other side: in the order of the redirections.
        let to = OpenOptions::new().write(true).open(input).unwrap();
        let from = BufReader::new(File::open(output).unwrap());
        let mut browser =
            Browser { child, to, from, nr_calls: 0, session: None, complaints: vec![], _dir: dir };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let id = target["targetId"].as_str().unwrap().to_string();
        let flat = json!({ "targetId": id, "flatten": true });
        let session = browser.call("Target.attachToTarget", flat);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_string());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.nr_calls += 1;
        let mut call = json!({ "id": self.nr_calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{call}\0").as_bytes()).unwrap();
        loop {
            let mut message = Vec::new();
            self.from.read_until(0, &mut message).unwrap();
            assert_eq!(message.pop(), Some(0), "the browser ended");
            let mut message: Value = serde_json::from_slice(&message).unwrap();
            if message["id"] == self.nr_calls {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            let name = message["method"].as_str().unwrap_or_default();
            let is_complaint = name == "Runtime.exceptionThrown"
                || (name == "Log.entryAdded" && message["params"]["entry"]["level"] == "error");
            if is_complaint {
                self.complaints.push(message["params"].to_string());
            }
        }
    }

    /// The value of a JavaScript expression in the page.
    fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    fn open(&mut self, server: &Server, width: u32) {
        self.resize(width);
        self.call("Page.navigate", json!({ "url": format!("http://{}/", server.address) }));
    }

    fn resize(&mut self, width: u32) {
        let screen =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", screen);
    }

    fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its children end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const TENANTS: &str = "[...document.querySelectorAll('#list h3')].map(title => title.textContent)";

/// Elements that hold text less than 4.5 times as bright, or dark, as what is behind them (WCAG 1.4.3).
const PALE: &str = r"(() => {
  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const linear = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = channels(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const pale = [];
  for (const node of document.body.querySelectorAll('*')) {
    const text = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!text || !node.checkVisibility()) continue;
    const [a, b] = [light(channels(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) pale.push(`${node.tagName} ${node.textContent.slice(0, 30)}: ${contrast.toFixed(2)}`);
  }
  return pale;
})()";

#[test]
fn the_page_shows_the_tenants_and_whether_the_daemon_is_alive() {
    let Some(mut browser) = Browser::start() else { return };
    let daemon = Daemon::with(status());
    let server = Server::of(&daemon.socket);
    browser.open(&server, 1100);
    wait_until("the tenants", || {
        browser.value(TENANTS).as_array().is_some_and(|all| all.len() == 5)
    });
    assert_eq!(
        browser.value(TENANTS),
        json!(["web", "analytics", "ci", "ci/nightly", "ci/pull-requests"])
    );
    let verdict = browser.value("document.getElementById('verdict').textContent");
    let why = "analytics lacks 0.90 CPUs of its share: work of no tenant uses 3.10 CPUs";
    assert!(verdict.as_str().unwrap().starts_with(why), "{verdict}");
    let names =
        browser.value("[...document.querySelectorAll('#list .name')].map(it => it.textContent)");
    assert!(names[0].as_str().unwrap().ends_with("45 % of CPU"), "{names}");
    let told = names[1].as_str().unwrap();
    assert!(
        told.contains("starved 3 times, 12 s") && told.ends_with("(stress-ng) 3.00"),
        "{names}"
    );
    // What the bars show is also said.
    let label = browser.value("document.querySelector('#list .bar').getAttribute('aria-label')");
    assert_eq!(label, "CPUs: uses 3.10, wants 6.00, share now 3.40, if busy 3.40");
    let used = browser.value("document.querySelector('#list .bar .used').style.width");
    let used: f64 = used.as_str().unwrap().trim_end_matches('%').parse().unwrap();
    assert!((used - 3.1 / 7.5 * 100.0).abs() < 0.01, "{used}");
    let cpus = "[...document.querySelectorAll('#cpus li')].map(cpu => cpu.title)";
    let cpus = browser.value(cpus);
    assert_eq!(
        (cpus[0].as_str(), cpus[4].as_str()),
        (Some("CPU 0: web"), Some("CPU 4: analytics"))
    );
    assert_eq!(cpus[7], "CPU 7: not pinned to one tenant");
    let findings = browser.value("document.getElementById('findings').textContent");
    assert!(findings.as_str().unwrap().contains("cpu.stat cannot be read"));

    // A daemon that answers and does not tick is not alive.
    let age = "document.getElementById('age').textContent";
    wait_until("the age of the tick", || {
        browser.value(age).as_str().is_some_and(|text| text.starts_with("stale: "))
    });

    let stale = "document.body.classList.contains('stale')";
    assert_eq!(browser.value(stale), true);
    // The host is that of the daemon, not that of the browser's address.
    assert_eq!(browser.value("document.getElementById('where').textContent"), "on stage");
    let figures = "document.querySelector('#list .words').textContent";
    assert_eq!(browser.value(figures), "CPUs3.10; share now 3.40, if busy 3.40");

    // The next tick makes it live again, and a name is text whatever is in it.
    let mut next = Status { tick: 43, ..status() };
    next.tenants.truncate(1);
    next.groups.clear();
    next.tenants[0].name = "<img src=x onerror=alert(1)>".into();
    daemon.say(next);
    let name = json!(["<img src=x onerror=alert(1)>"]);
    wait_until("the next tick", || browser.value(TENANTS) == name);
    assert_eq!(browser.value("document.images.length"), 0);
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);

    daemon.leave();
    let away =
        "document.getElementById('away').hidden ? '' : document.getElementById('away').textContent";
    wait_until("the alarm that the daemon does not answer", || {
        browser.value(away).as_str().is_some_and(|text| text.contains("systemctl start tenantd"))
    });
}

#[test]
fn the_page_fits_narrow_screens_and_can_be_read_in_the_dark() {
    let Some(mut browser) = Browser::start() else { return };
    let daemon = Daemon::with(status());
    let server = Server::of(&daemon.socket);
    browser.open(&server, 400);
    wait_until("the tenants", || {
        browser.value(TENANTS).as_array().is_some_and(|all| all.len() == 5)
    });
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for width in [320, 400, 768, 1920] {
            browser.resize(width);
            let wide = browser.value("document.documentElement.scrollWidth");
            assert!(wide.as_u64().unwrap() <= u64::from(width), "{wide} at {width}");
        }
        assert_eq!(browser.value(PALE), json!([]), "{scheme}");
    }
    // Every control can be reached with the keyboard, and has a label.
    let focusable = "[...document.querySelectorAll('a, select, input, [tabindex=\"0\"]')].length";
    assert!(browser.value(focusable).as_u64().unwrap() >= 5);
    let unnamed =
        "[...document.querySelectorAll('select, input')].filter(it => !it.labels.length).length";
    assert_eq!(browser.value(unnamed), 0);
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}
