//! Jobs in slices of systemd's: as scopes there, in every state of the bus.

use std::path::Path;

use tenantd::agent::JobAnswer;
use tenantd_control::report::status::Status;
use tenantd_host::kernfs::KernFs;
use tenantd_host::systemd::Order;
use tenantd_sim::{Load, UnitFault, Workload};
use tenantd_varlink::bridge::{Caller, Ticket, Work};
use tenantd_varlink::jobs::{JobState, ListReply, Started, SubmitParameters, Units};

use super::world::{MIB, SESSION, World, submission};

const POLICY: &str = "\
tenants:
  a: { owner: systemd }
  b: { owner: systemd }
  ana: { owner: systemd, match: { users: 1000 } }
  own: {}
";
const SLICE: &str = "tenants.slice/tenants-a.slice";

/// A host with a session of the user 1000, and an agent on it whose slices run.
fn world() -> World {
    let mut world = World::new(POLICY);
    world.add_session();
    world.start().unwrap();
    world.ticks(8);
    world
}

/// A client: a process of the session, and its ticket.
#[derive(Clone, Copy)]
struct Client(u32);

impl Client {
    fn of(world: &World, uid: u32) -> Client {
        Client(world.client(uid, Load::busy(1)))
    }

    fn ticket(self) -> Ticket {
        Ticket(u64::from(self.0))
    }

    fn submit(self, world: &mut World, tenant: &str, uid: u32, now: f64) {
        let parameters = SubmitParameters {
            tenant: Some(tenant.to_string()),
            memory_bytes: Some(64 * MIB),
            dop: Some(1),
            ..SubmitParameters::default()
        };
        world.submit_all(&[submission((uid, self.0), parameters)], now);
    }

    /// The cgroup that it is in, from the mount.
    fn place(self, world: &World) -> String {
        let text = world.host.with(|kernel| kernel.file(&format!("/proc/{}/cgroup", self.0)));
        text.unwrap().trim_end().trim_start_matches("0::").to_string()
    }

    fn ends(self, world: &World) {
        world.host.with(|kernel| kernel.kill(self.0)).unwrap();
        world.host.systemd(|systemd, kernel| systemd.collect(kernel));
    }
}

fn tend(world: &mut World, now: f64) {
    world.agent.as_mut().unwrap().tend_jobs(false, now);
}

/// What clients were told: the ticket, and where it started or why not.
fn told(world: &mut World) -> Vec<(Ticket, Result<Started, String>)> {
    let answers = world.agent.as_mut().unwrap().take_job_answers().into_iter();
    let told = answers.filter_map(|(ticket, answer)| match answer {
        JobAnswer::Submitted(Ok(reply)) => Some((ticket, Ok(reply.started?))),
        JobAnswer::Submitted(Err(error)) => Some((ticket, Err(error.to_string()))),
        _ => None,
    });
    told.collect()
}

fn started(world: &mut World, client: Client) -> Started {
    let mut told = told(world);
    assert_eq!(told.len(), 1, "{told:?}");
    let (ticket, started) = told.remove(0);
    assert_eq!(ticket, client.ticket());
    started.unwrap()
}

fn list(world: &mut World, now: f64) -> ListReply {
    world.agent.as_mut().unwrap().take_job_list(now).expect("something that changed")
}

fn scopes(world: &World) -> Vec<String> {
    let is_of_job = |name: &&String| name.starts_with("tenantd-job-");
    world.host.systemd(|systemd, _| systemd.units.keys().filter(is_of_job).cloned().collect())
}

