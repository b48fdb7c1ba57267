//! Machine that executes patched code: memory for code and rings, and a launcher that sets and reads all registers.

use std::{
    collections::BTreeMap,
    mem::size_of,
    ptr,
    sync::atomic::{AtomicU64, Ordering},
};

use super::signals::handle_faults;
use iced_x86::code_asm::*;
use inline::{
    cell::{self, Cell},
    layout::{
        CELLS_BYTES, Clock, Control, PENDING_BYTES, STACKS_BYTES, Slot, ThreadBlock,
        WORD_TABLE_BYTES, gs_base_of, mark,
    },
    trampoline::{
        CommonCode, Displaced, Point, SwitchGroup, Trampoline, call_patch, near_jump, short_jump,
    },
};

/// General registers by the processor's numbers, and the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    pub general: [u64; 16],
    pub flags: u64,
}

/// Flags that instructions compute.
pub const FLAGS: u64 = 0x8d5;

/// Id of a reader that lives.
const READER: u32 = 4711;

const CODE_BYTES: usize = 1 << 16;
const STACK_BYTES: usize = 1 << 14;
const PROGRAM: usize = 0x1000;
const COMMON: usize = 0x4000;
const TRAMPOLINES: usize = 0x6000;
const STATE: usize = 0xf000;

/// Memory of one thread of a traced program, mapped by the test.
pub struct Machine {
    code: *mut u8,
    shared: *mut u8,
    pub stack: Vec<u64>,
    enter: extern "sysv64" fn(),
    exit: u64,
    pub common: CommonCode,
    /// Trampolines in place of addresses of the program.
    redirected: BTreeMap<u64, u64>,
    next: usize,
    slots: usize,
    read: u64,
}

/// State in the code area, which the launcher reads and writes.
#[repr(C)]
struct CpuState {
    general: [u64; 16],
    flags: u64,
    target: u64,
    saved: u64,
    scratch: [u64; 64],
}

/// Length of the shared memory: the control page, the table of words, the block, its pending calls and the slots,
/// what is known of stacks, and the cells.
fn shared_bytes(slots: usize) -> usize {
    2 * 4096
        + (WORD_TABLE_BYTES + PENDING_BYTES + STACKS_BYTES + CELLS_BYTES) as usize
        + slots * size_of::<Slot>()
}

