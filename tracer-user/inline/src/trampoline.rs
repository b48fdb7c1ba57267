//! Trampolines: the code that a patched place jumps to. Each records the events of its probes, executes the displaced
//! instructions and jumps back. Whole registers, flags and the red zone are as before; no vector register is used.
//!
//! An area of memory near the program's code has the [`CommonCode`] once, and any number of [`Trampoline`]s. All
//! addresses are in the traced process.
//!
//! A probe makes the records of the BPF program of its name (`ebpf`), at the same events, with these differences:
//!
//! - Return probes do not exist: calls that count at their returns have probes at the `ret` instructions
//!   ([`ProbeProgram::CallEnd`], [`ProbeProgram::AllocEnd`]).
//! - The value at the accessed memory is read from the pages of the access alone. So a probe makes no fault that the
//!   program does not make, but by a pointer that its code is about to use: see [`Trampoline::fault`] and
//!   [`CommonCode::fault`].
//! - Accesses of owners are deferred by another protocol, without a lock ([`cell`](crate::cell)).

mod access;
mod alloc;
mod assembler;
mod calls;
mod cells;
mod common;
mod delay;
mod frame;
mod programs;
mod reserved;
mod shared;
mod stacks;
mod step;
mod switch;
mod way_out;
mod words;

use std::collections::BTreeMap;

use abi::{AccessDescriptor, Cookie, ProbeProgram};
use iced_x86::{BlockEncoderOptions, Decoder, DecoderOptions, FlowControl, IcedError, Instruction};
use x86::patching::{
    self, Called, Live, NEAR_JUMP, RETURN_ADDRESS, SHORT_JUMP, SKIPPED, call_as_jump, called,
};

use self::{
    assembler::Assembler,
    frame::Frame,
    reserved::{RDX, Resume},
    way_out::Exit,
};
pub use self::{
    assembler::accesses_block,
    common::CommonCode,
    reserved::{Caller, Interrupted, Reserved, give_up},
    switch::Switch,
    way_out::WayOut,
};

/// Displaced code, and the probes in it.
#[derive(Clone, Debug)]
pub struct Displaced<'a> {
    /// Address of the first byte.
    pub address: u64,
    /// The bytes as they were before the patch: whole instructions, and padding.
    pub code: &'a [u8],
    /// Probe points, in the order of their places. Those at the same place act one after the other.
    pub points: &'a [Point],
    /// Trampolines in place of addresses to which a displaced instruction jumps, or which are behind the last one: see
    /// [`x86::patching::Jump::Redirected`].
    pub redirected: &'a BTreeMap<u64, u64>,
}

/// Probe point: see [`x86::patching::Point`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Instruction before which the probes act, or the end of the displaced code.
    pub before: u64,
    /// Registers and flags that count there.
    pub live: Live,
    /// Set if the 128 bytes below the stack pointer may be in use.
    pub red_zone: bool,
    /// The probes.
    pub probes: Vec<Probe>,
}

impl Point {
    /// Point of a patch with its probes, in a module with this load bias.
    #[must_use]
    pub const fn new(point: &patching::Point, bias: u64, probes: Vec<Probe>) -> Self {
        let patching::Point { before, live, red_zone, .. } = *point;
        Self { before: before.wrapping_add(bias), live, red_zone, probes }
    }
}

/// Probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Program to do.
    pub program: ProbeProgram,
    /// Its cookie.
    pub cookie: Cookie,
    /// The access, of [`ProbeProgram::Access`] and [`ProbeProgram::AccessLarge`].
    pub access: Option<AccessDescriptor>,
    /// Group of probes with which it is switched off and on; `None` for a probe that is always on.
    pub group: Option<SwitchGroup>,
}

/// Group of probes with a common switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SwitchGroup {
    /// Accesses of this group of the plan.
    Accesses(u16),
    /// All that is off between windows of capture, and is in no group of accesses.
    Capture,
}

impl Probe {
    /// Returns the registers and flags that it reads at its point, whether or not they count for the program.
    #[must_use]
    pub fn reads(&self) -> Live {
        let flags = programs::reads_flags(self);
        Live::NONE.with_registers(programs::registers(self)).with_flags(flags)
    }
}

