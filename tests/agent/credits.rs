//! Credits in force: raised weights stand while their owners sleep, and siblings keep what they are promised.

use std::cell::Cell;
use std::time::Duration;

use tenantd::agent::{Agent, JobAnswer, Options};
use tenantd::backend::claims;
use tenantd_control::report::status::{ActionStatus, Status};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::{Event, Witness};
use tenantd_control::why::explain;
use tenantd_core::resource::CPU;
use tenantd_policy::model::Mode;
use tenantd_sim::{Call, Load, SimHost, Trace, Workload};
use tenantd_varlink::jobs::SubmitParameters;

use super::reload::reload;
use super::world::{World, assert_near, assert_same, legacy, snapshot, submission, tenant};
use crate::history::twin::Twin;
use crate::util;

const OFF: &str = "tenants: { b: { weight: 200 }, c: {}, d: {} }";
const ON: &str = "control: { credits: {} }\ntenants: { b: { weight: 200 }, c: {}, d: {} }";
const TENANTS: [&str; 3] = ["b", "c", "d"];

/// Two threads that run for one second of every four.
fn bursts() -> Workload {
    let (awake, asleep) = (Load::busy(2), Load::idle());
    let trace = Trace::Square { awake, asleep, period: Duration::from_secs(4), awake_ratio: 0.25 };
    Workload { trace, ..Workload::constant("bursts", asleep) }
}

/// Two CPUs: `b` is bursty, `c` and `d` always want everything.
fn bursty(host: SimHost, yaml: &str) -> World {
    let mut world = World::on(SimHost { cpus: 2, ..host }, yaml);
    world.start().unwrap();
    world.tick();
    world.host.with(|kernel| kernel.spawn("/b", bursts())).unwrap();
    for path in ["/c", "/d"] {
        world.spawn(path, Load::busy(4));
    }
    world
}

/// Seconds of credit and the factor of a tenant or group.
fn credit(status: &Status, name: &str) -> (f64, f64) {
    let line = status.tenants.iter().find(|it| it.name == name);
    let group = status.groups.iter().find(|it| it.name == name);
    let seconds = line.and_then(|it| it.credit_seconds).or(group.and_then(|it| it.credit_seconds));
    let factor = line.and_then(|it| it.credit_factor).or(group.and_then(|it| it.credit_factor));
    (seconds.unwrap(), factor.unwrap())
}

fn is_without(status: &Status, name: &str) -> bool {
    let (seconds, factor) = credit(status, name);
    seconds <= 0.0 && factor == 1.0
}

/// CPUs of all tenants in each second of a period.
fn period(world: &mut World) -> Vec<Vec<f64>> {
    (0..4).map(|_| world.cores(&TENANTS, 1)).collect()
}

fn weight_writes(calls: &[Call]) -> Vec<String> {
    let is_weight = |path: &String| path.ends_with("cpu.weight") || path.ends_with("cpu.shares");
    calls.iter().map(|call| call.path.display().to_string()).filter(is_weight).collect()
}

#[test]
fn a_burst_runs_as_if_alone_and_costs_no_weight() {
    for host in [SimHost::default(), legacy()] {
        let mut plain = bursty(host.clone(), OFF);
        let mut world = bursty(host, ON);
        for world in [&mut plain, &mut world] {
            world.ticks(60);
        }
        let burst = |world: &mut World| {
            let seconds = period(world);
            seconds.into_iter().max_by(|x, y| x[0].total_cmp(&y[0])).unwrap()
        };
        assert_near(&burst(&mut plain), &[1.0, 0.5, 0.5], 0.02);
        world.host.take_changes();
        assert_near(&burst(&mut world), &[1.9, 0.05, 0.05], 0.02);
        for second in period(&mut world).iter().filter(|second| second[0] < 0.5) {
            assert_near(second, &[0.0, 1.0, 1.0], 0.02);
        }
        world.ticks(60);
        let written = weight_writes(&world.host.take_changes());
        assert!(written.len() <= 2, "{written:?}");
    }
}

