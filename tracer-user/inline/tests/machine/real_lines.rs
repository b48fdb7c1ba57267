//! Straight lines of real code with a probe at each access: each record has the address that the program alone
//! accesses, whatever other probes have acted before, and the program writes what it writes without them.
//!
//! Memory is an arena whose words point into it, or are small numbers, and the addresses of the file's data, which may
//! be read alone. A line ends before an access to anything else, so that no code of strangers does harm.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    ops::Range,
    path::{Path, PathBuf},
    ptr, slice,
    sync::{Mutex, PoisonError},
};

use abi::{AccessDescriptor, Cookie, Kind, Operand, ProbeProgram};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, CpuidFeature, FlowControl, Instruction, InstructionBlock,
    InstructionInfoFactory, Mnemonic, OpAccess, Register, code_asm::CodeAssembler,
};
use inline::{
    layout::Clock,
    trampoline::{Point, Probe},
};
use symbolize::{ElfFile, LinkAddr};
use x86::{
    functions::Functions,
    instruction::decode,
    operands::{self, OperandAccess},
    patching::{Convention, Function, Jump, Live, Padding, Patch, Targets},
    restartable::restartable_sequences,
};

use super::support::{Machine, Registers, registers};

/// Instructions of a line, at most.
const LONGEST: usize = 24;

/// Sets of registers that are tried for a line, at most.
const TRIES: u64 = 6;

/// Bytes of stack that trampolines may need on either side of the stack pointer.
const STACK_ROOM: u64 = 2048;

const ARENA: usize = 1 << 16;

/// Memory with readable and writable words, and the addresses of a file's data.
struct LineMemory {
    arena: &'static mut [u64],
    data: Range<u64>,
}

