//! A control loop with another policy, which replays the recording of the loop with the old one.
//!
//! Tenants are matched by path or name ([`super::origin`]). Tenants of the new policy's templates are those that were
//! found in groups of the same path.

use std::time::Duration;

use super::origin::{Origin, Seen, origins};
use tenantd_control::state::step::{Decision, Input, NodeInput, Settings, TreeChange};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::Event;
use tenantd_control::tree::{self, CgroupParent, Member, Node, Tree, TreeNode};
use tenantd_host::recording::tape::Tape;
use tenantd_policy::model::{CpusPolicy, Policy, Tenant};

#[derive(Debug)]
pub(super) struct Rival {
    policy: Policy,
    pub(super) control: ControlLoop,
    /// For each position of the rival the position in the recorded loop.
    pub(super) origins: Vec<Option<usize>>,
    /// Difference between the agent's own time and that of the rival, which continues over restarts.
    shift: i128,
    last_now: Option<Duration>,
    last_wall: Duration,
    is_new_run: bool,
    pub(super) seen: Seen,
}

#[derive(Debug)]
pub(super) struct Tick {
    pub(super) wall: Duration,
    /// The recorded decision.
    pub(super) was: Decision,
    /// The rival's decision.
    pub(super) would: Decision,
}

impl Rival {
    pub(super) fn new(policy: &Policy, recorded: &ControlLoop) -> Rival {
        let policy = policy.clone();
        let pins = pins(&policy.tenants);
        let settings = Settings::of(&policy, pins, true);
        Rival {
            control: ControlLoop::new(settings, Tree::default()),
            policy,
            origins: Vec::new(),
            shift: 0,
            last_now: None,
            last_wall: Duration::ZERO,
            is_new_run: true,
            seen: Seen::default(),
        }
        .with_tree_of(recorded)
    }

    fn with_tree_of(mut self, recorded: &ControlLoop) -> Rival {
        self.follow(recorded);
        self
    }

    /// Begins a segment, perhaps of another run of the agent.
    pub(super) fn take_up(&mut self, recorded: &ControlLoop) {
        self.is_new_run = true;
        self.follow(recorded);
    }

    /// Copies the present tenants and members of the recorded loop.
    fn follow(&mut self, recorded: &ControlLoop) {
        let old = recorded.tree();
        let mut policy = self.policy.clone();
        expand(&mut policy.tenants, "", old.nodes());
        let nodes = tree::flatten(&policy);
        let origins = origins(&nodes, old.nodes());
        self.seen.note(&nodes, &origins, old.nodes());
        let origins: Vec<Option<usize>> = origins.into_iter().map(Origin::at).collect();
        let parent = |(node, origin): (&TreeNode, &Option<usize>)| match origin {
            Some(origin) if old.at(*origin).has_members() => CgroupParent::Members,
            _ => node.parent.map_or(CgroupParent::Top, CgroupParent::Governed),
        };
        let parents = nodes.iter().zip(&origins).map(parent).collect();
        let mut members: Vec<(Member, usize)> = Vec::new();
        for (tenant, origin) in origins.iter().enumerate() {
            let Some(origin) = origin.filter(|origin| old.at(*origin).has_members()) else {
                continue;
            };
            for (node, member) in old.members().filter(|(_, member)| member.tenant == origin) {
                let parent = CgroupParent::Top;
                members.push((Member { tenant, parent, ..member.clone() }, node.at()));
            }
        }
        let mut all = origins;
        all.extend(members.iter().map(|(_, number)| Some(*number)));
        let members = members.into_iter().map(|(member, _)| member).collect();
        let tree = Tree::below(nodes.into(), parents, members, Vec::new());
        let before = self.control.tree();
        let is_node = |node: Node<'_>| node.at() < node.tree().nodes().len();
        let is_same = |one: Node<'_>, other: Node<'_>| {
            one.name() == other.name() && is_node(one) == is_node(other)
        };
        let place = |old: Node<'_>| tree.all().find(|new| is_same(*new, old)).map(Node::at);
        let kept: Vec<Option<usize>> = before.all().map(place).collect();
        let tree = tree.after(before, &kept);
        let change = TreeChange { tree, handed: Vec::new(), unpinned: Vec::new() };
        self.control.apply(Event::TakeTree(Box::new(change)));
        self.origins = all;
    }

