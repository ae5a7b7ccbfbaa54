//! How wide each tenant runs.
