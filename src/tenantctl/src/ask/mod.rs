//! Commands that ask the daemon, or that change what it does.

pub(crate) mod administer;
pub(crate) mod attach;
pub(crate) mod explain;
pub(crate) mod finished;
pub(crate) mod jobs;
pub(crate) mod me;
pub(crate) mod mode;
pub(crate) mod plan;
pub(crate) mod status;
