//! Control flow inside a function: the instructions reachable from its start, and the stack depth at each.
//! Reads machine code only, without files, processes or probes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};
use serde::{Deserialize, Serialize};

use super::indirect_jump::{Destination, Policy, destination};
use super::instruction::{CALLEE_SAVED, decode_first, may_write};

/// Reason why control flow is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ControlFlowError {
    /// An indirect jump with unknown targets.
    #[error("an indirect jump at +{0:#x} hides where it goes on")]
    IndirectJump(u64),
    /// Control leaves what could be read.
    #[error("control leaves the code around the function at {}", signed(*.0))]
    LeavesCode(u64),
    /// An instruction is not valid.
    #[error("bytes at +{0:#x} are no instruction")]
    Invalid(u64),
}

/// Shows an offset from the start of a function, before which it may be.
fn signed(offset: u64) -> String {
    let sign = if offset.cast_signed() < 0 { '-' } else { '+' };
    format!("{sign}{:#x}", offset.cast_signed().unsigned_abs())
}

/// Machine code around a function.
pub struct Code64<'code> {
    /// The bytes. Jumps into neighbours are followed as long as they stay inside.
    pub bytes: &'code [u8],
    /// The bounds of the function around an offset into the bytes, as offsets.
    pub function_at: &'code dyn Fn(u64) -> Option<(u64, u64)>,
}

/// An instruction that control flow reaches.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    /// The decoded instruction, with its offset as its address.
    pub instruction: Instruction,
    /// Distance in bytes of the stack pointer below its value at the function's start; `None` if unknown.
    pub depth: Option<u64>,
}

/// Instructions that control flow reaches from a function's start, by offset.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    reached: BTreeMap<u64, Reached>,
    targets: HashSet<u64>,
    tail_calls: BTreeMap<u64, TailCall>,
}

/// Jump without a frame to a stub, which jumps to an address that the linker stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailCall {
    /// Offset of the jump.
    pub jump: u64,
    /// Offset of the stub.
    pub stub: u64,
    /// Offset of the stub's own jump.
    out: u64,
}

/// The stack pointer and the frame pointer, in bytes below the stack pointer at the start, where known.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Depth {
    sp: Option<i64>,
    bp: Option<i64>,
}

/// Returns the offset of the jump of the stub at an offset, if there is one.
fn stub_jump(bytes: &[u8], stub: u64) -> Option<u64> {
    let first = decode_at(bytes, stub).ok()?;
    let is_mark = first.mnemonic() == Mnemonic::Endbr64;
    let jump = if is_mark { decode_at(bytes, first.next_ip()).ok()? } else { first };
    let is_stub =
        jump.flow_control() == FlowControl::IndirectBranch && jump.is_ip_rel_memory_operand();
    is_stub.then(|| jump.ip())
}

impl Flow {
    /// Follows control flow from the offset `start`, past calls and through direct jumps.
    ///
    /// An indirect jump in a function that has not taken its frame down yet can only be to a place in the same
    /// function (the jump table of a `switch`): all of that function then counts as reached.
    ///
    /// # Errors
    ///
    /// If control flow is unknown.
    pub fn from(code: &Code64<'_>, start: u64) -> Result<Self, ControlFlowError> {
        let flow = Self::with_tail_calls(code, start)?;
        let first = flow.tail_calls.values().next();
        first.map_or(Ok(()), |call| Err(ControlFlowError::IndirectJump(call.out)))?;
        Ok(flow)
    }

