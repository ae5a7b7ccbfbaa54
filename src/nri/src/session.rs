//! One connection to containerd: registration, and the events of containers until it ends.
//!
//! The plugin only listens. It sends nothing but its registration and replies, because unsolicited updates can deadlock the
//! runtime, and asks for no change of a container. Every reply is sent at once: containerd holds up the container until then.
//!
//! | call | effect |
//! |---|---|
//! | `Configure` | the reply is the mask of events |
//! | `Synchronize` | all running containers, in one or more parts |
//! | `StartContainer` (`StateChange` of older versions) | the container is attached |
//! | `StopContainer`, `RemoveContainer` (`StateChange`) | the container is forgotten |
//! | `Shutdown` | none: the connection ends |
//! | another | the reply is UNIMPLEMENTED |

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};

use prost::Message as _;
use tracing::{info, warn};

use super::cgroup;
use super::messages::{
    ConfigureRequest, ConfigureResponse, Container, ContainerRequest, PLUGIN, Pod, RUNNING_STATES,
    RUNTIME, RegisterPluginRequest, Request, Response, StateChangeEvent, Status,
    SynchronizeRequest, SynchronizeResponse, code, event,
};
use super::table::{CONTAINERS_MAX, Place, Table};
use super::tenant::{Template, facts};
use super::trunk::{Message, REQUEST, RESPONSE, TO_PLUGIN, TO_RUNTIME, Trunk, TrunkError};
use tenantd_core::kernel_text::{cleaned, text_of};

/// Name of the plugin.
pub const NAME: &str = "tenantd";
/// Position among the plugins: late, so that others have adjusted the container.
pub const INDEX: &str = "90";
/// Number of the call that registers; a client's are odd.
const REGISTRATION: u32 = 1;
/// Longest text of containerd in the log, in bytes.
const SHOWN_MAX: usize = 400;
/// Namespaces without a tenant that are remembered, so that each is logged once. More are not logged.
const LOGGED_MAX: usize = 1024;

/// Events of interest.
const EVENTS: i32 =
    bit(event::START_CONTAINER) | bit(event::STOP_CONTAINER) | bit(event::REMOVE_CONTAINER);

const fn bit(event: i32) -> i32 {
    1 << (event - 1)
}

/// The end of a session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The connection ended.
    #[error(transparent)]
    Trunk(#[from] TrunkError),
    /// Containerd refused the registration.
    #[error("containerd refused the plugin: {0}")]
    Refused(String),
    /// A message is not one of the protocol.
    #[error("containerd sent {0} that is not understood")]
    NotUnderstood(&'static str),
}

/// The plugin between events.
#[derive(Debug)]
pub struct Session<'a> {
    /// `None` if the policy chooses.
    tenant: Option<&'a Template>,
    table: &'a Table,
    pods: HashMap<Vec<u8>, Pod>,
    containers: Vec<Container>,
    logged: HashSet<String>,
}

