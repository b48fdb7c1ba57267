//! Signals at each instruction of a record: the thread gives its slots back, the handler makes a record, and then it
//! returns or jumps out of the probe.

use std::{
    cell::Cell,
    mem,
    ptr::{self, null},
    sync::atomic::{AtomicU64, Ordering},
};

use super::support::{FLAGS, Machine, Registers, registers};
use abi::{AccessDescriptor, CallCookie, Cookie, Kind, Operand, ProbeProgram};
use iced_x86::code_asm::*;
use inline::{
    cell::{self, AccessKind, CellAccess, KINDS},
    encoding::{CONTINUATION, OWNED, decode_owned},
    layout::{Clock, SLOT_BYTES, SP_BITS, Slot, head, mark, sp_word, word_slot},
    memory::{Offset, SharedWords},
    trampoline::{CommonCode, Interrupted, Point, Probe, Trampoline, give_up},
};
use x86::patching::Live;

const OUTER: u32 = 5;
const INNER: u32 = 6;

/// Trap flag: the processor stops after each instruction.
const TRAP: u64 = 0x100;

/// Memory of this process, whose places are addresses.
struct Own;

impl SharedWords for Own {
    fn load(&self, at: Offset) -> u64 {
        // SAFETY: an aligned word of the machine.
        unsafe { AtomicU64::from_ptr(at.0 as *mut u64) }.load(Ordering::SeqCst)
    }

    fn store(&self, at: Offset, value: u64) {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(at.0 as *mut u64) }.store(value, Ordering::SeqCst);
    }

    fn add(&self, at: Offset, value: u64) {
        self.store(at, self.load(at).wrapping_add(value));
    }

    fn fence(&self) {}
}

/// Course of a run.
#[derive(Clone, Copy)]
struct Course {
    machine: *const Machine,
    common: *const CommonCode,
    trampoline: *const Trampoline,
    /// Number of instructions before the handler makes a record.
    steps: u64,
    jumps: bool,
    has_come: bool,
    gave_back: bool,
}

const IDLE: Course = Course {
    machine: null(),
    common: null(),
    trampoline: null(),
    steps: 0,
    jumps: false,
    has_come: false,
    gave_back: false,
};

thread_local! {
    static COURSE: Cell<Course> = const { Cell::new(IDLE) };
}

/// Places of the registers in a context, by the processor's numbers.
const GENERAL: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

extern "C" fn on_step(_: i32, _: *const libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's third argument, for a handler with `SA_SIGINFO`.
    let context = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let mut course = COURSE.get();
    // SAFETY: the test has them until the run is over.
    let (machine, common, trampoline) =
        unsafe { (&*course.machine, &*course.common, &*course.trampoline) };
    let mut thread = Interrupted {
        general: GENERAL.map(|register| context[register as usize] as u64),
        place: context[libc::REG_RIP as usize] as u64,
    };
    if thread.place == machine.exit() {
        context[libc::REG_EFL as usize] &= !TRAP.cast_signed();
        return;
    }
    course.steps = course.steps.wrapping_sub(1);
    if course.steps != 0 {
        COURSE.set(course);
        return;
    }
    course.has_come = true;
    context[libc::REG_EFL as usize] &= !TRAP.cast_signed();
    // As the tracer does.
    let block = Offset(machine.block().own);
    let caller = common.leave_wait(&thread, |at| Some(Own.load(Offset(at))));
    let reserved = |place| common.reserved(place).or_else(|| trampoline.reserved(place)).cloned();
    let given_up = give_up(&mut thread, caller, reserved, block, &Own);
    course.gave_back = given_up.is_some();
    if given_up == Some(true) {
        // SAFETY: the control page of the machine.
        unsafe { (*machine.control()).waiting -= 1 };
    }
    // As a reader and a probe of the handler do.
    let block = machine.block();
    let number = block.reserved;
    block.limit = number + block.mask + 1;
    block.reserved += 1;
    block.epoch += 1;
    block.epoch_sp = thread.general[4] - 512;
    let slot = block.slots + (number & block.mask) * SLOT_BYTES;
    let stack_pointer = sp_word(block.epoch_sp, block.epoch);
    Own.store(Offset(slot + mem::offset_of!(Slot, sp) as u64), stack_pointer);
    Own.store(Offset(slot), head(number, abi::SiteId(INNER)));
    if course.jumps {
        thread.place = machine.exit();
    }
    for (register, value) in GENERAL.into_iter().zip(thread.general) {
        context[register as usize] = value.cast_signed();
    }
    context[libc::REG_RIP as usize] = thread.place.cast_signed();
    COURSE.set(course);
}

