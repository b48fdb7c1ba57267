//! Code that is too short for a jump, and that several ways lead to: its probes act on each of them.

use abi::{Cookie, Kind, ProbeProgram};
use iced_x86::{IcedError, code_asm::*};
use inline::{
    layout::Clock,
    trampoline::{Point, Probe},
};
use x86::{
    exits::Part,
    patching::{Convention, Function, Jump, Live, Padding, Patch},
};

use super::support::{Machine, registers};

/// Assembles a function whose `ret` two jumps and a short line lead to. Returns the place of the `ret`.
fn assemble(machine: &Machine) -> Result<(Vec<u8>, u64), IcedError> {
    let mut code = CodeAssembler::new(64)?;
    let (mut first, mut end) = (code.create_label(), code.create_label());
    code.push(machine.exit() as i32)?;
    code.test(edi, edi)?;
    code.je(first)?;
    code.cmp(esi, 5)?;
    code.je(end)?;
    code.mov(eax, 1)?;
    code.set_label(&mut first)?;
    code.cmc()?;
    code.set_label(&mut end)?;
    code.ret()?;
    let code = code.assemble(machine.program())?;
    let at = machine.program() + code.len() as u64 - 1;
    Ok((code, at))
}

#[test]
fn a_return_that_others_jump_to_is_recorded_on_all_ways() {
    let mut machine = Machine::new(256, Clock::Tsc);
    let (code, at) = assemble(&machine).unwrap();
    let starts = [(0, 0), (1, 5), (1, 6)].map(|(first, second)| {
        let mut start = registers(&machine, 7);
        (start.general[7], start.general[6]) = (first, second);
        start
    });
    machine.load(&code);
    let plain = starts.map(|start| machine.run(&start));
    let base = machine.program();
    let parts = [Part { start: base, code: &code }];
    let function = Function {
        parts: &parts,
        word_at: &|_| None,
        is_target: &|_| false,
        is_restartable: &|_| false,
        reads: &|_| Live::NONE,
        convention: Convention::SystemV,
    };
    let chosen = function.patches(&[at], &mut Padding::default());
    assert!(chosen.refused.is_empty() && chosen.redirected.len() == 2, "{chosen:?}");
    for patch in chosen.redirected.iter().chain(&chosen.patches) {
        let Patch { range, jump, points } = patch;
        let points = points.iter().map(|point| Point {
            before: point.before,
            live: point.live,
            red_zone: point.red_zone,
            probes: vec![Probe {
                program: ProbeProgram::Region,
                cookie: Cookie::new(Kind::Begin, 1),
                access: None,
                group: None,
            }],
        });
        let points: Vec<Point> = points.collect();
        let (offset, length) = ((range.start - base) as usize, (range.end - range.start) as usize);
        match jump {
            Jump::Redirected => machine.patch_redirected(offset, length, &points),
            _ => drop(machine.patch(offset, length, &points)),
        }
    }
    for (start, plain) in starts.iter().zip(plain) {
        assert_eq!(machine.run(start).general, plain.general, "no flag counts after a return");
        assert_eq!(machine.take().len(), 1);
    }
}
