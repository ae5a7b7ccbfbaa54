//! The whole program between a containerd and a tenantd that are played here.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test asserts; it need not handle")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use prost::Message as _;
use serde_json::{Value, json};
use tenantd_nri::Error;
use tenantd_nri::args::Arguments;
use tenantd_nri::attach::{self, Pauses};
use tenantd_nri::messages::{
    ConfigureResponse, Container, ContainerRequest, Label, LinuxContainer, PLUGIN, Pod, Request,
    Response, StateChangeEvent, Status, SynchronizeRequest, SynchronizeResponse, code, event,
};
use tenantd_nri::session::{Session, SessionError};
use tenantd_nri::table::Table;
use tenantd_nri::tenant::Template;
use tenantd_varlink::client::Endpoint;

/// The registration as the program of containerd's own library sends it, but for its version: name 1, index 2.
const REGISTRATION: &[u8] =
    b"\x0a\x1cnri.pkg.api.v1alpha1.Runtime\x12\x0eRegisterPlugin\x1a\x0d\x0a\x07tenantd\x12\x0290";

/// A containerd on one connection.
struct Runtime {
    socket: UnixStream,
    nr_calls: u32,
}

impl Runtime {
    fn send(&mut self, connection: u32, stream: u32, kind: u8, data: &[u8]) {
        let length = u32::try_from(data.len()).unwrap();
        let message = [&length.to_be_bytes()[..], &stream.to_be_bytes(), &[kind, 0], data].concat();
        // Frames of 7 bytes: a message is divided anywhere.
        for part in message.chunks(7) {
            let length = u32::try_from(part.len()).unwrap();
            let frame = [&connection.to_be_bytes()[..], &length.to_be_bytes(), part].concat();
            self.socket.write_all(&frame).unwrap();
        }
    }

    /// Next message: its connection, stream, kind and data.
    fn receive(&mut self) -> (u32, u32, u8, Vec<u8>) {
        let mut header = [0; 18];
        self.socket.read_exact(&mut header).unwrap();
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(number(4), number(8) + 10, "one frame is one message");
        let mut data = vec![0; number(8) as usize];
        self.socket.read_exact(&mut data).unwrap();
        (number(0), number(12), header[16], data)
    }

    fn accept_registration(&mut self, status: Option<Status>) {
        assert_eq!(self.receive(), (2, 1, 1, REGISTRATION.to_vec()));
        self.send(2, 1, 2, &Response { status, payload: Vec::new() }.encode_to_vec());
    }

    fn call(&mut self, method: &str, payload: &impl prost::Message) -> Response {
        self.call_of(PLUGIN, method, &payload.encode_to_vec())
    }

    fn call_of(&mut self, service: &[u8], method: &str, payload: &[u8]) -> Response {
        let stream = 2 * self.nr_calls + 1;
        self.nr_calls += 1;
        let request = Request {
            service: service.to_vec(),
            method: method.into(),
            payload: payload.to_vec(),
            timeout_nano: 2_000_000_000,
        };
        self.send(1, stream, 1, &request.encode_to_vec());
        let (connection, answered, kind, data) = self.receive();
        assert_eq!((connection, answered, kind), (1, stream, 2));
        Response::decode(&*data).unwrap()
    }
}

/// A tenantd: sends each call that it gets, and answers with the reply that comes back.
fn tenantd(path: &Path) -> (Receiver<Value>, Sender<Value>) {
    let listener = UnixListener::bind(path).unwrap();
    let (calls, taken) = channel();
    let (answers, replies) = channel::<Value>();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = BufReader::new(connection.unwrap());
            let mut call = Vec::new();
            if connection.read_until(0, &mut call).unwrap() == 0 {
                continue;
            }
            call.pop();
            if calls.send(serde_json::from_slice(&call).unwrap()).is_err() {
                return;
            }
            let Ok(reply) = replies.recv() else { return };
            let _ = connection.get_mut().write_all(format!("{reply}\0").as_bytes());
        }
    });
    (taken, answers)
}

fn attached() -> Value {
    json!({ "parameters": { "cgroup": "/x", "pids": [], "failures": [] } })
}

fn refused(reason: &str) -> Value {
    json!({ "error": "io.tenantd.Manager.Failed", "parameters": { "reason": reason } })
}