/// Bursts that end within a tick leave siblings with less than they are due, and with tasks that wait.
#[test]
fn who_always_waits_earns_nothing() {
    for host in [SimHost::default(), legacy()] {
        let mut world = World::on(SimHost { cpus: 2, ..host }, ON);
        world.start().unwrap();
        world.tick();
        let (awake, asleep) = (Load::busy(2), Load::idle());
        let period = Duration::from_millis(4300);
        let trace = Trace::Square { awake, asleep, period, awake_ratio: 0.15 };
        let bursts = Workload { trace, ..Workload::constant("bursts", asleep) };
        world.host.with(|kernel| kernel.spawn("/b", bursts)).unwrap();
        for path in ["/c", "/d"] {
            world.spawn(path, Load::busy(4));
        }
        world.ticks(240);
        let status = world.tick();
        assert!(credit(&status, "b").1 > 3.0, "{:?}", credit(&status, "b"));
        for hungry in ["c", "d"] {
            assert!(credit(&status, hungry).0 < 0.2, "{hungry}: {:?}", credit(&status, hungry));
        }
    }
}

#[test]
fn only_the_raised_file_changes() {
    let mut world = bursty(SimHost::default(), ON);
    world.tick();
    let before = ["c", "d"].map(|name| world.file(&format!("{name}/cpu.weight")));
    world.host.take_changes();
    world.ticks(60);
    let written = weight_writes(&world.host.take_changes());
    assert!(!written.is_empty() && written.iter().all(|path| path.contains("/b/")), "{written:?}");
    let after = ["c", "d"].map(|name| world.file(&format!("{name}/cpu.weight")));
    assert_eq!(before, after);
    let [b, c]: [f64; 2] =
        ["b", "c"].map(|it| world.file(&format!("{it}/cpu.weight")).parse().unwrap());
    assert!((30.0..=100.0).contains(&(b / c)), "{b} beside {c}");
}

/// A guarantee is there during a burst, and so is the part that each sibling keeps.
#[test]
fn guarantees_hold_during_a_burst() {
    let yaml = "control: { credits: {} }\n\
                tenants: { b: {}, c: { guarantee: { cpu: 400m } }, d: {} }";
    let mut world = bursty(SimHost::default(), yaml);
    world.ticks(60);
    let mut most: f64 = 0.0;
    for _ in 0..8 {
        for second in period(&mut world) {
            assert!(second[1] >= 0.39 && second[2] >= 0.06, "{second:?}");
            most = most.max(second[0]);
        }
    }
    assert!(most > 1.0, "nothing is raised: {most}");
}

#[test]
fn heavy_tenants_have_no_credit_and_no_raised_weight() {
    let mut world = bursty(SimHost::default(), ON);
    for _ in 0..100 {
        let status = world.tick();
        for name in ["c", "d"] {
            assert!(is_without(&status, name), "{name}: {:?}", credit(&status, name));
        }
    }
}

/// Without the key banks are kept, and nothing follows from them: the decisions are those of a host without banks.
#[test]
fn without_the_key_no_value_differs() {
    let excluded = "control: { credits: {} }\n\
                    tenants: { b: { weight: 200, credits: false }, c: { credits: false }, d: { credits: false } }";
    let (mut off, mut none) =
        (bursty(SimHost::default(), OFF), bursty(SimHost::default(), excluded));
    for _ in 0..100 {
        off.tick();
        none.tick();
        let targets = |world: &World| {
            let records = &world.agent.as_ref().unwrap().trace().records;
            format!("{:?}", records.iter().map(|record| &record.target).collect::<Vec<_>>())
        };
        assert_eq!(targets(&off), targets(&none));
        assert_eq!(
            format!("{:?}", off.host.take_changes()),
            format!("{:?}", none.host.take_changes())
        );
    }
    for world in [&mut off, &mut none] {
        assert_eq!(reload(world, ON).unwrap(), [""; 0]);
    }
    let seconds = [&mut off, &mut none].map(|world| credit(&world.tick(), "b").0);
    assert!(seconds[0] > 10.0 && seconds[1] < 2.0, "{seconds:?}");
}

#[test]
fn own_cpus_and_exclusion_take_no_part() {
    for b in ["{ weight: 200, credits: false }", "{ weight: 200, cpus: dop }"] {
        let yaml = format!("control: {{ credits: {{}} }}\ntenants: {{ b: {b}, c: {{}}, d: {{}} }}");
        let mut world = bursty(SimHost::default(), &yaml);
        let status = world.ticks(60);
        assert!(is_without(&status, "b"), "{b}: {:?}", credit(&status, "b"));
    }
}

