//! What one agent leaves to the next, and to `tenantd --restore`.
//!
//! | file | contents |
//! |---|---|
//! | [`leftover`] | what an agent left behind: taken over by the next one, or restored |
//! | `keeper` | the files of the state directory beside the journal |
//! | [`restore`] | restoring files, processes and cgroups, from the journal alone |
//! | `held_files` | giving files of cgroups back what they held |
//! | `fitted_quota` | what a legacy quota can be where others have bounded it since |
//! | `processes` | moving processes from one cgroup to another |
//! | `unit_restore` | giving units back to systemd as they were |
//! | `unit_session` | asking systemd about many units at once |
//! | `unit_stop` | stopping slices that were started |
//! | `unit_write_back` | giving back units that run and are not loaded |
//! | `unit_files` | the files of units: what is in them, and what may be written there |
//! | `unit_debts` | what is still to be given back of units |
//! | [`restored`] | the result of a restore, and what is still owed |
//! | `removal` | removing the cgroups that were made |
//! | `residence` | which processes are still in the cgroups that they were put into |
//! | `attachments` | what was handed to tenants while an agent ran, kept over a restart |
//! | [`residents`] | displaced processes, kept over a restart |
//! | `boot_file` | a file of the state directory for later agents of the same boot |
//! | `placement_store` | the placement of tenants, kept over a restart |
//! | [`dop_files`] | the file with the degree of parallelism of each tenant |
//! | `deadline` | the longest wait for systemd |
//! | `all_cpus` | a list of CPUs that confines no process |
//! | `wait_budget` | the longest wait for processes that end |
//! | `unpin` | emptying the CPU list of a cgroup with processes |

pub(super) mod all_cpus;
pub(super) mod attachments;
pub(super) mod boot_file;
pub(super) mod deadline;
pub mod dop_files;
mod fitted_quota;
mod held_files;
mod keeper;
pub mod leftover;
pub(super) mod placement_store;
pub(super) mod processes;
mod removal;
mod residence;
pub mod residents;
pub mod restore;
pub mod restored;
mod unit_debts;
mod unit_files;
pub(super) mod unit_restore;
mod unit_session;
mod unit_stop;
mod unit_write_back;
mod unpin;
mod wait_budget;
