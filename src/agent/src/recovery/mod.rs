//! State that one agent leaves to the next, and to `tenantd --restore`.
//!
//! | file | contents |
//! |---|---|
//! | [`leftover`] | leftovers of an agent: taken over by the next one, or restored |
//! | `keeper` | files of the state directory beside the journal |
//! | [`restore`] | restoring files, processes and cgroups, from the journal alone |
//! | `held_files` | restoring the values of cgroup files |
//! | `fitted_quota` | cgroup v1 quotas that others have bounded since |
//! | `processes` | moving processes from one cgroup to another |
//! | `unit_restore` | restoring units of systemd |
//! | `unit_session` | asking systemd about many units at once |
//! | `unit_stop` | stopping slices that were started |
//! | `unit_write_back` | restoring units that run and are not loaded |
//! | `unit_files` | reading and writing the cgroup files of units |
//! | `unit_debts` | unit properties still to be restored |
//! | [`restored`] | result of a restore, with the owed entries |
//! | `removal` | removing the cgroups that were made |
//! | `residence` | processes still in the cgroups that they were moved to |
//! | `attachments` | attached work, kept across a restart |
//! | [`residents`] | displaced processes, kept across a restart |
//! | `boot_file` | a file of the state directory for later agents of the same boot |
//! | `credit_store` | credit of tenants, kept across a restart |
//! | `placement_store` | placement of tenants, kept across a restart |
//! | [`dop_files`] | the file with the degree of parallelism of each tenant |
//! | `deadline` | longest wait for systemd |
//! | `all_cpus` | a list of CPUs that confines no process |
//! | `wait_budget` | longest wait for processes that end |
//! | `scores` | marks of processes for the OOM killer |
//! | `disk_settings` | settings of disks that the policy divided |
//! | `unpin` | emptying the CPU list of a cgroup with processes |

pub(super) mod all_cpus;
pub(super) mod attachments;
pub(super) mod boot_file;
pub(super) mod credit_store;
pub(super) mod deadline;
pub(super) mod disk_settings;
pub mod dop_files;
mod fitted_quota;
mod held_files;
mod keeper;
pub mod leftover;
pub(super) mod placement_store;
pub(super) mod processes;
pub(super) mod removal;
mod residence;
pub mod residents;
pub mod restore;
pub mod restored;
pub(super) mod scores;
mod unit_debts;
mod unit_files;
pub(super) mod unit_restore;
mod unit_session;
mod unit_stop;
mod unit_write_back;
mod unpin;
mod wait_budget;
