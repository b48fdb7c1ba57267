//! Time that a probe adds to a loop of the program, in nanoseconds: `cargo bench -p avtrace-inline --bench events`. The
//! emitted code is the same in all profiles.

#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../tests/machine/signals.rs"]
mod signals;
#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../tests/machine/support.rs"]
mod support;

use std::time::Instant;

use abi::{AccessDescriptor, CallCookie, Cookie, InlinedCookie, Kind, Operand, ProbeProgram};
use iced_x86::code_asm::*;
use inline::{
    cell::{self, Cell},
    layout::{Clock, word_slot},
    trampoline::{Point, Probe},
};
use support::{Machine, registers};
use x86::patching::Live;

/// Rounds of the loop in one measurement, and measurements, of which the fourth fastest counts: the others are longer
/// when other programs run.
const ROUNDS: u64 = 100_000;
const RUNS: usize = 41;

/// Registers that count at a point, beside those that programs do not change: all, or none.
const ALL: u16 = 0xffff;
const FEW: u16 = 0xf038;

fn main() {
    // `cargo test` runs benchmarks as well.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let region = || probe(ProbeProgram::Region, Cookie::new(Kind::Begin, 1), None);
    let call = || {
        let cookie = CallCookie::new(Cookie::new(Kind::Release, 1), 0, 1, 0);
        probe(ProbeProgram::Call, cookie.0, None)
    };
    let lock = || {
        let operand = Operand::new(3, Operand::NONE, 0);
        let cookie = InlinedCookie::new(Cookie::new(Kind::Inlined, 1), 0, operand);
        probe(ProbeProgram::Inlined, cookie.0, None)
    };
    println!("nanoseconds a probe adds          all live   flags dead   all dead");
    for clock in [Clock::Tsc, Clock::Counter] {
        println!("{clock:?}");
        row("  region", clock, Epochs::None, &region);
        row("  call", clock, Epochs::None, &call);
        row("  inline lock (fence)", clock, Epochs::None, &lock);
        for (name, size, flags) in [
            ("read of 4 bytes", 4, AccessDescriptor::READ),
            ("write of 8 bytes", 8, AccessDescriptor::WRITE),
        ] {
            for (kind, epochs) in [
                ("", Epochs::Begun),
                ("shared ", Epochs::Shared),
                ("deferred ", Epochs::Deferred),
                ("repeated ", Epochs::None),
            ] {
                row(&format!("  {kind}{name}"), clock, epochs, &|| access(size, flags));
            }
        }
    }
}

fn probe(program: ProbeProgram, cookie: Cookie, access: Option<AccessDescriptor>) -> Probe {
    Probe { program, cookie, access, group: None }
}

fn access(size: u16, flags: u8) -> Probe {
    let none = Operand::NONE as u8;
    let descriptor = AccessDescriptor {
        size,
        flags,
        base: 3,
        index: none,
        rounds: none,
        ..AccessDescriptor::default()
    };
    let access = descriptor;
    probe(ProbeProgram::Access, Cookie::new(Kind::Access, 1), Some(access))
}

/// Epochs that rounds begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Epochs {
    None,
    /// A new epoch for each access, none of which is deferred.
    Begun,
    /// A new epoch for each access, to a word that threads share.
    Shared,
    /// A new epoch for each access, to a word that the thread owns.
    Deferred,
}

fn row(name: &str, clock: Clock, epochs: Epochs, make: &dyn Fn() -> Probe) {
    let plain = fastest(clock, epochs, None);
    let columns = [(ALL, true), (ALL, false), (FEW, false)].map(|(live, flags)| {
        let live = Live::ALL.with_registers(live).with_flags(flags);
        fastest(clock, epochs, Some((make(), live))) - plain
    });
    let [all, flags_dead, dead] = columns;
    println!("{name:32} {all:9.1} {flags_dead:12.1} {dead:10.1}");
}

/// Time of a round, in nanoseconds.
fn fastest(clock: Clock, epochs: Epochs, probe: Option<(Probe, Live)>) -> f64 {
    let mut machine = Machine::new(1 << 12, clock);
    let mut code = CodeAssembler::new(64).unwrap();
    let mut assemble = || -> Result<Vec<u8>, IcedError> {
        let mut again = code.create_label();
        code.set_label(&mut again)?;
        code.mov(r8, r9)?;
        code.mov(r11, r8)?;
        if epochs != Epochs::None {
            code.inc(qword_ptr(64).gs())?;
        }
        code.dec(r15)?;
        code.jne(again)?;
        code.jmp(machine.exit())?;
        code.assemble(machine.program())
    };
    let program = assemble().unwrap();
    machine.load(&program);
    let data = [0_u64; 2];
    if let Some((probe, live)) = probe {
        let before = machine.program();
        machine.patch(0, 6, &[Point { before, live, red_zone: true, probes: vec![probe] }]);
    }
    machine.block().limit = u64::MAX;
    if matches!(epochs, Epochs::Shared | Epochs::Deferred) {
        machine.defer(1);
    }
    if epochs == Epochs::Shared {
        let word = data.as_ptr() as u64 >> 3;
        let owner = word | cell::SHARED << cell::WORD_BITS;
        *machine.cells(word_slot(word).into()) = [Cell { owner, access: 0 }; 2];
    }
    let mut start = registers(&machine, 1);
    start.general[3] = data.as_ptr() as u64;
    start.general[15] = ROUNDS;
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let begin = Instant::now();
            machine.run(&start);
            begin.elapsed().as_nanos() as f64 / ROUNDS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 10]
}