/// Trampoline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trampoline {
    /// Address of the first byte.
    pub address: u64,
    /// Machine code.
    pub code: Vec<u8>,
    /// Address of the displaced instructions.
    pub patched: u64,
    /// Displaced instructions, as the program has them.
    pub displaced: Vec<u8>,
    /// Places of the displaced instructions.
    places: Vec<DisplacedPlace>,
    /// Displaced instructions, also of a trampoline that is called.
    steps: Vec<DisplacedStep>,
    /// Loads by pointers of the program, and the addresses at which the trampoline goes on without them.
    loads: Vec<(u64, u64)>,
    /// Code with reserved slots.
    reserved: Vec<Reserved>,
    /// Switches of probes.
    switches: Vec<Switch>,
    /// Points and redirected addresses as the displaced code had them, for a way out.
    points: Vec<Point>,
    redirected: BTreeMap<u64, u64>,
    /// The patch calls the trampoline: a thread in it has the return address on its stack.
    is_called: bool,
}

/// Trampoline that was assembled.
struct Assembled {
    trampoline: Trampoline,
    /// Addresses of its instructions; 0 where the encoder has made several of one.
    instructions: Vec<u64>,
    /// Addresses behind the system calls at its exits.
    stops: Vec<(u64, Exit)>,
}

/// Places of a displaced instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DisplacedPlace {
    /// In the program.
    original: u64,
    /// In the trampoline: the probes before the instruction.
    probes: u64,
    /// In the trampoline: the instruction itself.
    moved: u64,
}

/// Displaced instruction with the code that executes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DisplacedStep {
    /// Address of the instruction in the program, and of the one behind it.
    original: (u64, u64),
    /// Address of its code in the trampoline, and of what is behind that.
    moved: (u64, u64),
}

/// Reason why there is no trampoline.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EmitError {
    /// An instruction cannot be encoded at its new place.
    #[error("cannot encode the trampoline of {address:#x}: {source}")]
    Encode {
        /// The displaced code.
        address: u64,
        /// Reason of the encoder.
        source: IcedError,
    },
    /// The displaced bytes are not whole instructions, or a point is not at an instruction.
    #[error("no instruction begins at {0:#x}")]
    NoInstruction(u64),
    /// A displaced instruction is a call that is not the last one, or cannot be executed when a call has come there.
    #[error("a call is displaced at {0:#x}")]
    Call(u64),
    /// Control leaves by an instruction that has no stop before it.
    #[error("there is no way out at {0:#x}")]
    NoWayOut(u64),
    /// There is no inline form of the program.
    #[error("the program `{}` has no inline form", .0.name())]
    Program(ProbeProgram),
}

impl Displaced<'_> {
    /// Returns an instruction, with the trampoline in place of the address that it jumps to.
    fn redirected(&self, instruction: &Instruction) -> Instruction {
        let mut redirected = *instruction;
        let is_jump = matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        );
        if is_jump && let Some(&to) = self.redirected.get(&instruction.near_branch_target()) {
            redirected.set_near_branch64(to);
        }
        redirected
    }

    /// Returns the redirected addresses that this code leads to.
    fn redirected_from(&self) -> BTreeMap<u64, u64> {
        if self.redirected.is_empty() {
            return BTreeMap::new();
        }
        let decoder = Decoder::with_ip(64, self.code, self.address, DecoderOptions::NONE);
        let end = self.address + self.code.len() as u64;
        let targets = decoder.into_iter().map(|one| one.near_branch_target()).chain([end]);
        targets
            .filter_map(|from| self.redirected.get_key_value(&from))
            .map(|(&f, &t)| (f, t))
            .collect()
    }
}

impl Trampoline {
    /// Emits the trampoline of displaced code to an address, for a jump to it. The common code and the program must be
    /// within 2 GiB.
    ///
    /// # Errors
    ///
    /// If the code or a probe has no form there.
    pub fn emit(
        common: &CommonCode,
        address: u64,
        displaced: &Displaced<'_>,
    ) -> Result<Self, EmitError> {
        let assembled = Self::assemble(common, address, displaced, None, false);
        Ok(explained(assembled, displaced.address)?.trampoline)
    }

    /// Emits the trampoline of displaced code whose last instruction, a call, becomes a call of the trampoline.
    ///
    /// # Errors
    ///
    /// The errors of [`emit`](Self::emit), and if an instruction cannot be executed with the return address on the
    /// stack.
    pub fn emit_called(
        common: &CommonCode,
        address: u64,
        displaced: &Displaced<'_>,
    ) -> Result<Self, EmitError> {
        let call = || EmitError::Call(displaced.address);
        let assembled = decode(displaced)
            .and_then(|instructions| called(&instructions, false).ok_or_else(call))
            .and_then(|steps| Self::assemble(common, address, displaced, Some(&steps), false));
        Ok(explained(assembled, displaced.address)?.trampoline)
    }