/// A group has a bank against its siblings, and its members against each other.
#[test]
fn groups_have_banks() {
    let yaml = "control: { credits: {} }\n\
                tenants: { g: { tenants: { b: {}, e: {} } }, c: {} }";
    let mut world = World::on(SimHost { cpus: 2, ..SimHost::default() }, yaml);
    world.start().unwrap();
    world.tick();
    world.host.with(|kernel| kernel.spawn("/g/b", bursts())).unwrap();
    world.spawn("/c", Load::busy(4));
    let status = world.ticks(60);
    assert!(credit(&status, "g").0 > 2.0 && is_without(&status, "c"), "{status:?}");
    let most = (0..8).map(|_| world.cores(&["g/b"], 1)[0]).fold(0.0, f64::max);
    assert!(most > 1.8, "{most}");
}

#[test]
fn weights_end_with_the_key_and_banks_stay() {
    let mut world = bursty(SimHost::default(), ON);
    world.ticks(60);
    let raised: f64 = world.file("b/cpu.weight").parse().unwrap();
    let before = credit(&world.tick(), "b").0;
    assert!(raised > 1000.0, "{raised}");
    assert_eq!(reload(&mut world, OFF).unwrap(), [""; 0]);
    world.tick();
    assert_eq!(world.file("b/cpu.weight"), "150");
    assert_eq!(reload(&mut world, ON).unwrap(), [""; 0]);
    let after = credit(&world.ticks(4), "b").0;
    assert!(after > 0.9 * before && world.file("b/cpu.weight").parse::<f64>().unwrap() > 1000.0);
    let without = "control: { credits: {} }\ntenants: { c: {}, d: {} }";
    assert_eq!(reload(&mut world, without).unwrap(), [""; 0]);
    world.tick();
    assert_eq!(reload(&mut world, ON).unwrap(), [""; 0]);
    let again = credit(&world.tick(), "b").0;
    assert!(again < 2.0, "a tenant that returns has {again} s of its earlier {before} s");
}

/// Payers get what is left to them, and no tenant is short of it.
#[test]
fn measures_count_what_is_due_after_credit() {
    let mut world = bursty(SimHost::default(), ON);
    world.ticks(60);
    for _ in 0..12 {
        let status = world.tick();
        for tenant in &status.tenants {
            let (error, reasons) = (tenant.share_error.unwrap(), &tenant.reasons);
            assert!(error <= 0.05 && reasons.is_empty(), "{}: {error} {reasons:?}", tenant.name);
        }
    }
}

#[test]
fn all_is_restored_at_the_end() {
    let mut world = World::on(SimHost { cpus: 2, ..SimHost::default() }, ON);
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.tick();
    let pids = [
        world.host.with(|kernel| kernel.spawn("/b", bursts())).unwrap(),
        world.spawn("/c", Load::busy(4)),
        world.spawn("/d", Load::busy(4)),
    ];
    world.ticks(40);
    for pid in pids {
        world.host.with(|kernel| kernel.kill(pid)).unwrap();
    }
    world.stop();
    assert_same(&before, &snapshot(&world.host), "after a stop");
}

#[test]
fn an_explanation_names_the_credit() {
    let mut world = bursty(SimHost::default(), ON);
    let status = world.ticks(60);
    let trace = world.agent.as_ref().unwrap().trace();
    let step = explain::explain(trace, &status, "b").unwrap().weight;
    assert!(step.reason.contains("times as much by its credit"), "{}", step.reason);
    assert_eq!(step.file_value, Some(world.file("b/cpu.weight")));
}

#[test]
fn a_replay_settles_the_same_to_the_bit() {
    let before = Twin::nr_decisions();
    let mut world = bursty(SimHost::default(), ON);
    world.agent.as_mut().unwrap().record(Twin::boxed());
    world.ticks(40);
    world.agent.as_mut().unwrap().set_mode(Mode::Observe).unwrap();
    world.ticks(5);
    assert!(Twin::nr_decisions() > before);
}

fn credits_file(world: &World) -> std::path::PathBuf {
    world.state_dir().join("credits.json")
}

