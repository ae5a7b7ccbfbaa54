//! A real browser for the status page: Chromium without a window, driven over its own protocol.
//!
//! The protocol (<https://chromedevtools.github.io/devtools-protocol/>) is JSON with a NUL byte behind each
//! message, over two pipes: descriptor 3 in, descriptor 4 out.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};

use super::serve::Server;
use crate::util;

/// A browser with one page, until it is dropped.
pub(super) struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    nr_calls: u64,
    session: Option<String>,
    /// What the page complained of: exceptions, violations of its policy, failed loads.
    pub(super) complaints: Vec<String>,
    _dir: tempfile::TempDir,
}

impl Browser {
    /// `None`, said in one line, where there is no Chromium.
    pub(super) fn start() -> Option<Browser> {
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
        // A page behind others has no focus to show.
        browser.call("Emulation.setFocusEmulationEnabled", json!({ "enabled": true }));
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    pub(super) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.try_call(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, method: &str, parameters: Value) -> Result<Value, Value> {
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
                let error = message["error"].take();
                return if error.is_null() { Ok(message["result"].take()) } else { Err(error) };
            }
            let name = message["method"].as_str().unwrap_or_default();
            let level = &message["params"]["entry"]["level"];
            let is_complaint = match name {
                "Runtime.exceptionThrown" => true,
                "Runtime.consoleAPICalled" => message["params"]["type"] == "error",
                "Log.entryAdded" => level == "error" || level == "warning",
                _ => false,
            };
            if is_complaint {
                self.complaints.push(message["params"].to_string());
            }
        }
    }

    /// The value of a JavaScript expression in the page; null while another page is on its way.
    pub(super) fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let mut answer = match self.try_call("Runtime.evaluate", parameters) {
            Ok(answer) => answer,
            Err(error) => {
                let is_between =
                    ["context", "navigated"].map(|part| error.to_string().contains(part));
                assert!(is_between.contains(&true), "{expression}: {error}");
                return Value::Null;
            }
        };
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Opens the page with this query, and waits until it is loaded.
    pub(super) fn open(&mut self, server: &Server, query: &str) {
        let url = format!("http://{}/{query}", server.address);
        self.call("Page.navigate", json!({ "url": url }));
        util::wait_until("the page", || {
            self.value("document.readyState === 'complete' && location.href") == url
        });
    }

    /// Presses and releases a key.
    pub(super) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            _ => (27, ""),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Clicks into the middle of the element that a selector finds.
    pub(super) fn click(&mut self, selector: &str) {
        self.mouse(selector, &["mousePressed", "mouseReleased"]);
    }

    /// Moves the mouse there.
    pub(super) fn hover(&mut self, selector: &str) {
        self.mouse(selector, &["mouseMoved"]);
    }

    fn mouse(&mut self, selector: &str, kinds: &[&str]) {
        let at = self.value(&format!(
            "(() => {{ const node = document.querySelector({selector:?}); node.scrollIntoView({{ block: 'center' }}); \
             const box = node.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        ));
        for kind in kinds {
            let mut event = json!({ "type": kind, "x": at[0], "y": at[1] });
            if *kind != "mouseMoved" {
                (event["button"], event["clickCount"]) = (json!("left"), json!(1));
            }
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    pub(super) fn resize(&mut self, width: u32) {
        let screen =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", screen);
    }

    pub(super) fn prefer(&mut self, scheme: &str) {
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
