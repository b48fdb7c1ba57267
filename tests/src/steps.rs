//! All that a program's functions do to memory, found out without avtrace: each instruction of the program is executed
//! by itself, and its addresses are computed from the registers before.
//!
//! This code is independent of the code that it is compared with: the instructions are decoded one by one as they are
//! executed, and where a thread's stack is comes from `/proc/PID/maps`.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register,
};
use nix::libc::{PTRACE_EVENT_EXEC, user_regs_struct};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::Program;
use crate::process::TIME_LIMIT;

/// Operation of an instruction on a range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// An atomic read and write.
    Update,
}

/// Access of a thread to memory that is neither on its own stack nor in its thread-local segment.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The thread, from 0 in the order in which they were made.
    pub thread: u32,
    /// The instruction's address in the file.
    pub instruction: u64,
    /// The operation.
    pub kind: Kind,
    /// First byte.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Set if the memory may change at all: some is read-only once `main` runs.
    pub can_change: bool,
    /// Number of the stretch of the thread's run: a new one begins with each first instruction of a region, and with
    /// each of its returns.
    pub stretch: u64,
}

/// The functions of a program that are looked into, and their code.
struct Functions {
    ranges: Vec<Range<u64>>,
    /// Ranges of the regions.
    regions: Vec<Range<u64>>,
    /// The sections with instructions, by their addresses in the file.
    code: Vec<(u64, Vec<u8>)>,
    main: u64,
    entry: u64,
}

impl Functions {
    /// Functions with these symbols, and the parts that a compiler has split from them (`NAME.cold`, `NAME.part.0`).
    /// Symbols of Rust are named without their hashes.
    fn from_program(program: &Program, regions: &[&str], others: &[&str]) -> Self {
        let bytes = fs::read(&program.path).expect("the program");
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let (mut ranges, mut region_ranges) = (Vec::new(), Vec::new());
        let mut main = None;
        for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
            let name = symbol.name().unwrap_or_default();
            if name == "main" {
                main = Some(symbol.address());
            }
            let range = symbol.address()..symbol.address() + symbol.size();
            let whole = without_hash(name.split('.').next().unwrap_or_default());
            let is_region = regions.contains(&whole);
            if !range.is_empty() && (is_region || others.contains(&whole)) {
                ranges.push(range.clone());
                region_ranges.extend(is_region.then_some(range));
            }
        }
        let code = file
            .sections()
            .filter(|section| section.kind() == object::SectionKind::Text)
            .map(|section| (section.address(), section.data().expect("its bytes").to_vec()))
            .collect();
        let main = main.expect("`main`");
        Self { ranges, regions: region_ranges, code, main, entry: file.entry() }
    }

    /// Returns whether an instruction is in one of the functions.
    fn contain(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    /// Returns whether an instruction begins a region, or ends it by returning.
    fn bound(&self, instruction: &Instruction, address: u64) -> bool {
        let returns = instruction.flow_control() == FlowControl::Return;
        let bounds =
            |range: &Range<u64>| range.start == address || returns && range.contains(&address);
        self.regions.iter().any(bounds)
    }

    fn bytes(&self, address: u64) -> &[u8] {
        let mut sections = self.code.iter();
        let inside = sections.find_map(|(start, code)| {
            code.get(usize::try_from(address.checked_sub(*start)?).ok()?..)
        });
        inside.expect("code of the program")
    }
}

/// A symbol of Rust without the hash at its end, which is another one with each compiler; others as they are.
fn without_hash(symbol: &str) -> &str {
    const HASH: usize = "17h0123456789abcdefE".len();
    let (name, hash) = symbol.split_at(symbol.len().saturating_sub(HASH));
    if hash.starts_with("17h") && hash.ends_with('E') { name } else { symbol }
}

/// A thread that is stepped.
struct Thread {
    number: u32,
    /// Mapping of the stack; `None` before the first stop.
    stack: Option<Range<u64>>,
    stretch: u64,
}