impl LineMemory {
    /// Memory for a file whose addresses end before `end`.
    fn new(end: u64) -> Self {
        const LOWEST: u64 = 0x1_0000;
        let map = |address: u64, bytes: usize, more: i32| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | more;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping, which replaces no other.
            let at = unsafe {
                libc::mmap(
                    ptr::without_provenance_mut(address as usize),
                    bytes,
                    protection,
                    flags,
                    -1,
                    0,
                )
            };
            assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            at
        };
        // Pointers to the arena survive in 32 bits.
        let arena = map(0, ARENA, libc::MAP_32BIT).cast::<u64>();
        // SAFETY: just mapped.
        let arena = unsafe { slice::from_raw_parts_mut(arena, ARENA / 8) };
        let length = end.next_multiple_of(4096) - LOWEST;
        let data = map(LOWEST, length as usize, libc::MAP_FIXED_NOREPLACE).cast::<u64>();
        let mut memory = Self { arena, data: LOWEST..LOWEST + length };
        memory.reset();
        // SAFETY: just mapped, and nobody else knows it.
        let words = unsafe { slice::from_raw_parts_mut(data, length as usize / 8) };
        for (number, word) in words.iter_mut().enumerate() {
            *word = memory.arena[number % memory.arena.len()];
        }
        // SAFETY: the mapping of this test.
        let status = unsafe { libc::mprotect(data.cast(), length as usize, libc::PROT_READ) };
        assert_eq!(status, 0);
        memory
    }

    fn start(&self) -> u64 {
        self.arena.as_ptr() as u64
    }

    /// An address in the middle of the arena, or a small number, by a random number.
    fn value(&self, random: u64) -> u64 {
        if random & 3 == 0 {
            random >> 8 & 15
        } else {
            self.start() + (ARENA as u64) / 2 + (random >> 8 & 0xff0)
        }
    }

    fn reset(&mut self) {
        for number in 0..self.arena.len() {
            self.arena[number] =
                self.value((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
        }
    }

    fn may_access(&self, bytes: &Range<u64>, writes: bool, stack: &Range<u64>) -> bool {
        let is_in = |range: Range<u64>| range.start <= bytes.start && bytes.end <= range.end;
        is_in(self.start()..self.start() + ARENA as u64)
            || is_in(stack.clone())
            || !writes && is_in(self.data.clone())
    }
}

impl Drop for LineMemory {
    fn drop(&mut self) {
        // SAFETY: the mappings are this test's own.
        unsafe {
            libc::munmap(self.arena.as_mut_ptr().cast(), ARENA);
            let start = ptr::without_provenance_mut(self.data.start as usize);
            libc::munmap(start, (self.data.end - self.data.start) as usize);
        }
    }
}

/// Returns whether an instruction may be executed here: it goes on with the next one, and has the same effect in
/// each run, which general and vector registers and memory alone show.
fn is_plain(info: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    let has = |feature: &CpuidFeature| match feature {
        CpuidFeature::INTEL8086
        | CpuidFeature::INTEL186
        | CpuidFeature::INTEL286
        | CpuidFeature::INTEL386
        | CpuidFeature::INTEL486
        | CpuidFeature::X64
        | CpuidFeature::CMOV
        | CpuidFeature::MULTIBYTENOP
        | CpuidFeature::SSE
        | CpuidFeature::SSE2 => true,
        CpuidFeature::SSSE3 => is_x86_feature_detected!("ssse3"),
        CpuidFeature::SSE4_1 => is_x86_feature_detected!("sse4.1"),
        CpuidFeature::SSE4_2 => is_x86_feature_detected!("sse4.2"),
        CpuidFeature::AVX => is_x86_feature_detected!("avx"),
        CpuidFeature::AVX2 => is_x86_feature_detected!("avx2"),
        CpuidFeature::BMI1 => is_x86_feature_detected!("bmi1"),
        CpuidFeature::BMI2 => is_x86_feature_detected!("bmi2"),
        _ => false,
    };
    let may_fault = matches!(
        instruction.mnemonic(),
        Mnemonic::Div
            | Mnemonic::Idiv
            | Mnemonic::Enter
            | Mnemonic::Popf
            | Mnemonic::Popfq
            | Mnemonic::Std
    );
    let used = info.info(instruction).used_registers();
    let is_known = |register: Register| {
        register.is_gpr()
            || (register.is_xmm() || register.is_ymm()) && register.number() < 16
            // Of these the base is 0.
            || matches!(register, Register::DS | Register::ES | Register::SS)
    };
    let known = used.iter().all(|used| {
        let writes =
            !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
        is_known(used.register()) && !(writes && used.register().is_segment_register())
    });
    instruction.flow_control() == FlowControl::Next
        && !instruction.is_privileged()
        && !instruction.is_invalid()
        && !operands::is_repeated(instruction)
        && !may_fault
        && known
        && instruction.cpuid_features().iter().all(has)
}

/// Accesses of an instruction, each with its bytes for these registers; `None` if they are not known.
fn bytes_of(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    registers: &Registers,
) -> Option<Vec<(Range<u64>, bool)>> {
    let is_known = |access| matches!(access, OperandAccess::Plain(_) | OperandAccess::Stack);
    if !operands::accesses(info, instruction).into_iter().all(is_known) {
        return None;
    }
    let used = info.info(instruction).used_memory().to_vec();
    used.iter()
        .filter(|memory| memory.access() != OpAccess::NoMemAccess)
        .map(|memory| {
            let address = memory.virtual_address(0, |register, _, _| {
                if register.is_segment_register() {
                    return Some(0);
                }
                let whole = registers.general.get(register.full_register().number())?;
                Some(if register.is_gpr32() { *whole & 0xffff_ffff } else { *whole })
            })?;
            let size = (memory.memory_size().size() as u64).max(1);
            let writes = !matches!(memory.access(), OpAccess::Read | OpAccess::CondRead);
            // Wide accesses may demand it.
            let is_aligned = size < 16 || address.is_multiple_of(size);
            is_aligned.then_some((address..address.checked_add(size)?, writes))
        })
        .collect()
}

/// Instructions between an access and its probe, at most.
const LATEST: usize = 4;

/// The probes for a function's accesses, by their places: at the instruction, or behind it as far as the registers of
/// the address are as they were. There the program may read them no more.
fn probes(
    info: &mut InstructionInfoFactory,
    part: &[Instruction],
    first: u32,
    found: &mut BTreeMap<u64, Vec<Probe>>,
) {
    for (number, instruction) in part.iter().enumerate() {
        let site = first + number as u32;
        let Some(probe) = probe(info, instruction, site) else { continue };
        let access = probe.access.expect("an access");
        let used = [access.base, access.index];
        let mut keeps = |one: &&Instruction| {
            is_plain(info, one)
                && info.info(one).used_registers().iter().all(|register| {
                    let whole = register.register().full_register();
                    let reads = matches!(register.access(), OpAccess::Read | OpAccess::CondRead);
                    reads || !whole.is_gpr64() || !used.contains(&(whole.number() as u8))
                })
        };
        let most = number.wrapping_mul(7) % (LATEST + 1);
        let later = part[number..].iter().take_while(|one| keeps(one)).take(most).count();
        let Some(at) = part.get(number + later) else { continue };
        found.entry(at.ip()).or_default().push(probe);
    }
}

/// The probe of an instruction's first access that is not to the stack.
fn probe(info: &mut InstructionInfoFactory, instruction: &Instruction, site: u32) -> Option<Probe> {
    let plain =
        operands::accesses(info, instruction).into_iter().find_map(|access| match access {
            OperandAccess::Plain(operand)
                if operand.base != Register::RSP && !operand.is_repeated =>
            {
                Some(operand)
            }
            _ => None,
        })?;
    let number = |register: Register| match register {
        Register::None => Operand::NONE as u8,
        other => other.number() as u8,
    };
    let descriptor = AccessDescriptor {
        displacement: plain.displacement as i64,
        size: 1,
        flags: AccessDescriptor::READ | AccessDescriptor::WRITE,
        base: number(plain.base),
        index: number(plain.index),
        scale: plain.scale.trailing_zeros() as u8,
        rounds: Operand::NONE as u8,
        ..AccessDescriptor::default()
    };
    let cookie = Cookie::new(Kind::Access, site);
    Some(Probe { program: ProbeProgram::Access, cookie, access: Some(descriptor), group: None })
}

/// Assembles a line for an address. The code begins with a prefix that gives vector registers the same values in each
/// run, and ends with a jump to the exit. Returns the code and the length of the prefix.
fn assemble(machine: &Machine, line: &[Instruction]) -> Option<(Vec<u8>, usize)> {
    let mut start = CodeAssembler::new(64).unwrap();
    if is_x86_feature_detected!("avx") {
        start.vzeroall().unwrap();
    } else {
        for number in 0..16 {
            let xmm = Register::XMM0 + number;
            let zero = Instruction::with2(iced_x86::Code::Pxor_xmm_xmmm128, xmm, xmm).unwrap();
            start.add_instruction(zero).unwrap();
        }
    }
    let mut code = start.assemble(machine.program()).unwrap();
    let prefix = code.len();
    let address = machine.program() + prefix as u64;
    let block = InstructionBlock::new(line, address);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok()?.code_buffer;
    let length: usize = line.iter().map(Instruction::len).sum();
    if encoded.len() != length {
        // Another form of an instruction: its places are elsewhere.
        return None;
    }
    code.extend(encoded);
    let mut end = CodeAssembler::new(64).unwrap();
    end.jmp(machine.exit()).unwrap();
    let address = machine.program() + code.len() as u64;
    code.extend(end.assemble(address).unwrap());
    Some((code, prefix))
}

/// Numbers of what was executed.
#[derive(Debug, Default)]
struct LineCounts {
    patches: usize,
    executed: usize,
    several: usize,
    addresses: usize,
}

impl fmt::Display for LineCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} patches executed, {} of them with several probes, {} addresses compared",
            self.executed, self.patches, self.several, self.addresses
        )
    }
}

