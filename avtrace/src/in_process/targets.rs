//! Places of a file's functions to which control may come from elsewhere: no patch displaces an instruction there, but
//! the first of its bytes.

use std::collections::BTreeSet;

use symbolize::ElfFile;
use x86::{functions::Functions, instruction::decode};

/// Targets inside of functions, as link-time addresses.
#[derive(Debug, Default)]
pub(super) struct Targets(BTreeSet<u64>);

impl Targets {
    /// Finds the targets of a file: symbols, landing pads, and targets of jumps and calls from other functions.
    pub(super) fn of_file(file: &ElfFile, functions: &Functions) -> Self {
        let mut targets: BTreeSet<u64> =
            file.symbols().iter().map(|symbol| symbol.address.0).collect();
        targets.extend(file.landing_pads().into_iter().map(|pad| pad.0));
        for function in functions.iter() {
            let (start, end) = (function.start.0, function.end.0);
            for part in function.parts(file).unwrap_or_default() {
                let jumps = decode(part.code, part.start)
                    .filter(|instruction| !instruction.is_invalid())
                    .map(|instruction| instruction.near_branch_target())
                    .filter(|target| *target != 0 && !(start..end).contains(target));
                targets.extend(jumps);
            }
        }
        Self(targets)
    }

    /// Returns whether an address is one.
    pub(super) fn contains(&self, address: u64) -> bool {
        self.0.contains(&address)
    }
}
