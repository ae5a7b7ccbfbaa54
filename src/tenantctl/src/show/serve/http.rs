//! The part of HTTP/1.1 for one request on one connection. The only file that names httparse.
//!
//! Every response closes its connection, so that no byte of one request can be taken for the next: bodies
//! and second requests are not read.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Longest request head: a browser sends a tenth of it.
pub(crate) const HEAD_MAX_BYTES: usize = 8 << 10;
const FIELDS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Other,
}

/// Part of a request that determines the response.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Part of the target behind its question mark.
    pub(crate) query: String,
    pub(crate) host: Option<String>,
    pub(crate) accept: Option<String>,
}

pub(crate) type Status = (u16, &'static str);

pub(crate) const OK: Status = (200, "OK");
pub(crate) const BAD_REQUEST: Status = (400, "Bad Request");
pub(crate) const NOT_FOUND: Status = (404, "Not Found");
pub(crate) const NOT_ALLOWED: Status = (405, "Method Not Allowed");
pub(crate) const TIMED_OUT: Status = (408, "Request Timeout");
pub(crate) const MISDIRECTED: Status = (421, "Misdirected Request");
pub(crate) const TOO_LARGE: Status = (431, "Request Header Fields Too Large");
pub(crate) const UNAVAILABLE: Status = (503, "Service Unavailable");

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: Status,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn refusal(status: Status) -> Response {
        Response::explained(status, "")
    }

    pub(crate) fn explained(status: Status, what_to_do: &str) -> Response {
        let body = format!("{} {}\n{what_to_do}", status.0, status.1).into_bytes();
        Response { status, content_type: "text/plain; charset=utf-8", body }
    }
}

/// Reads one request within `time`, or the status of its refusal.
pub(crate) fn read(mut stream: &TcpStream, time: Duration) -> io::Result<Result<Request, Status>> {
    let deadline = Instant::now() + time;
    let mut head = Vec::new();
    let mut bytes = [0; 2048];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Err(TIMED_OUT));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => head.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if is_late(&error) => return Ok(Err(TIMED_OUT)),
            Err(error) => return Err(error),
        }
        if let Some(parsed) = parse(&head) {
            return Ok(parsed);
        }
        if head.len() > HEAD_MAX_BYTES {
            return Ok(Err(TOO_LARGE));
        }
    }
}

fn parse(head: &[u8]) -> Option<Result<Request, Status>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    match parsed.parse(head) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(length)) if length > HEAD_MAX_BYTES => {
            return Some(Err(TOO_LARGE));
        }
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Some(Err(TOO_LARGE)),
        Err(_) => return Some(Err(BAD_REQUEST)),
    }
    let field = |name: &str| {
        let mut named = parsed.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        let value = named.next().map(|field| String::from_utf8_lossy(field.value).into_owned());
        (value, named.next().is_some())
    };
    let (host, is_host_twice) = field("host");
    // RFC 9112, 3.2: a request of HTTP/1.1 names one host.
    if is_host_twice || (host.is_none() && parsed.version == Some(1)) {
        return Some(Err(BAD_REQUEST));
    }
    let target = parsed.path.unwrap_or_default();
    let method = match parsed.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => Method::Other,
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (path, query) = (path.to_string(), query.to_string());
    Some(Ok(Request { method, path, query, host, accept: field("accept").0 }))
}

/// Fields of every response. No other site is loaded, may frame the page, or gets a referrer.
const FIELDS: &str = "\
Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'\r\n\
X-Content-Type-Options: nosniff\r\n\
X-Frame-Options: DENY\r\n\
Referrer-Policy: no-referrer\r\n\
Cross-Origin-Resource-Policy: same-origin\r\n\
Cross-Origin-Opener-Policy: same-origin\r\n\
Cache-Control: no-store\r\n\
Connection: close\r\n";

/// Writes a response within `time`, and closes the connection.
pub(crate) fn write(
    mut stream: &TcpStream,
    response: &Response,
    has_body: bool,
    time: Duration,
) -> io::Result<()> {
    let deadline = Instant::now() + time;
    let (code, phrase) = response.status;
    let allow = if response.status == NOT_ALLOWED { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {code} {phrase}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}{FIELDS}\r\n",
        response.content_type,
        response.body.len(),
    );
    let body = if has_body { response.body.as_slice() } else { &[] };
    for mut rest in [head.as_bytes(), body] {
        while !rest.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_write_timeout(Some(left))?;
            match stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    stream.shutdown(Shutdown::Write)?;
    // Closing a socket with unread input resets the connection, and the response may be lost. So excess
    // input is read, within the same deadline and a bound.
    let mut unread = [0; 2048];
    for _ in 0..64 {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left.min(Duration::from_secs(1))))?;
        if !stream.read(&mut unread).is_ok_and(|count| count > 0) {
            break;
        }
    }
    Ok(())
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_complete_or_not_or_wrong() {
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9595\r\nAccept: */*\r\n\r\n";
        for end in 0..whole.len() {
            assert!(parse(&whole[..end]).is_none(), "{end} bytes are no request");
        }
        let request = parse(whole).unwrap().unwrap();
        assert_eq!((request.method, request.path.as_str()), (Method::Get, "/metrics"));
        assert_eq!(request.query, "x=1");
        assert_eq!(request.host.as_deref(), Some("localhost:9595"));
        assert_eq!(parse(b"\0\x01\x02\r\n\r\n").unwrap().unwrap_err(), BAD_REQUEST);
        assert_eq!(parse(b"GET / HTTP/1.1\r\n\r\n").unwrap().unwrap_err(), BAD_REQUEST);
        let two_hosts = b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
        assert_eq!(parse(two_hosts).unwrap().unwrap_err(), BAD_REQUEST);
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(FIELDS_MAX));
        assert_eq!(parse(many.as_bytes()).unwrap().unwrap_err(), TOO_LARGE);
    }
}
