//! The programs as built, for tests and benchmarks: they are of other packages, for which cargo has no variable.

use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The path of `tenantd` or `tenantctl`, built with the profile of the running executable.
pub(crate) fn path(program: &str) -> &'static str {
    static BUILT: OnceLock<[String; 2]> = OnceLock::new();
    let [tenantd, tenantctl] = BUILT.get_or_init(build);
    if program == "tenantd" { tenantd } else { tenantctl }
}

/// Builds both programs, which takes a moment where they are built already. They are put beside the folder of
/// the running executable. A guest has no compiler: `TENANTD_PROGRAMS` names the folder that has them.
fn build() -> [String; 2] {
    if let Some(folder) = env::var_os("TENANTD_PROGRAMS") {
        return in_folder(Path::new(&folder));
    }
    let executable = env::current_exe().unwrap();
    let folder = executable.parent().and_then(Path::parent).unwrap();
    let profile = match folder.file_name().and_then(|name| name.to_str()).unwrap() {
        // `cargo bench` says so to what it runs.
        _ if env::args().any(|argument| argument == "--bench") => "bench",
        "debug" => "dev",
        name => name,
    };
    // Without the tests' dependencies other features are chosen, and nearly everything is built once more.
    let selection = match profile {
        "bench" => ["-p", "tenantd", "-p", "tenantctl"].as_slice(),
        _ => &["--bins", "--test", "tests"],
    };
    let built = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--quiet", "--profile", profile])
        .args(selection)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.unwrap().success(), "the programs cannot be built");
    in_folder(folder)
}

fn in_folder(folder: &Path) -> [String; 2] {
    ["tenantd", "tenantctl"]
        .map(|program| folder.join(program).into_os_string().into_string().unwrap())
}