struct LineBench {
    machine: Machine,
    stack: Vec<u64>,
    memory: LineMemory,
    info: InstructionInfoFactory,
    counts: LineCounts,
}

impl LineBench {
    fn new(end: u64) -> Self {
        let machine = Machine::new(256, Clock::Tsc);
        let stack = machine.stack.clone();
        let memory = LineMemory::new(end);
        let (info, counts) = (InstructionInfoFactory::new(), LineCounts::default());
        Self { machine, stack, memory, info, counts }
    }

    fn start(&self, seed: u64) -> Registers {
        let mut start = registers(&self.machine, seed);
        let rsp = start.general[4];
        for (number, register) in start.general.iter_mut().enumerate() {
            let random = (seed + 1).wrapping_mul(0xd134_2543_de82_ef95) ^ (number as u64) << 17;
            *register = self.memory.value(random.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24);
        }
        start.general[4] = rsp;
        start
    }

    /// Executes what is loaded.
    fn run(&mut self, start: &Registers) -> Registers {
        self.machine.stack.copy_from_slice(&self.stack);
        self.memory.reset();
        self.machine.run(start)
    }

    /// The part of a line that may be executed from these registers, and those before each access and probe.
    fn executable(
        &mut self,
        line: &[Instruction],
        probes: &BTreeMap<u64, Vec<Probe>>,
        start: &Registers,
    ) -> (usize, BTreeMap<u64, Registers>) {
        let (low, high) = self.machine.stack_bounds();
        let mut before = BTreeMap::new();
        for (number, instruction) in line.iter().enumerate() {
            let is_bare = self.info.info(instruction).used_memory().is_empty();
            if is_bare && !probes.contains_key(&instruction.ip()) {
                continue;
            }
            let Some((code, _)) = assemble(&self.machine, &line[..number]) else {
                return (0, before);
            };
            self.machine.load(&code);
            let registers = self.run(start);
            let bytes = bytes_of(&mut self.info, instruction, &registers);
            let may_access = |(bytes, writes): &(Range<u64>, bool)| {
                self.memory.may_access(bytes, *writes, &(low..high))
            };
            let has_stack = (low + STACK_ROOM..high - STACK_ROOM).contains(&registers.general[4]);
            if !has_stack || !bytes.is_some_and(|all| all.iter().all(may_access)) {
                return (number, before);
            }
            before.insert(instruction.ip(), registers);
        }
        (line.len(), before)
    }