/// Steps a program from its `main` on, all of its threads, and returns what its functions with these symbols do to
/// memory: those that are regions, and others.
///
/// # Panics
/// When the program cannot be traced, or does not end with status 0.
#[must_use]
pub fn accesses(
    program: &Program,
    arguments: &[&str],
    regions: &[&str],
    others: &[&str],
) -> Vec<Access> {
    let functions = Functions::from_program(program, regions, others);
    let (mut child, begin) = start(program, arguments, &functions);
    let first = pid(&child);
    let in_time = end_in_time(first);
    let mut steps = Steps { functions, begin, threads: HashMap::new(), accesses: Vec::new() };
    steps.stopped(first);
    step(first, None);
    // Only what this thread of the test traces or has started.
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    let status = loop {
        match waitpid(None, Some(flags)).expect("something to wait for") {
            WaitStatus::Exited(pid, status) if pid == first => break status,
            WaitStatus::Exited(..) => {}
            WaitStatus::Stopped(pid, Signal::SIGTRAP) => {
                steps.stopped(pid);
                step(pid, None);
            }
            WaitStatus::Stopped(pid, signal) => step(pid, Some(signal)),
            // A new thread, or one that has made it: the next instruction has not been executed yet.
            WaitStatus::PtraceEvent(pid, ..) => {
                steps.stopped(pid);
                step(pid, None);
            }
            other => panic!("{other:?} while stepping {}", program.path.display()),
        }
    };
    drop(in_time);
    // The status has been taken above.
    let _ = child.wait();
    assert_eq!(status, 0, "{}", program.path.display());
    steps.accesses
}

/// Initial state of a process.
struct Begin {
    /// Distance of the code from the addresses in the file.
    bias: u64,
    /// The stack pointer: the arguments and the environment are from there on, and what functions keep is below.
    stack: u64,
    /// Memory that is read-only when `main` begins.
    read_only: Vec<Range<u64>>,
}

/// Starts a program and lets it run to its `main`.
fn start(program: &Program, arguments: &[&str], functions: &Functions) -> (Child, Begin) {
    let child = Command::new("sh")
        .args(["-c", "kill -s STOP $$; exec \"$@\"", "sh"])
        .arg(&program.path)
        .args(arguments)
        // Fewer steps: calls into libraries need no dynamic linker.
        .env("LD_BIND_NOW", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("a shell");
    let pid = pid(&child);
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("the shell stops");
    assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
    let options = ptrace::Options::PTRACE_O_TRACECLONE
        | ptrace::Options::PTRACE_O_TRACEEXEC
        | ptrace::Options::PTRACE_O_EXITKILL;
    ptrace::seize(pid, options).expect("the shell can be traced");
    kill(pid, Signal::SIGCONT).expect("the shell is there");
    loop {
        let signal = match waitpid(pid, Some(WaitPidFlag::__WALL)).expect("the shell is there") {
            WaitStatus::PtraceEvent(_, _, PTRACE_EVENT_EXEC) => break,
            WaitStatus::Stopped(_, signal) => Some(signal),
            WaitStatus::PtraceEvent(..) => None,
            other => panic!("{other:?} before {}", program.path.display()),
        };
        ptrace::cont(pid, signal).expect("the shell is stopped");
    }
    let stack = ptrace::getregs(pid).expect("the registers").rsp;
    let bias = entry(pid).wrapping_sub(functions.entry);
    let main = functions.main.wrapping_add(bias);
    let there = main as ptrace::AddressType;
    let before = ptrace::read(pid, there).expect("the code of `main`");
    ptrace::write(pid, there, before & !0xff | 0xcc).expect("a breakpoint");
    ptrace::cont(pid, None).expect("the program is stopped");
    let stopped = waitpid(pid, Some(WaitPidFlag::__WALL)).expect("the program is there");
    assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGTRAP));
    ptrace::write(pid, there, before).expect("the code as it was");
    let mut registers = ptrace::getregs(pid).expect("the registers");
    assert_eq!(registers.rip, main + 1);
    registers.rip = main;
    ptrace::setregs(pid, registers).expect("registers to change");
    let read_only = mappings(pid).filter(|mapping| !mapping.1).map(|mapping| mapping.0).collect();
    (child, Begin { bias, stack, read_only })
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().expect("a process id"))
}

/// Kills a process when its time is over, unless what this returns is dropped before.
fn end_in_time(pid: Pid) -> Sender<()> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        if receiver.recv_timeout(TIME_LIMIT) == Err(RecvTimeoutError::Timeout) {
            // It may have ended this moment.
            let _ = kill(pid, Signal::SIGKILL);
        }
    });
    sender
}

/// A thread may be gone already, when another one ends the process.
fn step(pid: Pid, signal: Option<Signal>) {
    let _ = ptrace::step(pid, signal);
}