/// Machine of a probe, and where its registers point to a chain of six frames.
fn machine(probe: Probe) -> (Machine, Trampoline, Registers) {
    let mut machine = Machine::new(16, Clock::Tsc);
    let exit = machine.exit();
    let assemble = |code: &mut CodeAssembler| -> Result<(), IcedError> {
        code.pushfq()?;
        code.or(dword_ptr(rsp), TRAP as i32)?;
        code.popfq()?;
        code.mov(r8, r9)?;
        code.mov(r10, r8)?;
        code.jmp(exit)
    };
    let mut code = CodeAssembler::new(64).unwrap();
    assemble(&mut code).unwrap();
    let code = code.assemble(machine.program()).unwrap();
    machine.load(&code);
    // `mov r8, r9`, behind the instructions that set the flag.
    let offset = code.windows(3).position(|bytes| bytes == [0x4d, 0x89, 0xc8]).unwrap();
    let before = machine.program() + offset as u64;
    let probes = vec![probe];
    let point = Point { before, live: Live::ALL, red_zone: true, probes };
    let trampoline = machine.patch(offset, 6, &[point]);
    let mut start = registers(&machine, 3);
    let (low, high) = machine.stack_bounds();
    start.general[4] = high - 2048;
    let frames = high - 1024;
    start.general[5] = frames;
    for frame in 0..8_u64 {
        let at = ((frames - low) / 8 + frame * 4) as usize;
        machine.stack[at] = frames + (frame + 1) * 32;
        machine.stack[at + 1] = 0x1000 + frame;
    }
    (machine, trampoline, start)
}

/// Word that another thread owns, with deferred accesses of both kinds.
#[repr(align(8))]
struct Word(u64);

impl Word {
    fn number(&self) -> u64 {
        &raw const self.0 as u64 >> 3
    }

    /// Has no access be a repetition.
    fn forget(&self, machine: &Machine) {
        // SAFETY: a number inside of the table.
        unsafe { machine.word(word_slot(self.number()).into()).write_volatile([0; 2]) };
    }

    /// Gives it to the other thread.
    fn give(&self, machine: &Machine) {
        let cells = machine.cells(word_slot(self.number()).into());
        for (kind, cell) in KINDS.into_iter().zip(cells) {
            let (thread, epoch, word, mask) = (2, 500, self.number(), 0xff);
            let first = CellAccess { thread, epoch, word, mask, kind, site: 1, is_special: false };
            let claimed = cell::Cell::default().recording(&first, kind, 0);
            *cell = claimed.deferring(&CellAccess { epoch: 501, site: 2, ..first }, 0).unwrap();
        }
    }

    /// Kinds of the deferred accesses that are in the cells.
    fn deferred(&self, machine: &Machine) -> Vec<AccessKind> {
        let cells = KINDS.into_iter().zip(&*machine.cells(word_slot(self.number()).into()));
        cells.filter(|(_, cell)| cell.deferred().is_some()).map(|(kind, _)| kind).collect()
    }
}

