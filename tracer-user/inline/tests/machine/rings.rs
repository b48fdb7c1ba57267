//! Rings that are full, with a reader and without, and signal handlers that have probes too.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use super::support::{Machine, registers};
use abi::{AccessDescriptor, CallCookie, Cookie, Kind, Operand, ProbeProgram};
use iced_x86::code_asm::*;
use inline::{
    layout::{Clock, Mode, Slot, mark},
    trampoline::{Point, Probe},
};
use x86::patching::Live;

/// `FUTEX_OWNER_DIED`.
const OWNER_DIED: u32 = 0x4000_0000;

fn probe(program: ProbeProgram, cookie: Cookie) -> Probe {
    Probe { program, cookie, access: None, group: None }
}

/// Machine of a loop of so many rounds in `r15` with a region probe; a function at +0x100 has one too.
fn machine(slots: usize, probes: Vec<Probe>) -> Machine {
    let mut machine = Machine::new(slots, Clock::Tsc);
    let exit = machine.exit();
    let assemble = |code: &mut CodeAssembler| -> Result<(), IcedError> {
        let mut again = code.create_label();
        code.set_label(&mut again)?;
        code.mov(r8, r9)?;
        code.mov(r10, r8)?;
        code.dec(r15)?;
        code.jne(again)?;
        code.jmp(exit)
    };
    let mut code = CodeAssembler::new(64).unwrap();
    assemble(&mut code).unwrap();
    let mut program = code.assemble(machine.program()).unwrap();
    program.resize(FUNCTION, 0xcc);
    // mov eax,edi; lea eax,[rax+1]; ret
    program.extend([0x89, 0xf8, 0x8d, 0x40, 1, 0xc3]);
    machine.load(&program);
    let start = machine.program();
    let point = |before, probes| Point { before, live: Live::ALL, red_zone: true, probes };
    machine.patch(0, 6, &[point(start, probes)]);
    let inner = vec![probe(ProbeProgram::Region, Cookie::new(Kind::Begin, INNER))];
    machine.patch(FUNCTION, 5, &[point(start + FUNCTION as u64, inner)]);
    machine
}

const FUNCTION: usize = 0x100;

/// Sites of the loop and of the function.
const OUTER: u32 = 5;
const INNER: u32 = 6;

fn region() -> Vec<Probe> {
    vec![probe(ProbeProgram::Region, Cookie::new(Kind::Begin, OUTER))]
}

/// Reads the slots of a machine on another thread, as avtrace does. Counts them by their sites.
struct Reader {
    reserved: &'static AtomicU64,
    limit: &'static AtomicU64,
    progress: &'static AtomicU32,
    waiting: &'static AtomicU32,
    lives: &'static AtomicU32,
    slots: usize,
    mask: u64,
}

/// A number in shared memory, which lives until the machine does.
///
/// # Safety
///
/// The address is aligned, and valid until the last use.
unsafe fn number(at: u64) -> &'static AtomicU64 {
    // SAFETY: by the caller's promise.
    unsafe { AtomicU64::from_ptr(at as *mut u64) }
}

impl Reader {
    fn of(machine: &Machine) -> Self {
        let block = machine.block();
        let control = block.control;
        // SAFETY: fields of the block and of the control page, at their offsets.
        unsafe {
            Self {
                reserved: number(block.own),
                limit: number(block.own + 8),
                progress: AtomicU32::from_ptr((control + 4) as *mut u32),
                waiting: AtomicU32::from_ptr((control + 8) as *mut u32),
                lives: AtomicU32::from_ptr(control as *mut u32),
                slots: block.slots as usize,
                mask: block.mask,
            }
        }
    }

    /// Takes `count` slots; calls `each` with each of them.
    fn take(&self, count: u64, mut each: impl FnMut(&Slot)) {
        let mut next = 0;
        while next < count {
            let at = (self.slots + 64 * (next & self.mask) as usize) as *const Slot;
            // SAFETY: inside the ring; the first word is written last.
            let head = unsafe { AtomicU64::from_ptr(at as *mut u64) }.load(Ordering::Acquire);
            if head as u32 != mark(next) {
                thread::yield_now();
                continue;
            }
            // SAFETY: the slot is published.
            each(unsafe { &*at });
            next += 1;
            self.limit.store(next + self.mask + 1, Ordering::Release);
            if self.waiting.load(Ordering::SeqCst) > 0 {
                self.progress.fetch_add(1, Ordering::SeqCst);
                // SAFETY: a wake-up of the threads that wait for this number.
                unsafe {
                    libc::syscall(
                        libc::SYS_futex,
                        self.progress.as_ptr(),
                        libc::FUTEX_WAKE,
                        i32::MAX,
                        ptr::null::<u8>(),
                        ptr::null::<u8>(),
                        0,
                    )
                };
            }
        }
        assert!(self.reserved.load(Ordering::SeqCst) >= count);
    }
}

