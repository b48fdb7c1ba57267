//! The first instruction after a step of a thread: where a delay takes place once the step is made.

use iced_x86::{FlowControl, Instruction};
use symbolize::{ElfFile, LinkAddr};

use super::instruction::{decode, decode_first, is_direct};

/// Most bytes of code that are looked at.
const MAX_BYTES: usize = 96;

/// Most instructions between the release of a lock in line and the jump for its waiters.
const MAX_BEFORE_JUMP: usize = 4;

/// Most bytes of the code that wakes a waiter, where it is in line.
const MAX_WAKE: u64 = 48;

/// Most instructions of the code that wakes a waiter.
const MAX_WAKE_INSTRUCTIONS: usize = 12;

/// Returns the instruction after the one at an address. `None` where control does not go on there, or the code is not
/// known.
#[must_use]
pub fn after_instruction(file: &ElfFile, at: LinkAddr) -> Option<LinkAddr> {
    let code = bytes(file, at)?;
    let instruction = decode_first(code, at.0);
    let goes_on = !instruction.is_invalid() && instruction.flow_control() == FlowControl::Next;
    goes_on.then(|| LinkAddr(instruction.next_ip()))
}

/// Returns the first instruction after the release of a lock by an instruction, once its waiters have been woken: a
/// thread that is delayed before would hold them up as well.
#[must_use]
pub fn after_release(file: &ElfFile, at: LinkAddr) -> Option<LinkAddr> {
    let next = after_instruction(file, at)?;
    let Some(code) = bytes(file, next) else { return Some(next) };
    Some(LinkAddr(after_wake(code, next.0, |target| bytes(file, LinkAddr(target)))))
}

/// Returns the address at which control is again after a wake of waiters, if the code from `start` on tests whether
/// there are any; else `start`.
fn after_wake<'a>(code: &[u8], start: u64, bytes: impl Fn(u64) -> Option<&'a [u8]>) -> u64 {
    let first = decode(code, start).take(MAX_BEFORE_JUMP);
    let mut first = first.skip_while(|instruction| instruction.flow_control() == FlowControl::Next);
    let is_branch = |jump: &Instruction| {
        jump.flow_control() == FlowControl::ConditionalBranch && is_direct(jump)
    };
    let Some(jump) = first.next().filter(is_branch) else { return start };
    let (target, next) = (jump.near_branch_target(), jump.next_ip());
    let in_line = next..next + MAX_WAKE;
    let skips = |from: u64, to: u64| {
        let code = bytes(from).unwrap_or_default();
        calls_before(code, from, |instruction| instruction.next_ip() == to)
    };
    if in_line.contains(&target) && skips(next, target) {
        return target;
    }
    let comes_back = |instruction: &Instruction| {
        instruction.flow_control() == FlowControl::UnconditionalBranch
            && is_direct(instruction)
            && in_line.contains(&instruction.near_branch_target())
    };
    let cold = bytes(target).unwrap_or_default();
    let back = decode(cold, target).take(MAX_WAKE_INSTRUCTIONS).find(comes_back);
    match back {
        Some(back) if calls_before(cold, target, |at| at.ip() == back.ip()) => {
            back.near_branch_target()
        }
        _ => start,
    }
}

/// Returns whether code makes a call or a system call and gets to the instruction that is the last one.
fn calls_before(code: &[u8], start: u64, is_last: impl Fn(&Instruction) -> bool) -> bool {
    let mut calls = false;
    for instruction in decode(code, start).take(MAX_WAKE_INSTRUCTIONS) {
        let flow = instruction.flow_control();
        calls |= matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
        calls |= instruction.mnemonic() == iced_x86::Mnemonic::Syscall;
        if is_last(&instruction) {
            return calls;
        }
        if matches!(flow, FlowControl::UnconditionalBranch | FlowControl::Return) {
            return false;
        }
    }
    false
}

/// Returns the code at an address, as much as there is.
fn bytes(file: &ElfFile, at: LinkAddr) -> Option<&[u8]> {
    (1..=MAX_BYTES).rev().step_by(8).find_map(|length| file.bytes_at(at, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    /// Returns the address after the wake in code that begins after a release, as an offset.
    fn after(code: &[u8]) -> u64 {
        let bytes = |address: u64| code.get((address - START) as usize..);
        after_wake(code, START, bytes) - START
    }

    #[test]
    fn a_wake_in_line_is_passed() {
        // cmp eax, 2; jne +5; call; nop
        assert_eq!(after(&[0x83, 0xf8, 2, 0x75, 5, 0xe8, 0, 0, 0, 0, 0x90]), 10);
        // cmp eax, 2; jne +2; syscall; nop
        assert_eq!(after(&[0x83, 0xf8, 2, 0x75, 2, 0x0f, 5, 0x90]), 7);
    }

    #[test]
    fn a_wake_elsewhere_comes_back() {
        // cmp eax, 2; je +2; nop; ret; call; jmp -8
        let code = [0x83, 0xf8, 2, 0x74, 2, 0x90, 0xc3, 0xe8, 0, 0, 0, 0, 0xeb, 0xf7];
        assert_eq!(after(&code), 5);
    }

    #[test]
    fn other_branches_are_not_followed() {
        // cmp eax, 2; jne +3; mov eax, ebx; nop; nop
        assert_eq!(after(&[0x83, 0xf8, 2, 0x75, 3, 0x89, 0xd8, 0x90, 0x90]), 0);
        // ret
        assert_eq!(after(&[0xc3]), 0);
        // cmp eax, 2; jne far away, to what is not known
        assert_eq!(after(&[0x83, 0xf8, 2, 0x0f, 0x85, 0, 1, 0, 0]), 0);
    }
}