    /// Follows control flow as [`from`](Self::from), up to tail calls through the linker's stubs.
    ///
    /// # Errors
    ///
    /// If control flow is unknown.
    pub fn with_tail_calls(code: &Code64<'_>, start: u64) -> Result<Self, ControlFlowError> {
        let mut flow = Self::default();
        let mut todo = vec![(start, Depth { sp: Some(0), bp: None })];
        while let Some((mut at, mut depth)) = todo.pop() {
            while !flow.reached.contains_key(&at) {
                let instruction = decode_at(code.bytes, at)?;
                let sp = depth.sp.and_then(|sp| u64::try_from(sp).ok());
                flow.reached.insert(at, Reached { instruction, depth: sp });
                let next = depth.after(&instruction);
                match instruction.flow_control() {
                    FlowControl::Return => break,
                    FlowControl::UnconditionalBranch => {
                        let stub = instruction.near_branch_target();
                        if let Some(out) = stub_jump(code.bytes, stub).filter(|_| sp == Some(0)) {
                            flow.tail_calls.insert(at, TailCall { jump: at, stub, out });
                            break;
                        }
                        at = stub;
                        flow.targets.insert(at);
                        depth = next;
                        continue;
                    }
                    FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                        let target = instruction.near_branch_target();
                        flow.targets.insert(target);
                        todo.push((target, next));
                    }
                    FlowControl::IndirectBranch => {
                        let policy = Policy::Frame { depth: sp };
                        let stays = destination(&instruction, &[], policy) == Destination::Inside;
                        let function = (code.function_at)(at).filter(|_| stays);
                        let (from, to) = function.ok_or(ControlFlowError::IndirectJump(at))?;
                        for instruction in sweep(code.bytes, from, to)? {
                            flow.targets.insert(instruction.ip());
                            todo.push((instruction.ip(), Depth { sp: None, bp: None }));
                        }
                        break;
                    }
                    // `ud2`, `hlt`: control ends here.
                    FlowControl::Exception | FlowControl::Interrupt
                        if instruction.mnemonic() != Mnemonic::Int3 =>
                    {
                        break;
                    }
                    FlowControl::Call | FlowControl::IndirectCall
                        if ends_function(code, &instruction) =>
                    {
                        break;
                    }
                    _ => {}
                }
                at = instruction.next_ip();
                depth = next;
            }
        }
        Ok(flow)
    }

    /// The tail calls through stubs, in the order of their offsets.
    pub fn tail_calls(&self) -> impl Iterator<Item = &TailCall> {
        self.tail_calls.values()
    }

    /// The instructions, in the order of their offsets.
    pub fn instructions(&self) -> impl Iterator<Item = &Reached> {
        self.reached.values()
    }

    /// Returns true if control reaches this offset.
    #[must_use]
    pub fn reaches(&self, offset: u64) -> bool {
        self.reached.contains_key(&offset)
    }

    /// The `ret` instructions that end a call.
    #[must_use]
    pub fn returns(&self) -> BTreeSet<u64> {
        let returns =
            |reached: &&Reached| reached.instruction.flow_control() == FlowControl::Return;
        self.instructions().filter(returns).map(|reached| reached.instruction.ip()).collect()
    }

    /// Returns true if an argument is still in its register at every return: nothing writes it, nothing is
    /// called.
    #[must_use]
    pub fn keeps_argument(&self, register: Register) -> bool {
        let mut info = InstructionInfoFactory::new();
        self.instructions().all(|Reached { instruction, .. }| {
            let calls = matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt
            );
            !calls && !writes(&mut info, instruction, &[register])
        })
    }

    /// The place after the one call of the function that is the second argument, when there is just one, and the
    /// depth of the stack there. Nothing else comes to this place.
    #[must_use]
    pub fn after_call_of_second_argument(&self) -> Option<(u64, u64)> {
        let (registers, slots) = self.copies_of_second_argument();
        let is_wanted = |reached: &&Reached| match reached.instruction.code() {
            Code::Call_rm64 if reached.instruction.op0_kind() == OpKind::Register => {
                registers.contains(&reached.instruction.op0_register())
            }
            Code::Call_rm64 => slot(reached).is_some_and(|slot| slots.contains(&slot)),
            _ => false,
        };
        let mut calls = self.instructions().filter(is_wanted);
        let call = calls.next().filter(|_| calls.next().is_none())?;
        let after = call.instruction.next_ip();
        (self.reaches(after) && !self.targets.contains(&after)).then_some((after, call.depth?))
    }

    /// Finds the copies of the second argument that survive calls: registers to which nothing else is written
    /// but the caller's values, and places on the stack, in bytes below the stack pointer at the start.
    fn copies_of_second_argument(&self) -> (Vec<Register>, Vec<i64>) {
        let mut info = InstructionInfoFactory::new();
        let copies = |instruction: &Instruction| {
            matches!(instruction.code(), Code::Mov_rm64_r64 | Code::Mov_r64_rm64)
                && instruction.op1_kind() == OpKind::Register
                && instruction.op1_register() == Register::RSI
        };
        let mut is_kept = |register: Register| {
            let mut copied = false;
            let only = self.instructions().all(|Reached { instruction, .. }| {
                let restores = matches!(instruction.code(), Code::Pop_r64 | Code::Leaveq);
                let copy = copies(instruction) && instruction.op0_kind() == OpKind::Register;
                copied |= copy && instruction.op0_register() == register;
                copy || restores || !writes(&mut info, instruction, &[register])
            });
            copied && only
        };
        let registers = CALLEE_SAVED.into_iter().filter(|&register| is_kept(register)).collect();
        let slots = self
            .instructions()
            .filter(|reached| copies(&reached.instruction))
            .filter_map(slot)
            .collect();
        (registers, slots)
    }
}