impl<'a> Session<'a> {
    /// Creates a session that keeps `table` up to date.
    pub fn new(tenant: Option<&'a Template>, table: &'a Table) -> Session<'a> {
        Session {
            tenant,
            table,
            pods: HashMap::new(),
            containers: Vec::new(),
            logged: HashSet::new(),
        }
    }

    /// Registers and serves until the connection ends; `registered` is called when containerd has accepted the plugin.
    pub fn run<S: Read + Write>(
        &mut self,
        socket: S,
        mut registered: impl FnMut(),
    ) -> SessionError {
        // Parts of a synchronization that the last connection did not finish.
        self.pods.clear();
        self.containers.clear();
        let mut trunk = Trunk::new(socket);
        if let Err(error) = register(&mut trunk) {
            return error.into();
        }
        loop {
            let step = trunk.receive().map_err(SessionError::from);
            let step = step.and_then(|message| match (message.connection, message.kind) {
                (TO_PLUGIN, REQUEST) => self.answer(&mut trunk, &message),
                (TO_RUNTIME, RESPONSE) if message.stream == REGISTRATION => {
                    check(&message).map(|()| registered())
                }
                // Streams and replies to calls that were not made.
                _ => Ok(()),
            });
            if let Err(error) = step {
                return error;
            }
        }
    }

    fn answer<S: Read + Write>(
        &mut self,
        trunk: &mut Trunk<S>,
        message: &Message,
    ) -> Result<(), SessionError> {
        let Ok(request) = Request::decode(&*message.data) else {
            return Err(SessionError::NotUnderstood("a call"));
        };
        let response = match self.handle(&request) {
            Ok(payload) => Response { status: None, payload },
            Err((code, why)) => {
                let status = Status { code, message: why.into() };
                Response { status: Some(status), payload: Vec::new() }
            }
        };
        trunk.send(&Message {
            connection: TO_PLUGIN,
            stream: message.stream,
            kind: RESPONSE,
            data: response.encode_to_vec(),
        })?;
        Ok(())
    }

    /// Payload of the reply; a status code and a reason if there is none.
    fn handle(&mut self, request: &Request) -> Result<Vec<u8>, (i32, &'static str)> {
        if request.service != PLUGIN {
            return Err((code::UNIMPLEMENTED, "tenantd-nri has no such service"));
        }
        let payload = &request.payload;
        match &*request.method {
            b"Configure" => {
                configured(&parsed(payload)?);
                Ok(ConfigureResponse { events: EVENTS }.encode_to_vec())
            }
            b"Synchronize" => {
                let part: SynchronizeRequest = parsed(payload)?;
                let more = part.more;
                self.synchronize(part);
                Ok(SynchronizeResponse { more }.encode_to_vec())
            }
            b"StateChange" => {
                let change: StateChangeEvent = parsed(payload)?;
                let about = ContainerRequest { pod: change.pod, container: change.container };
                match change.event {
                    event::START_CONTAINER => self.started(&about),
                    event::STOP_CONTAINER | event::REMOVE_CONTAINER => self.ended(&about),
                    _ => {}
                }
                Ok(Vec::new())
            }
            b"StartContainer" => {
                self.started(&parsed(payload)?);
                Ok(Vec::new())
            }
            b"StopContainer" | b"RemoveContainer" => {
                self.ended(&parsed(payload)?);
                Ok(Vec::new())
            }
            b"Shutdown" => Ok(Vec::new()),
            _ => Err((code::UNIMPLEMENTED, "tenantd-nri only listens to the life of containers")),
        }
    }

    /// Collects a part. A container may come in an earlier part than its pod, so all are attached after the last one.
    fn synchronize(&mut self, part: SynchronizeRequest) {
        let free = CONTAINERS_MAX.saturating_sub(self.pods.len());
        self.pods.extend(part.pods.into_iter().take(free).map(|pod| (pod.id.clone(), pod)));
        // One more than the table takes, which then reports it.
        let free = (CONTAINERS_MAX + 1).saturating_sub(self.containers.len());
        let running = part.containers.into_iter().filter(|it| RUNNING_STATES.contains(&it.state));
        self.containers.extend(running.take(free));
        if part.more {
            return;
        }
        let pods = std::mem::take(&mut self.pods);
        let mut all = Vec::new();
        for container in std::mem::take(&mut self.containers) {
            let pod = pods.get(&container.pod_sandbox_id);
            if let Some(place) = pod.and_then(|pod| self.place(pod, &container)) {
                all.push((container.id, place));
            }
        }
        info!("containerd runs {} containers", all.len());
        self.table.replace(all);
    }

    fn started(&mut self, about: &ContainerRequest) {
        let (Some(pod), Some(container)) = (&about.pod, &about.container) else { return };
        if let Some(place) = self.place(pod, container) {
            self.table.start(&container.id, place);
        }
    }

    fn ended(&self, about: &ContainerRequest) {
        if let Some(container) = &about.container {
            self.table.end(&container.id);
        }
    }

    /// Cgroup, pod and tenant of a container; `None`, with a line in the log, if it has none.
    fn place(&mut self, pod: &Pod, container: &Container) -> Option<Place> {
        let facts = facts(pod);
        let path = container.linux.as_ref().map_or(&b""[..], |linux| &linux.cgroups_path);
        let found = match cgroup::to_attach(path, &pod.uid) {
            Some(cgroup) => {
                let tenant = self.tenant.map(|template| template.fill(&facts)).transpose();
                tenant.map(|tenant| (cgroup, tenant))
            }
            None => Err(format!("the form of its cgroup `{}` is not known", shown(path))),
        };
        match found {
            Ok((cgroup, tenant)) => Some(Place { cgroup, tenant, pod: facts }),
            Err(why) => {
                let namespace = cleaned(&facts.namespace);
                let is_new = !self.logged.contains(&namespace) && self.logged.len() < LOGGED_MAX;
                if is_new {
                    warn!(
                        "pods of the namespace `{namespace}` run as without tenantd, `{}` among them: {why}",
                        cleaned(&facts.name)
                    );
                    self.logged.insert(namespace);
                }
                None
            }
        }
    }
}

fn register<S: Read + Write>(trunk: &mut Trunk<S>) -> Result<(), TrunkError> {
    let plugin = RegisterPluginRequest { plugin_name: NAME.into(), plugin_idx: INDEX.into() };
    let request = Request {
        service: RUNTIME.to_vec(),
        method: b"RegisterPlugin".to_vec(),
        payload: plugin.encode_to_vec(),
        timeout_nano: 0,
    };
    trunk.send(&Message {
        connection: TO_RUNTIME,
        stream: REGISTRATION,
        kind: REQUEST,
        data: request.encode_to_vec(),
    })
}

/// Checks the reply to the registration.
fn check(message: &Message) -> Result<(), SessionError> {
    let Ok(response) = Response::decode(&*message.data) else {
        return Err(SessionError::NotUnderstood("a reply"));
    };
    match response.status.filter(|status| status.code != 0) {
        Some(status) => Err(SessionError::Refused(shown(&status.message))),
        None => Ok(()),
    }
}

fn configured(runtime: &ConfigureRequest) {
    info!("registered with {} {}", shown(&runtime.runtime_name), shown(&runtime.runtime_version));
}

fn parsed<M: prost::Message + Default>(payload: &[u8]) -> Result<M, (i32, &'static str)> {
    M::decode(payload).map_err(|_| (code::INVALID_ARGUMENT, "the message cannot be parsed"))
}

fn shown(text: &[u8]) -> String {
    cleaned(&text_of(&text[..text.len().min(SHOWN_MAX)]))
}
