//! Resources: the page and its parts, the status as JSON, the metrics, the documentation.

use std::net::IpAddr;

use serde_json::json;

use super::http::{self, Method, Request, Response};
use super::page::{self, View};
use super::panel::Panel;
use super::query::Query;
use super::source::Source;
use crate::show::metrics;

const DOCUMENTATION: &str = include_str!("../../../../../docs/using.md");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

const ELSEWHERE: &str = "\
This server listens on loopback only, and answers requests whose Host field is an address or localhost: another
name could come from a page of another site that made a browser resolve it to this machine (DNS rebinding). A
proxy in front has to set the field: `proxy_set_header Host localhost;` in nginx, `ProxyPreserveHost Off` in
Apache, `header_up Host localhost` in Caddy.
";

#[derive(Debug)]
pub(crate) struct Site {
    source: Source,
    /// True if the server listens on loopback only.
    is_local: bool,
}

impl Site {
    pub(crate) fn new(source: Source, is_local: bool) -> Site {
        Site { source, is_local }
    }

    pub(crate) fn response(&self, request: &Request) -> Response {
        if request.method == Method::Other {
            return Response::refusal(http::NOT_ALLOWED);
        }
        if self.is_local && !request.host.as_deref().is_none_or(names_this_machine) {
            return Response::explained(http::MISDIRECTED, ELSEWHERE);
        }
        match request.path.as_str() {
            "/" => ok(HTML, self.page(&Query::of(&request.query))),
            "/page.css" => ok(CSS, STYLE),
            "/page.js" => ok(JAVASCRIPT, SCRIPT),
            "/status.json" => self.status(),
            "/docs/using.md" => ok(TEXT, DOCUMENTATION),
            "/metrics" => self.metrics(request.accept.as_deref()),
            "/healthz" => self.health(),
            _ => Response::refusal(http::NOT_FOUND),
        }
    }

    /// The page; a daemon that does not answer is reported on it.
    fn page(&self, query: &Query) -> String {
        let status = match self.source.newest() {
            Ok(status) => status,
            Err(why) => return page::without_status(&why),
        };
        let jobs = status.jobs.as_ref().map(|_| self.source.jobs());
        let lines = status.lines();
        let opened = query.opened.as_ref();
        let line = opened.and_then(|name| lines.iter().find(|line| line.name() == name));
        let panel = line.map(|line| Panel {
            line: *line,
            details: self.source.opened.details(line.name(), line.tenant().is_none()),
            hour: line.tenant().and_then(|_| self.source.hours.last()),
        });
        page::page(&View { query, status: &status, jobs, panel })
    }

    fn status(&self) -> Response {
        let body = self
            .source
            .newest()
            .and_then(|status| serde_json::to_string(&*status).map_err(|error| error.to_string()));
        match body {
            Ok(body) => ok(JSON, body),
            Err(why) => unavailable(JSON, json!({ "error": why }).to_string()),
        }
    }

    /// Always 200: a daemon that does not answer is a measurement.
    fn metrics(&self, accept: Option<&str>) -> Response {
        let newest = self.source.newest();
        let status = newest.as_ref().ok().map(|status| &**status);
        if accept.is_some_and(|types| types.contains("application/openmetrics-text")) {
            ok(metrics::OPENMETRICS_TYPE, metrics::openmetrics(status))
        } else {
            ok(metrics::PROMETHEUS_TYPE, metrics::prometheus(status))
        }
    }

    fn health(&self) -> Response {
        match self.source.newest() {
            Ok(_) => ok(TEXT, "ok\n"),
            Err(why) => unavailable(TEXT, format!("{why}\n")),
        }
    }
}

fn ok(content_type: &'static str, body: impl Into<Vec<u8>>) -> Response {
    Response { status: http::OK, content_type, body: body.into() }
}

fn unavailable(content_type: &'static str, body: String) -> Response {
    Response { status: http::UNAVAILABLE, content_type, body: body.into_bytes() }
}

/// True if a `Host` is an address or `localhost`, which no name server resolves.
fn names_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_name_server_resolves_are_refused() {
        for host in ["localhost", "LOCALHOST:9595", "127.0.0.1:9595", "[::1]:9595", "[::1]"] {
            assert!(names_this_machine(host), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example:9595", "127.0.0.1.nip.io", "[evil]"]
        {
            assert!(!names_this_machine(host), "{host}");
        }
    }
}
