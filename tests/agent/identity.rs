//! A reload that only reorders tenants changes nothing: each keeps its findings, reasons, counts and orders.
//!
//! Two hosts live through the same events. On one the policy is reloaded in the same order, on the other in a new order,
//! where every tenant, member and ancestor has another position. From then on both report the same of each tenant.

use std::collections::BTreeMap;

use nix::errno::Errno;
use tenantd::backend::claims;
use tenantd_control::report::explanation::ValueStep;
use tenantd_control::report::status::{ReasonStatus, Status};
use tenantd_control::why::explain;
use tenantd_core::resource::PerResource;
use tenantd_host::kernfs::Operation;
use tenantd_sim::{Fault, Load, SimHost, UnitFault, Workload};
use tenantd_varlink::bridge::{Caller, Work};

use super::units::protect;
use super::world::{MIB, World, legacy};
use crate::util;

/// Ticks that are compared after the reload: more than any finding is kept without a new look.
const TICKS: usize = 35;

/// A host whose tenants differ in all that an agent keeps of them.
struct Scene {
    name: &'static str,
    head: &'static str,
    /// Tenants, each with its number of lines.
    tenants: &'static [&'static str],
    host: fn() -> SimHost,
    begin: fn(&mut World),
    /// Happens before each tick.
    each: fn(&mut World, usize),
}

impl Scene {
    fn policy(&self, order: &[usize]) -> String {
        let tenants: String = order.iter().map(|at| self.tenants[*at]).collect();
        format!("{}tenants:\n{tenants}", self.head)
    }

    /// The reports after a reload in `order`.
    fn reports(&self, order: &[usize], is_short: bool) -> Vec<Report> {
        let first: Vec<usize> = (0..self.tenants.len()).collect();
        let mut world = World::on((self.host)(), &self.policy(&first));
        (self.begin)(&mut world);
        world.start().unwrap();
        for tick in 0..25 {
            (self.each)(&mut world, tick);
            world.tick();
        }
        let mode = if self.head.contains("mode:") { "" } else { "mode: enforce\n" };
        let policy = util::policy(&format!("version: 1\n{mode}{}", self.policy(order)));
        let rules = claims::rules(&policy);
        assert_eq!(world.agent.as_mut().unwrap().reload(policy, rules).unwrap(), [""; 0]);
        let report = |tick| {
            (self.each)(&mut world, tick);
            let status = if is_short { world.short_tick() } else { world.tick() };
            Report::of(&world, &status)
        };
        (25..25 + TICKS).map(report).collect()
    }

    fn check(&self) {
        let same: Vec<usize> = (0..self.tenants.len()).collect();
        let orders = [same.iter().rev().copied().collect(), {
            let mut turned = same.clone();
            turned.rotate_left(1);
            turned
        }];
        for is_short in [false, true] {
            let expected = self.reports(&same, is_short);
            for order in &orders {
                let found = self.reports(order, is_short);
                for (tick, (expected, found)) in expected.iter().zip(found).enumerate() {
                    assert_eq!(*expected, found, "{}, tick {tick}, {order:?}", self.name);
                }
            }
        }
    }
}

/// Everything reported of a tick that names a tenant, without its order.
#[derive(Debug, Default, PartialEq)]
struct Report {
    findings: Vec<String>,
    moves: Vec<String>,
    actions: Vec<String>,
    counts: [u64; 5],
    tenants: BTreeMap<String, Tenant>,
}

#[derive(Debug, Default, PartialEq)]
struct Tenant {
    counts: [Option<u64>; 3],
    missing: Vec<Option<u64>>,
    reasons: Vec<ReasonStatus>,
    /// File, value and effect of each value of the tenant, of its members, and of the cgroups above them.
    values: Vec<String>,
    usage: Vec<Option<u64>>,
}

