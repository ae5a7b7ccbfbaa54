//! The width of a command, in variables of its environment and in its arguments.
//!
//! **Problem.** Every runtime learns in its own way how many threads to start. The set of CPUs that a process may run on
//! is what most of them ask, some read a variable of their own, and build tools ask a job server for each command that
//! they run. Told in the wrong place, a width does harm. **Answer.** A table of variables, each with the condition under
//! which it helps. A variable that is set stays as it is, because it was chosen for the command, and so does a width on
//! the command line. `TENANTD_DOP` and `TENANTD_CGROUP` are always set: they are facts about this job, and an inherited value
//! would be that of another.
//!
//! | variable | read by | set |
//! |---|---|---|
//! | `TENANTD_DOP` | scripts | always |
//! | `TENANTD_CGROUP` | scripts that start containers (`--cgroup-parent`) | always |
//! | `OMP_NUM_THREADS` | OpenMP, most BLAS libraries, nproc(1) | |
//! | `OPENBLAS_NUM_THREADS`, `MKL_NUM_THREADS` | BLAS libraries with threads of their own | |
//! | `RAYON_NUM_THREADS` | rayon | |
//! | `GOMAXPROCS` | the Go runtime, which then ignores changes of the set of CPUs | where that set is not the job's own |
//! | `MAKEFLAGS` | make, cargo, ninja and other clients of the job server | where the command line has no `-j` |
//!
//! Left out on purpose: `OMP_DYNAMIC`, with which GNU's OpenMP subtracts the load of the whole host.
//!
//! **One `MAKEFLAGS` for all.** Each client knows some ways to name a job server, and takes the last one
//! that it knows:
//!
//! | written | make 4.2, 4.3 | make ≥ 4.4 | ninja ≥ 1.13, cargo, gcc ≥ 13 | cargo before 2023 |
//! |---|---|---|---|---|
//! | `--jobserver-fds=R,W` | ignored | ignored | overruled by the next | these descriptors |
//! | `--jobserver-auth=fifo:PATH` | fatal where it is the last | overruled | this FIFO | |
//! | `--jobserver-a=R,W`, which is the same option abbreviated | these descriptors | these descriptors | not known | |
//!
//! Programs between the job and make may close descriptors, as Python's `subprocess` does. Where make is 4.4 or later, it gets the
//! FIFO alone. A make that is not GNU's reads `MAKEFLAGS` and knows none of these, so it gets the width alone ([`Make`]).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use tenantd_core::kernel_text::proc_files;

/// Name of the variable that is always set.
pub const TENANTD_DOP: &str = "TENANTD_DOP";
/// The variable of the job's cgroup, for programs that start work elsewhere, such as containers.
pub const TENANTD_CGROUP: &str = "TENANTD_CGROUP";
/// The placeholder of the width in the arguments of a command.
pub const PLACEHOLDER: &str = "{dop}";
/// Variables that hold a number of threads.
const THREADS: [&str; 4] =
    ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"];
const GOMAXPROCS: &str = "GOMAXPROCS";
const MAKEFLAGS: &str = "MAKEFLAGS";
/// Programs whose flags without a value can be written together, as in `-kj4`.
const WITH_CLUSTERS: [&[u8]; 3] = [b"make", b"gmake", b"remake"];
/// Makes of others.
const FOREIGN: [&[u8]; 4] = [b"bmake", b"pmake", b"fmake", b"bsdmake"];

/// The width of a command, and the means by which it gets it.
#[derive(Clone, Copy, Debug)]
pub struct Width<'a> {
    /// Degree of parallelism.
    pub dop: u32,
    /// True if the set of CPUs of the command is its own.
    pub is_pinned: bool,
    /// Job server of the command.
    pub jobserver: Option<Jobserver<'a>>,
    /// Its cgroup, from the mount.
    pub cgroup: &'a str,
}

/// A job server.
#[derive(Clone, Copy, Debug)]
pub struct Jobserver<'a> {
    /// Path of the FIFO.
    pub fifo: &'a str,
    /// Two descriptors of it that the command inherits, for a make before 4.4: tokens are read from the first, and returned to
    /// the second.
    pub descriptors: Option<(i32, i32)>,
}

/// The make that a command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// None, or GNU make before 4.4, which knows job servers by descriptors only.
    Descriptors,
    /// GNU make 4.4 or later.
    Fifo,
    /// Another make.
    Foreign,
}

impl Make {
    /// The make that prints this for `--version`; empty where there is none.
    pub fn of(version: &[u8]) -> Make {
        let first = version.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let Some(version) = first.trim_ascii().strip_prefix(b"GNU Make ") else {
            return if version.is_empty() { Make::Descriptors } else { Make::Foreign };
        };
        let mut parts = version.split(|byte| !byte.is_ascii_digit()).map(proc_files::number);
        match (parts.next().flatten(), parts.next().flatten()) {
            (Some(major), Some(minor)) if (major, minor) >= (4, 4) => Make::Fifo,
            (Some(major), _) if major > 4 => Make::Fifo,
            _ => Make::Descriptors,
        }
    }

