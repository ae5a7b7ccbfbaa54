//! The tree of tenants: flat, in pre-order, parents before children.
//!
//! The nodes of the policy come first. *Members* follow: the cgroups of a tenant that has several, or whose
//! cgroups come and go. A tenant with members has no cgroup of its own; any other has one at most. *Ancestors*
//! are last: cgroups above tenants that belong to no tenant, such as systemd slices. An ancestor's entitlement
//! follows from the nodes below it. One index, the *position*, counts through all three. It is valid in one
//! tree; the identity of a node ([`NodeId`](tenantd_core::node::NodeId)) is valid in all trees of a run. A [`Node`] is a node of one tree.
//!
//! **Two trees.** The policy nests tenants in groups; the kernel divides among cgroups in one parent. Both are
//! the same for cgroups made by the agent. Systemd places units elsewhere, so each node also has the parent
//! of its cgroup ([`CgroupParent`]). All cgroups that the agent writes are *governed*.

pub mod bounds;
mod ids;
mod node;
mod policy;

pub use node::{Ancestor, CgroupParent, Member, Node, Tree};
pub use policy::{DiskTerms, Row, Terms, TreeNode, Written, fit, flatten, on_machine};