    /// Emits the way out of this trampoline to an address. `common` is the same as for the trampoline.
    ///
    /// # Errors
    ///
    /// The errors of [`emit`](Self::emit), and if an exit has no form there.
    pub fn way_out(&self, common: &CommonCode, address: u64) -> Result<WayOut, EmitError> {
        let Self { patched, displaced, points, redirected, .. } = self;
        let displaced = Displaced { address: *patched, code: displaced, points, redirected };
        let instructions = decode(&displaced)?;
        let steps = self
            .is_called
            .then(|| called(&instructions, false).ok_or(EmitError::Call(self.patched)))
            .transpose()?;
        if !self.is_called {
            way_out::check(&instructions)?;
        }
        let own = Self::assemble(common, self.address, &displaced, steps.as_deref(), false)?;
        if own.trampoline != *self {
            return Err(EmitError::NoWayOut(self.patched));
        }
        let way = Self::assemble(common, address, &displaced, steps.as_deref(), true)?;
        let places = way_out::pairs(&own.instructions, &way.instructions);
        Ok(WayOut::new(way.trampoline, places, way.stops))
    }

    fn assemble(
        common: &CommonCode,
        address: u64,
        displaced: &Displaced<'_>,
        called: Option<&[Called]>,
        is_way_out: bool,
    ) -> Result<Assembled, EmitError> {
        let failed = |source| EmitError::Encode { address: displaced.address, source };
        let pushed = called.map_or(0, |_| RETURN_ADDRESS);
        let instructions = decode(displaced)?;
        let mut assembler = Assembler::new(common).map_err(failed)?;
        assembler.exits = is_way_out.then(Vec::new);
        let mut places = Vec::new();
        let mut steps = Vec::new();
        let mut ends = false;
        let mut points = displaced.points.iter().peekable();
        for (index, instruction) in instructions.iter().enumerate() {
            let probes = assembler.position();
            assembler.code.zero_bytes().map_err(failed)?;
            while let Some(point) = points.next_if(|point| point.before == instruction.ip()) {
                emit_point(&mut assembler, point, pushed, displaced)?;
            }
            // The encoder may make several of the instruction, and then has no offset for it.
            let moved = assembler.position();
            assembler.code.zero_bytes().map_err(failed)?;
            let emitted = match (called, call_as_jump(instruction)) {
                (Some(steps), _) => step::emit(&mut assembler, &steps[index]),
                (None, Some(jump)) => {
                    step::emit_pushed(&mut assembler, instruction.next_ip(), &jump)
                }
                (None, None) => step::emit_copy(&mut assembler, &displaced.redirected(instruction)),
            };
            emitted.map_err(failed)?;
            places.push((instruction.ip(), probes, moved));
            let behind = assembler.position();
            assembler.code.zero_bytes().map_err(failed)?;
            steps.push(((instruction.ip(), instruction.next_ip()), (moved, behind)));
            ends = leaves(instruction);
        }
        let end = displaced.address + displaced.code.len() as u64;
        while let Some(point) = points.next_if(|point| point.before == end && !ends) {
            emit_point(&mut assembler, point, pushed, displaced)?;
        }
        if let Some(point) = points.next() {
            return Err(EmitError::NoInstruction(point.before));
        }
        if !ends {
            let to = displaced.redirected.get(&end).copied().unwrap_or(end);
            assembler.jump(to).map_err(failed)?;
        }
        let stops = way_out::emit_stops(&mut assembler).map_err(failed)?;
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let assembled = assembler.code.assemble_options(address, options).map_err(failed)?;
        let offsets = &assembled.inner.new_instruction_offsets;
        let at = |position: usize| address + u64::from(offsets[position]);
        let mut code = assembled.inner.code_buffer;
        let switches = switch::complete(&assembler, address, &mut code, offsets);
        let address_of =
            |&offset: &u32| if offset == u32::MAX { 0 } else { address + u64::from(offset) };
        let instructions = offsets.iter().map(address_of).collect();
        let stops = stops.into_iter().map(|(behind, exit)| (at(behind), exit)).collect();
        let trampoline = Self {
            address,
            patched: displaced.address,
            displaced: displaced.code.to_vec(),
            loads: assembler.loads.iter().map(|&(load, resume)| (at(load), at(resume))).collect(),
            reserved: assembler
                .reserved
                .iter()
                .map(|(code, slots, restart)| Reserved {
                    code: at(code.start)..at(code.end),
                    slots: *slots,
                    number: RDX,
                    resume: Resume::Restart(at(*restart)),
                })
                .collect(),
            places: places
                .into_iter()
                .map(|(original, probes, moved)| DisplacedPlace {
                    original,
                    probes: at(probes),
                    moved: at(moved),
                })
                .collect(),
            steps: steps
                .into_iter()
                .map(|(original, (moved, behind))| DisplacedStep {
                    original,
                    moved: (at(moved), at(behind)),
                })
                .collect(),
            switches,
            code,
            points: displaced.points.to_vec(),
            redirected: displaced.redirected_from(),
            is_called: called.is_some(),
        };
        Ok(Assembled { trampoline, instructions, stops })
    }