/// Entry point of a process, from its auxiliary vector.
fn entry(pid: Pid) -> u64 {
    const AT_ENTRY: u64 = 9;
    let vector = fs::read(format!("/proc/{pid}/auxv")).expect("the auxiliary vector");
    let mut numbers =
        vector.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
    while let (Some(key), Some(value)) = (numbers.next(), numbers.next()) {
        if key == AT_ENTRY {
            return value;
        }
    }
    panic!("no entry point");
}

/// Mappings of a process, and whether each is writable; empty once the process is gone.
fn mappings(pid: Pid) -> impl Iterator<Item = (Range<u64>, bool)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let parse = |line: &str| {
        let (range, rest) = line.split_once(' ').expect("START-END PERMISSIONS");
        let (start, end) = range.split_once('-').expect("START-END");
        let number = |text| u64::from_str_radix(text, 16).expect("an address");
        (number(start)..number(end), rest.starts_with("rw"))
    };
    maps.lines().map(parse).collect::<Vec<_>>().into_iter()
}

/// Steps so far.
struct Steps {
    functions: Functions,
    begin: Begin,
    threads: HashMap<Pid, Thread>,
    accesses: Vec<Access>,
}

impl Steps {
    /// A thread has stopped before an instruction, which it executes next.
    fn stopped(&mut self, pid: Pid) {
        let number = u32::try_from(self.threads.len()).expect("few threads");
        let thread = self.threads.entry(pid).or_insert(Thread { number, stack: None, stretch: 0 });
        // It may have been killed meanwhile.
        let Ok(registers) = ptrace::getregs(pid) else { return };
        let at = registers.rip.wrapping_sub(self.begin.bias);
        if !self.functions.contain(at) {
            return;
        }
        if thread.stack.as_ref().is_none_or(|stack| !stack.contains(&registers.rsp)) {
            // The first thread's grows.
            let around = mappings(pid).map(|mapping| mapping.0);
            let around = around.filter(|mapping| mapping.contains(&registers.rsp)).last();
            thread.stack = around.map(|mapping| {
                let is_first = mapping.contains(&self.begin.stack);
                mapping.start..if is_first { self.begin.stack } else { mapping.end }
            });
        }
        let Some(stack) = thread.stack.clone() else { return };
        let mut decoder =
            Decoder::with_ip(64, self.functions.bytes(at), registers.rip, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if self.functions.bound(&instruction, at) {
            thread.stretch += 1;
        }
        let mut info = InstructionInfoFactory::new();
        let is_repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        if instruction.is_string_instruction() && is_repeated && registers.rcx == 0 {
            return;
        }
        for memory in info.info(&instruction).used_memory() {
            let kind = match memory.access() {
                OpAccess::None | OpAccess::NoMemAccess => continue,
                OpAccess::Read | OpAccess::CondRead => [Some(Kind::Read), None],
                OpAccess::Write | OpAccess::CondWrite => [Some(Kind::Write), None],
                OpAccess::ReadWrite | OpAccess::ReadCondWrite
                    if instruction.has_lock_prefix()
                        || instruction.mnemonic() == Mnemonic::Xchg =>
                {
                    [Some(Kind::Update), None]
                }
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                    [Some(Kind::Read), Some(Kind::Write)]
                }
            };
            if matches!(memory.segment(), Register::FS | Register::GS) {
                continue;
            }
            let address = memory
                .virtual_address(0, |register, _, _| value(&registers, register))
                .expect("an address of general registers");
            if stack.contains(&address) {
                continue;
            }
            // What repeats itself stops after each round.
            let size = if instruction.is_string_instruction() {
                instruction.memory_size()
            } else {
                memory.memory_size()
            };
            let can_change = !self.begin.read_only.iter().any(|range| range.contains(&address));
            self.accesses.extend(kind.into_iter().flatten().map(|kind| Access {
                thread: thread.number,
                instruction: at,
                kind,
                address,
                bytes: size.size() as u64,
                can_change,
                stretch: thread.stretch,
            }));
        }
    }
}

/// Value of a register; the segments begin at 0.
fn value(registers: &user_regs_struct, register: Register) -> Option<u64> {
    let full = match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        _ => return None,
    };
    Some(if register.is_gpr32() { full & 0xffff_ffff } else { full })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hashes_are_no_part_of_a_symbol() {
        assert_eq!(without_hash("_ZN4data5audit17h667a6a252961ec1dE"), "_ZN4data5audit");
        assert_eq!(without_hash("_ZNK7account7balanceEv"), "_ZNK7account7balanceEv");
        assert_eq!(without_hash("main"), "main");
    }
}