impl Drop for Reader {
    /// Lets no thread wait for a reader that has failed.
    fn drop(&mut self) {
        self.lives.store(0, Ordering::SeqCst);
    }
}

#[test]
fn a_full_ring_waits_for_the_reader() {
    const ROUNDS: u64 = 3_000;
    let mut machine = machine(16, region());
    let reader = Reader::of(&machine);
    let mut start = registers(&machine, 1);
    start.general[15] = ROUNDS;
    let stack = start.general[4];
    let taken = thread::spawn(move || {
        let (mut orders, mut count) = (Vec::new(), 0);
        reader.take(ROUNDS, |slot| {
            count += 1;
            // Long enough for the thread to sleep.
            if count % 500 == 0 {
                thread::sleep(Duration::from_millis(3));
            }
            assert_eq!((slot.stack_pointer(), slot.site().0), (stack, OUTER));
            orders.push(slot.order);
        });
        orders
    });
    let mut expected = start;
    let after = machine.run(&start);
    let orders = taken.join().unwrap();
    assert!(orders.is_sorted());
    expected.general[15] = 0;
    expected.general[8] = start.general[9];
    expected.general[10] = start.general[9];
    assert_eq!(after.general, expected.general);
    let block = machine.block();
    assert_eq!((block.lost, block.reserved), (0, ROUNDS));
    assert!(block.waits > 0);
    // SAFETY: no thread waits any more.
    assert_eq!(unsafe { (*machine.control()).waiting }, 0);
}

/// Other threads act while one waits for room: this has happened before its access.
#[test]
fn an_access_is_recorded_as_it_is_behind_the_wait() {
    let word = Box::new(AtomicU64::new(1));
    let mut machine = Machine::new(16, Clock::Tsc);
    let exit = machine.exit().wrapping_sub(machine.program() + 11) as i32;
    // mov r8,r9; mov r9,r8; jmp exit
    machine.load(&[&[0x4d, 0x89, 0xc8, 0x4d, 0x89, 0xc1, 0xe9], &exit.to_le_bytes()[..]].concat());
    let (none, flags) = (Operand::NONE as u8, AccessDescriptor::WRITE | AccessDescriptor::AHEAD);
    let accessed = AccessDescriptor {
        size: 8,
        flags,
        base: 3,
        index: none,
        rounds: none,
        ..Default::default()
    };
    let cookie = Cookie::new(Kind::Access, OUTER);
    let access =
        Probe { program: ProbeProgram::Access, cookie, access: Some(accessed), group: None };
    let before = machine.program();
    machine.patch(0, 6, &[Point { before, live: Live::ALL, red_zone: true, probes: vec![access] }]);
    let mut start = registers(&machine, 1);
    start.general[3] = ptr::from_ref(&*word) as u64;
    machine.block().epoch += 1;
    machine.block().limit = 0;
    let reader = Reader::of(&machine);
    let other = thread::spawn(move || {
        while reader.waiting.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        word.store(7, Ordering::SeqCst);
        // SAFETY: the processor has it.
        let changed_at = unsafe { core::arch::x86_64::_rdtsc() };
        reader.limit.store(16, Ordering::SeqCst);
        reader.progress.fetch_add(1, Ordering::SeqCst);
        (word, changed_at)
    });
    machine.run(&start);
    let (_word, changed_at) = other.join().unwrap();
    let slots = machine.take();
    assert_eq!((slots.len(), slots[0].extra), (1, 7));
    assert!(slots[0].order > changed_at);
    // SAFETY: no thread waits any more.
    assert_eq!(unsafe { (*machine.control()).waiting }, 0);
}