/// Starts the next agent; its first status.
fn restart(world: &mut World, yaml: &str) -> Status {
    world.policy = util::policy(&format!("version: 1\nmode: enforce\n{yaml}"));
    world.start().unwrap();
    world.tick()
}

#[test]
fn a_restart_keeps_banks_and_raised_weights() {
    for host in [SimHost::default(), legacy()] {
        let mut world = bursty(host, ON);
        let before = credit(&world.ticks(60), "b");
        assert!(before.0 > 10.0 && before.1 > 5.0, "{before:?}");
        world.stop();
        let (seconds, factor) = credit(&restart(&mut world, ON), "b");
        assert!((seconds - before.0).abs() < 0.01 * before.0, "{seconds} of {before:?}");
        assert_eq!(factor, before.1);
        let status = world.ticks(3);
        let (seconds, _) = credit(&status, "b");
        assert!((seconds - before.0).abs() < 0.1 * before.0, "{seconds} of {before:?}");
        assert!(is_without(&status, "c"), "{:?}", credit(&status, "c"));
        let burst = (0..8).map(|_| world.cores(&["b"], 1)[0]).fold(0.0, f64::max);
        assert!(burst > 1.8, "{burst}");
    }
}

#[test]
fn a_killed_agent_loses_a_minute_at_most() {
    let mut world = bursty(SimHost::default(), ON);
    let written = credit(&world.ticks(60), "b").0;
    world.ticks(30);
    world.kill();
    let (seconds, _) = credit(&restart(&mut world, ON), "b");
    assert!((seconds - written).abs() < 0.05 * written, "{seconds} of {written}");
}

#[test]
fn banks_fade_while_no_agent_runs() {
    let mut world = bursty(SimHost::default(), ON);
    let before = credit(&world.ticks(60), "b").0;
    world.stop();
    let text = std::fs::read_to_string(credits_file(&world)).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
    let then = record["unix_seconds"].as_f64().unwrap() - 600.0;
    record["unix_seconds"] = then.into();
    std::fs::write(credits_file(&world), record.to_string()).unwrap();
    let (seconds, _) = credit(&restart(&mut world, ON), "b");
    assert!((seconds - before / 2.0).abs() < 0.01 * before, "{seconds} of {before}");
}

#[test]
fn a_bank_ends_with_its_path_also_over_a_restart() {
    let without = "control: { credits: {} }\ntenants: { c: {}, d: {} }";
    let renamed = ON.replace("b:", "renamed:");
    for (yaml, name) in [(without, "b"), (renamed.as_str(), "renamed")] {
        let mut world = bursty(SimHost::default(), ON);
        world.ticks(60);
        world.stop();
        let status = restart(&mut world, yaml);
        if name == "renamed" {
            assert_eq!(credit(&status, name).0, 0.0);
        }
        assert_eq!(reload(&mut world, ON).unwrap(), [""; 0]);
        let again = credit(&world.tick(), "b").0;
        assert!(again < 2.0, "{again}");
    }
}

/// The bank belongs to the path, wherever the cgroup of the tenant is.
#[test]
fn a_bank_stays_where_the_cgroup_changes() {
    let mut world = bursty(SimHost::default(), ON);
    let before = credit(&world.ticks(60), "b").0;
    let elsewhere = "control: { credits: {} }\n\
                     tenants: { b: { weight: 200, match: { cgroup: other } }, c: {}, d: {} }";
    world.host.with(|kernel| kernel.make_cgroup("/other")).unwrap();
    assert_eq!(reload(&mut world, elsewhere).unwrap(), [""; 0]);
    let after = credit(&world.ticks(2), "b").0;
    assert!(after > 0.9 * before, "{after} of {before}");
}

/// A status from the middle of a burst of `b`.
fn in_a_burst(world: &mut World) -> Status {
    let is_burst = |status: &Status| tenant(status, "b").usage[CPU].is_some_and(|it| it > 1.2);
    (0..8).map(|_| world.tick()).find(is_burst).expect("a burst")
}

fn explained(world: &World, status: &Status, name: &str) -> explain::CreditStep {
    let trace = world.agent.as_ref().unwrap().trace();
    explain::explain(trace, status, name).unwrap().credit.unwrap()
}