#[test]
fn a_job_of_a_slice_is_a_scope_in_it() {
    let mut world = world();
    let client = Client::of(&world, 1000);
    client.submit(&mut world, "a", 1000, 0.0);
    assert_eq!(told(&mut world), [], "it is told once its process is there");
    tend(&mut world, 0.01);
    let place = format!("/{SLICE}/tenantd-job-1.scope");
    let told = started(&mut world, client);
    assert_eq!((&told.cgroup, &client.place(&world)), (&place, &place));
    assert_eq!((told.dop, told.ineffective), (1, Vec::new()));
    let file = |name: &str| world.file(&format!("{SLICE}/tenantd-job-1.scope/{name}"));
    assert_eq!(file("memory.max"), (64 * MIB).to_string());
    assert_eq!((Some(file("cpuset.cpus")), file("pids.max")), (told.cpus, "max".to_string()));
    // A new job has the weight of the first level.
    assert_eq!(file("cpu.weight"), "1600");
    // Its processes are attached to no other tenant.
    let (work, root) = (Work::Processes(vec![client.0]), Caller { user: None, pid: 0 });
    let outcome = world.agent.as_mut().unwrap().attach_work("own", &work, true, root);
    let why = outcome.unwrap_err().to_string();
    let remedy = "cancel the job (tenantctl cancel 1)";
    assert_eq!(
        why,
        format!("process {} (sh) is part of job 1 of a, in {place}: {remedy}", client.0)
    );
    // It is charged, and its weight follows by an order.
    world.ticks(3);
    tend(&mut world, 3.0);
    assert_eq!(world.file(&format!("{SLICE}/tenantd-job-1.scope/cpu.weight")), "800");
    let jobs = list(&mut world, 3.0).jobs;
    assert!(jobs[0].cpu_seconds.unwrap() > 2.0, "{jobs:?}");
    // It ends with its process, and nothing is left.
    client.ends(&world);
    tend(&mut world, 3.1);
    assert_eq!(list(&mut world, 3.1).jobs, []);
    assert_eq!(scopes(&world), [""; 0]);
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn a_job_of_a_user_is_a_scope_beside_the_sessions() {
    let mut world = world();
    let (client, other) = (Client::of(&world, 1000), Client::of(&world, 1000));
    client.submit(&mut world, "ana", 1000, 0.0);
    tend(&mut world, 0.01);
    let place = "/user.slice/user-1000.slice/tenantd-job-1.scope";
    assert_eq!(started(&mut world, client).cgroup, place);
    // One of a tenant of the agent's own is in a cgroup of the agent's own, and at once.
    other.submit(&mut world, "own", 1000, 0.02);
    assert_eq!(started(&mut world, other).cgroup, "/own/job-2");
}

/// The agent itself writes of a scope only that it ends as a whole.
#[test]
fn the_files_of_a_scope_are_systemds() {
    let mut world = world();
    world.host.take_changes();
    let client = Client::of(&world, 1000);
    client.submit(&mut world, "a", 1000, 0.0);
    tend(&mut world, 0.01);
    started(&mut world, client);
    world.ticks(3);
    tend(&mut world, 3.0);
    // Systemd before 253 has no property for this file, and newer ones write it only when the scope starts.
    let changes = world.host.take_changes();
    let is_other = |path: &str| !path.ends_with("/memory.oom.group");
    let others: Vec<_> =
        changes.iter().filter(|call| is_other(&call.path.to_string_lossy())).collect();
    assert!(others.is_empty() && changes.len() == 1, "{changes:?}");
}

#[test]
fn a_client_is_told_when_it_has_arrived_and_not_before() {
    let mut world = world();
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Behind));
    let (client, next) = (Client::of(&world, 1000), Client::of(&world, 1000));
    client.submit(&mut world, "a", 1000, 0.0);
    for second in 1..20 {
        tend(&mut world, f64::from(second));
        assert_eq!(told(&mut world), [], "its process has not arrived");
    }
    // Others do not wait for it.
    next.submit(&mut world, "own", 1000, 20.0);
    started(&mut world, next);
    world.host.systemd(|systemd, kernel| assert!(systemd.catch_up(kernel)));
    tend(&mut world, 20.1);
    assert_eq!(started(&mut world, client).cgroup, client.place(&world));
}

#[test]
fn where_systemd_says_nothing_a_job_is_given_up() {
    let mut world = world();
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Behind));
    let client = Client::of(&world, 1000);
    client.submit(&mut world, "a", 1000, 0.0);
    tend(&mut world, 29.0);
    assert_eq!(told(&mut world), []);
    tend(&mut world, 30.0);
    let told = told(&mut world);
    assert!(told[0].1.as_ref().is_err_and(|why| why.contains("has not started")), "{told:?}");
    assert_eq!(list(&mut world, 30.0).jobs, []);
    // The client ends, and systemd finds nobody to put into a scope.
    client.ends(&world);
    world.host.systemd(|systemd, kernel| assert!(systemd.catch_up(kernel)));
    assert_eq!(scopes(&world), [""; 0]);
    // Its slots are free.
    world.host.systemd(|systemd, _| systemd.fault = None);
    let next = Client::of(&world, 1000);
    next.submit(&mut world, "a", 1000, 31.0);
    tend(&mut world, 31.1);
    assert_eq!(started(&mut world, next).cgroup, next.place(&world));
}