    /// Executes a line that begins with a patch, alone and with all patches in it. Returns false if the first one is
    /// not in the part that may be executed.
    fn check(
        &mut self,
        line: &[Instruction],
        patches: &[Patch],
        probes: &BTreeMap<u64, Vec<Probe>>,
        seed: u64,
        origin: &dyn fmt::Display,
    ) -> bool {
        let start = self.start(seed);
        let (length, mut before) = self.executable(line, probes, &start);
        let line = &line[..length];
        let Some(end) = line.last().map(Instruction::next_ip) else { return false };
        if end < patches[0].range.end {
            return false;
        }
        let Some((code, prefix)) = assemble(&self.machine, line) else { return false };
        self.machine.load(&code);
        let alone = self.run(&start);
        // A probe of the instruction behind the line may be in its last patch.
        before.insert(end, alone);
        let written = self.memory.arena.to_vec();

        let bias = (self.machine.program() + prefix as u64).wrapping_sub(line[0].ip());
        self.machine.reset();
        let mut patched = BTreeSet::new();
        for patch in patches.iter().take_while(|patch| patch.range.end <= end) {
            let points = patch.points.iter().map(|point| {
                patched.insert(point.address);
                Point::new(point, bias, probes[&point.address].clone())
            });
            let points: Vec<Point> = points.collect();
            let offset = patch.range.start.wrapping_add(bias) - self.machine.program();
            let length = patch.range.end - patch.range.start;
            self.machine.patch(offset as usize, length as usize, &points);
        }
        self.machine.block().epoch += 1;
        let with_probes = self.run(&start);
        assert_eq!(with_probes.general[4], alone.general[4], "{origin}: the stack pointer");
        assert!(self.memory.arena == &written[..], "{origin}: other memory is written");

        let expected: BTreeMap<u32, u64> = patched
            .iter()
            .filter_map(|address| Some((before.get(address)?, &probes[address])))
            .flat_map(|(registers, probes)| {
                probes.iter().filter_map(|probe| {
                    let access = probe.access.as_ref()?;
                    Some((probe.cookie.site().0, address_of(access, registers)))
                })
            })
            .collect();
        let mut recorded = BTreeSet::new();
        for slot in self.machine.take() {
            let site = slot.site().0;
            assert_eq!(
                Some(&slot.argument),
                expected.get(&site),
                "{origin}: the address at site {site}"
            );
            recorded.insert(slot.argument);
            self.counts.addresses += 1;
        }
        // Repetitions make no record, nor do accesses to the thread's own stack.
        let (low, high) = self.machine.stack_bounds();
        for (site, address) in &expected {
            let is_left_out = (low..high).contains(address);
            assert!(
                is_left_out || recorded.contains(address),
                "{origin}: no record at site {site}"
            );
        }
        true
    }