/// The place on the stack that an instruction's first operand is, in bytes below the stack pointer at the start.
fn slot(reached: &Reached) -> Option<i64> {
    let instruction = &reached.instruction;
    let on_stack = instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None;
    let depth = reached.depth.filter(|_| on_stack)?;
    i64::try_from(depth)
        .ok()
        .map(|at| at.wrapping_sub_unsigned(instruction.memory_displacement64()))
}

/// Returns true if an instruction may write one of these registers, or a part of one.
pub(crate) fn writes(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    registers: &[Register],
) -> bool {
    info.info(instruction).used_registers().iter().any(|used| {
        registers.contains(&used.register().full_register()) && may_write(used.access())
    })
}

fn decode_at(bytes: &[u8], at: u64) -> Result<Instruction, ControlFlowError> {
    let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    if rest.is_empty() {
        return Err(ControlFlowError::LeavesCode(at));
    }
    let instruction = decode_first(rest, at);
    if instruction.is_invalid() { Err(ControlFlowError::Invalid(at)) } else { Ok(instruction) }
}

/// All instructions of a function, one after the other.
fn sweep(bytes: &[u8], from: u64, to: u64) -> Result<Vec<Instruction>, ControlFlowError> {
    let mut instructions = Vec::new();
    let mut at = from;
    while at < to {
        let instruction = decode_at(bytes, at)?;
        at = instruction.next_ip();
        instructions.push(instruction);
    }
    Ok(instructions)
}

/// Returns true if the code after a call does not belong to the function: the call does not return.
fn ends_function(code: &Code64<'_>, call: &Instruction) -> bool {
    let (here, after) = ((code.function_at)(call.ip()), (code.function_at)(call.next_ip()));
    here.is_some() && here != after
}