impl Report {
    fn of(world: &World, status: &Status) -> Report {
        let sorted = |mut all: Vec<String>| {
            all.sort();
            all
        };
        let tenants = status.tenants.iter().map(|tenant| {
            let trace = world.agent.as_ref().unwrap().trace();
            let explained = explain::explain(trace, status, &tenant.name).unwrap();
            let members = explained.members.iter().flat_map(|member| &member.values);
            let above = explained.above.iter().flat_map(|above| &above.values);
            let values = explained.values.iter().chain(members).chain(above).map(shown);
            let rounded = |amounts: &PerResource<Option<f64>>| -> Vec<Option<u64>> {
                amounts.0.iter().map(|it| it.map(|it| (it * 1e3).round() as u64)).collect()
            };
            let of = Tenant {
                counts: [tenant.nr_oom_kills, tenant.nr_refused_forks, tenant.usage_pids],
                missing: rounded(&tenant.missing),
                reasons: tenant.reasons.clone(),
                values: sorted(values.collect()),
                usage: rounded(&tenant.usage),
            };
            (tenant.name.to_string(), of)
        });
        Report {
            findings: sorted(status.findings.clone()),
            moves: sorted(status.moves.iter().map(|it| format!("{it:?}")).collect()),
            actions: sorted(status.actions.iter().map(|it| format!("{it:?}")).collect()),
            counts: [
                status.nr_drift,
                status.nr_yields,
                status.nr_contested,
                status.nr_ineffective,
                status.nr_moves,
            ],
            tenants: tenants.collect(),
        }
    }
}

/// A value without figures that depend on the order of a sum.
fn shown(value: &ValueStep) -> String {
    let ValueStep { path, held, held_seconds, wanted, outcome, reason, .. } = value;
    format!("{path}: {held:?} {held_seconds:?} {wanted} {outcome:?} {reason}")
}

fn spawn_owned(world: &World, at: &str, uid: u32, load: Load) {
    let workload = Workload::constant("load", load).owned_by(uid);
    world.host.with(|kernel| kernel.spawn(at, workload)).unwrap();
}

fn nothing(_: &mut World, _: usize) {}

/// Beside a busy cgroup: one tenant is short of CPUs, one has an accepted weight, one a refused write, one a full limit.
fn begin_direct(world: &mut World) {
    world.host.with(|kernel| kernel.make_cgroup("/other").unwrap());
    world.spawn("/other", Load::busy(4));
    world.host.inject(Fault::matching(Operation::Write, "c/cpu.weight", Errno::EIO));
}

fn each_direct(world: &mut World, tick: usize) {
    match tick {
        2 => {
            world.spawn("/a", Load::busy(8));
            world.spawn("/c", Load::busy(2).with_working_set(64 * MIB));
            world.spawn("/g/x", Load::busy(1));
        }
        12 => world.write("b/cpu.weight", "777"),
        14 => {
            for _ in 0..4 {
                let _ = world.host.with(|kernel| kernel.spawn("/d", Load::idle()));
            }
        }
        _ => {}
    }
}

#[test]
fn direct_tenants_keep_what_is_known_of_them_in_another_order() {
    let scene = Scene {
        name: "direct",
        head: "control: { on_drift: accept }\n",
        tenants: &[
            "  a: {}\n",
            "  b: { weight: 200 }\n",
            "  c: { weight: 300, guarantee: { memory: 16MiB } }\n",
            "  d: { limit: { pids: 2 } }\n",
            "  g: { tenants: { x: {}, y: { weight: 5 } } }\n",
        ],
        host: SimHost::default,
        begin: begin_direct,
        each: each_direct,
    };
    scene.check();
}

/// Another program overwrites one tenant's weight in every tick, until it is left alone for a time.
#[test]
fn a_contest_stays_with_its_tenant_in_another_order() {
    let scene = Scene {
        name: "contest",
        head: "",
        tenants: &["  a: {}\n", "  b: { weight: 200 }\n", "  c: { weight: 300 }\n"],
        host: SimHost::default,
        begin: |_| {},
        each: |world, tick| match tick {
            1 => ["/a", "/b", "/c"].iter().for_each(|at| {
                world.spawn(at, Load::busy(4));
            }),
            _ if tick > 3 => world.write("a/cpu.weight", "9999"),
            _ => {}
        },
    };
    scene.check();
}

const CLAIMS: [&str; 3] = [
    "  ana: { match: { users: [ 1000 ] } }\n",
    "  ben: { match: { users: [ 1001 ] } }\n",
    "  col: { match: { users: [ 1002 ] } }\n",
];

/// One user in two cgroups, one with memory that stays charged to its origin, one idle.
fn begin_claims(world: &mut World) {
    world.host.without_systemd();
    world.host.with(|kernel| {
        kernel.make_cgroup("/one").unwrap();
        kernel.make_cgroup("/two").unwrap();
    });
    spawn_owned(world, "/", 1000, Load::busy(1).with_working_set(64 * MIB));
    spawn_owned(world, "/", 1001, Load::busy(1).with_working_set(16 * MIB));
    spawn_owned(world, "/", 1001, Load::busy(1).with_working_set(24 * MIB));
    spawn_owned(world, "/one", 1002, Load::idle());
    spawn_owned(world, "/two", 1002, Load::idle());
}

