//! Random policies, as values.

use crate::util::Dice;

/// The tenants and groups that there may be; those with a slash are below a group.
pub(super) const TENANTS: [&str; 9] = ["a", "b", "c", "d", "e", "g/p", "g/q", "h/r", "h/s"];
/// The groups.
const GROUPS: [&str; 2] = ["g", "h"];
/// The cgroup whose children a policy may claim, from the top of the ground.
pub(super) const CLAIMED: &str = "apps";

/// A node of a policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Node {
    weight: u32,
    guarantee: Option<(u32, u32)>,
    limit_millis: Option<u32>,
    limit_mib: Option<u32>,
    cpus: Option<&'static str>,
    claims: bool,
}

/// A policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spec {
    pub(super) is_enforcing: bool,
    pub(super) accepts_drift: bool,
    interval_millis: u32,
    allocation: &'static str,
    groups: [Node; 2],
    /// In the order of [`TENANTS`].
    tenants: [Option<Node>; 9],
}

impl Spec {
    /// Two tenants of equal weight.
    pub(super) fn first(interval_millis: u32) -> Spec {
        let plain = Node { weight: 100, ..Node::default() };
        let mut tenants = [const { None }; 9];
        tenants[0] = Some(plain.clone());
        tenants[5] = Some(plain.clone());
        Spec {
            is_enforcing: true,
            accepts_drift: false,
            interval_millis,
            allocation: "drf",
            groups: [plain.clone(), plain],
            tenants,
        }
    }

    /// Another policy that differs in a few things.
    pub(super) fn changed(&self, dice: &mut Dice) -> Spec {
        let mut next = self.clone();
        for _ in 0..1 + dice.below(3) {
            next.change(dice);
        }
        if next.tenants.iter().all(Option::is_none) {
            next.tenants[0] = Some(Node::any(dice));
        }
        next
    }

    fn change(&mut self, dice: &mut Dice) {
        let number = dice.below(TENANTS.len() as u64) as usize;
        match dice.below(20) {
            0..=3 => self.tenants[number] = Some(Node::any(dice)),
            4..=7 => self.tenants[number] = None,
            // A rename: the same tenant under another name.
            8..=9 => {
                let other = dice.below(TENANTS.len() as u64) as usize;
                self.tenants.swap(number, other);
            }
            10..=13 => {
                if let Some(node) = &mut self.tenants[number] {
                    node.change(dice);
                }
            }
            14..=16 => self.groups[number % 2].change(dice),
            17 => self.accepts_drift = dice.below(3) == 0,
            18 => self.is_enforcing = dice.below(4) != 0,
            _ => self.allocation = dice.one_of(&["drf", "drf", "max-min", "static"]),
        }
        // One tenant claims at most, so that it is known whose a process is.
        let mut claims = false;
        for (path, node) in TENANTS.iter().zip(&mut self.tenants) {
            let Some(node) = node else { continue };
            node.claims &= !claims && !path.contains('/');
            claims |= node.claims;
        }
    }

    /// Whether processes of the cgroups below [`CLAIMED`] are some tenant's.
    pub(super) fn claims(&self) -> bool {
        self.tenants.iter().flatten().any(|node| node.claims)
    }