    /// Returns where a thread goes on that stands at an instruction that has been displaced. A thread at the first
    /// one may as well stay: it executes the jump. `None` for the instructions of a trampoline that is called: a
    /// thread at the first one stays, and others must leave before.
    #[must_use]
    pub fn moved(&self, original: u64) -> Option<u64> {
        let mut places = self.places.iter().filter(|_| !self.is_called);
        places.find(|place| place.original == original).map(|place| place.probes)
    }

    /// Returns where in the program a thread goes on that stands in the trampoline, after the displaced bytes have
    /// been restored; `None` where the probes or a call have changed its registers or its stack, until it has made
    /// some steps.
    #[must_use]
    pub fn original(&self, moved: u64) -> Option<u64> {
        let stands = |place: &&DisplacedPlace| place.moved == moved || place.probes == moved;
        let mut places = self.places.iter().filter(|_| !self.is_called);
        places.find(stands).map(|place| place.original)
    }

    /// Returns a thread that stands at the start as it was before the patch.
    #[must_use]
    pub fn before(&self, thread: &Interrupted) -> Option<Interrupted> {
        let mut before = *thread;
        if thread.place != self.address {
            return None;
        }
        if self.is_called {
            let stack = &mut before.general[usize::from(frame::RSP)];
            *stack = stack.wrapping_add(RETURN_ADDRESS as u64);
        }
        before.place = self.patched;
        Some(before)
    }

    /// Returns the next instruction of the program, for a thread that has executed a displaced instruction, or a round
    /// of a repeated one, and stands at an address in the trampoline; `None` behind code of the probes.
    #[must_use]
    pub fn next(&self, address: u64) -> Option<u64> {
        self.steps.iter().find_map(
            |&DisplacedStep { original: (this, next), moved: (start, behind) }| match address {
                _ if address == start => Some(this),
                _ if start < address && address <= behind => Some(next),
                _ => None,
            },
        )
    }

    /// Returns a thread that has made a fault at a displaced instruction as it would have made it in the program.
    #[must_use]
    pub fn faulting(&self, thread: &Interrupted) -> Option<Interrupted> {
        let is_in = |step: &&DisplacedStep| (step.moved.0..step.moved.1).contains(&thread.place);
        let step = self.steps.iter().find(is_in)?;
        let offset = |address: u64| (address - self.address) as usize;
        let done = self.code.get(offset(step.moved.0)..offset(thread.place))?;
        let own = if self.is_called { i64::from(RETURN_ADDRESS) } else { 0 };
        let pushed = step::pushed(done) + own;
        let mut faulting = *thread;
        let stack = &mut faulting.general[usize::from(frame::RSP)];
        *stack = stack.wrapping_add_signed(pushed);
        faulting.place = step.original.0;
        Some(faulting)
    }

    /// Returns a thread as it goes on here that is to go on at a displaced instruction, before or after the probes
    /// there, and a word of its stack that it needs: the address, and the value.
    #[must_use]
    pub fn resumed(
        &self,
        thread: &Interrupted,
        is_after_probes: bool,
    ) -> Option<(Interrupted, Option<(u64, u64)>)> {
        let place = self.places.iter().find(|place| place.original == thread.place)?;
        let mut resumed = *thread;
        resumed.place = if is_after_probes { place.moved } else { place.probes };
        if !self.is_called {
            return Some((resumed, None));
        }
        let stack = thread.general[usize::from(frame::RSP)].wrapping_sub(RETURN_ADDRESS as u64);
        resumed.general[usize::from(frame::RSP)] = stack;
        let returns_to = self.patched + self.displaced.len() as u64;
        Some((resumed, Some((stack, returns_to))))
    }

    /// Returns whether an instruction of the program is displaced to here.
    #[must_use]
    pub fn has_displaced(&self, original: u64) -> bool {
        self.places.iter().any(|place| place.original == original)
    }

    /// Returns the switches, which are on.
    #[must_use]
    pub fn switches(&self) -> &[Switch] {
        &self.switches
    }

