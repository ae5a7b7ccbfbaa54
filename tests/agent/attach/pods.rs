//! Pods: the policy chooses the tenant of their cgroups.

use tenantd_policy::pods::Pod;

use super::*;

const PODS: &str = "\
tenants:
  core: { weight: 300, match: { pod: { label: team=core } } }
  shop: { match: { pod: { namespace: shop } } }
  spaces: { each: { weight: 50, match: { pod: { namespace: 'n*' } } } }
";

fn pod(namespace: &str, labels: &[(&str, &str)]) -> Pod {
    let labels = labels.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string()));
    Pod { name: "web".into(), namespace: namespace.into(), labels: labels.collect() }
}

fn attach_pod(world: &mut World, path: &str, pod: Pod) -> Result<Moved, AttachError> {
    world.agent.as_mut().unwrap().attach_pod(pod, path, ROOT)
}

fn started(sim: SimHost) -> World {
    let mut world = host(sim);
    world.policy = util::policy(&format!("version: 1\nmode: enforce\n{PODS}"));
    world.start().unwrap();
    world.ticks(2);
    world
}

/// Cgroups of attached pods with their tenants.
fn attached(world: &World) -> Vec<(String, String)> {
    let all = world.agent.as_ref().unwrap().status().attached.clone();
    let of = |it: &tenantd_control::report::status::AttachedStatus| {
        let tenant = it.tenant.clone();
        it.cgroups.iter().map(move |path| (path.clone(), tenant.clone())).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = all.iter().flat_map(of).collect();
    all.sort();
    all
}

fn expect(world: &World, expected: &[(&str, &str)]) {
    let attached = attached(world);
    let found: Vec<(&str, &str)> = attached.iter().map(|(a, b)| (&**a, &**b)).collect();
    assert_eq!(found, expected);
    for (path, tenant) in expected {
        let members = members(world, tenant);
        assert!(members.iter().any(|(at, is_attached)| at == path && *is_attached), "{members:?}");
    }
}

/// Tenants that the template has made.
fn found(world: &World) -> Vec<String> {
    let status = world.agent.as_ref().unwrap().status();
    let names = status.tenants.iter().map(|it| it.name.to_string());
    names.filter(|name| name.starts_with("spaces/")).collect()
}

#[test]
fn the_policy_chooses_the_tenant_of_a_pod() {
    for sim in [SimHost::default(), legacy()] {
        let mut world = started(sim);
        let before = snapshot(&world.host);
        let pids = ["/jobs/1/inside", "/jobs/2"].map(|path| busy(&world, path));
        assert_eq!(found(&world), [""; 0]);
        // The first in the policy counts, and a template after all others.
        attach_pod(&mut world, "/jobs/1", pod("shop", &[("team", "core")])).unwrap();
        attach_pod(&mut world, "/jobs/2", pod("n1", &[])).unwrap();
        attach_pod(&mut world, "/jobs/3", pod("shop", &[])).unwrap();
        // The tenant of a template is there at once, and each call may be made again.
        assert_eq!(attach_pod(&mut world, "/jobs/2", pod("n1", &[])).unwrap().cgroup, "/jobs/2");
        let why = refusal(attach_pod(&mut world, "/else", pod("other\u{1b}", &[])));
        assert!(why.contains("fits this pod of the namespace `other\u{fffd}`"), "{why}");
        let status = world.ticks(12);
        assert_eq!(status.findings, [""; 0]);
        expect(&world, &[("/jobs/1", "core"), ("/jobs/2", "spaces/n1"), ("/jobs/3", "shop")]);
        let pods: Vec<&String> = status.attached.iter().flat_map(|it| &it.pods).collect();
        assert_eq!(pods, ["shop/web", "shop/web", "n1/web"]);
        let ratio = used(&status, "core") / used(&status, "spaces/n1");
        assert!((ratio - 3.0).abs() < 0.3, "{ratio}");
        assert_eq!(pids.map(|pid| place(&world, pid)), ["/jobs/1/inside", "/jobs/2"]);
        // Its tenant ends with the last pod of a namespace.
        world.host.with(|kernel| kernel.kill(pids[1])).unwrap();
        remove(&world, "/jobs/2");
        world.ticks(3);
        assert_eq!(found(&world), [""; 0]);
        detach(&mut world, &cgroup("/jobs/3")).unwrap();
        detach(&mut world, &cgroup("/jobs/1")).unwrap();
        assert_eq!(world.stop().failures, [""; 0]);
        assert!(!world.state_dir().join("attached.json").exists());
        let now = snapshot(&world.host);
        let is_weight = |path: &&String| {
            path.contains("/jobs/1/") && (path.ends_with("weight") || path.ends_with("shares"))
        };
        for path in before.keys().filter(is_weight) {
            assert_eq!(before[path], now[path], "{path}");
        }
    }
}

#[test]
fn another_policy_and_another_agent_choose_anew() {
    let mut world = started(SimHost::default());
    attach_pod(&mut world, "/jobs/1", pod("shop", &[("team", "core")])).unwrap();
    attach_pod(&mut world, "/jobs/2", pod("n1", &[])).unwrap();
    attach(&mut world, "shop", &cgroup("/jobs/3")).unwrap();
    world.ticks(2);
    // Without the label's tenant the next one fits, or none; what was attached by hand stays where it is.
    let without = PODS.replace("label: team=core", "label: team=other");
    reload(&mut world, &without);
    world.ticks(3);
    expect(&world, &[("/jobs/1", "shop"), ("/jobs/2", "spaces/n1"), ("/jobs/3", "shop")]);
    assert!(members(&world, "core").is_empty());
    reload(&mut world, "tenants: { core: {}, shop: { match: { pod: { namespace: bank } } } }");
    world.ticks(3);
    expect(&world, &[("/jobs/3", "shop")]);
    // The facts are kept across a kill, while no tenant fits too.
    world.kill();
    world.start().unwrap();
    world.ticks(3);
    expect(&world, &[("/jobs/1", "core"), ("/jobs/2", "spaces/n1"), ("/jobs/3", "shop")]);
    let labels = "tenants: { shop: {}, teams: { each: { match: { pod: { label: 'team=*' } } } } }";
    reload(&mut world, labels);
    world.ticks(3);
    expect(&world, &[("/jobs/1", "teams/core"), ("/jobs/3", "shop")]);
    world.stop();
    world.start().unwrap();
    assert_eq!(world.ticks(3).findings, [""; 0]);
    expect(&world, &[("/jobs/1", "core"), ("/jobs/2", "spaces/n1"), ("/jobs/3", "shop")]);
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn a_failed_reload_leaves_pods_where_they_are() {
    let mut world = started(SimHost::default());
    attach_pod(&mut world, "/jobs/1", pod("shop", &[("team", "core")])).unwrap();
    world.ticks(2);
    let list = world.state_dir().join("attached.json");
    let before = std::fs::read_to_string(&list).unwrap();
    // A tenant with a cgroup of the agent's own needs the root, which cannot be made.
    let other = "tenants: { plain: {}, shop: { match: { pod: { namespace: shop } } } }";
    let policy = util::policy(&format!("version: 1\nmode: enforce\n{other}"));
    world.host.inject(Fault::matching(Operation::MakeDir, "tenants", Errno::EACCES));
    assert!(world.agent.as_mut().unwrap().reload(policy, Vec::new()).is_err());
    world.host.heal();
    assert_eq!(std::fs::read_to_string(&list).unwrap(), before);
    world.ticks(2);
    expect(&world, &[("/jobs/1", "core")]);
    reload(&mut world, other);
    world.ticks(2);
    expect(&world, &[("/jobs/1", "shop")]);
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn what_is_another_s_is_refused_and_other_facts_move_a_pod() {
    let mut world = started(SimHost::default());
    attach(&mut world, "core", &cgroup("/jobs/1")).unwrap();
    // An attach by hand outranks the policy.
    let why = refusal(attach_pod(&mut world, "/jobs/1", pod("shop", &[])));
    assert!(why.contains("/jobs/1 is core's"), "{why}");
    let why = refusal(attach_pod(&mut world, "/jobs/1/inside", pod("n2", &[])));
    assert!(why.contains("is core's"), "{why}");
    assert_eq!(found(&world), [""; 0]);
    attach_pod(&mut world, "/jobs/2", pod("n2", &[])).unwrap();
    world.ticks(2);
    attach_pod(&mut world, "/jobs/2", pod("shop", &[])).unwrap();
    world.ticks(2);
    expect(&world, &[("/jobs/1", "core"), ("/jobs/2", "shop")]);
    assert_eq!(found(&world), [""; 0]);
    let why = refusal(attach_pod(&mut world, "/missing", pod("n3", &[])));
    assert!(why.contains("there is no cgroup /missing"), "{why}");
    world.agent.as_mut().unwrap().set_mode(Mode::Observe).unwrap();
    for namespace in ["shop", "n4"] {
        let why = refusal(attach_pod(&mut world, "/jobs/3", pod(namespace, &[])));
        assert!(why.contains("only observes"), "{why}");
    }
    world.agent.as_mut().unwrap().set_mode(Mode::Enforce).unwrap();
    world.ticks(2);
    expect(&world, &[("/jobs/1", "core"), ("/jobs/2", "shop")]);
    assert_eq!(world.stop().failures, [""; 0]);
}