/// An answer that is late says nothing of what was done.
#[test]
fn a_late_answer_moves_no_job() {
    let mut world = world();
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Late));
    let client = Client::of(&world, 1000);
    client.submit(&mut world, "a", 1000, 0.0);
    tend(&mut world, 0.01);
    let told = started(&mut world, client);
    assert_eq!((told.ineffective, &told.cgroup), (Vec::new(), &client.place(&world)));
}

/// A cgroup of the agent's own is as good as it was before there were scopes.
#[test]
fn where_systemd_refuses_a_job_runs_in_a_cgroup_of_the_agents() {
    for fault in [UnitFault::Away, UnitFault::Denied] {
        let mut world = world();
        world.host.systemd(|systemd, _| systemd.fault = Some(fault));
        let client = Client::of(&world, 1000);
        client.submit(&mut world, "a", 1000, 0.0);
        tend(&mut world, 0.01);
        let told = started(&mut world, client);
        assert!(told.cgroup.ends_with("/job-1"), "{fault:?}: {told:?}");
        assert_eq!(told.cgroup, client.place(&world));
        let [why] = &told.ineffective[..] else { panic!("{fault:?}: {told:?}") };
        assert!(why.contains("not in the slice of its tenant"), "{why}");
        let limit = world.file(&format!("{}/memory.max", told.cgroup.trim_start_matches('/')));
        assert_eq!(limit, (64 * MIB).to_string());
        world.host.systemd(|systemd, _| systemd.fault = None);
        client.ends(&world);
        tend(&mut world, 1.0);
        assert_eq!(list(&mut world, 1.0).jobs, []);
        assert_eq!(world.stop().failures, [""; 0]);
    }
}

/// Nothing looks after jobs once the agent has stopped: one that has ended by then is removed, one that runs goes on, and
/// none is started in the place of the first.
#[test]
fn a_stop_removes_ended_jobs_and_starts_none() {
    let mut world = World::new("admission: { max_running: 2 }\ntenants: { a: {}, b: {} }");
    world.add_session();
    world.start().unwrap();
    world.ticks(2);
    let clients = [(); 3].map(|()| Client::of(&world, 1000));
    let submitted = clients.iter().zip(["a", "b", "a"]);
    submitted.for_each(|(client, tenant)| client.submit(&mut world, tenant, 1000, 0.0));
    assert_eq!(clients.map(|client| client.place(&world)), ["/a/job-1", "/b/job-2", SESSION]);
    clients[0].ends(&world);
    world.stop();
    let is_there = |dir: &str| {
        let procs = format!("/sys/fs/cgroup/{dir}/cgroup.procs");
        world.host.with(|kernel| kernel.file(&procs)).is_ok()
    };
    assert_eq!(["a", "a/job-1", "b/job-2"].map(is_there), [false, false, true]);
    assert_eq!(clients[2].place(&world), SESSION);
    let kept = ["jobs/1.json", "jobs/2.json"].map(|name| world.state_dir().join(name).exists());
    assert_eq!(kept, [false, true]);
}

#[test]
fn a_client_that_leaves_on_the_way_leaves_nothing() {
    let mut world = world();
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Behind));
    let client = Client::of(&world, 1000);
    client.submit(&mut world, "a", 1000, 0.0);
    let (id, caller) = (Ticket(1), Caller { user: None, pid: 0 });
    world.agent.as_mut().unwrap().cancel_job(id, 1, caller, 0.5);
    world.agent.as_mut().unwrap().settle_job_calls(0.5);
    let answers = world.agent.as_mut().unwrap().take_job_answers();
    let [(_, JobAnswer::Cancelled(Ok(cancelled)))] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((cancelled.is_running, &cancelled.pids[..]), (true, &[client.0][..]));
    client.ends(&world);
    world.agent.as_mut().unwrap().job_client_left(client.ticket(), 1.0);
    world.agent.as_mut().unwrap().settle_job_calls(1.0);
    tend(&mut world, 1.0);
    assert_eq!(list(&mut world, 1.0).jobs, []);
    world.host.systemd(|systemd, kernel| assert!(systemd.catch_up(kernel)));
    assert_eq!(scopes(&world), [""; 0]);
}