/// Maps memory, with addresses of so many bits as these flags say.
fn map(bytes: usize, protection: i32, flags: i32) -> *mut u8 {
    // SAFETY: a new mapping at any address.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

impl Machine {
    /// Machine with a ring of `slots` slots, for the thread that makes it.
    pub fn new(slots: usize, clock: Clock) -> Self {
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        // The launcher has addresses of 32 bits.
        let code = map(CODE_BYTES, writable | libc::PROT_EXEC, libc::MAP_32BIT);
        let shared = map(shared_bytes(slots), writable, 0);
        let base = code as u64;
        let common = CommonCode::emit(base + COMMON as u64, clock).unwrap();
        assert!(common.code.len() <= TRAMPOLINES - COMMON);
        let (launcher, exit) = launcher(base, base + STATE as u64);
        let mut machine = Self {
            code,
            shared,
            stack: vec![0; STACK_BYTES / 8],
            // SAFETY: the launcher is at the start of the code.
            enter: unsafe { std::mem::transmute::<*mut u8, extern "sysv64" fn()>(code) },
            exit,
            common,
            redirected: BTreeMap::new(),
            next: TRAMPOLINES,
            slots,
            read: 0,
        };
        machine.write(0, &launcher);
        let common = machine.common.code.clone();
        machine.write(COMMON, &common);
        let words = shared as u64 + 4096;
        let block = words + WORD_TABLE_BYTES;
        let pending = block + 4096;
        let (low, high) = machine.stack_bounds();
        let tid = 77;
        *machine.block() = ThreadBlock {
            limit: slots as u64,
            own: block,
            slots: pending + PENDING_BYTES,
            mask: slots as u64 - 1,
            epoch: u64::from(tid) << 42 | 1000,
            incarnation: u64::from(tid) << 42 | 1000,
            stack_low: low,
            stack_high: high,
            control: shared as u64,
            words,
            tid: tid.into(),
            pending,
            stacks: pending + PENDING_BYTES + (slots * size_of::<Slot>()) as u64,
            tag: ThreadBlock::tag_of(tid),
            ..ThreadBlock::default()
        };
        // SAFETY: the mapping begins with the control page.
        unsafe { (*machine.control()).reader = READER };
        machine.enter_thread();
        machine
    }

    /// Has accesses of owners deferred. The thread's block gets a number, and its epochs begin where they are.
    pub fn defer(&self, number: u64) {
        let block = self.block();
        block.cells = block.stacks + STACKS_BYTES;
        block.owner = number << cell::WORD_BITS;
        block.since = block.incarnation << (64 - cell::EPOCH_BITS);
        block.epoch_sp = u64::MAX;
    }

    /// Cells of a slot of the table of words, by its number.
    #[expect(clippy::mut_from_ref, reason = "the cells are shared memory that emitted code writes")]
    pub fn cells(&self, number: u64) -> &mut [Cell; 2] {
        // SAFETY: aligned memory of the mapping, used by one thread at a time.
        unsafe { &mut *((self.block().cells + 32 * number) as *mut [Cell; 2]) }
    }

    /// Makes the calling thread the one whose probes are executed.
    pub fn enter_thread(&self) {
        const ARCH_SET_GS: i32 = 0x1001;
        // SAFETY: nothing else in this program uses the GS base.
        let status = unsafe {
            libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, gs_base_of(self.block_address()))
        };
        assert_eq!(status, 0);
        handle_faults(&self.common);
    }

    fn block_address(&self) -> u64 {
        self.shared as u64 + 4096 + WORD_TABLE_BYTES
    }

    pub fn control(&self) -> *mut Control {
        self.shared.cast()
    }

    #[expect(clippy::mut_from_ref, reason = "the block is shared memory that emitted code writes")]
    pub fn block(&self) -> &mut ThreadBlock {
        // SAFETY: aligned memory of the mapping, used by one thread at a time.
        unsafe { &mut *(self.block_address() as *mut ThreadBlock) }
    }

    /// Field of the block that another thread may change.
    pub fn atomic(&self, field: &u64) -> &AtomicU64 {
        // SAFETY: an aligned number that lives as long as the mapping.
        unsafe { AtomicU64::from_ptr(ptr::from_ref(field).cast_mut()) }
    }

    /// Lowest address of the stack, and the one after it.
    pub fn stack_bounds(&self) -> (u64, u64) {
        let low = self.stack.as_ptr() as u64;
        (low, low + STACK_BYTES as u64)
    }

    /// Address of the start of the program's code.
    pub fn program(&self) -> u64 {
        self.code as u64 + PROGRAM as u64
    }

    /// Address at which the program ends.
    pub fn exit(&self) -> u64 {
        self.exit
    }

    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= CODE_BYTES);
        // SAFETY: inside the mapping, as just checked.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.code.add(at), bytes.len()) };
    }

    /// Makes room for other trampolines.
    pub fn reset(&mut self) {
        self.next = TRAMPOLINES;
    }

    /// Writes the program.
    pub fn load(&mut self, code: &[u8]) {
        assert!(code.len() <= COMMON - PROGRAM);
        self.write(PROGRAM, code);
    }

    /// Emits a trampoline for bytes of the program, from an offset on, and patches them.
    pub fn patch(&mut self, offset: usize, length: usize, points: &[Point]) -> Trampoline {
        self.write_patch(offset, length, points, None)
    }

    fn write_patch(
        &mut self,
        offset: usize,
        length: usize,
        points: &[Point],
        through: Option<u64>,
    ) -> Trampoline {
        let address = self.program() + offset as u64;
        // SAFETY: inside the mapping.
        let code = unsafe { std::slice::from_raw_parts(self.code.add(PROGRAM + offset), length) };
        let code = code.to_vec();
        let at = self.code as u64 + self.next as u64;
        let displaced = Displaced { address, code: &code, points, redirected: &self.redirected };
        let trampoline = Trampoline::emit(&self.common, at, &displaced).unwrap();
        self.add(&trampoline);
        let mut bytes = vec![0xcc; length];
        match through {
            None => bytes[..5].copy_from_slice(&near_jump(address, at).unwrap()),
            Some(through) => {
                bytes[..2].copy_from_slice(&short_jump(address, through).unwrap());
                let padding = (through - self.program()) as usize;
                self.write(PROGRAM + padding, &near_jump(through, at).unwrap());
            }
        }
        self.write(PROGRAM + offset, &bytes);
        trampoline
    }

    /// Emits a trampoline for bytes of the program, to which those emitted from now on lead.
    pub fn patch_redirected(&mut self, offset: usize, length: usize, points: &[Point]) {
        let address = self.program() + offset as u64;
        // SAFETY: inside the mapping.
        let code = unsafe { std::slice::from_raw_parts(self.code.add(PROGRAM + offset), length) };
        let code = code.to_vec();
        let at = self.code as u64 + self.next as u64;
        let displaced = Displaced { address, code: &code, points, redirected: &self.redirected };
        let trampoline = Trampoline::emit(&self.common, at, &displaced).unwrap();
        self.add(&trampoline);
        self.redirected.insert(address, at);
    }

    /// Emits a trampoline for bytes of the program that end in a call, and has the call lead to it.
    pub fn patch_call(&mut self, offset: usize, length: usize, points: &[Point]) -> Trampoline {
        let address = self.program() + offset as u64;
        // SAFETY: inside the mapping.
        let code = unsafe { std::slice::from_raw_parts(self.code.add(PROGRAM + offset), length) };
        let code = code.to_vec();
        let at = self.code as u64 + self.next as u64;
        let displaced = Displaced { address, code: &code, points, redirected: &self.redirected };
        let trampoline = Trampoline::emit_called(&self.common, at, &displaced).unwrap();
        self.add(&trampoline);
        self.write(PROGRAM + offset, &call_patch(address, &code, at).unwrap());
        trampoline
    }

    fn add(&mut self, trampoline: &Trampoline) {
        let next = self.next;
        self.next += trampoline.code.len().next_multiple_of(16);
        assert!(self.next <= STATE);
        self.write(next, &trampoline.code);
    }

    /// Switches the probes of a group off, or on again.
    pub fn switch(&mut self, trampoline: &Trampoline, group: SwitchGroup, is_off: bool) {
        for switch in trampoline.switches().iter().filter(|switch| switch.group == group) {
            assert_eq!(switch.word % 8, 0, "one store changes it");
            let at = (switch.word - self.code as u64) as usize;
            self.write(at, &switch.states[usize::from(is_off)].to_le_bytes());
        }
    }

    /// Patches the first bytes of the program by a short jump to padding.
    pub fn patch_through(&mut self, length: usize, points: &[Point], padding: u64) {
        self.write_patch(0, length, points, Some(padding));
    }

    /// Executes the program from its start to its exit.
    pub fn run(&mut self, registers: &Registers) -> Registers {
        // SAFETY: the state is in the mapping, aligned, and nothing else uses it.
        let state = unsafe { &mut *self.code.add(STATE).cast::<CpuState>() };
        state.general = registers.general;
        state.flags = registers.flags & FLAGS | 0x202;
        state.target = self.program();
        (self.enter)();
        // SAFETY: as above; the launcher has written it.
        let state = unsafe { &*self.code.add(STATE).cast::<CpuState>() };
        Registers { general: state.general, flags: state.flags & FLAGS }
    }

    /// Takes the published slots that have not been taken.
    pub fn take(&mut self) -> Vec<Slot> {
        let slots = self.block().slots as *const Slot;
        let mut taken = Vec::new();
        while self.read < self.block().reserved {
            // SAFETY: inside the ring, by the mask.
            let slot = unsafe { slots.add(self.read as usize & (self.slots - 1)).read_volatile() };
            if slot.head as u32 != mark(self.read) {
                break;
            }
            self.read += 1;
            taken.push(slot);
        }
        let limit = self.read + self.slots as u64;
        self.atomic(&self.block().limit).store(limit, Ordering::SeqCst);
        taken
    }

    /// Slot of the table of words, by its number.
    pub fn word(&self, number: u64) -> *mut [u64; 2] {
        (self.block().words + 16 * number) as *mut [u64; 2]
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: the mappings are this machine's own, and no code in them is being executed.
        unsafe {
            libc::munmap(self.code.cast(), CODE_BYTES);
            libc::munmap(self.shared.cast(), shared_bytes(self.slots));
        }
    }
}