#[test]
fn a_full_ring_drops_and_counts() {
    let mut machine = machine(16, region());
    machine.block().mode = Mode::Drop as u64;
    let mut start = registers(&machine, 1);
    start.general[15] = 40;
    machine.run(&start);
    assert_eq!((machine.block().reserved, machine.block().lost), (16, 24));
    assert_eq!(machine.take().len(), 16);
    start.general[15] = 3;
    machine.run(&start);
    assert_eq!((machine.take().len(), machine.block().lost), (3, 24));
    let shared = vec![probe(ProbeProgram::Shared, Cookie::new(Kind::Shared, OUTER))];
    let mut machine = self::machine(16, shared);
    machine.block().mode = Mode::Drop as u64;
    start.general[3] = 0;
    start.general[4] = machine.stack_bounds().1 - 4096;
    start.general[15] = 6;
    machine.run(&start);
    let count = machine.take().len();
    assert_eq!(
        (count, machine.block().reserved, machine.block().lost),
        (15, 15, 1),
        "whole records"
    );
}

#[test]
fn nobody_waits_for_a_dead_reader() {
    let mut machine = machine(16, region());
    // SAFETY: nothing else uses the control page.
    unsafe { (*machine.control()).reader = OWNER_DIED };
    let mut start = registers(&machine, 1);
    start.general[15] = 1000;
    machine.run(&start);
    let block = machine.block();
    assert_eq!((block.mode, block.limit), (Mode::Muted as u64, 0));
    assert_eq!(machine.take().len(), 16);
    let block = machine.block();
    assert_eq!(block.lost, 0);
}

#[test]
fn a_muted_thread_records_nothing() {
    let mut machine = machine(16, region());
    (machine.block().mode, machine.block().limit) = (Mode::Muted as u64, 0);
    let mut start = registers(&machine, 1);
    start.general[15] = 10;
    machine.run(&start);
    assert_eq!((machine.take().len(), machine.block().lost), (0, 0));
}

/// The patched function that the signal handler calls, and the number of its calls.
static CALLED: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static CALLS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: i32) {
    let function = CALLED.load(Ordering::Relaxed);
    if function.is_null() {
        return;
    }
    // SAFETY: the function takes and returns a number, and its code is mapped while the address is set.
    let function: extern "sysv64" fn(u32) -> u32 = unsafe { std::mem::transmute(function) };
    if function(41) == 42 {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn signal_handlers_have_slots_of_their_own() {
    const ROUNDS: u64 = 150_000;
    let acquire = CallCookie::new(Cookie::new(Kind::Acquire, OUTER), 0, 1, 0);
    let mut machine = machine(
        1 << 20,
        vec![probe(ProbeProgram::CallEnter, acquire.0), probe(ProbeProgram::CallEnd, acquire.0)],
    );
    let reader = Reader::of(&machine);
    CALLED.store((machine.program() + FUNCTION as u64) as *mut u8, Ordering::Relaxed);
    // SAFETY: a handler that touches nothing but atomics and this thread's ring.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()), 0);
    }
    // SAFETY: no conditions.
    let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
    let stop = &AtomicU32::new(0);
    let mut start = registers(&machine, 1);
    start.general[0] = 0;
    start.general[15] = ROUNDS;
    thread::scope(|scope| {
        scope.spawn(move || {
            while stop.load(Ordering::Relaxed) == 0 {
                // SAFETY: a signal with a handler, to a thread that lives.
                unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
                thread::sleep(Duration::from_micros(20));
            }
        });
        for _ in 0..4 {
            let after = machine.run(&start);
            assert_eq!(after.general[15], 0);
        }
        stop.store(1, Ordering::Relaxed);
    });
    CALLED.store(ptr::null_mut(), Ordering::Relaxed);
    let calls = CALLS.load(Ordering::Relaxed);
    let (mut inner, mut outer) = (0, 0);
    let argument = start.general[7];
    reader.take(4 * ROUNDS + calls, |slot| match slot.site().0 {
        INNER => inner += 1,
        site => {
            assert_eq!((site, slot.argument, slot.extra), (OUTER, argument, 0));
            outer += 1;
        }
    });
    assert_eq!((inner, outer), (calls, 4 * ROUNDS));
    assert!(calls > 10, "{calls} signals");
    assert_eq!(machine.block().reserved, inner + outer);
}
