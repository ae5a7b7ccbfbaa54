//! The rule of credits: the vectors of `credits.yaml`, and its bounds on random trees.

#![allow(clippy::unwrap_used, reason = "a test asserts; it need not handle")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use serde::{Deserialize, Deserializer};
use tenantd_control::share::credit::{self, Account, Conduct, Credit, Entry, Standing, Tick, jobs};
use tenantd_control::tree::TreeNode;
use tenantd_core::resource::{CPU, PerResource};
use tenantd_policy::model::CreditsPolicy;

const TOLERANCE: f64 = 1e-6;

/// A number, or a rational written as `p/q`.
#[derive(Clone, Copy, Debug)]
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Number, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        let text = match Written::deserialize(from)? {
            Written::Number(number) => return Ok(Number(number)),
            Written::Text(text) => text,
        };
        let (p, q) = text.split_once('/').unwrap_or((&text, "1"));
        let parse = |part: &str| part.parse::<f64>().map_err(serde::de::Error::custom);
        Ok(Number(parse(p)? / parse(q)?))
    }
}

#[derive(Deserialize)]
struct Suite {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    id: String,
    #[serde(rename = "source")]
    _source: String,
    input: Given,
    expect: Expected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    cpus: Number,
    seconds: Number,
    credits: Credits,
    nodes: Vec<GivenNode>,
    before: BTreeMap<String, Before>,
    ticks: Vec<BTreeMap<String, Leaf>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Credits {
    half_life: Number,
    cap: Number,
    keep: Number,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenNode {
    name: String,
    weight: Number,
    parent: Option<String>,
    guarantee: Option<Number>,
    limit: Option<Number>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Before {
    bank: Option<Number>,
    peak: Option<Number>,
    step: Option<Number>,
    factor: Option<Number>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Leaf {
    used: Number,
    waited: Number,
    want: Number,
    held: Option<Number>,
    #[serde(default)]
    over: bool,
    #[serde(default)]
    apart: bool,
}

#[derive(Deserialize)]
struct Expected {
    ticks: Vec<BTreeMap<String, BTreeMap<String, Number>>>,
}

impl Given {
    fn tree(&self) -> Vec<TreeNode> {
        let place = |name: &String| self.nodes.iter().position(|node| node.name == *name).unwrap();
        let is_leaf = |name: &str| !self.nodes.iter().any(|it| it.parent.as_deref() == Some(name));
        let node = |node: &GivenNode| {
            let amount = |amount: Option<Number>| PerResource([amount.map(|it| it.0), None]);
            TreeNode {
                guarantee: amount(node.guarantee),
                limit: amount(node.limit),
                is_leaf: is_leaf(&node.name),
                ..plain(node.parent.as_ref().map(place), node.weight.0)
            }
        };
        self.nodes.iter().map(node).collect()
    }

    fn terms(&self) -> CreditsPolicy {
        CreditsPolicy {
            half_life: Duration::from_secs_f64(self.credits.half_life.0),
            cap: Duration::from_secs_f64(self.credits.cap.0),
            keep: self.credits.keep.0,
        }
    }

    fn account(&self, name: &str) -> Account {
        let Some(before) = self.before.get(name) else { return Account::default() };
        let or = |number: Option<Number>, missing| number.map_or(missing, |number| number.0);
        Account {
            bank: or(before.bank, 0.0),
            peak_cores: or(before.peak, 0.0),
            step: or(before.step, 0.0),
            factor: or(before.factor, 1.0),
        }
    }

    fn conducts(&self, tick: &BTreeMap<String, Leaf>) -> Vec<Conduct> {
        let conduct = |node: &GivenNode| {
            let Some(leaf) = tick.get(&node.name) else { return Conduct::default() };
            Conduct {
                used_cores: leaf.used.0,
                wanted_cores: leaf.want.0,
                waited: leaf.waited.0,
                held: leaf.held.map_or(0.0, |held| held.0),
                is_over: leaf.over,
                is_apart: leaf.apart,
                is_unread: false,
            }
        };
        self.nodes.iter().map(conduct).collect()
    }
}

fn plain(parent: Option<usize>, weight: f64) -> TreeNode {
    TreeNode {
        path: Default::default(),
        parent,
        depth: 0,
        is_leaf: true,
        is_found: false,
        weight: PerResource::all(weight),
        disk: None,
        guarantee: PerResource::default(),
        limit: PerResource::default(),
        written: Default::default(),
        dop: Default::default(),
        cpus: Default::default(),
        has_credit: true,
    }
}

/// Weights with a mean of 100 in each set of siblings where none is raised.
fn weights(standings: &[Standing], accounts: &[Account]) -> Vec<f64> {
    let weight = |(standing, account): (&Standing, &Account)| {
        let siblings = standings.iter().filter(|it| it.parent == standing.parent);
        let shares: Vec<f64> = siblings.map(|it| it.share_cores).collect();
        let scale = 100.0 * shares.len() as f64 / shares.iter().sum::<f64>();
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min) * scale;
        credit::raised(standing.share_cores * scale, account.factor, least)
    };
    standings.iter().zip(accounts).map(weight).collect()
}

fn value(field: &str, entry: &Entry, account: &Account, weight: f64) -> f64 {
    match field {
        "fair" => entry.fair_cores,
        "earned" => entry.earned,
        "charged" => entry.charged,
        "bank" => account.bank,
        "peak" => account.peak_cores,
        "step" => account.step,
        "factor" => account.factor,
        "weight" => weight,
        other => panic!("{other} is unknown"),
    }
}

#[test]
fn all_vectors() {
    let suite: Suite =
        serde_yaml::from_str(include_str!("../../../tests/vectors/credits.yaml")).unwrap();
    assert!(!suite.vectors.is_empty());
    for Vector { id, input, expect, .. } in &suite.vectors {
        let (nodes, terms) = (input.tree(), input.terms());
        let (cores, seconds) = (input.cpus.0, input.seconds.0);
        let standings = Standing::of_nodes(&nodes, cores);
        let mut accounts: Vec<Account> =
            input.nodes.iter().map(|node| input.account(&node.name)).collect();
        let length = Tick { cores, seconds, earning_seconds: seconds };
        assert_eq!(input.ticks.len(), expect.ticks.len(), "{id}");
        for (number, (tick, expected)) in input.ticks.iter().zip(&expect.ticks).enumerate() {
            let conducts = input.conducts(tick);
            let entries = credit::tick(&standings, &conducts, &length, &terms, &mut accounts);
            let weights = weights(&standings, &accounts);
            assert_eq!(expected.len(), nodes.len(), "{id}: not all nodes");
            for (index, node) in input.nodes.iter().enumerate() {
                for (field, Number(expected)) in &expected[&node.name] {
                    let got = value(field, &entries[index], &accounts[index], weights[index]);
                    let name = &node.name;
                    assert!(
                        (got - expected).abs() <= TOLERANCE,
                        "{id}, tick {number}: {field} of {name} is {got}, not {expected}"
                    );
                }
            }
        }
    }
}

/// A tree on a machine, and its ticks.
#[derive(Clone, Debug)]
struct World {
    cores: f64,
    nodes: Vec<TreeNode>,
    ticks: Vec<Vec<Conduct>>,
    terms: CreditsPolicy,
}

fn leaf() -> impl Strategy<Value = TreeNode> {
    let weight = prop_oneof![Just(1.0), 1.0..8.0_f64];
    // Parts of a CPU: at most twelve leaves fit into the machine.
    (
        weight,
        proptest::option::weighted(0.3, 0.01..0.15_f64),
        proptest::option::weighted(0.3, 0.2..2.0_f64),
    )
        .prop_map(|(weight, guarantee, limit)| TreeNode {
            guarantee: PerResource([guarantee, None]),
            limit: PerResource([limit, None]),
            ..plain(None, weight)
        })
}

/// Up to four nodes, each a tenant or a group of up to three.
fn tree() -> impl Strategy<Value = Vec<TreeNode>> {
    let group = (1.0..8.0_f64, proptest::collection::vec(leaf(), 1..4));
    let node = prop_oneof![
        2 => leaf().prop_map(|leaf| (None, vec![leaf])),
        1 => group.prop_map(|(weight, leaves)| (Some(weight), leaves)),
    ];
    proptest::collection::vec(node, 2..5).prop_map(|tops| {
        let mut nodes = Vec::new();
        for (weight, leaves) in tops {
            let parent = weight.map(|weight| {
                nodes.push(TreeNode { is_leaf: false, ..plain(None, weight) });
                nodes.len() - 1
            });
            nodes.extend(leaves.into_iter().map(|leaf| TreeNode { parent, ..leaf }));
        }
        nodes
    })
}

fn conduct(cores: f64) -> impl Strategy<Value = Conduct> {
    let part = || prop_oneof![2 => Just(0.0), 2 => 0.0..1.0_f64, 1 => Just(1.0)];
    let rare = || proptest::bool::weighted(0.05);
    (part(), part(), part(), proptest::option::weighted(0.1, 0.0..1.0_f64), rare(), rare())
        .prop_map(move |(used, more, waited, held, is_over, is_apart)| Conduct {
            used_cores: used * cores,
            wanted_cores: (used + more).min(1.0) * cores,
            waited,
            held: held.unwrap_or(0.0),
            is_over,
            is_apart,
            is_unread: false,
        })
}

fn world() -> impl Strategy<Value = World> {
    let cores = prop_oneof![Just(2.0), Just(16.0)];
    (cores, tree(), 0.02..0.5_f64, 1_u64..60)
        .prop_flat_map(|(cores, nodes, keep, half_life)| {
            let conducts = proptest::collection::vec(conduct(cores), nodes.len());
            let ticks = proptest::collection::vec(conducts, 1..20);
            (Just((cores, nodes, keep, half_life)), ticks)
        })
        .prop_map(|((cores, nodes, keep, half_life), ticks)| {
            let terms = CreditsPolicy {
                half_life: Duration::from_secs(half_life),
                keep,
                ..CreditsPolicy::default()
            };
            World {
                cores,
                ticks: ticks.into_iter().map(|it| fit(&nodes, it, cores)).collect(),
                nodes,
                terms,
            }
        })
}

/// The same use within limits, and all of it within the machine.
fn fit(nodes: &[TreeNode], mut conducts: Vec<Conduct>, cores: f64) -> Vec<Conduct> {
    for (node, conduct) in nodes.iter().zip(&mut conducts) {
        let limit = node.limit[CPU].unwrap_or(f64::INFINITY);
        conduct.used_cores = conduct.used_cores.min(limit);
        conduct.wanted_cores = conduct.wanted_cores.min(limit);
        if !node.is_leaf {
            *conduct = Conduct::default();
        }
    }
    let sum: f64 = conducts.iter().map(|it| it.used_cores).sum();
    let scale = (cores / sum.max(f64::MIN_POSITIVE)).min(1.0);
    conducts.iter_mut().for_each(|it| it.used_cores *= scale);
    conducts
}

/// Use of each node, with that of groups.
fn used(nodes: &[TreeNode], conducts: &[Conduct]) -> Vec<f64> {
    let mut used: Vec<f64> = conducts.iter().map(|it| it.used_cores).collect();
    for (index, node) in nodes.iter().enumerate().rev() {
        if let Some(parent) = node.parent {
            used[parent] += used[index];
        }
    }
    used
}

/// The sets of siblings by their parent.
fn sets(nodes: &[TreeNode]) -> BTreeMap<Option<usize>, Vec<usize>> {
    let mut sets: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        sets.entry(node.parent).or_default().push(index);
    }
    sets
}

/// Ceilings of the nodes: limits and recent demand, of groups the sum below.
fn ceilings(nodes: &[TreeNode], accounts: &[Account]) -> Vec<f64> {
    let mut ceilings: Vec<f64> = accounts.iter().map(|it| it.peak_cores).collect();
    for (index, node) in nodes.iter().enumerate().rev() {
        ceilings[index] = ceilings[index].min(node.limit[CPU].unwrap_or(f64::INFINITY));
        if let Some(parent) = node.parent {
            ceilings[parent] += ceilings[index];
        }
    }
    ceilings
}

/// Division of `cores` by the kernel: by weight, with ceilings.
fn divided(weights: &[f64], ceilings: &[f64], cores: f64) -> Vec<f64> {
    let claims: Vec<tenantd_fair::max_min::Claim> = weights
        .iter()
        .zip(ceilings)
        .map(|(weight, ceiling)| tenantd_fair::max_min::Claim {
            // A guarantee of a sibling can leave a node without any share.
            weight: weight.max(1e-12),
            floor: 0.0,
            ceiling: *ceiling,
        })
        .collect();
    tenantd_fair::max_min::divide(cores, &claims).allocation
}

const SECOND: f64 = 1.0;

/// Plays a world; `check` sees each tick: accounts before it, entries, accounts after it.
fn play(
    world: &World,
    mut check: impl FnMut(&[Conduct], &[Account], &[Entry], &[Account]) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let standings = Standing::of_nodes(&world.nodes, world.cores);
    let mut accounts = vec![Account::default(); world.nodes.len()];
    let tick = Tick { cores: world.cores, seconds: SECOND, earning_seconds: SECOND };
    for conducts in &world.ticks {
        let before = accounts.clone();
        let entries = credit::tick(&standings, conducts, &tick, &world.terms, &mut accounts);
        check(conducts, &before, &entries, &accounts)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn credit_is_backed_by_use_beyond_shares(world in world()) {
        play(&world, |conducts, _, entries, _| {
            let used = used(&world.nodes, conducts);
            for set in sets(&world.nodes).values() {
                let earned: f64 = set.iter().map(|i| entries[*i].earned).sum();
                let excess: f64 = set.iter().map(|i| (used[*i] - entries[*i].fair_cores).max(0.0)).sum();
                prop_assert!(earned <= excess / world.cores * SECOND + 1e-9, "{earned} of {excess}");
            }
            Ok(())
        })?;
    }

    #[test]
    fn banks_are_token_buckets(world in world()) {
        let mut sums = vec![(0.0, 0.0); world.nodes.len()];
        let mut first: Option<Vec<Account>> = None;
        play(&world, |conducts, before, entries, after| {
            first.get_or_insert_with(|| before.to_vec());
            let used = used(&world.nodes, conducts);
            for (i, entry) in entries.iter().enumerate() {
                let lent = (entry.fair_cores - used[i]).max(0.0) / world.cores * SECOND;
                let excess = (used[i] - entry.fair_cores).max(0.0) / world.cores * SECOND;
                prop_assert!(entry.earned >= 0.0 && entry.earned <= lent + 1e-9, "{entry:?}");
                prop_assert!(entry.charged >= 0.0 && entry.charged <= excess + 1e-9, "{entry:?}");
                let most = world.terms.cap.as_secs_f64() * entry.fair_cores / world.cores;
                prop_assert!(after[i].bank <= most + 1e-9, "{:?} of {most}", after[i]);
                // The overdraft of one tick, and what a bank that is spent to the last had faded.
                prop_assert!(after[i].bank >= -SECOND - most.max(before[i].bank), "{:?}", after[i]);
                sums[i].0 += entry.earned;
                sums[i].1 += entry.charged;
                let all = first.as_ref().unwrap()[i].bank + sums[i].0 - sums[i].1;
                prop_assert!(after[i].bank <= all + 1e-9, "{:?} after {all}", after[i]);
            }
            Ok(())
        })?;
    }

    /// However the tenants of a set spend, no bank of them or of their group becomes negative.
    #[test]
    fn jobs_spend_at_most_the_banks(world in world(), order in proptest::collection::vec(0..16_usize, 1..8)) {
        let mut credits = vec![Credit::default(); world.nodes.len()];
        play(&world, |_, _, entries, after| {
            for (credit, (entry, account)) in credits.iter_mut().zip(entries.iter().zip(after)) {
                *credit = Credit { account: *account, entry: *entry, is_missed: false };
            }
            Ok(())
        })?;
        let before = credits.clone();
        let leaves: Vec<usize> = (0..world.nodes.len()).filter(|i| world.nodes[*i].is_leaf).collect();
        // All are lent at once what they can spend, and some of them spend all of it.
        let lent: Vec<f64> = leaves.iter().map(|i| jobs::spendable(&world.nodes, |n| before[n], *i)).collect();
        let mut spent = vec![0.0; world.nodes.len()];
        for place in order.iter().map(|it| it % leaves.len()).collect::<BTreeSet<_>>() {
            let (leaf, fee) = (leaves[place], lent[place]);
            for (number, credit) in jobs::pay(&world.nodes, |n| credits[n], leaf, fee) {
                credits[number] = credit;
                spent[number] += fee;
            }
        }
        for (i, credit) in credits.iter().enumerate() {
            let (bank, now) = (before[i].account.bank, credit.account.bank);
            prop_assert!(spent[i] <= bank.max(0.0) + 1e-9, "{} of {bank}", spent[i]);
            prop_assert!((now - (bank - spent[i])).abs() < 1e-9, "{now} of {bank}");
        }
    }

    #[test]
    fn banks_of_siblings_fit_into_the_cap(world in world()) {
        play(&world, |_, _, _, after| {
            for set in sets(&world.nodes).values() {
                let banks: f64 = set.iter().map(|i| after[*i].bank.max(0.0)).sum();
                prop_assert!(banks <= world.terms.cap.as_secs_f64() + 1e-6, "{banks}");
            }
            Ok(())
        })?;
    }

    #[test]
    fn siblings_keep_their_guarantees_and_their_part(world in world()) {
        let standings = Standing::of_nodes(&world.nodes, world.cores);
        play(&world, |_, _, entries, after| {
            let ceilings = ceilings(&world.nodes, after);
            for set in sets(&world.nodes).values() {
                let whole: f64 = set.iter().map(|i| entries[*i].fair_cores).sum();
                let is_raised = |i: &usize| entries[*i].extra_cores > 0.0;
                let weights: Vec<f64> =
                    set.iter().map(|i| standings[*i].share_cores * after[*i].factor).collect();
                let most: Vec<f64> = set
                    .iter()
                    .map(|i| if is_raised(i) { entries[*i].fair_cores + entries[*i].extra_cores } else { ceilings[*i] })
                    .collect();
                let given = divided(&weights, &most, whole);
                for (place, i) in set.iter().enumerate().filter(|(_, i)| !is_raised(i)) {
                    prop_assert_eq!(after[*i].factor, 1.0);
                    if !set.iter().any(is_raised) {
                        continue;
                    }
                    // A sibling that wants more than it did lately takes its standing share without any credit.
                    let share = standings[*i].share_cores;
                    let part = (world.terms.keep * entries[*i].fair_cores).min(share);
                    let promise = standings[*i].promise_cores.min(share);
                    let kept = part.max(promise.min(ceilings[*i]));
                    prop_assert!(given[place] >= kept * (1.0 - 1e-6) - 1e-9, "{} of {kept}", given[place]);
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn raised_weights_are_within_a_hundred(world in world()) {
        let standings = Standing::of_nodes(&world.nodes, world.cores);
        let plain = weights(&standings, &vec![Account::default(); standings.len()]);
        play(&world, |_, _, _, after| {
            let weights = weights(&standings, after);
            for set in sets(&world.nodes).values() {
                let least = set.iter().map(|i| plain[*i]).fold(f64::INFINITY, f64::min);
                for i in set {
                    prop_assert!(weights[*i] >= plain[*i] && after[*i].factor >= 1.0);
                    let most = (100.0 * least).max(plain[*i]);
                    prop_assert!(weights[*i] <= most * (1.0 + 1e-9), "{} over {most}", weights[*i]);
                }
            }
            Ok(())
        })?;
    }

    /// A tenant in two equal parts earns as much, and pays no less: each part may wait for the other as well.
    #[test]
    fn equal_parts_gain_nothing(world in world(), who in any::<prop::sample::Index>()) {
        let tops: Vec<usize> = (0..world.nodes.len())
            .filter(|i| world.nodes[*i].parent.is_none() && world.nodes[*i].is_leaf)
            .collect();
        prop_assume!(!tops.is_empty());
        let who = tops[who.index(tops.len())];
        let half = |amount: Option<f64>| amount.map(|it| it / 2.0);
        let mut nodes = world.nodes.clone();
        nodes[who].weight = nodes[who].weight.map(|it| it / 2.0);
        nodes[who].guarantee = nodes[who].guarantee.map(half);
        nodes[who].limit = nodes[who].limit.map(half);
        nodes.push(nodes[who].clone());
        let length = Tick { cores: world.cores, seconds: SECOND, earning_seconds: SECOND };
        let (whole, parts) = (Standing::of_nodes(&world.nodes, world.cores), Standing::of_nodes(&nodes, world.cores));
        let mut accounts = vec![Account::default(); world.nodes.len()];
        for conducts in &world.ticks {
            let mut of_parts = accounts.clone();
            of_parts[who].bank /= 2.0;
            of_parts[who].peak_cores /= 2.0;
            of_parts.push(of_parts[who]);
            let mut of_both = conducts.clone();
            of_both[who].used_cores /= 2.0;
            of_both[who].wanted_cores /= 2.0;
            of_both.push(of_both[who]);
            let split = credit::tick(&parts, &of_both, &length, &world.terms, &mut of_parts);
            let one = credit::tick(&whole, conducts, &length, &world.terms, &mut accounts);
            let earned = split[who].earned + split[nodes.len() - 1].earned;
            let charged = split[who].charged + split[nodes.len() - 1].charged;
            prop_assert!((earned - one[who].earned).abs() < 1e-6, "{earned} {:?}", one[who]);
            prop_assert!(charged >= one[who].charged - 1e-6, "{charged} {:?}", one[who]);
        }
    }

    #[test]
    fn always_hungry_tenants_have_no_credit(world in world(), who in any::<prop::sample::Index>()) {
        let leaves: Vec<usize> = (0..world.nodes.len()).filter(|i| world.nodes[*i].is_leaf).collect();
        let who = leaves[who.index(leaves.len())];
        let mut world = world;
        world.nodes[who].limit = PerResource::default();
        for tick in &mut world.ticks {
            let others: f64 = tick.iter().map(|it| it.used_cores).sum::<f64>() - tick[who].used_cores;
            tick[who].used_cores = (world.cores - others).max(0.0);
            (tick[who].wanted_cores, tick[who].waited) = (world.cores, 1.0);
        }
        play(&world, |_, _, _, after| {
            prop_assert!(after[who].bank <= 0.0 && after[who].factor == 1.0, "{:?}", after[who]);
            Ok(())
        })?;
    }
}

/// Ten minutes of one tenant that sleeps and wants everything by turns, beside two heavy ones, on a kernel that divides
/// by weight: its share of the machine.
fn share_of_on_and_off(seconds_on: usize, seconds_off: usize) -> [f64; 3] {
    let nodes = [plain(None, 1.0), plain(None, 1.0), plain(None, 1.0)];
    let (cores, parts) = (2.0, 20);
    let standings = Standing::of_nodes(&nodes, cores);
    let tick = Tick { cores, seconds: SECOND, earning_seconds: SECOND };
    let mut accounts = vec![Account::default(); 3];
    let mut sums = [0.0; 3];
    let period = (seconds_on + seconds_off) * parts;
    for second in 0..600 {
        let mut used = [0.0; 3];
        let mut on = 0.0;
        for part in 0..parts {
            // Ticks do not begin with the load.
            let is_on = (second * parts + part + 7) % period < seconds_on * parts;
            let plain: Vec<f64> = weights(&standings, &accounts);
            let most = [if is_on { cores } else { 0.0 }, cores, cores];
            let given = divided(&plain, &most, cores);
            (0..3).for_each(|i| used[i] += given[i] / parts as f64);
            on += f64::from(u8::from(is_on)) / parts as f64;
        }
        let conduct = |i: usize| Conduct {
            used_cores: used[i],
            wanted_cores: if i == 0 { used[0].max(cores * on) } else { cores },
            waited: if i == 0 { on } else { 1.0 },
            ..Conduct::default()
        };
        let conducts = [conduct(0), conduct(1), conduct(2)];
        credit::tick(&standings, &conducts, &tick, &CreditsPolicy::default(), &mut accounts);
        (0..3).for_each(|i| sums[i] += used[i] / 600.0 / cores);
    }
    sums
}

#[test]
fn turns_end_at_the_weight_and_not_beyond() {
    for (on, off) in [(1, 3), (2, 2), (10, 10), (60, 60), (3, 1)] {
        let [own, c, d] = share_of_on_and_off(on, off);
        assert!(own <= 1.0 / 3.0 + 0.02, "{on} of {}: {own}", on + off);
        assert!(c >= 1.0 / 3.0 - 0.02 && d >= 1.0 / 3.0 - 0.02, "{on} of {}: {c} {d}", on + off);
    }
    let [own, ..] = share_of_on_and_off(2, 2);
    assert!(own > 0.30, "its sleep is worth nothing: {own}");
}

#[test]
fn a_tenant_of_a_group_spends_credit_of_both() {
    let group = |weight: f64| TreeNode { is_leaf: false, ..plain(None, weight) };
    let nodes = [group(1.0), plain(Some(0), 1.0), plain(Some(0), 1.0), plain(None, 1.0)];
    let credit = |bank: f64, fair_cores: f64| Credit {
        account: Account { bank, ..Account::default() },
        entry: Entry { fair_cores, bank_seconds: 2.0 * bank, ..Entry::default() },
        is_missed: false,
    };
    let credits = [credit(8.0, 1.0), credit(3.0, 0.5), credit(9.0, 0.5), credit(-1.0, 1.0)];
    let spendable = |nodes: &[TreeNode], leaf| jobs::spendable(nodes, |n| credits[n], leaf);
    // Its own bank, half of the group's, no debt.
    assert_eq!([1, 2, 3].map(|leaf| spendable(&nodes, leaf)), [3.0, 4.0, 0.0]);
    // A group without siblings has no bank, and needs none; a tenant alone in its group neither.
    assert_eq!(spendable(&nodes[..3], 1), 3.0);
    assert_eq!(spendable(&[nodes[0].clone(), nodes[1].clone(), nodes[3].clone()], 1), 8.0);
    assert_eq!(spendable(&nodes[..2], 1), 0.0);
    let mut excluded = nodes.clone();
    excluded[1].has_credit = false;
    assert_eq!(spendable(&excluded, 1), 0.0);
    let paid = jobs::pay(&nodes, |n| credits[n], 1, 2.0);
    let paid: Vec<_> =
        paid.iter().map(|(n, it)| (*n, it.account.bank, it.entry.bank_seconds)).collect();
    assert_eq!(paid, [(1, 1.0, 2.0), (0, 6.0, 12.0)]);
    assert_eq!(jobs::pay(&nodes, |n| credits[n], 3, 1.0), []);
}
