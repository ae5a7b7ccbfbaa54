//! The command line of `tenantd-nri`. The only file of this crate that names the argument parser, with `main.rs`.

use std::path::PathBuf;

use clap::Parser;

use super::tenant::Template;

/// Attach the containers of containerd to tenants of tenantd, as NRI reports them.
#[derive(Clone, Debug, Parser)]
#[command(name = "tenantd-nri", version, max_term_width = 100)]
pub struct Arguments {
    /// The socket of containerd's NRI.
    #[arg(long, value_name = "PATH", default_value = "/var/run/nri/nri.sock")]
    pub nri_socket: PathBuf,
    /// The socket of the running tenantd.
    #[arg(long, value_name = "PATH", default_value = "/run/tenantd/socket")]
    pub socket: PathBuf,
    /// The tenant of a pod, instead of the one that the policy chooses by its matches of pods: a path with {namespace}, {pod} or
    /// {label:KEY} for facts of the pod, as in `pods/{namespace}`.
    #[arg(long, value_name = "TEMPLATE")]
    pub tenant: Option<Template>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// The page is written by hand.
    #[test]
    fn the_manual_page_has_all_options_with_their_defaults() {
        let page = include_str!("../../../packaging/man/tenantd-nri.8.roff").replace('\\', "");
        let command = Arguments::command();
        for option in command.get_arguments() {
            let name = option.get_long().unwrap();
            assert!(page.contains(&format!("fB--{name}fR")), "--{name}");
            for default in option.get_default_values() {
                let default = default.to_str().unwrap();
                assert!(page.contains(&format!("{default} by default")), "--{name}: {default}");
            }
        }
    }
}
