//! Devices of counted resources through a real daemon: each job opens its own, and no other.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use tenantd_core::kernel_text::mountinfo::cgroup_mounts;
use tenantd_host::cgroup::Facet;

use super::ground::{Daemon, Ground};
use crate::util::{self, wait_until};

const NR_JOBS: usize = 50;

/// Mount point of the devices hierarchy of cgroup v1; the test is skipped without one.
fn hierarchy() -> Option<PathBuf> {
    let mounts = cgroup_mounts(&fs::read("/proc/self/mountinfo").unwrap());
    let mount = mounts.into_iter().find(|mount| !mount.is_unified && mount.has("devices"));
    if mount.is_none() {
        util::skipped("the devices controller of cgroup v1 is not mounted");
    }
    mount.map(|mount| mount.mount_point)
}

/// Four devices in a folder, with the numbers of zero, full, random and urandom: they have the driver of null, and no shell
/// needs them.
fn make_devices(dir: &Path) -> Result<(), nix::Error> {
    [5, 7, 8, 9].into_iter().enumerate().try_for_each(|(index, minor)| {
        let path = dir.join(format!("fake{index}"));
        mknod(&path, SFlag::S_IFCHR, Mode::S_IRUSR, makedev(1, minor))
    })
}

/// The devices hierarchy, a ground with such devices, and a folder in which jobs mark the ones that they use.
fn ground_with_devices() -> Option<(PathBuf, Ground, PathBuf)> {
    let (hierarchy, ground) = (hierarchy()?, Ground::take()?);
    if let Err(error) = make_devices(ground.scratch.path()) {
        util::skipped(&format!("device nodes cannot be made: {error}"));
        return None;
    }
    let taken = ground.scratch.path().join("taken");
    fs::create_dir(&taken).unwrap();
    Some((hierarchy, ground, taken))
}

/// A daemon with these resources.
fn daemon(ground: &Ground) -> Daemon {
    let devices = ground.scratch.path().join("fake{}");
    let policy = format!(
        "version: 1\nmode: enforce\ncontrol: {{ interval: 100ms }}\nadmission: {{ max_running: 64 }}\n\
         host: {{ resources: {{ gpu: {{ count: 4, env: FAKE_VISIBLE, devices: \"{}\" }} }} }}\n\
         tenants: {{ ci: {{}} }}\n",
        devices.display()
    );
    let policy = util::file(ground.scratch.path(), "policy.yaml", policy);
    let mut command = ground.tenantd();
    let daemon = Daemon::start(command.arg("--policy").arg(policy).arg("--root").arg(&ground.name));
    let mut status = tenantctl(ground, &["status"]);
    wait_until("the daemon to answer", || status.output().unwrap().status.success());
    daemon
}