/// Runs a session with a worker until the containerd of `play` hangs up.
fn with_plugin(
    template: Option<&str>,
    play: impl FnOnce(&mut Runtime, &Receiver<Value>, &Sender<Value>),
) -> SessionError {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenantd");
    let (calls, answers) = tenantd(&path);
    let (socket, plugin) = UnixStream::pair().unwrap();
    let (table, template) = (Table::default(), template.map(|it| it.parse::<Template>().unwrap()));
    thread::scope(|scope| {
        let session = scope.spawn(|| Session::new(template.as_ref(), &table).run(plugin, || {}));
        scope.spawn(|| {
            let pause = Duration::from_millis(1);
            let pauses = Pauses { first: pause, longest: pause, refused: pause };
            attach::work(&table, &mut Endpoint { path: path.clone(), timeout: None }, pauses);
        });
        let mut runtime = Runtime { socket, nr_calls: 0 };
        play(&mut runtime, &calls, &answers);
        drop(runtime);
        let error = session.join().unwrap();
        table.close();
        // A call that waits for its answer fails.
        drop(answers);
        error
    })
}

fn pod(id: &str, namespace: &[u8], labels: &[(&str, &str)]) -> Pod {
    let label = |(key, value): &(&str, &str)| Label { key: (*key).into(), value: (*value).into() };
    Pod {
        id: id.into(),
        name: b"web".to_vec(),
        uid: b"short".to_vec(),
        namespace: namespace.to_vec(),
        labels: labels.iter().map(label).collect(),
    }
}

fn container(id: &str, pod: &str, state: i32) -> Container {
    let linux = LinuxContainer { cgroups_path: format!("/k8s.io/{id}").into() };
    Container {
        id: id.into(),
        pod_sandbox_id: pod.into(),
        state,
        linux: Some(linux),
        ..Container::default()
    }
}

#[track_caller]
fn assert_attach(call: &Value, tenant: &str, cgroup: &str) {
    assert_eq!(call["method"], "io.tenantd.Manager.Attach");
    let parameters = &call["parameters"];
    assert_eq!((&parameters["tenant"], &parameters["cgroup"]), (&json!(tenant), &json!(cgroup)));
    assert!(parameters["pod"]["namespace"].is_string(), "{parameters}");
}

#[test]
fn without_a_template_the_policy_chooses_by_the_facts_of_the_pod() {
    with_plugin(None, |runtime, calls, answers| {
        runtime.accept_registration(None);
        let about = |namespace: &[u8], labels: &[(&str, &str)], id: &str| ContainerRequest {
            pod: Some(pod("p1", namespace, labels)),
            container: Some(container(id, "p1", 1)),
        };
        runtime.call("StartContainer", &about(b"shop\xff", &[("team", "a/b")], "c1"));
        let call = calls.recv().unwrap();
        let facts = json!({ "name": "web", "namespace": "shop\\xff", "labels": { "team": "a/b" } });
        assert_eq!(call["method"], "io.tenantd.Manager.Attach");
        assert_eq!(call["parameters"]["pod"], facts);
        assert_eq!(call["parameters"]["cgroup"], "/k8s.io/c1");
        assert_eq!(call["parameters"]["tenant"], Value::Null);
        // A policy that has no tenant for it may get one.
        answers.send(refused("no `match` fits")).unwrap();
        assert_eq!(calls.recv().unwrap(), call);
        answers.send(attached()).unwrap();
        runtime.call("StartContainer", &about(b"bank", &[], "c2"));
        let call = calls.recv().unwrap();
        assert_eq!(call["parameters"]["cgroup"], "/k8s.io/c2", "the first is settled");
        answers.send(attached()).unwrap();
    });
}

#[test]
fn containers_are_attached_and_nothing_else_is_sent() {
    let error = with_plugin(Some("{namespace}"), |runtime, calls, answers| {
        runtime.accept_registration(None);
        let configured = runtime.call("Configure", &());
        let mask = ConfigureResponse::decode(&*configured.payload).unwrap().events;
        assert_eq!(mask, 1 << 5 | 1 << 9 | 1 << 10, "start, stop, remove");
        // A container comes in the part before its pod; one is stopped, one has no pod.
        let first = SynchronizeRequest {
            pods: vec![pod("p1", b"shop", &[])],
            containers: vec![container("c2", "p2", 3), container("c1", "p1", 3)],
            more: true,
        };
        let reply = runtime.call("Synchronize", &first);
        assert_eq!(
            SynchronizeResponse::decode(&*reply.payload),
            Ok(SynchronizeResponse { more: true })
        );
        let last = SynchronizeRequest {
            pods: vec![pod("p2", b"bank", &[])],
            containers: vec![container("c3", "p1", 4), container("c4", "gone", 3)],
            more: false,
        };
        let reply = runtime.call("Synchronize", &last);
        assert_eq!((reply.status, reply.payload), (None, Vec::new()));
        let mut found: Vec<Value> = (0..2)
            .map(|_| {
                answers.send(attached()).unwrap();
                calls.recv().unwrap()
            })
            .collect();
        found.sort_by_key(|call| call["parameters"]["cgroup"].to_string());
        assert_attach(&found[0], "shop", "/k8s.io/c1");
        assert_attach(&found[1], "bank", "/k8s.io/c2");
        // Both ways of reporting a start.
        let about = ContainerRequest {
            pod: Some(pod("p1", b"shop", &[])),
            container: Some(container("c5", "p1", 1)),
        };
        let reply = runtime.call("StartContainer", &about);
        assert_eq!((reply.status, reply.payload), (None, Vec::new()));
        answers.send(attached()).unwrap();
        assert_attach(&calls.recv().unwrap(), "shop", "/k8s.io/c5");
        let change = StateChangeEvent {
            event: event::START_CONTAINER,
            pod: Some(pod("p2", b"bank", &[])),
            container: Some(container("c6", "p2", 1)),
        };
        assert_eq!(runtime.call("StateChange", &change).status, None);
        answers.send(attached()).unwrap();
        assert_attach(&calls.recv().unwrap(), "bank", "/k8s.io/c6");
        let reply = runtime.call("StopContainer", &about);
        assert_eq!((reply.status, reply.payload), (None, Vec::new()));
        assert_eq!(runtime.call("Shutdown", &()).status, None);
    });
    assert_eq!(error.to_string(), "containerd closed the connection");
}

