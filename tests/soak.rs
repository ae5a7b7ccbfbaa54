//! Random administration: reloads, moves, kills, stops, values set above, beside and below, clocks that jump, and
//! calls that fail; every invariant after every step.
//!
//! | file | contents |
//! |---|---|
//! | `step` | the steps as values, and their generator |
//! | `spec` | the random policies of reloads |
//! | `ground` | what a host has to offer: [`ground::Ground`] |
//! | `run` | taking the steps: the administrator's and the agent's |
//! | `model` | what the host must hold, and who changed what |
//! | `decided` | what must be true of every status |
//! | `campaign` | seeds, replay, shrinking, and what the whole cost |
//!
//! The stages are `agent::soak` (the simulated kernel, of both hierarchies), `agent::soak::units` (tenants that are units
//! of the simulated systemd, with steps and a model of their own) and `kernel::soak` (cgroups of this kernel).
//! A failure prints its seed and the least list of steps that was found to fail. Variables of the environment:
//! `TENANTD_STEPS` is the number of steps of each stage, `TENANTD_SEED` the seed.

pub(crate) mod campaign;
pub(crate) mod decided;
pub(crate) mod ground;
mod model;
pub(crate) mod run;
pub(crate) mod spec;
pub(crate) mod step;
