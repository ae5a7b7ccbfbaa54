//! The size of a machine as an option.

use tenantd_core::units::Bytes;

/// The size of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSize {
    /// Number of CPUs.
    pub cpus: u32,
    /// Memory.
    pub memory: Bytes,
}

/// Parses `cpus=N,memory=AMOUNT`.
///
/// # Errors
/// The remedy, in words.
pub fn host_size(text: &str) -> Result<HostSize, String> {
    let (mut cpus, mut memory) = (None, None);
    for part in text.split(',') {
        match part.trim().split_once('=') {
            Some(("cpus", number)) if cpus.is_none() => {
                let count = number.parse().ok().filter(|count| (1..=8192).contains(count));
                cpus = Some(count.ok_or("cpus is a whole number from 1 to 8192")?);
            }
            Some(("memory", amount)) if memory.is_none() => {
                let bytes = amount.parse::<Bytes>().map_err(|error| error.to_string())?;
                memory = Some(bytes).filter(|bytes| bytes.0 > 0);
            }
            _ => return Err(format!("`{part}` is not `cpus=N` or `memory=AMOUNT`, each once")),
        }
    }
    let size = cpus.zip(memory).map(|(cpus, memory)| HostSize { cpus, memory });
    size.ok_or_else(|| "name both, as in `cpus=64,memory=256GiB`".to_string())
}
