//! Computation of an object's address from registers and the stack at an instruction.

use abi::Operand;
use iced_x86::{Code, Instruction, OpKind, Register};
use x86::dataflow::{DataState, Value, ValueOrigin, number};
use x86::instruction::RSP;

use super::sites::LockAddress;

/// Returns the computation of an address at the instruction that loads it.
pub(crate) fn loaded_by(instruction: &Instruction, address: Value) -> Option<LockAddress> {
    let Value { base: Some(ValueOrigin::Defined(at, _)), index: None, plus } = address else {
        return None;
    };
    let is_load = instruction.code() == Code::Mov_r64_rm64
        && instruction.op1_kind() == OpKind::Memory
        && instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None;
    if !is_load || at != instruction.ip() {
        return None;
    }
    let base = number(instruction.memory_base())?;
    let offset = instruction.memory_displacement64();
    let words =
        u16::try_from(offset / 8).ok().filter(|&words| words < 128 && offset.is_multiple_of(8))?;
    let operand = Operand::indirect(base.into(), words);
    Some(LockAddress { operand, indirect: true, plus, is_static: false })
}

/// Returns the computation of an address from the registers or the stack.
pub(crate) fn locate(state: &DataState, address: Value) -> Option<LockAddress> {
    let none = Operand::NONE;
    let direct =
        |operand, plus, is_static| LockAddress { operand, indirect: false, plus, is_static };
    if address.base.is_none() && address.index.is_none() {
        return Some(direct(Operand::new(none, none, 0), address.plus, true));
    }
    for register in 0..16 {
        if let Some(plus) = address.distance_from(state.register(register)) {
            return Some(direct(Operand::new(register.into(), none, 0), plus, false));
        }
    }
    for (offset, value) in state.stack() {
        if let Some(plus) = address.distance_from(value)
            && offset % 8 == 0
            && let Ok(words @ 0..128) = u16::try_from(offset / 8)
        {
            let operand = Operand::indirect(RSP.into(), words);
            return Some(LockAddress { operand, indirect: true, plus, is_static: false });
        }
    }
    let (origin, scale) = address.index?;
    let holds = |wanted: Option<ValueOrigin>| {
        (0..16).find(|&register| {
            let value = state.register(register);
            value.index.is_none() && value.base == wanted && wanted.is_some()
        })
    };
    let index = holds(Some(origin))?;
    let scaled = state.register(index).plus.wrapping_mul(scale.into());
    let (base, moved) = match address.base {
        None => (none, 0),
        wanted => {
            let base = holds(wanted)?;
            (base.into(), state.register(base).plus)
        }
    };
    let plus = address.plus.wrapping_sub(scaled).wrapping_sub(moved);
    let scale = u16::try_from(scale.trailing_zeros()).ok()?;
    Some(direct(Operand::new(base, index.into(), scale), plus, address.base.is_none()))
}