    /// The next tick of both; `None` at the end of the segment.
    pub(super) fn play(&mut self, tape: &mut Tape) -> Option<Tick> {
        loop {
            let event = tape.next_event()?;
            match event {
                Event::Step(input) => {
                    let wall = tape.wall_at(input.now);
                    let would = self.step(&input, &tape.control, wall);
                    let was = tape.control.apply(Event::Step(input)).unwrap_or_default();
                    return Some(Tick { wall, was, would });
                }
                Event::TakeTree(_) => {
                    tape.control.apply(event);
                    self.follow(&tape.control);
                }
                Event::Lose(node, _) => {
                    let lost = tape.control.tree().position(node);
                    let own = self.origins.iter().position(|it| it.is_some() && *it == lost);
                    if let Some(own) = own.map(|own| self.control.tree().at(own).id()) {
                        self.control.apply(Event::Lose(own, false));
                    }
                    tape.control.apply(event);
                }
                other => {
                    tape.control.apply(other);
                }
            }
        }
    }

    fn step(&mut self, input: &Input, recorded: &ControlLoop, wall: Duration) -> Decision {
        self.settle_time(input.now, wall);
        let now = u64::try_from(input.now.as_nanos() as i128 + self.shift).unwrap_or(0);
        let now = Duration::from_nanos(now);
        self.last_now = Some(now);
        self.last_wall = wall;
        let nodes = self.origins.iter().map(|origin| node(input, *origin)).collect();
        let known = recorded.topology().filter(|_| self.control.topology().is_none());
        let topology = input.topology.clone().or_else(|| known.cloned());
        self.control.apply(Event::Begin);
        let Input { host, above, ways, .. } = *input;
        let leaves = input.leaves.clone();
        let input = Input { now, host, nodes, topology, above, ways, leaves };
        let decision = self.control.apply(Event::step(input)).unwrap_or_default();
        for action in &decision.actions {
            let written = action.to.clone();
            self.control.apply(Event::settle((action.clone(), Ok(written))));
        }
        decision
    }

    /// Another run of the agent counts time from another instant; the wall clock measures the time between
    /// them.
    fn settle_time(&mut self, now: Duration, wall: Duration) {
        if !std::mem::take(&mut self.is_new_run) {
            return;
        }
        let Some(last) = self.last_now else { return };
        let interval = self.control.settings().interval;
        let shifted = now.as_nanos() as i128 + self.shift;
        let passed = wall.saturating_sub(self.last_wall);
        let off = shifted - (last + passed).as_nanos() as i128;
        if off.unsigned_abs() > interval.as_nanos() / 2 {
            self.shift += (last + passed.max(interval)).as_nanos() as i128 - shifted;
        }
    }
}

/// The recorded readings of a node, without its file contents: these would differ.
fn node(input: &Input, origin: Option<usize>) -> NodeInput {
    match origin.and_then(|origin| input.nodes.get(origin)) {
        Some(node) => NodeInput {
            observed: None,
            arrivals: Vec::new(),
            held_before: Vec::new(),
            ..node.clone()
        },
        None => NodeInput { is_governed: true, is_present: true, ..NodeInput::default() },
    }
}

/// Adds the tenants that were found in groups with a template.
fn expand(tenants: &mut [Tenant], above: &str, old: &[TreeNode]) {
    for group in tenants {
        let path = match above {
            "" => group.name.clone(),
            _ => format!("{above}/{}", group.name),
        };
        if let Some(template) = &group.each {
            for node in old.iter().filter(|node| node.is_found) {
                let found = node.path.rsplit_once('/').filter(|(group, _)| *group == path);
                let Some((_, name)) = found else { continue };
                if group.tenants.iter().all(|tenant| tenant.name != name) {
                    let (name, is_found) = (name.to_string(), true);
                    group.tenants.push(Tenant { name, is_found, ..(**template).clone() });
                }
            }
        }
        expand(&mut group.tenants, &path, old);
    }
}

fn pins(tenants: &[Tenant]) -> bool {
    tenants.iter().any(|tenant| {
        let template = tenant.each.as_deref().is_some_and(|it| it.cpus != CpusPolicy::Shared);
        tenant.cpus != CpusPolicy::Shared || template || pins(&tenant.tenants)
    })
}
