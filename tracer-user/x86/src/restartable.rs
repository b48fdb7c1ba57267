//! Restartable sequences of a file: `symbolize` finds them in its data, and asks here for the targets of jumps.

use iced_x86::FlowControl;
use symbolize::{ElfFile, LinkAddr, RestartableSequences};

use super::instruction::decode_first;

/// Returns the restartable sequences of a file, found on first use.
#[must_use]
pub fn restartable_sequences(file: &ElfFile) -> &RestartableSequences {
    file.restartable(jump_target)
}

fn jump_target(code: &[u8], at: LinkAddr) -> Option<LinkAddr> {
    let first = decode_first(code, at.0);
    let jumps = first.flow_control() == FlowControl::UnconditionalBranch;
    jumps.then(|| LinkAddr(first.near_branch_target()))
}