#[test]
fn the_next_agent_finds_a_scope_again() {
    for killed in [false, true] {
        let mut world = world();
        let client = Client::of(&world, 1000);
        client.submit(&mut world, "a", 1000, 0.0);
        tend(&mut world, 0.01);
        let place = started(&mut world, client).cgroup;
        world.end(killed);
        assert_eq!(client.place(&world), place, "a job outlives the agent");
        world.start().unwrap();
        world.ticks(3);
        world.agent.as_mut().unwrap().tend_jobs(true, 5.0);
        let jobs = list(&mut world, 5.0).jobs;
        assert_eq!((jobs.len(), jobs[0].id, jobs[0].pid), (1, 1, client.0));
        assert_eq!(jobs[0].started.as_ref().unwrap().cgroup, place);
        // Its number is not given again, and so its name is not.
        let next = Client::of(&world, 1000);
        next.submit(&mut world, "b", 1000, 6.0);
        tend(&mut world, 6.01);
        let later = started(&mut world, next).cgroup;
        assert!(later.contains("/tenants-b.slice/tenantd-job-1"), "{later}");
        assert_ne!(later, place.replace("tenants-a.slice", "tenants-b.slice"));
        client.ends(&world);
        tend(&mut world, 7.0);
        assert_eq!(list(&mut world, 7.0).jobs.len(), 1);
    }
}

/// Systemd would start the slice for the scope, and nobody would stop it.
#[test]
fn a_slice_that_is_not_there_yet_is_not_started_by_a_job() {
    let mut world = World::new(POLICY);
    world.add_session();
    world.start().unwrap();
    world.tick();
    let client = Client::of(&world, 1000);
    client.submit(&mut world, "a", 1000, 0.0);
    let told = started(&mut world, client);
    assert!(told.ineffective.iter().any(|why| why.contains("not there yet")), "{told:?}");
    let is_slice = |name: &String| name.starts_with("tenants");
    let nr_before =
        world.host.systemd(|systemd, _| systemd.units.keys().filter(|it| is_slice(it)).count());
    client.ends(&world);
    world.ticks(8);
    world.stop();
    let left =
        world.host.systemd(|systemd, _| systemd.units.keys().filter(|it| is_slice(it)).count());
    assert!(left <= nr_before, "{left}");
}

/// A cgroup that a user named like a scope is none.
#[test]
fn a_cgroup_of_that_name_in_a_users_own_is_no_scope() {
    let mut world = world();
    let manager = "/user.slice/user-1000.slice/user@1000.service";
    let forged = format!("{manager}/tenantd-job-1.scope");
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "user@1000.service", manager);
        kernel.make_cgroup(&forged).unwrap();
        systemd.fault = Some(UnitFault::Behind);
    });
    let workload = Workload::constant("sh", Load::busy(1)).owned_by(1000);
    let client = Client(world.host.with(|kernel| kernel.spawn(&forged, workload)).unwrap());
    client.submit(&mut world, "a", 1000, 0.0);
    tend(&mut world, 1.0);
    assert_eq!(told(&mut world), []);
    world.host.systemd(|systemd, kernel| assert!(systemd.catch_up(kernel)));
    tend(&mut world, 2.0);
    assert_eq!(started(&mut world, client).cgroup, format!("/{SLICE}/tenantd-job-1.scope"));
}

#[test]
fn one_order_says_all_that_a_scope_begins_with() {
    let mut world = world();
    world.host.systemd(|systemd, _| systemd.orders.clear());
    let client = Client::of(&world, 1000);
    client.submit(&mut world, "a", 1000, 0.0);
    tend(&mut world, 0.01);
    let orders = world.host.systemd(|systemd, _| systemd.orders.clone());
    let [Order::StartScope { unit, slice, process, settings, .. }] = &orders[..] else {
        panic!("{orders:?}")
    };
    assert_eq!((&**unit, &**slice), ("tenantd-job-1.scope", "tenants-a.slice"));
    assert_eq!(process.pid, client.0);
    let mut names: Vec<&str> = settings.iter().map(|setting| setting.property.name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["AllowedCPUs", "CPUWeight", "MemoryMax", "TasksMax"]);
}