    /// Checks the lines of a function.
    fn check_function(
        &mut self,
        function: &Function<'_>,
        probes: &BTreeMap<u64, Vec<Probe>>,
        name: &str,
    ) {
        let points: Vec<u64> = probes.keys().copied().collect();
        let chosen = function.patches(&points, &mut Padding::default());
        let patches: Vec<Patch> =
            chosen.patches.into_iter().filter(|patch| patch.jump == Jump::Near).collect();
        for part in function.parts {
            let instructions: Vec<Instruction> = decode(part.code, part.start).collect();
            for (number, patch) in patches.iter().enumerate() {
                let first = instructions.partition_point(|one| one.ip() < patch.range.start);
                if instructions.get(first).is_none_or(|one| one.ip() != patch.range.start) {
                    continue;
                }
                let line = instructions[first..].iter().take(LONGEST);
                let line: Vec<Instruction> =
                    line.copied().take_while(|one| is_plain(&mut self.info, one)).collect();
                let origin =
                    format_args!("{name}, the line from {:#x} on", patch.range.start).to_string();
                self.counts.patches += 1;
                let mut tries = 0..TRIES;
                if tries.any(|seed| self.check(&line, &patches[number..], probes, seed, &origin)) {
                    self.counts.executed += 1;
                    self.counts.several += usize::from(patch.points.len() > 1);
                }
            }
        }
    }
}

fn address_of(access: &AccessDescriptor, registers: &Registers) -> u64 {
    let of = |number: u8| registers.general.get(usize::from(number)).copied().unwrap_or(0);
    of(access.base)
        .wrapping_add(of(access.index) << access.scale)
        .wrapping_add_signed(access.displacement)
}

/// Checks one of `step` functions of a file.
fn check_file(path: &Path, step: usize) -> LineCounts {
    // Addresses of files are the same ones.
    static ADDRESSES: Mutex<()> = Mutex::new(());
    let _one_at_a_time = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
    let file = ElfFile::open(path).unwrap();
    let functions = Functions::from_file(&file);
    let targets = Targets::of_file(&file, &functions);
    let restartable = restartable_sequences(&file);
    let end = functions.iter().map(|function| function.end.0).max().unwrap_or_default();
    // Data stands behind the code.
    let length = fs::metadata(path).expect("a file").len();
    let mut bench = LineBench::new(end + length + (16 << 20));
    for function in functions.iter().step_by(step) {
        let Some(parts) = function.parts(&file) else { continue };
        let mut found = BTreeMap::new();
        let mut first = 1;
        for part in &parts {
            let instructions: Vec<Instruction> = decode(part.code, part.start).collect();
            probes(&mut bench.info, &instructions, first, &mut found);
            first += instructions.len() as u32;
        }
        let probes = found;
        let code = Function {
            parts: &parts,
            word_at: &|address| {
                let bytes = file.bytes_at(LinkAddr(address), 4)?;
                Some(u32::from_le_bytes(*bytes.first_chunk()?))
            },
            is_target: &|address| address != function.start.0 && targets.contains(address),
            is_restartable: &|address| restartable.contains(LinkAddr(address)),
            reads: &|address| {
                let here = probes.get(&address).into_iter().flatten();
                here.map(Probe::reads).fold(Live::NONE, Live::and)
            },
            convention: Convention::SystemV,
        };
        bench.check_function(&code, &probes, &function.name.short);
    }
    println!("{}: {}", path.display(), bench.counts);
    bench.counts
}

/// The first of these files that there is.
fn library(name: &str) -> Option<PathBuf> {
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists())
}

#[test]
fn records_of_real_code_have_the_addresses_of_the_program() {
    let counts = check_file(&std::env::current_exe().unwrap(), 40);
    assert!(counts.executed * 3 > counts.patches && counts.several > 50, "{counts}");
    match library("libc.so.6") {
        Some(file) => assert!(check_file(&file, 20).addresses > 100),
        None => println!("skipped: no C library at a known place"),
    }
}

#[test]
#[ignore = "takes minutes: run with --long"]
fn records_of_libraries_and_large_programs_have_the_addresses_of_the_program() {
    let libraries = ["libc.so.6", "libstdc++.so.6"].into_iter().filter_map(library);
    let programs = ["git", "perl", "python3", "gdb", "qemu-img"];
    let programs = programs.iter().map(|name| Path::new("/usr/bin").join(name));
    let files: Vec<PathBuf> = libraries.chain(programs.filter(|path| path.exists())).collect();
    assert!(!files.is_empty(), "no file is at its known place");
    for file in files {
        assert!(check_file(&file, 1).addresses > 1000, "{}", file.display());
    }
}