#[test]
fn claims_and_charges_stay_with_their_tenants_in_another_order() {
    for (head, host) in [
        ("", SimHost::default as fn() -> SimHost),
        ("", legacy),
        ("mode: observe\n", SimHost::default),
        ("mode: observe\n", legacy),
    ] {
        let name = "claims";
        let scene =
            Scene { name, head, tenants: &CLAIMS, host, begin: begin_claims, each: nothing };
        scene.check();
    }
}

fn begin_units(world: &mut World) {
    world.host.systemd(|systemd, kernel| {
        for unit in ["web.service", "db.service", "mail.service"] {
            systemd.add(kernel, unit, &format!("/system.slice/{unit}"));
        }
        protect(kernel, "system.slice");
    });
    world.spawn("/system.slice/web.service", Load::busy(4).with_working_set(64 * MIB));
    world.spawn("/system.slice/db.service", Load::busy(4).with_working_set(256 * MIB));
}

/// Demands change, so that orders are under way during the reload; they are carried out later.
fn each_units(world: &mut World, tick: usize) {
    match tick {
        3 => drop(world.spawn("/system.slice/mail.service", Load::busy(1))),
        20 => world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Behind)),
        28 => world.host.systemd(|systemd, kernel| {
            systemd.fault = None;
            systemd.catch_up(kernel);
        }),
        _ => {}
    }
    if tick % 4 == 1 {
        let size = 32 * MIB * (1 + tick as u64 % 7);
        world.spawn("/system.slice/db.service", Load::busy(1).with_working_set(size));
    }
}

#[test]
fn orders_and_members_of_units_stay_theirs_in_another_order() {
    let scene = Scene {
        name: "units",
        head: "",
        tenants: &[
            "  web: { weight: 300, match: { unit: web.service }, limit: { cpu: 1 } }\n",
            "  db: { match: { unit: db.service }, guarantee: { memory: 64MiB } }\n",
            "  post: { match: { unit: ['mail*.service', gone.service] } }\n",
            "  s: { owner: systemd }\n",
        ],
        host: SimHost::default,
        begin: begin_units,
        each: each_units,
    };
    scene.check();
}

fn begin_in_place(world: &mut World) {
    world.host.without_systemd();
    world.host.with(|kernel| {
        for at in ["/in/t0", "/in/t1", "/in/t2/deep", "/beside", "/many/m1", "/many/m2"] {
            kernel.make_cgroup(at).unwrap();
        }
    });
    world.options.root = Some("/tenants".into());
    world.spawn("/in/t0", Load::busy(8));
    world.spawn("/many/m1", Load::busy(2));
    world.spawn("/many/m2", Load::busy(1).with_working_set(32 * MIB));
}

/// A tenant gets a process, and so a member of its own; cgroups of another come and go.
fn each_in_place(world: &mut World, tick: usize) {
    let caller = Caller { user: None, pid: 0 };
    match tick {
        5 => {
            let pid = world.spawn("/beside", Load::busy(1));
            let agent = world.agent.as_mut().unwrap();
            agent.attach_work("t1", &Work::Processes(vec![pid]), false, caller).unwrap();
        }
        9 | 28 => {
            world.host.with(|kernel| kernel.make_cgroup(&format!("/many/m{tick}")).unwrap());
            world.spawn(&format!("/many/m{tick}"), Load::busy(1));
        }
        _ => {}
    }
}

#[test]
fn members_and_ancestors_in_place_stay_theirs_in_another_order() {
    for host in [SimHost::default as fn() -> SimHost, legacy] {
        let scene = Scene {
            name: "in place",
            head: "",
            tenants: &[
                "  t0: { match: { cgroup: /in/t0 } }\n",
                "  t1: { match: { cgroup: /in/t1 }, guarantee: { memory: 16MiB } }\n",
                "  t2: { match: { cgroup: /in/t2/deep } }\n",
                "  many: { match: { cgroup: '/many/m*' } }\n",
                "  d: { weight: 7 }\n",
            ],
            host,
            begin: begin_in_place,
            each: each_in_place,
        };
        scene.check();
    }
}
