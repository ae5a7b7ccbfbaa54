//! Work that is handed to tenants which a template found.

use tenantd_varlink::bridge::{Caller, Work};

use super::*;

fn place(world: &World, pid: u32) -> String {
    world.host.with(|kernel| kernel.process_cgroup(pid)).unwrap()
}

/// What was handed to somebody is there again when that one is, as long as it runs, and is forgotten when it has ended.
#[test]
fn what_was_handed_to_a_user_is_there_again_with_the_user() {
    let mut world = world(PEOPLE);
    world.options.root = Some("/tenants".into());
    world.host.with(|kernel| kernel.make_cgroup("/else")).unwrap();
    let jobs = [(); 2].map(|()| world.spawn("/else", Load::idle()));
    let ben = log_in(&world, 1002, Load::idle());
    world.start().unwrap();
    world.ticks(4);
    let root = Caller { user: None, pid: 0 };
    let work = Work::Processes(jobs.to_vec());
    world.agent.as_mut().unwrap().attach_work("people/u1002", &work, false, root).unwrap();
    let list = world.state_dir().join("attached.json");
    for restarts in [false, true] {
        world.ticks(2);
        assert_eq!(place(&world, jobs[0]), "/tenants/people:u1002", "{restarts}");
        let pid = world.file("user.slice/user-1002.slice/cgroup.procs").parse().unwrap();
        log_out(&world, 1002, pid);
        assert_eq!(people(&world.ticks(40)), ["people/ana"]);
        assert_eq!(jobs.map(|pid| place(&world, pid)), ["/else", "/else"]);
        assert!(list.exists());
        if restarts {
            world.kill();
            world.start().unwrap();
            world.ticks(3);
        }
        log_in(&world, 1002, Load::idle());
        world.ticks(4);
        assert_eq!(jobs.map(|pid| place(&world, pid)), ["/tenants/people:u1002"; 2], "{restarts}");
    }
    let _ = ben;
    let pid = world.file("user.slice/user-1002.slice/cgroup.procs").parse().unwrap();
    log_out(&world, 1002, pid);
    world.ticks(40);
    jobs.iter().for_each(|pid| world.host.with(|kernel| kernel.kill(*pid)).unwrap());
    world.ticks(3);
    assert!(!list.exists(), "{}", std::fs::read_to_string(&list).unwrap());
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn without_its_template_nothing_is_kept_for_a_tenant() {
    let mut world = world(PEOPLE);
    world.options.root = Some("/tenants".into());
    world.host.with(|kernel| kernel.make_cgroup("/else")).unwrap();
    let job = world.spawn("/else", Load::idle());
    log_in(&world, 1002, Load::idle());
    world.start().unwrap();
    world.ticks(4);
    let (root, work) = (Caller { user: None, pid: 0 }, Work::Processes(vec![job]));
    world.agent.as_mut().unwrap().attach_work("people/u1002", &work, false, root).unwrap();
    let list = world.state_dir().join("attached.json");
    assert!(list.exists());
    let plain = "tenants: { people: { tenants: { ana: {} } }, other: { each: { match: { unit: 'x*.scope' } } } }";
    let policy = crate::util::policy(&format!("version: 1\nmode: enforce\n{plain}"));
    world.agent.as_mut().unwrap().reload(policy, Vec::new()).unwrap();
    world.ticks(2);
    assert_eq!(place(&world, job), "/else");
    assert!(!list.exists());
    assert_eq!(world.stop().failures, [""; 0]);
}
