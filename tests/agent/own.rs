//! Claims on users and groups, and nodes of processes, as the agent publishes them for the own views of users.

use tenantd_core::kernel_text::proc_files::cgroup_lines;
use tenantd_sim::Load;

use super::each;
use super::world::World;

const POLICY: &str = "\
tenants:
  people: { each: { match: { users: '*' } } }
  lab: { match: { users: [ana], groups: [60] } }
  web: { match: { unit: [web.service, 'web-*.service'] } }
  ci: { tenants: { nightly: {} } }
";

/// The first name of a node for a process at `path` that is a tenant or a member, as its tenant.
fn tenant_at(world: &World, path: &str) -> Option<String> {
    let lines = cgroup_lines(format!("0::{path}\n").as_bytes()).unwrap();
    let trace = world.agent.as_ref().unwrap().trace();
    let names = (trace.spelling.places)(&lines);
    let named = |name: &String| trace.tree.all().find(|node| node.name() == name)?.policy();
    names.iter().find_map(named).map(|tenant| tenant.path.to_string())
}

#[test]
fn users_groups_and_processes_have_their_tenants() {
    let mut world = each::world(POLICY);
    world.options.root = Some("/tenants".into());
    world.host.systemd(|systemd, kernel| {
        for unit in ["web.service", "web-2.service"] {
            systemd.add(kernel, unit, &format!("/system.slice/{unit}"));
        }
    });
    let pid = each::log_in(&world, 1002, Load::idle());
    world.start().unwrap();
    world.ticks(6);
    let claimants = world.agent.as_ref().unwrap().claimants();
    let user = |uid: u32| claimants.users.get(&uid).map(String::as_str);
    assert_eq!((user(1001), user(1002), user(1003)), (Some("lab"), Some("people/u1002"), None));
    assert_eq!(claimants.groups.get(&60).map(String::as_str), Some("lab"));
    let session = format!("{}/session-3.scope", each::slice(1002));
    for (path, tenant) in [
        (session.as_str(), Some("people/u1002")),
        ("/system.slice/web.service", Some("web")),
        ("/system.slice/web-2.service/worker", Some("web")),
        ("/tenants/ci/nightly/job-7", Some("ci/nightly")),
        ("/system.slice/other.service", None),
        ("/user.slice/user-1003.slice", None),
        ("/", None),
    ] {
        assert_eq!(tenant_at(&world, path).as_deref(), tenant, "{path}");
    }
    each::log_out(&world, 1002, pid);
    world.ticks(40);
    let claimants = world.agent.as_ref().unwrap().claimants();
    assert!(!claimants.users.contains_key(&1002), "the user has logged out");
}