    /// Returns whether an address is in the trampoline.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|offset| offset < self.code.len() as u64)
    }

    /// Returns where a thread goes on that gets `SIGSEGV` or `SIGBUS` in the trampoline, at a load by a pointer that
    /// the program's own code is about to use. Then there is no record, and the program makes the fault itself.
    #[must_use]
    pub fn fault(&self, address: u64) -> Option<u64> {
        self.loads.iter().find(|&&(load, _)| load == address).map(|&(_, resume)| resume)
    }

    /// Returns the code of a record that an address is in, if slots are reserved there.
    #[must_use]
    pub fn reserved(&self, address: u64) -> Option<&Reserved> {
        self.reserved.iter().find(|reserved| reserved.code.contains(&address))
    }
}

/// Logs the reason for which code cannot be displaced.
fn explained(
    assembled: Result<Assembled, EmitError>,
    patched: u64,
) -> Result<Assembled, EmitError> {
    assembled.inspect_err(|error| tracing::debug!(patched, %error, "a patch is impossible"))
}

/// Jump from an address to another one; `None` if it is out of reach.
#[must_use]
pub fn near_jump(from: u64, to: u64) -> Option<[u8; NEAR_JUMP as usize]> {
    let distance = to.wrapping_sub(from + NEAR_JUMP).cast_signed();
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

/// Code of displaced bytes whose last instruction, a call, becomes a call of a trampoline: no-ops before the call, or a
/// jump over possible room for another jump. `None` if the trampoline is out of reach.
#[must_use]
pub fn call_patch(address: u64, displaced: &[u8], to: u64) -> Option<Vec<u8>> {
    let before = (displaced.len() as u64).checked_sub(NEAR_JUMP)?;
    let jump = near_jump(address + before, to)?;
    let mut code = displaced.to_vec();
    let (skipped, call) = code.split_at_mut(before as usize);
    call.copy_from_slice(&jump);
    call[0] = 0xe8;
    if before >= SKIPPED {
        skipped[..SHORT_JUMP as usize].copy_from_slice(&short_jump(address, address + before)?);
    } else {
        skipped.copy_from_slice(NOPS[before as usize]);
    }
    Some(code)
}

/// No-ops by their lengths (Intel SDM, volume 2, NOP).
const NOPS: [&[u8]; SKIPPED as usize] = [
    &[],
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0],
    &[0x0f, 0x1f, 0x40, 0],
    &[0x0f, 0x1f, 0x44, 0, 0],
    &[0x66, 0x0f, 0x1f, 0x44, 0, 0],
];

/// Short jump from an address to another one; `None` if it is out of reach.
#[must_use]
pub fn short_jump(from: u64, to: u64) -> Option<[u8; SHORT_JUMP as usize]> {
    let distance = to.wrapping_sub(from + SHORT_JUMP).cast_signed();
    Some([0xeb, i8::try_from(distance).ok()?.cast_unsigned()])
}

/// Decodes the displaced instructions, without the padding behind an instruction that control does not come back from.
fn decode(displaced: &Displaced<'_>) -> Result<Vec<Instruction>, EmitError> {
    let decoder =
        Decoder::with_ip(64, displaced.code, displaced.address, DecoderOptions::NONE).into_iter();
    let mut instructions = Vec::new();
    for instruction in decoder {
        if instruction.is_invalid() {
            return Err(EmitError::NoInstruction(instruction.ip()));
        }
        let end = displaced.address + displaced.code.len() as u64;
        let is_displaceable = match instruction.flow_control() {
            // It returns to the instruction behind the patch.
            FlowControl::Call | FlowControl::IndirectCall => {
                call_as_jump(&instruction).is_some() && instruction.next_ip() == end
            }
            FlowControl::Interrupt => false,
            _ => true,
        };
        if !is_displaceable {
            return Err(EmitError::Call(instruction.ip()));
        }
        instructions.push(instruction);
        if leaves(&instruction) {
            break;
        }
    }
    Ok(instructions)
}

/// Returns whether the trampoline does not jump back behind an instruction: control never comes to what follows it, or
/// comes back there by itself.
fn leaves(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
    ) || is_call(instruction)
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

fn emit_point(
    assembler: &mut Assembler<'_>,
    point: &Point,
    pushed: i32,
    displaced: &Displaced<'_>,
) -> Result<(), EmitError> {
    let failed = |source| EmitError::Encode { address: displaced.address, source };
    if let Some(probe) = point.probes.iter().find(|probe| !programs::has_form(probe)) {
        return Err(EmitError::Program(probe.program));
    }
    Frame::around(assembler, point, pushed).map_err(failed)
}