/// Registers that point into the machine's stack, with recognizable values.
pub fn registers(machine: &Machine, seed: u64) -> Registers {
    let mut general = [0; 16];
    for (number, register) in general.iter_mut().enumerate() {
        *register = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(number as u32 * 5);
    }
    let (_, high) = machine.stack_bounds();
    general[4] = high - 4096;
    Registers { general, flags: seed }
}

/// The launcher's code, and the address of its exit.
fn launcher(address: u64, state: u64) -> (Vec<u8>, u64) {
    let general = [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15];
    let field = |offset: usize| qword_ptr(state + offset as u64);
    let assemble = || -> Result<(Vec<u8>, u64), IcedError> {
        let mut code = CodeAssembler::new(64)?;
        let mut exit = code.create_label();
        let saved = [rbx, rbp, r12, r13, r14, r15];
        for register in saved {
            code.push(register)?;
        }
        code.mov(field(std::mem::offset_of!(CpuState, saved)), rsp)?;
        code.push(field(std::mem::offset_of!(CpuState, flags)))?;
        code.popfq()?;
        for (number, register) in general.into_iter().enumerate() {
            if register != rsp {
                code.mov(register, field(8 * number))?;
            }
        }
        code.mov(rsp, field(8 * 4))?;
        code.jmp(field(std::mem::offset_of!(CpuState, target)))?;
        code.set_label(&mut exit)?;
        for (number, register) in general.into_iter().enumerate() {
            code.mov(field(8 * number), register)?;
        }
        code.lea(rsp, field(std::mem::offset_of!(CpuState, scratch) + 256))?;
        code.pushfq()?;
        code.pop(field(std::mem::offset_of!(CpuState, flags)))?;
        code.mov(rsp, field(std::mem::offset_of!(CpuState, saved)))?;
        for register in saved.into_iter().rev() {
            code.pop(register)?;
        }
        code.ret()?;
        let options = iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let assembled = code.assemble_options(address, options)?;
        let exit = assembled.label_ip(&exit)?;
        Ok((assembled.inner.code_buffer, exit))
    };
    assemble().unwrap()
}