    /// The program to ask for its version: the command where it is a make, else the one that the search path has.
    pub fn program(command: &[OsString]) -> &OsStr {
        let first = command.first().map(OsString::as_os_str).unwrap_or_default();
        let name = first.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let is_make = WITH_CLUSTERS.contains(&name) || FOREIGN.contains(&name);
        if is_make { first } else { OsStr::new("make") }
    }
}

/// True if the command would use a job server: neither `MAKEFLAGS` nor the command line sets the number of
/// jobs. `command` is the program and its arguments.
pub fn takes_jobserver(command: &[OsString], is_set: impl Fn(&str) -> bool) -> bool {
    !is_set(MAKEFLAGS) && !names_jobs(command)
}

/// The variables that `command` should get. `is_set` returns true if the environment has one already.
pub fn variables(
    width: &Width,
    command: &[OsString],
    is_set: impl Fn(&str) -> bool,
) -> Vec<(&'static str, String)> {
    let dop = width.dop.max(1).to_string();
    let mut variables =
        vec![(TENANTD_DOP, dop.clone()), (TENANTD_CGROUP, width.cgroup.to_string())];
    let threads = THREADS.into_iter().chain((!width.is_pinned).then_some(GOMAXPROCS));
    variables.extend(threads.filter(|name| !is_set(name)).map(|name| (name, dop.clone())));
    if takes_jobserver(command, is_set) {
        variables.push((MAKEFLAGS, makeflags(&dop, width.jobserver)));
    }
    variables
}

fn makeflags(dop: &str, jobserver: Option<Jobserver>) -> String {
    // A path with a space would be two flags. There is none below /run.
    let named = jobserver.filter(|server| !server.fifo.contains([' ', '\t', '\\', '$']));
    match named {
        None => format!("-j{dop}"),
        Some(Jobserver { fifo, descriptors: None }) => {
            format!("-j{dop} --jobserver-auth=fifo:{fifo}")
        }
        Some(Jobserver { fifo, descriptors: Some((read, write)) }) => format!(
            "-j{dop} --jobserver-fds={read},{write} --jobserver-auth=fifo:{fifo} --jobserver-a={read},{write}"
        ),
    }
}

/// True if the arguments set the number of jobs, for make, ninja, cargo, cmake and others.
fn names_jobs(command: &[OsString]) -> bool {
    let Some((program, arguments)) = command.split_first() else { return false };
    let name = program.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let has_clusters = WITH_CLUSTERS.contains(&name);
    let options = arguments.iter().map(|argument| argument.as_bytes());
    options.take_while(|argument| *argument != b"--").any(|argument| {
        let long = argument.split(|byte| *byte == b'=').next().unwrap_or_default();
        let Some(flags) = argument.strip_prefix(b"-") else { return false };
        let letters = flags.strip_suffix(PLACEHOLDER.as_bytes()).unwrap_or(flags);
        let digits = letters.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let letters = &letters[..letters.len() - digits];
        let is_cluster = letters.ends_with(b"j") && letters.iter().all(u8::is_ascii_alphabetic);
        letters == b"j"
            || (has_clusters && is_cluster)
            || long == b"--jobs"
            || long == b"--parallel"
    })
}

/// The argument with every `{dop}` replaced by the width. Bytes that are not text pass through.
pub fn substitute(argument: &OsStr, dop: u32) -> OsString {
    replaced(argument, PLACEHOLDER, &dop.max(1).to_string())
}

