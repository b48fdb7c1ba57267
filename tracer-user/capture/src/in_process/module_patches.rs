//! Patches of one module in a program, as the plans so far have left them.

use std::collections::BTreeMap;

use inline::trampoline::Probe;
use x86::patching::Padding;

/// Patches of a module.
#[derive(Clone, Debug, Default)]
pub struct ModulePatches {
    /// Room for jumps, and what is displaced, by link-time addresses.
    pub padding: Padding,
    /// Probes, by the link-time addresses of their points: a later plan may add some to the same patch.
    pub probes: BTreeMap<u64, Vec<Probe>>,
    /// Trampolines of code that all ways to are displaced, by its addresses in the process.
    pub redirected: BTreeMap<u64, u64>,
}