    /// The paths of its groups and tenants.
    pub(super) fn paths(&self) -> Vec<&'static str> {
        let tenants = TENANTS.iter().zip(&self.tenants).filter(|(_, node)| node.is_some());
        let mut paths: Vec<&str> = tenants.map(|(path, _)| *path).collect();
        for group in GROUPS {
            if paths.iter().any(|path| path.starts_with(&format!("{group}/"))) {
                paths.push(group);
            }
        }
        paths
    }

    /// The least CPU limit of the node at `path` and the groups above it, and its own memory limit in MiB.
    pub(super) fn limits(&self, path: &str) -> (Option<u32>, Option<u32>) {
        let group = GROUPS.iter().position(|group| {
            *group == path || path.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'))
        });
        let above = group.and_then(|group| self.groups[group].limit_millis);
        let own = match TENANTS.iter().position(|name| *name == path) {
            Some(number) => self.tenants[number].as_ref(),
            None => group.map(|group| &self.groups[group]),
        };
        let millis = own.and_then(|own| own.limit_millis);
        // What the policy does not limit is left alone, whatever bounds the groups above.
        (millis.map(|own| own.min(above.unwrap_or(own))), own.and_then(|own| own.limit_mib))
    }

    /// Its text, of a host whose ground begins at `top` below the mount points.
    pub(super) fn yaml(&self, top: &str) -> String {
        let mut text = format!(
            "version: 1\nmode: {}\nhost: {{ reserve: {{ cpu: 0, memory: 64MiB }} }}\ncontrol: {{ interval: {}ms, \
             allocation: {}, on_drift: {} }}\ntenants:\n",
            if self.is_enforcing { "enforce" } else { "observe" },
            self.interval_millis,
            self.allocation,
            if self.accepts_drift { "accept" } else { "repair" },
        );
        for (path, node) in TENANTS.iter().zip(&self.tenants) {
            if let (Some(node), false) = (node, path.contains('/')) {
                text += &format!("  {path}: {{ {} }}\n", keys(node, top));
            }
        }
        for (group, node) in GROUPS.iter().zip(&self.groups) {
            let below: Vec<(&str, &Node)> = TENANTS
                .iter()
                .zip(&self.tenants)
                .filter_map(|(path, node)| Some((path.strip_prefix(group)?, node.as_ref()?)))
                .collect();
            if below.is_empty() {
                continue;
            }
            // A group has no CPUs of its own, and promises what its tenants are promised.
            let plain = Node { cpus: None, claims: false, guarantee: None, ..node.clone() };
            text += &format!(
                "  {group}:\n    {}\n    tenants:\n",
                keys(&plain, top).replace(", ", "\n    ")
            );
            for (name, node) in below {
                let name = name.trim_start_matches('/');
                text += &format!("      {name}: {{ {} }}\n", keys(node, top));
            }
        }
        text
    }
}

impl Node {
    /// A random one.
    pub(crate) fn any(dice: &mut Dice) -> Node {
        let mut node = Node { weight: 100, ..Node::default() };
        for _ in 0..dice.below(5) {
            node.change(dice);
        }
        node
    }

    pub(crate) fn change(&mut self, dice: &mut Dice) {
        match dice.below(8) {
            0..=1 => self.weight = dice.one_of(&[1, 10, 50, 100, 100, 300, 1000, 10_000]),
            2 => {
                self.guarantee = Some((50 + 50 * dice.below(4) as u32, 8 * dice.below(9) as u32));
            }
            3 => self.guarantee = None,
            4 => {
                let millis = dice.one_of(&[100, 250, 500, 1000, 1500, 3000]);
                self.limit_millis = (dice.below(3) != 0).then_some(millis);
            }
            5 => {
                self.limit_mib = (dice.below(3) != 0).then_some(dice.one_of(&[64, 128, 512, 2048]));
            }
            6 => {
                self.cpus =
                    dice.one_of(&[None, None, Some("dop"), Some("exclusive"), Some("\"1\"")]);
            }
            _ => self.claims = dice.below(2) == 0,
        }
    }

    /// Its limits: thousandths of a CPU, and MiB.
    pub(crate) fn limits(&self) -> (Option<u32>, Option<u32>) {
        (self.limit_millis, self.limit_mib)
    }

    /// What a policy says of it, but for its processes.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys = vec![format!("weight: {}", self.weight)];
        if let Some((millis, mib)) = self.guarantee {
            keys.push(format!("guarantee: {{ cpu: {millis}m, memory: {mib}MiB }}"));
        }
        match (self.limit_millis, self.limit_mib) {
            (None, None) => {}
            (Some(millis), None) => keys.push(format!("limit: {{ cpu: {millis}m }}")),
            (None, Some(mib)) => keys.push(format!("limit: {{ memory: {mib}MiB }}")),
            (Some(millis), Some(mib)) => {
                // Not by a comma: the keys of a group are separated at those.
                keys.push(format!("limit: {{ cpu: {millis}m,memory: {mib}MiB }}"));
            }
        }
        keys.extend(self.cpus.map(|cpus| format!("cpus: {cpus}")));
        keys
    }
}

fn keys(node: &Node, top: &str) -> String {
    let mut keys = node.keys();
    if node.claims {
        keys.push(format!("match: {{ cgroup: \"{top}/{CLAIMED}/*\", move: true }}"));
    }
    keys.join(", ")
}