/// Interrupts a record after each instruction up to `most`, where accesses are deferred or not. Returns how often slots
/// were given back.
fn interrupt(probe: &Probe, defers: bool, is_full: bool, most: u64) -> u64 {
    let (mut machine, trampoline, mut start) = machine(probe.clone());
    let program = probe.program;
    let word = Word(0);
    start.general[3] = ptr::from_ref(&word) as u64;
    let common = machine.common.clone();
    if defers {
        machine.defer(1);
    }
    let takes = defers && program == ProbeProgram::Access;
    let mut gave_back = 0;
    for (steps, jumps) in (1..most).flat_map(|steps| [(steps, false), (steps, true)]) {
        // In all places of the ring, and with what other records have left there.
        machine.take();
        let first = machine.block().reserved;
        let epoch = machine.block().epoch;
        word.forget(&machine);
        if defers {
            word.give(&machine);
        }
        if is_full {
            machine.block().limit = first;
        }
        let (of, common, trampoline) =
            (&raw const machine, &raw const common, &raw const trampoline);
        COURSE.set(Course { machine: of, common, trampoline, steps, jumps, ..IDLE });
        let after = machine.run(&start);
        let course = COURSE.replace(IDLE);
        let context = format!("{program:?} {defers} after {steps} instructions, jumps: {jumps}");
        if !course.has_come {
            assert!(!is_full, "{context}");
            break;
        }
        gave_back += u64::from(course.gave_back);
        let reserved = machine.block().reserved;
        let slots = machine.take();
        assert_eq!(slots.len() as u64, reserved - first, "{context}: {slots:?}");
        let mut sites = Vec::new();
        let mut epochs = vec![epoch];
        for slot in slots.iter().filter(|slot| slot.site() != CONTINUATION) {
            sites.push(slot.site().0);
            epochs.push(*epochs.last().unwrap() & u64::MAX << 16 | slot.sp >> SP_BITS);
        }
        // Signals in the code of a record leave no epoch behind that accesses are deferred in.
        assert!(epochs.is_sorted(), "{context}: {epochs:?}");
        let block = machine.block();
        assert!(block.epoch_sp == 0 || epochs.contains(&block.epoch), "{context}: {epochs:?}");
        if takes {
            let owned = slots.iter().filter(|slot| slot.site() == OWNED).map(|slot| {
                let (kind, deferred) = decode_owned(slot).unwrap();
                assert_eq!((deferred.thread, deferred.epoch, deferred.site), (2, 501, 2));
                kind
            });
            let mut kinds: Vec<_> = owned.chain(word.deferred(&machine)).collect();
            kinds.sort_by_key(|&kind| kind as u8);
            assert_eq!(kinds, KINDS, "{context}: deferred accesses");
        }
        // SAFETY: the control page of the machine.
        assert_eq!(unsafe { (*machine.control()).waiting }, 0, "{context}");
        let next = block.slots + (reserved & block.mask) * SLOT_BYTES;
        assert_ne!(Own.load(Offset(next)) as u32, mark(reserved), "{context}");
        let count = |of: u32| sites.iter().filter(|&&site| site == of).count();
        assert_eq!(count(INNER), 1, "{context}: {sites:?}");
        if jumps {
            assert!(count(OUTER) <= 1, "{context}: {sites:?}");
            continue;
        }
        assert_eq!(count(OUTER), 1, "{context}: {sites:?}");
        assert_eq!(count(OWNED.0), if takes { 2 } else { 0 }, "{context}: {sites:?}");
        let mut expected = start;
        expected.general[8] = start.general[9];
        expected.general[10] = start.general[9];
        expected.flags = start.flags & FLAGS;
        assert_eq!(after, expected, "{context}");
    }
    gave_back
}

#[test]
fn no_slot_is_left_behind_by_a_handler() {
    // SAFETY: the handler touches its context, its thread's cell and the machine, which nobody else uses.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_step as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()), 0);
    }
    let release = CallCookie::new(Cookie::new(Kind::Release, OUTER), 0, 1, 0);
    let programs = [
        (ProbeProgram::Region, Cookie::new(Kind::Begin, OUTER)),
        (ProbeProgram::Call, release.0),
        (ProbeProgram::Shared, Cookie::new(Kind::Shared, OUTER)),
    ];
    for (program, cookie) in programs {
        let probe = Probe { program, cookie, access: None, group: None };
        assert!(interrupt(&probe, true, false, 400) > 20, "{program:?}");
        // Also behind the sleep, which is one instruction.
        assert!(interrupt(&probe, true, true, 260) > 200, "{program:?}");
    }
    let none = Operand::NONE as u8;
    let cookie = Cookie::new(Kind::Access, OUTER);
    for (defers, ahead) in [(false, 0), (true, 0), (false, AccessDescriptor::AHEAD)] {
        let flags = AccessDescriptor::READ | AccessDescriptor::WRITE | ahead;
        let accessed = AccessDescriptor {
            size: 8,
            flags,
            base: 3,
            index: none,
            rounds: none,
            ..Default::default()
        };
        let access =
            Probe { program: ProbeProgram::Access, cookie, access: Some(accessed), group: None };
        assert!(interrupt(&access, defers, false, 700) > 20, "deferred: {defers}");
        assert!(interrupt(&access, defers, true, 330) > 200, "deferred: {defers}");
    }
}