#[test]
fn a_payer_is_told_by_whom_and_until_when() {
    let mut world = bursty(SimHost::default(), ON);
    world.ticks(60);
    let status = in_a_burst(&mut world);
    let (spender, payer) = (explained(&world, &status, "b"), explained(&world, &status, "c"));
    assert!(spender.is_on && spender.factor > 5.0 && spender.bank_seconds > 5.0, "{spender:?}");
    assert!(spender.reason.contains("in the bank (of 60 s)"), "{}", spender.reason);
    let burst = spender.burst_seconds.unwrap();
    assert_eq!((payer.spenders, payer.pays_seconds), (vec!["b".to_string()], Some(burst)));
    let due = payer.due_cores.unwrap();
    assert!(due < 0.1, "{due}");
    let until = format!("for at most {burst:.0} s more");
    assert!(payer.reason.starts_with("b spends credit: it gets 0.0"), "{}", payer.reason);
    assert!(payer.reason.ends_with(&until), "{}", payer.reason);
}

#[test]
fn a_weight_that_is_not_raised_has_a_reason() {
    let mut world = bursty(SimHost::default(), ON);
    let status = world.ticks(63);
    let reason = explained(&world, &status, "c").reason;
    assert!(reason.ends_with("it uses its share itself"), "{reason}");
    for (b, why) in [
        ("{ weight: 200, credits: false }", "`credits: false` excludes it"),
        ("{ weight: 200, cpus: dop }", "it has CPUs of its own"),
    ] {
        let yaml = format!("control: {{ credits: {{}} }}\ntenants: {{ b: {b}, c: {{}}, d: {{}} }}");
        let mut world = bursty(SimHost::default(), &yaml);
        let status = world.ticks(20);
        let reason = explained(&world, &status, "b").reason;
        assert!(reason.ends_with(why), "{reason}");
    }
    let mut world = World::on(SimHost { cpus: 2, ..SimHost::default() }, ON);
    world.start().unwrap();
    world.tick();
    world.spawn("/c", Load::busy(1));
    let status = world.ticks(10);
    let reason = explained(&world, &status, "b").reason;
    assert!(reason.contains("at least 90 % of the CPUs"), "{reason}");
}

/// While it is off, the effects of credits are shown: for those that would have some, and for those that would pay.
#[test]
fn a_plan_shows_credits_before_they_are_on() {
    let mut world = bursty(SimHost::default(), OFF);
    let status = world.ticks(70);
    let preview = |name: &str| tenant(&status, name).credit_preview;
    let (b, c) = (preview("b").unwrap(), preview("c").unwrap());
    assert!(b.seconds > 10.0 && b.factor > 5.0 && b.kept_cores == b.fair_share_cores, "{b:?}");
    assert!(c.factor == 1.0 && c.kept_cores < 0.2 * c.fair_share_cores, "{c:?}");
    assert_eq!(tenant(&status, "b").credit_seconds, None);
    let reason = explained(&world, &status, "b").reason;
    assert!(reason.starts_with("control.credits is off. With it: "), "{reason}");
    // Another agent plans with the stored credit.
    let policy = util::policy(&format!("version: 1\nmode: enforce\n{ON}"));
    let options =
        Options { observe: true, credits_of: Some(world.state_dir()), ..Options::default() };
    let rules = claims::rules(&policy);
    let mut planner = Agent::start(world.host.clone(), policy, rules, &options).unwrap();
    planner.tick(Duration::ZERO);
    world.tick();
    let planned = planner.tick(Duration::from_secs(1)).clone();
    let (seconds, factor) = credit(&planned, "b");
    assert!(seconds > 10.0 && factor > 5.0, "{seconds} {factor}");
    let is_raised = |it: &ActionStatus| it.tenant == "b" && it.path.ends_with("cpu.weight");
    let action = planned.actions.iter().find(|it| is_raised(it)).unwrap();
    assert!(action.reason.contains("times as much by its credit"), "{}", action.reason);
    assert!(planned.tenants.iter().all(|it| it.credit_preview.is_none()));
}

// --- jobs ---

thread_local! {
    /// Fees in share-seconds, and the largest part of a bank that was taken at once.
    static FEES: Cell<(f64, f64)> = const { Cell::new((0.0, 0.0)) };
}

/// Adds up what events take from banks.
#[derive(Debug)]
struct Cashier;