impl Depth {
    fn after(self, instruction: &Instruction) -> Self {
        let mut after = self;
        match instruction.flow_control() {
            // The callee restores the stack pointer.
            FlowControl::Call | FlowControl::IndirectCall => return self,
            _ => {}
        }
        let by = i64::from(instruction.stack_pointer_increment());
        let first = (instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register)
            .then(|| instruction.op0_register());
        match (instruction.code(), first) {
            (Code::Leaveq, _) => after = Self { sp: self.bp.map(|bp| bp - 8), bp: None },
            (Code::Mov_rm64_r64 | Code::Mov_r64_rm64, Some(Register::RBP))
                if instruction.op1_register() == Register::RSP =>
            {
                after.bp = self.sp;
            }
            (Code::Mov_rm64_r64 | Code::Mov_r64_rm64, Some(Register::RSP))
                if instruction.op1_register() == Register::RBP =>
            {
                after.sp = self.bp;
            }
            (Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32, Some(Register::RSP)) => {
                after.sp = self.sp.map(|sp| sp.wrapping_add_unsigned(instruction.immediate(1)));
            }
            (Code::Add_rm64_imm8 | Code::Add_rm64_imm32, Some(Register::RSP)) => {
                after.sp = self.sp.map(|sp| sp.wrapping_sub_unsigned(instruction.immediate(1)));
            }
            (Code::Lea_r64_m, Some(Register::RSP))
                if instruction.memory_index() == Register::None =>
            {
                let base = match instruction.memory_base() {
                    Register::RSP => self.sp,
                    Register::RBP => self.bp,
                    _ => None,
                };
                after.sp =
                    base.map(|at| at.wrapping_sub_unsigned(instruction.memory_displacement64()));
            }
            _ if by != 0 => after.sp = self.sp.map(|sp| sp - by),
            _ => {
                let mut info = InstructionInfoFactory::new();
                if writes(&mut info, instruction, &[Register::RSP]) {
                    after.sp = None;
                }
            }
        }
        let mut info = InstructionInfoFactory::new();
        let sets_frame = after.bp.is_some() && after.bp != self.bp;
        if !sets_frame && writes(&mut info, instruction, &[Register::RBP]) {
            after.bp = None;
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(bytes: &[u8], functions: &[(u64, u64)]) -> Result<Flow, ControlFlowError> {
        let function_at =
            |at: u64| functions.iter().copied().find(|&(start, end)| (start..end).contains(&at));
        Flow::from(&Code64 { bytes, function_at: &function_at }, 0)
    }

    fn returns(bytes: &[u8]) -> Result<Vec<u64>, ControlFlowError> {
        flow(bytes, &[]).map(|flow| flow.returns().into_iter().collect())
    }

    #[test]
    fn returns_are_found_through_jumps_and_not_in_what_lies_between() {
        // jmp +2; ret; nop; test eax,eax; je +1; ret; ret
        let code = [0xeb, 2, 0xc3, 0x90, 0x85, 0xc0, 0x74, 1, 0xc3, 0xc3];
        assert_eq!(returns(&code), Ok(vec![8, 9]));
    }

    #[test]
    fn hidden_control_flow_is_an_error() {
        assert_eq!(returns(&[0xff, 0xe0]), Err(ControlFlowError::IndirectJump(0)));
        assert_eq!(returns(&[0x90]), Err(ControlFlowError::LeavesCode(1)));
        assert_eq!(returns(&[0x06]), Err(ControlFlowError::Invalid(0)));
        assert_eq!(returns(&[0xeb, 0x7f]), Err(ControlFlowError::LeavesCode(0x81)));
    }

    #[test]
    fn a_jump_to_a_stub_is_a_tail_call() {
        // test eax,eax; je +5; jmp stub; ret; (stub:) endbr64; jmp [rip]
        let mut code = vec![0x85, 0xc0, 0x74, 5, 0xe9, 1, 0, 0, 0, 0xc3, 0xf3, 0xf, 0x1e, 0xfa];
        code.extend([0xff, 0x25, 0, 0, 0, 0]);
        assert_eq!(returns(&code), Err(ControlFlowError::IndirectJump(14)));
        let found = |code: &[u8]| {
            let code = Code64 { bytes: code, function_at: &|_| None };
            let flow = Flow::with_tail_calls(&code, 0)?;
            let calls = flow.tail_calls().map(|call| (call.jump, call.stub)).collect::<Vec<_>>();
            Ok((flow.returns().into_iter().collect::<Vec<_>>(), calls))
        };
        assert_eq!(found(&code), Ok((vec![9], vec![(4, 10)])));
        // push rbx; push rbx: the frame is still there.
        (code[0], code[1], code[2], code[3]) = (0x53, 0x53, 0x53, 0x90);
        assert_eq!(found(&code), Err(ControlFlowError::IndirectJump(14)));
    }

    #[test]
    fn a_jump_table_reaches_the_whole_function_and_a_tail_call_hides_where_it_goes() {
        // push rbx; jmp rax; (case:) pop rbx; ret; (case:) xor eax,eax; pop rbx; ret; (next function:) ret
        let code = [0x53, 0xff, 0xe0, 0x5b, 0xc3, 0x31, 0xc0, 0x5b, 0xc3, 0xc3];
        let flow = |functions: &[(u64, u64)]| {
            flow(&code, functions).map(|flow| flow.returns().into_iter().collect::<Vec<_>>())
        };
        assert_eq!(flow(&[(0, 9), (9, 10)]), Ok(vec![4, 8]));
        assert_eq!(flow(&[]), Err(ControlFlowError::IndirectJump(1)), "the bounds are not known");
        // push rbx; pop rbx; jmp rax
        let tail = [0x53, 0x5b, 0xff, 0xe0];
        assert_eq!(
            super::tests::flow(&tail, &[(0, 4)]).err(),
            Some(ControlFlowError::IndirectJump(2))
        );
    }

    #[test]
    fn a_call_at_the_end_of_a_function_does_not_return() {
        // je +1; ret; call …; (next function:) ret
        let code = [0x74, 1, 0xc3, 0xe8, 0, 0, 0, 0, 0xc3];
        let returns = |functions: &[(u64, u64)]| {
            flow(&code, functions).unwrap().returns().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(returns(&[(0, 8), (8, 9)]), [2]);
        assert_eq!(returns(&[(0, 8)]), [2], "what follows is in no function");
        assert_eq!(returns(&[]), [2, 8], "without bounds all is taken");
    }

    fn depths(code: &[u8]) -> Vec<Option<u64>> {
        flow(code, &[]).unwrap().instructions().map(|reached| reached.depth).collect()
    }

    #[test]
    fn the_depth_of_the_stack_is_known() {
        // push rbx; sub rsp,0x20; call; add rsp,0x20; pop rbx; ret
        let code =
            [0x53, 0x48, 0x83, 0xec, 0x20, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x20, 0x5b, 0xc3];
        assert_eq!(depths(&code), [0, 8, 0x28, 0x28, 8, 0].map(Some));
        // push rbp; mov rbp,rsp; push rbx; and rsp,-16; lea rsp,[rbp-8]; pop rbx; pop rbp; ret
        let code = [
            0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xe4, 0xf0, 0x48, 0x8d, 0x65, 0xf8, 0x5b,
            0x5d, 0xc3,
        ];
        let known = [Some(0), Some(8), Some(8), Some(16), None, Some(16), Some(8), Some(0)];
        assert_eq!(depths(&code), known);
        // push rbp; mov rbp,rsp; sub rsp,0x100; leave; ret
        let code = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x81, 0xec, 0, 1, 0, 0, 0xc9, 0xc3];
        assert_eq!(depths(&code), [0, 8, 8, 0x108, 0].map(Some));
    }

    #[test]
    fn the_place_after_the_call_of_the_second_argument_is_found() {
        let after = |code: &[u8]| flow(code, &[]).unwrap().after_call_of_second_argument();
        // push rbp; mov rbp,rsi; call [rsp]; call rbp; pop rbp; ret
        let code = [0x55, 0x48, 0x89, 0xf5, 0xff, 0x14, 0x24, 0xff, 0xd5, 0x5d, 0xc3];
        assert_eq!(after(&code), Some((9, 8)));
        // sub rsp,0x18; mov [rsp+8],rsi; call [rsp]; call [rsp+8]; add rsp,0x18; ret
        let code = [
            0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0x74, 0x24, 8, 0xff, 0x14, 0x24, 0xff, 0x54, 0x24,
            8, 0x48, 0x83, 0xc4, 0x18, 0xc3,
        ];
        assert_eq!(after(&code), Some((16, 0x18)));
        // mov rbp,rsi; mov rbp,rdi; call rbp; ret
        let changed = [0x48, 0x89, 0xf5, 0x48, 0x89, 0xfd, 0xff, 0xd5, 0xc3];
        assert_eq!(after(&changed), None);
        // mov rbp,rsi; call rbp; call rbp; ret
        let two = [0x48, 0x89, 0xf5, 0xff, 0xd5, 0xff, 0xd5, 0xc3];
        assert_eq!(after(&two), None);
        // mov rbp,rsi; je +2; call rbp; (label:) ret
        let label = [0x48, 0x89, 0xf5, 0x74, 2, 0xff, 0xd5, 0xc3];
        assert_eq!(after(&label), None);
    }

    #[test]
    fn a_leaf_keeps_its_argument() {
        // lock dec dword [rdi]; jne +3; xor eax,eax; ret; pause; jmp -9
        let spin = [0xf0, 0xff, 0x0f, 0x75, 3, 0x31, 0xc0, 0xc3, 0xf3, 0x90, 0xeb, 0xf4];
        assert!(flow(&spin, &[]).unwrap().keeps_argument(Register::RDI));
        // mov edi,eax; ret
        assert!(!flow(&[0x89, 0xc7, 0xc3], &[]).unwrap().keeps_argument(Register::RDI));
        // call …; ret
        assert!(!flow(&[0xe8, 0, 0, 0, 0, 0xc3], &[]).unwrap().keeps_argument(Register::RDI));
    }
}