#[test]
fn what_is_unknown_or_unreadable_has_a_status() {
    let error = with_plugin(Some("{namespace}"), |runtime, _, _| {
        runtime.accept_registration(None);
        for (service, method, payload, code) in [
            (PLUGIN, "CreateContainer", &b""[..], code::UNIMPLEMENTED),
            (b"another", "Configure", b"", code::UNIMPLEMENTED),
            (PLUGIN, "StartContainer", b"\xff", code::INVALID_ARGUMENT),
            (PLUGIN, "Synchronize", b"\x0a\x05", code::INVALID_ARGUMENT),
        ] {
            let reply = runtime.call_of(service, method, payload);
            assert_eq!(reply.status.map(|status| status.code), Some(code), "{method}");
        }
        // A start without a container, and other events, change nothing.
        assert_eq!(runtime.call("StartContainer", &()).status, None);
        let other = StateChangeEvent { event: 1, ..StateChangeEvent::default() };
        assert_eq!(runtime.call("StateChange", &other).status, None);
    });
    assert_eq!(error.to_string(), "containerd closed the connection");
}

#[test]
fn a_refused_attachment_is_tried_until_the_container_stops() {
    with_plugin(Some("{label:team}"), |runtime, calls, answers| {
        runtime.accept_registration(None);
        let about = |namespace: &[u8], labels: &[(&str, &str)], id: &str| ContainerRequest {
            pod: Some(pod("p1", namespace, labels)),
            container: Some(container(id, "p1", 1)),
        };
        // No tenant: no label, a label that names another tenant, text that is not UTF-8.
        for (namespace, labels) in
            [(&b"shop"[..], &[][..]), (b"bank", &[("team", "a/b")]), (b"\xff\x1b", &[("team", "")])]
        {
            let untold = about(namespace, labels, "none");
            assert_eq!(runtime.call("StartContainer", &untold).status, None);
        }
        let told = about(b"\xff", &[("team", "till")], "c1");
        runtime.call("StartContainer", &told);
        for _ in 0..3 {
            assert_attach(&calls.recv().unwrap(), "till", "/k8s.io/c1");
            answers.send(refused("it only observes")).unwrap();
        }
        calls.recv().unwrap();
        runtime.call("StopContainer", &told);
        answers.send(refused("it only observes")).unwrap();
        // The next call is about the next container: the stopped one is forgotten.
        runtime.call("StartContainer", &about(b"x", &[("team", "till")], "c2"));
        assert_attach(&calls.recv().unwrap(), "till", "/k8s.io/c2");
    });
}

#[test]
fn a_refused_registration_ends_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nri.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let arguments =
        Arguments { nri_socket: path, socket: dir.path().join("tenantd"), tenant: None };
    let program = thread::spawn(move || tenantd_nri::run(&arguments));
    // A containerd that goes away is tried again; the one after it refuses.
    for status in [None, Some(Status { code: 7, message: b"plugins are\x1b[2J disabled".to_vec() })]
    {
        let (socket, _) = listener.accept().unwrap();
        Runtime { socket, nr_calls: 0 }.accept_registration(status);
    }
    let error = program.join().unwrap();
    assert!(matches!(error, Error::Refused(_)));
    assert_eq!(error.exit_code(), 1);
    let text = error.to_string();
    assert!(
        text.starts_with("containerd refused the plugin: plugins are\\x1b[2J disabled"),
        "{text}"
    );
}