fn tenantctl(ground: &Ground, arguments: &[&str]) -> Command {
    let mut command = util::tenantctl();
    command.arg("--socket").arg(ground.state_dir().join("socket")).args(arguments);
    command.env_remove("FAKE_VISIBLE").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A script that prints its indices, and for each device whether the kernel lets it open the node.
fn script(ground: &Ground) -> String {
    let dir = ground.scratch.path().display();
    format!(
        "echo \"$FAKE_VISIBLE\"; for i in 0 1 2 3; do \
         if (exec 3< {dir}/fake$i) 2>&1 | grep -q 'not permitted'; then echo closed; else echo open; fi; done; \
         echo > /dev/null"
    )
}

fn run(ground: &Ground, options: &[&str], script: &str) -> Child {
    let arguments = [&["run", "--tenant", "ci"], options, &["--", "sh", "-c", script]].concat();
    tenantctl(ground, &arguments).spawn().unwrap()
}

/// Cgroups of jobs in the devices hierarchy: only one of the test's own processes can have such a name.
fn left(hierarchy: &Path, pids: &[u32]) -> usize {
    let entries = fs::read_dir(hierarchy).unwrap().map(|entry| entry.unwrap().file_name());
    let names = entries.filter_map(|name| name.into_string().ok());
    let is_ours = |name: &String| pids.iter().any(|pid| name.contains(&format!("-{pid}-")));
    names.filter(|name| name.starts_with("tenantd-job-") && is_ours(name)).count()
}

#[test]
#[ignore = "makes cgroups"]
fn fifty_jobs_at_once_open_their_own_devices_only() {
    let Some((hierarchy, ground, taken)) = ground_with_devices() else { return };
    let daemon = daemon(&ground);
    // A job marks each of its indices while it runs: a mark that is there already belongs to another job.
    let hold = format!(
        "; for i in $(echo $FAKE_VISIBLE | tr , ' '); do mkdir {0}/$i || echo twice; done; \
         for i in $(echo $FAKE_VISIBLE | tr , ' '); do rmdir {0}/$i; done",
        taken.display()
    );
    let script = script(&ground) + &hold;
    let jobs: Vec<Child> = (0..NR_JOBS)
        .map(|at| run(&ground, &["--gpu", if at % 2 == 0 { "1" } else { "2" }], &script))
        .collect();
    let pids: Vec<u32> = jobs.iter().map(Child::id).collect();
    for (at, job) in jobs.into_iter().enumerate() {
        let ran = util::finish(job).exits(0);
        assert_eq!(ran.err, "");
        let lines: Vec<&str> = ran.out.lines().collect();
        assert_eq!(lines.len(), 5, "{lines:?}");
        let indices: Vec<usize> = lines[0].split(',').map(|it| it.parse().unwrap()).collect();
        assert_eq!(indices.len(), 1 + at % 2);
        for index in 0..4 {
            let expected = if indices.contains(&index) { "open" } else { "closed" };
            assert_eq!(lines[1 + index], expected, "{lines:?}");
        }
    }
    // A job that asked for none opens none.
    let ran = util::finish(run(&ground, &[], &script)).exits(0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("\nclosed\nclosed\nclosed\nclosed\n", ""));
    wait_until("the cgroups to be removed", || left(&hierarchy, &pids) == 0);
    daemon.stop();
}

/// The variable that a user has set stays, a killed daemon does not forget the indices, and a missing device is named.
#[test]
#[ignore = "makes cgroups"]
fn indices_outlive_the_daemon_and_a_missing_device_is_named() {
    let (Some(hierarchy), Some(ground)) = (hierarchy(), Ground::take()) else { return };
    // Two of four exist, and can be opened.
    for index in [0, 1] {
        symlink("/dev/zero", ground.scratch.path().join(format!("fake{index}"))).unwrap();
    }
    let first = daemon(&ground);
    let gate = ground.scratch.path().join("gate");
    nix::unistd::mkfifo(&gate, Mode::S_IRWXU).unwrap();
    let script =
        format!("echo $FAKE_VISIBLE > {0}/first; cat {0}/gate", ground.scratch.path().display());
    let mut holder =
        tenantctl(&ground, &["run", "--tenant", "ci", "--gpu", "2", "--", "sh", "-c", &script]);
    let holder = holder.env("FAKE_VISIBLE", "own").spawn().unwrap();
    let pid = holder.id();
    wait_until("the job", || ground.scratch.path().join("first").exists());
    first.signal(nix::sys::signal::Signal::SIGKILL);
    let second = daemon(&ground);
    let list = || util::run(&mut tenantctl(&ground, &["jobs"])).exits(0).out;
    wait_until("the job to be found", || list().contains("0, 1 in job 1"));
    let ran = util::finish(run(&ground, &["--gpu", "1"], "echo $FAKE_VISIBLE")).exits(0);
    assert_eq!(ran.out, "2\n");
    assert!(ran.err.contains("gpu 2 without its device"), "{}", ran.err);
    let status = util::run(&mut tenantctl(&ground, &["status"])).exits(0).out;
    assert!(status.contains("gpu: 0, 1 in job 1 of"), "{status}");
    fs::write(&gate, "").unwrap();
    util::finish(holder).exits(0);
    assert_eq!(fs::read_to_string(ground.scratch.path().join("first")).unwrap(), "own\n");
    wait_until("the cgroup to be removed", || left(&hierarchy, &[pid]) == 0);
    wait_until("the cgroup of the job to be removed", || {
        !ground.dir(Facet::Cpu, "ci/job-1").exists()
    });
    second.stop();
}

/// The tasks of a set have devices of their own, which become free with each task.
#[test]
#[ignore = "makes cgroups"]
fn tasks_of_a_set_share_no_device() {
    let Some((hierarchy, ground, taken)) = ground_with_devices() else { return };
    let daemon = daemon(&ground);
    let script = format!(
        "mkdir {0}/$FAKE_VISIBLE || exit 1; (exec 3< {1}/fake$FAKE_VISIBLE) 2>&1 | grep -q 'not permitted' && exit 2; \
         rmdir {0}/$FAKE_VISIBLE",
        taken.display(),
        ground.scratch.path().display()
    );
    let sets: Vec<Child> =
        (0..2).map(|_| run(&ground, &["--array", "1-40", "--gpu", "1"], &script)).collect();
    let pids: Vec<u32> = sets.iter().map(Child::id).collect();
    for set in sets {
        let ran = util::finish(set).exits(0);
        assert_eq!(ran.err, "");
    }
    wait_until("the cgroups to be removed", || left(&hierarchy, &pids) == 0);
    daemon.stop();
}