/// Devices of other jobs are left out of those that a scope may open; everything else is among them.
#[test]
fn a_scope_opens_all_devices_but_those_of_others() {
    let dir = tempfile::tempdir().unwrap();
    for (index, device) in ["/dev/null", "/dev/zero"].into_iter().enumerate() {
        std::os::unix::fs::symlink(device, dir.path().join(format!("fake{index}"))).unwrap();
    }
    let devices = dir.path().join("fake{}").display().to_string();
    let resources = format!("{{ fake: {{ count: 3, devices: \"{devices}\" }}, gpu: 1 }}");
    let mut world = World::new(&format!("host: {{ resources: {resources} }}\n{POLICY}"));
    world.add_session();
    world.start().unwrap();
    world.ticks(8);
    world.host.systemd(|systemd, _| systemd.orders.clear());
    for (at, count) in [1, 0].into_iter().enumerate() {
        let client = Client::of(&world, 1000);
        let units = Some(vec![Units { name: "fake".into(), count }]);
        let tenant = Some("a".to_string());
        let parameters =
            SubmitParameters { tenant, units, dop: Some(1), ..SubmitParameters::default() };
        let submission = submission((1000, client.0), parameters);
        let agent = world.agent.as_mut().unwrap();
        agent.submit_job(client.ticket(), &submission, 0.0);
        agent.settle_job_calls(at as f64);
    }
    let orders = world.host.systemd(|systemd, _| systemd.orders.clone());
    let allowed = orders.iter().filter_map(|order| match order {
        Order::StartScope { devices, .. } => devices.clone(),
        _ => None,
    });
    let allowed: Vec<Vec<String>> = allowed.collect();
    let has = |job: usize, pattern: &str| allowed[job].iter().any(|it| it == pattern);
    assert_eq!(allowed.len(), 2, "{orders:?}");
    for job in [0, 1] {
        assert!(has(job, "char-5") && has(job, "char-10") && has(job, "block-7"), "{allowed:?}");
        assert!(!has(job, "char-1") && has(job, "/dev/char/1:8") && !has(job, "/dev/char/1:5"));
    }
    assert!(has(0, "/dev/char/1:3") && !has(1, "/dev/char/1:3"), "{allowed:?}");
}

/// A device of the policy that is missing is a finding until it is there.
#[test]
fn a_missing_device_is_a_finding_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let of = |index: u32| dir.path().join(format!("fake{index}"));
    std::os::unix::fs::symlink("/dev/null", of(0)).unwrap();
    let devices = dir.path().join("fake{}").display().to_string();
    let resources = format!("{{ fake: {{ count: 2, devices: \"{devices}\" }}, gpu: 1 }}");
    let mut world = World::new(&format!("host: {{ resources: {resources} }}\n{POLICY}"));
    world.start().unwrap();
    let found = |status: Status| {
        let all = status.findings.iter().map(ToString::to_string);
        all.filter(|it| it.contains("missing of resource")).collect::<Vec<String>>()
    };
    let path = of(1).display().to_string();
    let expected = format!(
        "1 device is missing of resource `fake`: {path}; a job that gets index 1 starts without it; load the driver, or \
         correct `count` and `devices` of `host.resources.fake` in the policy"
    );
    assert_eq!(found(world.ticks(1)), std::slice::from_ref(&expected));
    std::os::unix::fs::symlink("/dev/zero", of(1)).unwrap();
    assert_eq!(found(world.ticks(10)), [""; 0]);
    std::fs::remove_file(of(1)).unwrap();
    // A file of another kind is no device.
    std::fs::write(of(1), "").unwrap();
    assert_eq!(found(world.ticks(10)), [expected]);
}

// --- jobs whose first process leaves, and jobs within jobs ---

/// `su -`, `ssh localhost` and `machinectl shell` put a process into a session of its own.
fn leaves(world: &World, client: Client) {
    let procs = format!("/sys/fs/cgroup{SESSION}/cgroup.procs");
    world.host.with(|kernel| kernel.write_file(&procs, &client.0.to_string())).unwrap();
    world.host.systemd(|systemd, kernel| systemd.collect(kernel));
}

