//! A kernel in memory behind [`crate::host::kernfs::KernFs`].

/// The simulated kernel.
#[derive(Debug)]
pub struct SimKernel;
