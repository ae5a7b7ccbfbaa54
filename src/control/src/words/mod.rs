//! Words that all folders use: knobs and their values, findings, jobs.

pub mod finding;
pub mod jobs;
pub mod knob;
