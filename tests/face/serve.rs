//! `tenantctl serve`: what it serves, to whom, and that it stays up.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;
use tenantd_control::report::disk::{DiskRates, DiskShareStatus, DiskStatus, DiskUseStatus};
use tenantd_control::report::status::{Status, TenantStatus};
use tenantd_varlink::jobs::{Assigned, Units};

use super::daemon::{Daemon, job_list, nobody, status};
use super::openmetrics;
use crate::util::{self, wait_until};

/// A server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn of(socket: &Path) -> Server {
        let mut command = util::tenantctl();
        // Beside other builds a daemon with thousands of tenants is slower than a page waits.
        command.args(["serve", "--timeout", "30", "--listen", "127.0.0.1:0", "--socket"]);
        command.arg(socket);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        Server { child, address: address.unwrap().parse().unwrap() }
    }

    /// Sends these bytes and returns what comes back, until the end.
    fn exchange(&self, request: &str) -> String {
        self.try_exchange(request).unwrap()
    }

    fn try_exchange(&self, request: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(util::PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn get(&self, path: &str) -> Answer {
        Answer::of(&self.exchange(&request("GET", path, "")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn request(method: &str, path: &str, fields: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

#[derive(Debug)]
struct Answer {
    code: u16,
    fields: String,
    body: String,
}

impl Answer {
    fn of(text: &str) -> Answer {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let (line, fields) = head.split_once("\r\n").unwrap();
        let code = line.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
        Answer { code, fields: fields.to_string(), body: body.to_string() }
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

#[test]
fn each_resource_is_served_as_what_it_is() {
    let daemon = Daemon::with(status());
    let server = Server::of(&daemon.socket);
    for (path, content_type, part) in [
        ("/", "text/html; charset=utf-8", "<title>tenantd</title>"),
        ("/?from=bookmark&tenant=%3Cx", "text/html; charset=utf-8", "no tenant or group &lt;x."),
        ("/page.css", "text/css; charset=utf-8", "prefers-color-scheme"),
        ("/page.js", "text/javascript; charset=utf-8", "use strict"),
        ("/docs/using.md", "text/plain; charset=utf-8", "# Using tenantd"),
        ("/healthz", "text/plain; charset=utf-8", "ok"),
        ("/status.json", "application/json", "\"tick\":42"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8", "tenantd_up 1.0"),
    ] {
        let answer = server.get(path);
        assert_eq!(
            (answer.code, answer.field("content-type")),
            (200, Some(content_type)),
            "{path}"
        );
        assert_eq!(answer.field("content-length"), Some(answer.body.len().to_string().as_str()));
        assert!(answer.body.contains(part), "{path}: {}", answer.body);
        let policy = answer.field("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.field("cache-control"), Some("no-store"));
        let head = Answer::of(&server.exchange(&request("HEAD", path, "")));
        assert_eq!((head.code, head.body.as_str()), (200, ""), "HEAD {path}");
        assert_eq!(head.field("content-length"), answer.field("content-length"), "HEAD {path}");
    }
    let told: Status = serde_json::from_str(&server.get("/status.json").body).unwrap();
    assert_eq!(told, status());
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let metrics = Answer::of(&server.exchange(&request("GET", "/metrics", accept)));
    assert!(metrics.field("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert_eq!(openmetrics::read(&metrics.body).unwrap()["tenantd_up"].samples[""], 1.0);
}

/// The page is whole as it is served, and its readers see no more than every user of the host may.
#[test]
fn the_page_is_drawn_by_the_server_and_all_names_are_text() {
    let hostile = "<script>alert(\"1\")</script>&'";
    let mut told = status();
    told.tenants[1].name = hostile.into();
    told.tenants[1].reasons[0].text = hostile.into();
    told.findings = vec![hostile.into()];
    told.actions[0].to = hostile.into();
    let daemon = Daemon::with(told);
    let mut jobs = job_list();
    jobs.jobs[0].tenant = hostile.into();
    daemon.list(jobs);
    let server = Server::of(&daemon.socket);
    let opened = "/?tenant=%3Cscript%3Ealert%28%221%22%29%3C%2Fscript%3E%26%27&filter=%22%3E%3Cb%3E&sort=name";
    for path in ["/", opened] {
        let page = server.get(path).body;
        let escaped = "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;";
        assert!(page.contains(escaped) && !page.contains("<script>"), "{page}");
        assert!(page.contains("<td class=\"program\"><bdi>make</bdi></td>"), "{page}");
        assert!(!page.contains("secret"), "arguments of commands are not shown: {page}");
        assert!(!page.contains(" style=") && !page.contains("onclick"), "its policy forbids these");
    }
    let page = server.get(opened).body;
    assert!(page.contains("value=\"&quot;&gt;&lt;b&gt;\""), "{page}");
    assert!(page.contains("&lt;b&gt;a finding&lt;/b&gt;"), "{page}");
}

#[test]
fn disks_and_holders_of_devices_are_on_the_page() {
    let mut told = status();
    let rates =
        DiskRates { read_bytes_per_second: 1e8, reads_per_second: 100.0, ..DiskRates::default() };
    let disk = DiskStatus {
        name: "sda".into(),
        rates,
        time_ratio: Some(0.8),
        outside_ratio: Some(0.25),
        ..DiskStatus::default()
    };
    told.host.disks = vec![disk];
    let of_disk =
        DiskUseStatus { disk: "sda".into(), rates, time_ratio: Some(0.6), work_ratio: 0.75 };
    told.tenants[0].disks = vec![of_disk];
    let share = DiskShareStatus {
        share_now_ratio: 0.75,
        share_if_busy_ratio: 0.5,
        ..DiskShareStatus::default()
    };
    told.tenants[0].disk_share = Some(Box::new(share));
    let mut jobs = job_list();
    let units = |count| Units { name: "gpu".into(), count };
    (jobs.pool.units, jobs.pool.free_units) = (vec![units(4)], vec![units(2)]);
    let assigned = Assigned { name: "gpu".into(), indices: vec![1, 3], env: Vec::new() };
    jobs.jobs[0].started.as_mut().unwrap().assigned = vec![assigned];
    let name = told.tenants[0].name.clone();
    let daemon = Daemon::with(told);
    daemon.list(jobs);
    let page = Server::of(&daemon.socket).get(&format!("/?tenant={name}")).body;
    for part in [
        format!(
            "<li>sda: 80.0% of its time in use; its work: {name} 75.0%, other processes 25.0%</li>"
        )
        .as_str(),
        "gpu: 1, 3 in job 7 of ci/nightly; 2 of 4 free",
        "<dt>disk time</dt>",
        "share now 75 %, 50 % if busy",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn the_page_grows_no_further() {
    let mut told = status();
    let tenant = told.tenants[1].clone();
    let named = |at: usize| TenantStatus { name: format!("t{at}").into(), ..tenant.clone() };
    told.tenants = (0..2000).map(named).collect();
    told.groups.clear();
    told.findings = vec!["x".into(); 2000];
    told.actions = vec![told.actions[0].clone(); 2000];
    let daemon = Daemon::with(told);
    let mut jobs = job_list();
    jobs.jobs = vec![jobs.jobs[1].clone(); 2000];
    daemon.list(jobs);
    let server = Server::of(&daemon.socket);
    let page = server.get("/?tenant=t1999").body;
    assert_eq!(page.matches("class=\"row\"").count(), 501, "and the open one");
    assert_eq!(page.matches("<tbody id=\"job-").count(), 100);
    assert_eq!(page.matches("<li>x</li>").count(), 100);
    assert!(page.len() < 2 << 20, "{}", page.len());
    for more in
        ["1500 more rows", "1900 more: <code>tenantctl plan", "1900 more: <code>tenantctl jobs"]
    {
        assert!(page.contains(more), "{more}");
    }
}

#[test]
fn other_paths_are_not_found() {
    let daemon = Daemon::with(status());
    let server = Server::of(&daemon.socket);
    for path in ["/x", "//", "/../etc/passwd", "/page.js/", "/%2e%2e/", "/METRICS", "*"] {
        assert_eq!(server.get(path).code, 404, "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"] {
        let answer = Answer::of(&server.exchange(&request(method, "/", "Content-Length: 0\r\n")));
        assert_eq!((answer.code, answer.field("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    for (what, bytes) in [
        ("no HTTP", "\u{16}\u{3}\u{1}\r\n\r\n".to_string()),
        ("no host", "GET / HTTP/1.1\r\n\r\n".to_string()),
        ("two hosts", request("GET", "/", "Host: x\r\n")),
        ("a name with a blank", request("GET", "/", "A B: x\r\n")),
    ] {
        assert_eq!(Answer::of(&server.exchange(&bytes)).code, 400, "{what}");
    }
    let long = request("GET", "/", &format!("A: {}\r\n", "x".repeat(9000)));
    assert_eq!(Answer::of(&server.exchange(&long)).code, 431);
    let many = request("GET", "/", &"A: x\r\n".repeat(100));
    assert_eq!(Answer::of(&server.exchange(&many)).code, 431);
}

#[test]
fn a_host_name_that_was_rebound_to_this_machine_is_refused() {
    let daemon = Daemon::with(status());
    let server = Server::of(&daemon.socket);
    for (host, code) in [("evil.example", 421), ("localhost:9595", 200), ("127.0.0.1", 200)] {
        let answer = server.exchange(&format!("GET /status.json HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let answer = Answer::of(&answer);
        assert_eq!(answer.code, code, "{host}");
        // The response names the field that a proxy has to set.
        assert_eq!(answer.body.contains("Host field"), code == 421, "{}", answer.body);
    }
}

#[test]
fn a_daemon_that_does_not_answer_is_reported() {
    let dir = util::scratch();
    let server = Server::of(&nobody(dir.path()));
    let page = server.get("/");
    assert_eq!(page.code, 200, "the page itself says so");
    assert!(page.body.contains("systemctl start tenantd"), "{}", page.body);
    let told = server.get("/status.json");
    let why: Value = serde_json::from_str(&told.body).unwrap();
    assert_eq!(told.code, 503);
    assert!(why["error"].as_str().unwrap().contains("systemctl start tenantd"), "{why}");
    assert_eq!(server.get("/healthz").code, 503);
    let metrics = server.get("/metrics");
    assert!(metrics.body.ends_with("\ntenantd_up 0.0\n"), "{}", metrics.body);
    assert_eq!((metrics.code, metrics.body.lines().count()), (200, 3));
}

#[test]
fn a_daemon_that_stops_is_noticed() {
    let daemon = Daemon::with(status());
    let server = Server::of(&daemon.socket);
    assert_eq!(server.get("/healthz").code, 200);
    daemon.say(Status { tick: 43, ..status() });
    wait_until("the next tick", || server.get("/status.json").body.contains("\"tick\":43"));
    daemon.leave();
    wait_until("the news that it is away", || server.get("/healthz").code == 503);
}

#[test]
fn silent_connections_do_not_stop_the_server() {
    let daemon = Daemon::with(status());
    let server = Server::of(&daemon.socket);
    let silent: Vec<TcpStream> =
        (0..300).filter_map(|_| TcpStream::connect(server.address).ok()).collect();
    for mut stream in &silent {
        // Some were closed at once, being too many.
        let _ = stream.write_all(b"GET / HT");
    }
    let works = || {
        let answer = server.try_exchange(&request("GET", "/healthz", ""));
        answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    };
    wait_until("an answer beside them", works);
    let tasks = Path::new("/proc").join(server.child.id().to_string()).join("task");
    assert!(std::fs::read_dir(tasks).unwrap().count() <= 77, "threads have a bound");
    drop(silent);
    assert!(works());
}

/// One user who opens connection after connection keeps no other from an answer.
#[test]
fn the_oldest_silent_connection_makes_room() {
    let daemon = Daemon::with(status());
    let server = Server::of(&daemon.socket);
    let mut held: std::collections::VecDeque<TcpStream> = std::collections::VecDeque::new();
    for _ in 0..20 {
        // More than there are places, none with a complete request.
        for _ in 0..16 {
            let mut stream = TcpStream::connect(server.address).unwrap();
            let _ = stream.write_all(b"GET / HT");
            held.push_back(stream);
        }
        held.drain(..held.len().saturating_sub(96));
        wait_until("an answer", || {
            let answer = server.try_exchange(&request("GET", "/healthz", ""));
            answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
        });
    }
    let mut oldest = held.pop_front().unwrap();
    oldest.set_read_timeout(Some(util::PATIENCE)).unwrap();
    let mut rest = Vec::new();
    let _ = oldest.read_to_end(&mut rest);
    assert_eq!(rest, b"", "it is closed without an answer");
}

#[test]
fn an_address_in_use_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = util::run(util::tenantctl().args(["serve", "--listen", &address]));
    ran.exits(1).says_in_one_line(&format!("cannot listen on {address}"));
}