/// The argument with every placeholder replaced by the value. Bytes that are not text pass through.
pub fn replaced(argument: &OsStr, placeholder: &str, value: &str) -> OsString {
    let placeholder = placeholder.as_bytes();
    let mut rest = argument.as_bytes();
    let mut result = Vec::with_capacity(rest.len());
    while let Some(at) = rest.windows(placeholder.len()).position(|window| window == placeholder) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(value.as_bytes());
        rest = &rest[at + placeholder.len()..];
    }
    result.extend_from_slice(rest);
    OsString::from_vec(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Jobserver = Jobserver { fifo: "/run/f", descriptors: Some((10, 11)) };
    const CGROUP: &str = "/a/job-1";

    fn command(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn names(width: Width, line: &str, is_set: impl Fn(&str) -> bool) -> Vec<&'static str> {
        let variables = variables(&width, &command(line), is_set);
        variables.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn every_runtime_has_its_variable() {
        let free = Width { dop: 6, is_pinned: false, jobserver: None, cgroup: CGROUP };
        let all = [
            "TENANTD_DOP",
            "TENANTD_CGROUP",
            "OMP_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "MKL_NUM_THREADS",
            "RAYON_NUM_THREADS",
            "GOMAXPROCS",
            "MAKEFLAGS",
        ];
        assert_eq!(names(free, "make", |_| false), all);
        let told = variables(&free, &command("make"), |_| false);
        let is_width = |(name, value): &(&str, String)| *name == TENANTD_CGROUP || value == "6";
        assert!(told[..7].iter().all(is_width), "{told:?}");
        assert_eq!((&*told[1].1, &*told[7].1), ("/a/job-1", "-j6"));
    }

    #[test]
    fn go_sees_its_set_of_cpus_and_no_variable() {
        let pinned = Width { dop: 6, is_pinned: true, jobserver: None, cgroup: CGROUP };
        assert!(!names(pinned, "go build", |_| false).contains(&"GOMAXPROCS"));
    }

    #[test]
    fn what_is_set_stays_except_our_own() {
        let width = Width { dop: 6, is_pinned: false, jobserver: Some(SERVER), cgroup: CGROUP };
        let set = |name: &str| name != "MKL_NUM_THREADS";
        assert_eq!(names(width, "make", set), ["TENANTD_DOP", "TENANTD_CGROUP", "MKL_NUM_THREADS"]);
    }

    #[test]
    fn a_job_server_is_named_for_every_client() {
        let width = Width { dop: 3, is_pinned: true, jobserver: Some(SERVER), cgroup: CGROUP };
        let told = variables(&width, &command("make all"), |_| false);
        let flags = &told.last().unwrap().1;
        let expected = "-j3 --jobserver-fds=10,11 --jobserver-auth=fifo:/run/f --jobserver-a=10,11";
        assert_eq!(flags, expected);
        let alone = Width { jobserver: Some(Jobserver { descriptors: None, ..SERVER }), ..width };
        let told = variables(&alone, &command("make all"), |_| false);
        assert_eq!(told.last().unwrap().1, "-j3 --jobserver-auth=fifo:/run/f");
        let spaced = Jobserver { fifo: "/my run/f", ..SERVER };
        let width = Width { jobserver: Some(spaced), ..width };
        assert_eq!(variables(&width, &command("make"), |_| false).last().unwrap().1, "-j3");
    }

    #[test]
    fn a_make_is_told_by_its_version() {
        for (text, make) in [
            ("", Make::Descriptors),
            ("GNU Make 3.81\nCopyright", Make::Descriptors),
            ("GNU Make 4.3\nBuilt for x86_64-pc-linux-gnu\n", Make::Descriptors),
            ("GNU Make 4.4\n", Make::Fifo),
            ("GNU Make 4.4.1\nBuilt\n", Make::Fifo),
            ("GNU Make 4.4.0.91\n", Make::Fifo),
            ("GNU Make 4.10\n", Make::Fifo),
            ("GNU Make 5\n", Make::Fifo),
            ("GNU Make next\n", Make::Descriptors),
            ("usage: bmake [-BeikNnqrSstWwX]\n", Make::Foreign),
            ("20200710\n", Make::Foreign),
        ] {
            assert_eq!(Make::of(text.as_bytes()), make, "{text}");
        }
        for (line, program) in [
            ("python3 build.py", "make"),
            ("/opt/make-4.4/bin/make all", "/opt/make-4.4/bin/make"),
            ("gmake", "gmake"),
            ("bmake -V MAKE", "bmake"),
            ("cmake --build build", "make"),
        ] {
            assert_eq!(Make::program(&command(line)), program, "{line}");
        }
        assert_eq!(Make::program(&[]), "make");
    }

    #[test]
    fn a_number_of_jobs_on_the_command_line_stays() {
        let takes = |line: &str| takes_jobserver(&command(line), |_| false);
        for chosen in [
            "make -j4 all",
            "make -j",
            "make all -j 4",
            "/usr/bin/make -kj4",
            "gmake -sj",
            "ninja -j1",
            "ninja -j{dop}",
            "make -kj{dop}",
            "cargo build --jobs 2",
            "cargo build --jobs=2",
            "cmake --build . --parallel 8",
            "env CC=gcc nice make -j8",
        ] {
            assert!(!takes(chosen), "{chosen}");
        }
        for open in [
            "make",
            "make -k all",
            "java -jar job.jar",
            "cargo test -- -j4",
            "tar -xjf a.tar",
            "sh -c make",
            "make objects-j4",
            "true",
        ] {
            assert!(takes(open), "{open}");
        }
        assert!(!takes_jobserver(&command("make"), |name| name == "MAKEFLAGS"));
    }

    #[test]
    fn every_placeholder_is_replaced() {
        for (argument, result) in [
            ("-j{dop}", "-j4"),
            ("{dop}{dop}", "44"),
            ("a={dop},b={dop}", "a=4,b=4"),
            ("{{dop}}", "{4}"),
            ("{DOP}", "{DOP}"),
            ("{dop", "{dop"),
            ("", ""),
        ] {
            assert_eq!(substitute(OsStr::new(argument), 4), result, "{argument}");
        }
        let bytes = OsStr::from_bytes(b"\xff{dop}\xfe");
        assert_eq!(substitute(bytes, 12).as_bytes(), b"\xff12\xfe");
    }

    #[test]
    fn no_runtime_gets_zero_threads() {
        let none = Width { dop: 0, is_pinned: false, jobserver: None, cgroup: CGROUP };
        let told = variables(&none, &command("make"), |_| false);
        assert!(told.iter().all(|(_, value)| value.ends_with('1')), "{told:?}");
        assert_eq!(substitute(OsStr::new("{dop}"), 0), "1");
    }
}
