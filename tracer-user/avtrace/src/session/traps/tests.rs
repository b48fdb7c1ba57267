//! Causes of `SIGTRAP`, by what the kernel side records of them. End-to-end tests are in `tests/tests/traps.rs`.

use super::*;

const SI_KERNEL: i32 = 0x80;

/// A program with a function of 32 bytes at 0x1000, and probes in it.
struct Fake {
    file: Vec<u8>,
    probes: Vec<ProcessAddr>,
    has_watchpoints: bool,
}

impl Fake {
    fn new(probes: &[u64]) -> Self {
        let file = (0x10..0x30).collect();
        let probes = probes.iter().copied().map(ProcessAddr).collect();
        Self { file, probes, has_watchpoints: false }
    }

    /// The memory at an address of the file, with the breakpoints.
    fn memory(&self, address: u64) -> Vec<u8> {
        (address..0x1020)
            .map(|at| match self.probes.contains(&ProcessAddr(at)) {
                true => INT3,
                false => self.file[(at - 0x1000) as usize],
            })
            .collect()
    }
}

impl Code for Fake {
    fn has_probe(&self, address: ProcessAddr) -> bool {
        self.probes.contains(&address)
    }

    fn in_file(&self, address: ProcessAddr, length: usize) -> &[u8] {
        let start = address.0.checked_sub(0x1000).and_then(|start| self.file.get(start as usize..));
        start.map_or(&[], |rest| &rest[..length.min(rest.len())])
    }

    fn probes(&self) -> &[ProcessAddr] {
        &self.probes
    }

    fn has_watchpoints(&self) -> bool {
        self.has_watchpoints
    }

    fn is_program(&self, _address: ProcessAddr) -> bool {
        true
    }

    fn describe(&self, address: ProcessAddr) -> Option<String> {
        (0x1000..0x1020).contains(&address.0).then(|| format!("code+{:#x}", address.0 - 0x1000))
    }
}

/// A trap by the byte at an address, where this code was.
fn trap(at: u64, si_code: i32, code: &[u8]) -> TrapRecord {
    let mut bytes = [0; 16];
    let known = code.len().min(16);
    bytes[..known].copy_from_slice(&code[..known]);
    let half = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    TrapRecord {
        si_code,
        ip: at + 1,
        code: [0, half(0), half(8)],
        has_code: u32::from(known >= 8) << 1 | u32::from(known == 16) << 2,
        ..TrapRecord::default()
    }
}

fn causes(record: &TrapRecord, code: &Fake) -> TrapCause {
    cause(record, code)
}

#[test]
fn a_copy_of_code_with_a_breakpoint_is_known_by_what_surrounds_it() {
    let code = Fake::new(&[0x1004, 0x1009]);
    let copied = trap(0x7000, SI_KERNEL, &code.memory(0x1004));
    assert_eq!(causes(&copied, &code), TrapCause::CopiedCode);
    assert_eq!(original(&copied, &code), Some(ProcessAddr(0x1004)));
    // At the end of the copied bytes: the bytes before decide.
    let mut last = code.memory(0x1009)[..8].to_vec();
    last[4] = 0;
    let mut last = trap(0x7000, SI_KERNEL, &last);
    assert_eq!(causes(&last, &code), TrapCause::Breakpoint);
    last.code[0] = u64::from_le_bytes(code.memory(0x1001)[..8].try_into().unwrap());
    last.has_code |= 1;
    assert_eq!(causes(&last, &code), TrapCause::CopiedCode);
    assert_eq!(original(&last, &code), Some(ProcessAddr(0x1009)));
    let byte = trap(0x7000, SI_KERNEL, &[INT3]);
    assert_eq!(causes(&byte, &code), TrapCause::Breakpoint, "too little to tell");
    let mut altered = code.memory(0x1004);
    altered[7] ^= 1;
    assert_eq!(causes(&trap(0x7000, SI_KERNEL, &altered), &code), TrapCause::Breakpoint);
    let death = explain(TrapCause::CopiedCode, &copied, &code);
    assert!(death.message.contains("copy of code of code+0x4"), "{}", death.message);
    assert!(death.help.unwrap().contains("--own-code leave"));
    assert_eq!((death.address, death.location), (Some(0x7000), None));
}

#[test]
fn a_breakpoint_at_its_place_that_the_kernel_does_not_know_is_on_other_memory() {
    let code = Fake::new(&[0x1004]);
    let remapped = trap(0x1004, SI_KERNEL, &code.memory(0x1004));
    assert_eq!(causes(&remapped, &code), TrapCause::RemappedCode);
}

#[test]
fn breakpoints_in_the_file_are_the_programs_own() {
    let mut code = Fake::new(&[0x1004]);
    code.file[6] = INT3;
    let own = trap(0x1006, SI_KERNEL, &code.memory(0x1006));
    assert_eq!(causes(&own, &code), TrapCause::Program);
    assert!(explain(TrapCause::Program, &own, &code).message.contains("of its own at code+0x6"));
}

#[test]
fn a_debug_exception_without_a_cause_is_no_instruction_of_the_program() {
    const TRAP_BRKPT: i32 = 1;
    const TRAP_HWBKPT: i32 = 4;
    let mut code = Fake::new(&[]);
    let empty = trap(0x1006, TRAP_BRKPT, &code.memory(0x1006));
    assert_eq!(causes(&empty, &code), TrapCause::Program, "without anything of avtrace");
    code.has_watchpoints = true;
    assert_eq!(causes(&empty, &code), TrapCause::DebugException);
    let help = explain(TrapCause::DebugException, &empty, &code).help.unwrap();
    assert!(help.contains("--accesses sync"), "{help}");
    let stale = trap(0x1006, TRAP_HWBKPT, &code.memory(0x1006));
    assert_eq!(causes(&stale, &code), TrapCause::DebugException);
    // After the instruction, or before it.
    for bytes in [[INT1, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90], [0x90, INT1, 0, 0, 0, 0, 0, 0]]
    {
        assert_eq!(causes(&trap(0x1006, TRAP_BRKPT, &bytes), &code), TrapCause::Program);
    }
}

#[test]
fn what_is_sent_is_nobody_elses_fault() {
    let mut code = Fake::new(&[0x1004]);
    code.has_watchpoints = true;
    for (si_code, text) in [(0, "process 7 has sent"), (-1, "process 7"), (-6, "raised itself")] {
        let mut sent = trap(0x1004, si_code, &code.memory(0x1004));
        sent.sender = 7;
        assert_eq!(causes(&sent, &code), TrapCause::Program);
        let message = explain(TrapCause::Program, &sent, &code).message;
        assert!(message.contains(text), "{message}");
    }
}

#[test]
fn the_last_signal_without_a_handler_is_the_death() {
    let code = Fake::new(&[0x1004]);
    let copied = trap(0x7000, SI_KERNEL, &code.memory(0x1004));
    let mut traps = Traps::default();
    assert_eq!(traps.death(&code).cause, TrapCause::Unknown);
    assert_eq!(traps.handled(&code), None);
    for _ in 0..2 * MAX_SIGNALS {
        traps.add(&TrapRecord { handler: 0x1000, ..copied });
    }
    assert!(traps.handled(&code).unwrap().to_string().contains("64 or more SIGTRAPs"));
    assert_eq!(traps.death(&code).cause, TrapCause::Unknown, "all have been handled");
    traps.add(&copied);
    assert_eq!(traps.death(&code).cause, TrapCause::CopiedCode);
}