impl Witness for Cashier {
    fn note(&mut self, control: &ControlLoop, event: &Event) {
        let Event::TakeCredits(credits) = event else { return };
        for (node, credit) in credits {
            let before = control.state(*node).unwrap().credit.account.bank;
            let fee = before - credit.account.bank;
            let (fees, most) = FEES.get();
            FEES.set((fees + fee, most.max(fee / before)));
        }
    }
}

fn submit(world: &mut World, tenant: &str, now: f64) {
    let workload = Workload::constant("sh", Load::busy(1)).owned_by(1000);
    let pid = world.host.with(|kernel| kernel.spawn("/sessions", workload)).unwrap();
    let tenant = Some(tenant.to_string());
    let parameters = SubmitParameters { tenant, dop: Some(1), ..SubmitParameters::default() };
    world.submit_all(&[submission((1000, pid), parameters)], now);
}

/// Tenants of jobs of a second each, in the order of their starts, one at a time: `c` and `d` have jobs, and then `b`
/// wakes with three.
fn order_of_starts(world: &mut World) -> String {
    world.host.with(|kernel| kernel.make_cgroup("/sessions")).unwrap();
    for tenant in ["c", "d"].repeat(8) {
        submit(world, tenant, 0.0);
    }
    let (mut order, mut running) = (String::new(), Vec::new());
    for second in 0..20 {
        if second == 9 {
            (0..3).for_each(|_| submit(world, "b", f64::from(second)));
        }
        for (ticket, answer) in world.agent.as_mut().unwrap().take_job_answers() {
            let JobAnswer::Submitted(Ok(reply)) = answer else { continue };
            if reply.started.is_some() {
                order += &reply.tenant;
                running.push(ticket.0 as u32);
            }
        }
        world.tick();
        for pid in running.drain(..) {
            world.host.with(|kernel| kernel.kill(pid)).unwrap();
        }
        world.agent.as_mut().unwrap().tend_jobs(true, f64::from(second + 1));
    }
    order
}

/// A world in which `b` has slept after bursts beside busy siblings, and one job runs at a time.
fn with_jobs(yaml: &str, discipline: &str) -> World {
    let admission = format!("admission: {{ max_running: 1, discipline: {discipline} }}\n");
    let mut world = World::on(SimHost { cpus: 2, ..SimHost::default() }, &(admission + yaml));
    world.start().unwrap();
    world.tick();
    let bursty = world.host.with(|kernel| kernel.spawn("/b", bursts())).unwrap();
    let others = ["/c", "/d"].map(|path| world.spawn(path, Load::busy(4)));
    world.ticks(60);
    for pid in [bursty].into_iter().chain(others) {
        world.host.with(|kernel| kernel.kill(pid)).unwrap();
    }
    world.tick();
    world
}

#[test]
fn a_sleeping_tenant_overtakes_with_its_jobs_and_pays() {
    for discipline in ["2dfq-e", "wfq-e", "sfq"] {
        let plain = order_of_starts(&mut with_jobs(OFF, discipline));
        let mut world = with_jobs(ON, discipline);
        FEES.set((0.0, 0.0));
        world.agent.as_mut().unwrap().record(Some(Box::new(Cashier)));
        let credited = order_of_starts(&mut world);
        let (fees, most) = FEES.get();
        let last = |order: &str| order.rfind('b').unwrap();
        assert!(last(&credited) < last(&plain), "{discipline}: {plain} {credited}");
        assert!(credited.contains("bbb"), "{discipline}: {credited}");
        // Three jobs on two CPUs; the bank covered them.
        assert!(fees > 0.0 && fees <= 3.0 && most < 1.0, "{discipline}: {fees} {most}");
    }
    let (plain, mut world) = (order_of_starts(&mut with_jobs(OFF, "fifo")), with_jobs(ON, "fifo"));
    assert_eq!(order_of_starts(&mut world), plain, "an order without tags ignores credit");
}

#[test]
fn a_replay_pays_for_jobs_to_the_bit() {
    let before = Twin::nr_decisions();
    let mut world = with_jobs(ON, "2dfq-e");
    world.agent.as_mut().unwrap().record(Twin::boxed());
    let order = order_of_starts(&mut world);
    assert!(order.contains("bbb") && Twin::nr_decisions() > before, "{order}");
}