/// All slots of the host for one job.
fn submit_wide(world: &mut World, client: Client, tenant: &str, no_wait: bool, now: f64) {
    let parameters = SubmitParameters {
        tenant: Some(tenant.to_string()),
        dop: Some(4),
        no_wait: Some(no_wait),
        ..SubmitParameters::default()
    };
    world.submit_all(&[submission((1000, client.0), parameters)], now);
}

#[test]
fn a_job_runs_while_its_first_process_does_wherever_that_is() {
    for tenant in ["own", "a"] {
        for ends_agent in [None, Some(false), Some(true)] {
            let mut world = world();
            let (client, next) = (Client::of(&world, 1000), Client::of(&world, 1000));
            submit_wide(&mut world, client, tenant, false, 0.0);
            tend(&mut world, 0.01);
            assert_eq!(started(&mut world, client).dop, 4);
            leaves(&world, client);
            tend(&mut world, 1.0);
            if let Some(killed) = ends_agent {
                world.end(killed);
                world.start().unwrap();
                world.ticks(3);
                world.agent.as_mut().unwrap().tend_jobs(true, 5.0);
            }
            let jobs = list(&mut world, 5.0).jobs;
            assert_eq!(jobs.len(), 1, "{tenant} {ends_agent:?}");
            let [job] = &jobs[..] else { panic!("{jobs:?}") };
            assert_eq!((job.state, job.outside, job.pid), (JobState::Running, true, client.0));
            // Its width stays reserved.
            submit_wide(&mut world, next, "own", true, 6.0);
            let answers = told(&mut world);
            assert!(answers[0].1.is_err(), "{tenant} {ends_agent:?}: {answers:?}");
            // It can be ended, and then it has.
            let caller = Caller { user: Some(1000), pid: 0 };
            world.agent.as_mut().unwrap().cancel_job(Ticket(1), job.id, caller, 6.5);
            let answers = world.agent.as_mut().unwrap().take_job_answers();
            let [(_, JobAnswer::Cancelled(Ok(cancelled)))] = &answers[..] else { panic!() };
            assert_eq!(cancelled.pids, [client.0]);
            client.ends(&world);
            tend(&mut world, 7.0);
            assert_eq!(list(&mut world, 7.0).jobs, []);
            submit_wide(&mut world, next, "own", true, 8.0);
            assert_eq!(started(&mut world, next).dop, 4);
        }
    }
}

#[test]
fn what_a_job_submits_runs_in_it_at_once() {
    for tenant in ["own", "a"] {
        let mut world = world();
        let client = Client::of(&world, 1000);
        submit_wide(&mut world, client, tenant, false, 0.0);
        tend(&mut world, 0.01);
        let outer = started(&mut world, client);
        // Scripts within scripts: what runs in its cgroup, or in one inside.
        let inside = format!("{}/inside", outer.cgroup);
        world.host.with(|kernel| {
            let above = kernel.open_dir(Path::new(&format!("/sys/fs/cgroup{}", outer.cgroup)));
            kernel.make_dir(above.unwrap(), "inside").unwrap();
        });
        for at in [&outer.cgroup, &inside] {
            let workload = Workload::constant("sh", Load::busy(1)).owned_by(1000);
            let inner = Client(world.host.with(|kernel| kernel.spawn(at, workload)).unwrap());
            submit_wide(&mut world, inner, tenant, true, 1.0);
            let told = started(&mut world, inner);
            let same = (told.dop, &told.cgroup, &told.cpus);
            assert_eq!(same, (4, &outer.cgroup, &outer.cpus), "{tenant}");
            assert_eq!(inner.place(&world), *at, "it stays where it is");
            // Another tenant, or more than its job has, is refused with the job.
            submit_wide(&mut world, inner, "b", true, 1.5);
            let answers = told_all(&mut world);
            assert!(answers[0].as_ref().is_err_and(|why| why.contains("part of job 1")));
        }
        // The first process itself: a command that is `tenantctl run`.
        submit_wide(&mut world, client, tenant, true, 2.0);
        assert_eq!(started(&mut world, client).cgroup, outer.cgroup);
        assert_eq!(
            world.agent.as_mut().unwrap().take_job_list(3.0).map_or(1, |it| it.jobs.len()),
            1
        );
        client.ends(&world);
    }
}

fn told_all(world: &mut World) -> Vec<Result<Started, String>> {
    told(world).into_iter().map(|(_, told)| told).collect()
}
