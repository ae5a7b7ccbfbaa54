//! The controllers, and small sets of them in the kernel's order.

/// A cgroup controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Placement on CPUs and memory nodes.
    Cpuset,
    /// CPU time by weight and quota.
    Cpu,
    /// CPU time accounting; a controller of its own in the legacy hierarchy only.
    Cpuacct,
    /// Block IO.
    Io,
    /// Memory.
    Memory,
    /// Number of processes.
    Pids,
}

impl Controller {
    /// Every controller, in the kernel's order.
    pub const ALL: [Controller; 6] = [
        Controller::Cpuset,
        Controller::Cpu,
        Controller::Cpuacct,
        Controller::Io,
        Controller::Memory,
        Controller::Pids,
    ];

    /// Name in `cgroup.controllers`.
    pub fn name(self) -> &'static str {
        match self {
            Controller::Cpuset => "cpuset",
            Controller::Cpu => "cpu",
            Controller::Cpuacct => "cpuacct",
            Controller::Io => "io",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ControllerSet(u8);

impl ControllerSet {
    /// Controllers that may be in a threaded subtree, and so share a cgroup with processes.
    pub(super) const THREADED: ControllerSet = ControllerSet(
        1 << Controller::Cpuset as u8 | 1 << Controller::Cpu as u8 | 1 << Controller::Pids as u8,
    );

    pub(super) fn contains(self, controller: Controller) -> bool {
        self.0 & (1 << controller as u8) != 0
    }

    pub(super) fn insert(&mut self, controller: Controller) {
        self.0 |= 1 << controller as u8;
    }

    pub(super) fn remove(&mut self, controller: Controller) {
        self.0 &= !(1 << controller as u8);
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn without(self, other: ControllerSet) -> ControllerSet {
        ControllerSet(self.0 & !other.0)
    }

    pub(super) fn union(self, other: ControllerSet) -> ControllerSet {
        ControllerSet(self.0 | other.0)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Controller> {
        Controller::ALL.into_iter().filter(move |&controller| self.contains(controller))
    }

    /// Names between blanks, with a newline: the text of `cgroup.controllers`.
    pub(super) fn line(self) -> String {
        let names: Vec<&str> = self.iter().map(Controller::name).collect();
        if names.is_empty() { String::new() } else { names.join(" ") + "\n" }
    }
}

impl FromIterator<Controller> for ControllerSet {
    fn from_iter<T: IntoIterator<Item = Controller>>(controllers: T) -> Self {
        let mut set = ControllerSet::default();
        controllers.into_iter().for_each(|controller| set.insert(controller));
        set
    }
}
