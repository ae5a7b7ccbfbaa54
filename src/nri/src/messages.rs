//! Messages of NRI and ttrpc, those that are used here.
//!
//! Source: `pkg/api/api.proto` of containerd/nri (`nri.pkg.api.v1alpha1`), `request.proto` of containerd/ttrpc and
//! `google/rpc/status.proto`. Fields that are not read are left out: a parser of protobuf skips them. Text is bytes, because one
//! label that is not UTF-8 must not make a whole message unreadable. A map is the list of its entries, as on the wire.

use prost::Message;

/// Service of the plugin, called by containerd.
pub const PLUGIN: &[u8] = b"nri.pkg.api.v1alpha1.Plugin";
/// Service of containerd, called by the plugin.
pub const RUNTIME: &[u8] = b"nri.pkg.api.v1alpha1.Runtime";

/// Numbers of events (`enum Event`); event N is bit N - 1 of a mask.
pub mod event {
    /// A container is started: its cgroup exists, its program does not run yet.
    pub const START_CONTAINER: i32 = 6;
    /// A container has stopped, or is about to.
    pub const STOP_CONTAINER: i32 = 10;
    /// A container is removed.
    pub const REMOVE_CONTAINER: i32 = 11;
}

/// Status codes (google.rpc.Code).
pub mod code {
    /// The payload cannot be parsed.
    pub const INVALID_ARGUMENT: i32 = 3;
    /// There is no such method.
    pub const UNIMPLEMENTED: i32 = 12;
}

/// States of a container whose processes run (`CONTAINER_PAUSED`, `CONTAINER_RUNNING`).
pub const RUNNING_STATES: [i32; 2] = [2, 3];

/// A call.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    /// Full name of the service.
    #[prost(bytes = "vec", tag = "1")]
    pub service: Vec<u8>,
    /// Name of the method.
    #[prost(bytes = "vec", tag = "2")]
    pub method: Vec<u8>,
    /// Message of the method.
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
    /// Time for the call, in nanoseconds; 0 means none.
    #[prost(int64, tag = "4")]
    pub timeout_nano: i64,
}

/// The reply to a call.
#[derive(Clone, PartialEq, Message)]
pub struct Response {
    /// Status; absent or 0 for success.
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    /// Message of the method.
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

/// Status of a call.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// One of [`code`]; 0 for success.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// Reason.
    #[prost(bytes = "vec", tag = "2")]
    pub message: Vec<u8>,
}

/// Registration of a plugin.
#[derive(Clone, PartialEq, Message)]
pub struct RegisterPluginRequest {
    /// Name: letters, digits, `_.+-`.
    #[prost(bytes = "vec", tag = "1")]
    pub plugin_name: Vec<u8>,
    /// Two digits; plugins are called in ascending order.
    #[prost(bytes = "vec", tag = "2")]
    pub plugin_idx: Vec<u8>,
}

/// The runtime, in the request of `Configure`.
#[derive(Clone, PartialEq, Message)]
pub struct ConfigureRequest {
    /// Name of the runtime.
    #[prost(bytes = "vec", tag = "2")]
    pub runtime_name: Vec<u8>,
    /// Version of the runtime.
    #[prost(bytes = "vec", tag = "3")]
    pub runtime_version: Vec<u8>,
}

/// The events that the plugin wants.
#[derive(Clone, PartialEq, Message)]
pub struct ConfigureResponse {
    /// Mask of events.
    #[prost(int32, tag = "2")]
    pub events: i32,
}

/// A part of the state of the runtime.
#[derive(Clone, PartialEq, Message)]
pub struct SynchronizeRequest {
    /// Pods.
    #[prost(message, repeated, tag = "1")]
    pub pods: Vec<Pod>,
    /// Containers.
    #[prost(message, repeated, tag = "2")]
    pub containers: Vec<Container>,
    /// True if another part follows.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// Reply to a part.
#[derive(Clone, PartialEq, Message)]
pub struct SynchronizeResponse {
    /// As in the request: the plugin understands parts.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// The request of `StartContainer`, `StopContainer` and `RemoveContainer`.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerRequest {
    /// Pod of the container.
    #[prost(message, optional, tag = "1")]
    pub pod: Option<Pod>,
    /// The container.
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
}

/// The request of `StateChange`, by which older versions report the same.
#[derive(Clone, PartialEq, Message)]
pub struct StateChangeEvent {
    /// One of [`event`].
    #[prost(int32, tag = "1")]
    pub event: i32,
    /// Pod of the container.
    #[prost(message, optional, tag = "2")]
    pub pod: Option<Pod>,
    /// The container.
    #[prost(message, optional, tag = "3")]
    pub container: Option<Container>,
}

/// A pod.
#[derive(Clone, PartialEq, Message)]
pub struct Pod {
    /// Identity in the runtime.
    #[prost(bytes = "vec", tag = "1")]
    pub id: Vec<u8>,
    /// Name.
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    /// Identity in Kubernetes.
    #[prost(bytes = "vec", tag = "3")]
    pub uid: Vec<u8>,
    /// Namespace.
    #[prost(bytes = "vec", tag = "4")]
    pub namespace: Vec<u8>,
    /// Labels.
    #[prost(message, repeated, tag = "5")]
    pub labels: Vec<Label>,
}

/// An entry of a map of texts.
#[derive(Clone, PartialEq, Message)]
pub struct Label {
    /// Key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Value.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// A container.
#[derive(Clone, PartialEq, Message)]
pub struct Container {
    /// Identity in the runtime.
    #[prost(bytes = "vec", tag = "1")]
    pub id: Vec<u8>,
    /// [`Pod::id`] of its pod.
    #[prost(bytes = "vec", tag = "2")]
    pub pod_sandbox_id: Vec<u8>,
    /// Name.
    #[prost(bytes = "vec", tag = "3")]
    pub name: Vec<u8>,
    /// State; see [`RUNNING_STATES`].
    #[prost(int32, tag = "4")]
    pub state: i32,
    /// Properties of a container on Linux.
    #[prost(message, optional, tag = "11")]
    pub linux: Option<LinuxContainer>,
}

/// Properties of a container on Linux.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxContainer {
    /// Cgroup, in the form of the OCI runtime; see [`super::cgroup`].
    #[prost(bytes = "vec", tag = "5")]
    pub cgroups_path: Vec<u8>,
}
