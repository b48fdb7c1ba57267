//! Random code with several probes that compute addresses and look at flags: each record has what the program alone has
//! in its registers and flags at the probe's point, whatever other probes have acted before.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    identity::{Choice, decode, instruction},
    support::{FLAGS, Machine, Registers, registers},
};
use abi::{
    AccessDescriptor, Cookie, FlagCondition, InlinedCookie, Kind, Operand, ProbeProgram, SiteId,
};
use iced_x86::code_asm::*;
use inline::{
    layout::Clock,
    trampoline::{Point, Probe},
};
use proptest::prelude::*;
use x86::{
    exits::Part,
    patching::{Convention, Function, Live, Padding},
};

/// Number of words of data. The last one is set at the end of code that is cut short.
const WORDS: usize = 64;

/// Contents of a record, beside the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    address: u64,
    /// Flags of an access, or the low half of `rax` at an inlined lock.
    more: u32,
}

/// Registers of an address: base, index and its scale.
type Parts = (u8, u8, u8);

fn value(registers: &Registers, (base, index, scale): Parts) -> u64 {
    let of = |number: u8| registers.general[usize::from(number)];
    of(base).wrapping_add(of(index) << scale)
}

/// Random probe with a site. `said` has what its record says with these registers, if it makes one.
fn probe(site: u32, (kind, a, b, c, number): Choice) -> Probe {
    let (base, index, scale) = parts((kind, a, b, c, number));
    if kind % 3 == 0 {
        let operand = Operand::new(base.into(), index.into(), scale.into());
        let flags = if c & 4 == 0 { InlinedCookie::CONDITIONAL } else { 0 };
        let operand = operand.with_condition(FlagCondition::new(c >> 4));
        let cookie = InlinedCookie::new(Cookie::new(Kind::Inlined, site), flags, operand).0;
        return Probe { program: ProbeProgram::Inlined, cookie, access: None, group: None };
    }
    let both = AccessDescriptor::READ | AccessDescriptor::WRITE;
    let descriptor = AccessDescriptor {
        displacement: number.into(),
        size: 1,
        flags: if kind % 3 == 1 { both } else { both | AccessDescriptor::WRITES_IF_ZERO },
        base,
        index,
        scale,
        rounds: Operand::NONE as u8,
        ..AccessDescriptor::default()
    };
    let cookie = Cookie::new(Kind::Access, site);
    Probe { program: ProbeProgram::Access, cookie, access: Some(descriptor), group: None }
}

fn parts((_, a, b, c, _): Choice) -> Parts {
    (a & 15, b & 15, c & 3)
}

/// Returns what the record of a probe says, if it makes one.
fn said(registers: &Registers, choice: Choice) -> Option<Said> {
    let (kind, _, _, c, number) = choice;
    let address = value(registers, parts(choice));
    if kind % 3 == 0 {
        let is_made = c & 4 != 0 || FlagCondition::new(c >> 4).holds(registers.flags & FLAGS);
        return is_made.then_some(Said { address, more: registers.general[0] as u32 });
    }
    let writes = kind % 3 == 1 || FlagCondition::EQUAL.holds(registers.flags & FLAGS);
    let flags = AccessDescriptor::READ | if writes { AccessDescriptor::WRITE } else { 0 };
    let address = address.wrapping_add_signed(number.into());
    Some(Said { address, more: flags.into() })
}

/// Assembles some instructions; code that is cut short says at its end that it has come there.
fn assemble(machine: &Machine, choices: &[Choice], is_cut: bool) -> Vec<u8> {
    let mut code = CodeAssembler::new(64).unwrap();
    let mut emit = || -> Result<Vec<u8>, IcedError> {
        let (mut start, mut end) = (code.create_label(), code.create_label());
        code.set_label(&mut start)?;
        code.nop()?;
        for &choice in choices {
            instruction(&mut code, choice, start, end)?;
        }
        if is_cut {
            code.mov(qword_ptr(rbx + 8 * (WORDS - 1)), 1)?;
        } else {
            code.nop()?;
        }
        code.set_label(&mut end)?;
        code.jmp(machine.exit())?;
        code.assemble(machine.program())
    };
    emit().unwrap()
}

/// Code, and probes with the instructions that they are at.
#[derive(Clone, Debug)]
struct AddressCase {
    code: Vec<Choice>,
    probes: Vec<(prop::sample::Index, Choice)>,
    seed: u64,
}

fn case() -> impl Strategy<Value = AddressCase> {
    let choice = || any::<Choice>();
    let probe = (any::<prop::sample::Index>(), choice());
    (prop::collection::vec(choice(), 3..24), prop::collection::vec(probe, 2..8), any::<u64>())
        .prop_map(|(code, probes, seed)| AddressCase { code, probes, seed })
}

fn check(case: &AddressCase) {
    let mut machine = Machine::new(256, Clock::Tsc);
    let mut data: Vec<u64> = (0..WORDS as u64).map(|n| n * 0x0101_0101_0203_0405).collect();
    data[WORDS - 1] = 0;
    let mut start = registers(&machine, case.seed);
    start.general[3] = data.as_ptr() as u64;
    let (stack, before) = (machine.stack.clone(), data.clone());
    let code = assemble(&machine, &case.code, false);
    let base = machine.program();
    // Behind the instructions before each: a push and a pop are one choice.
    let count = |choices: &[Choice]| {
        choices.iter().map(|choice| if choice.0 % 32 == 22 { 2 } else { 1 }).sum::<usize>()
    };
    let instructions = decode(&code, base);
    let mut probes: BTreeMap<u64, Vec<Probe>> = BTreeMap::new();
    // By the sites, with the addresses of the points.
    let mut expected: BTreeMap<u32, (Said, u64)> = BTreeMap::new();
    for (site, (index, choice)) in (1..).zip(&case.probes) {
        let at = index.index(case.code.len());
        machine.load(&assemble(&machine, &case.code[..at], true));
        let there = machine.run(&start);
        let is_reached = data[WORDS - 1] != 0;
        machine.stack.copy_from_slice(&stack);
        data.copy_from_slice(&before);
        let address = instructions[1 + count(&case.code[..at])].ip();
        let said = said(&there, *choice).filter(|_| is_reached);
        expected.extend(said.map(|said| (site, (said, address))));
        probes.entry(address).or_default().push(probe(site, *choice));
    }
    let parts = [Part { start: base, code: &code }];
    let function = Function {
        parts: &parts,
        word_at: &|_| None,
        is_target: &|_| false,
        is_restartable: &|_| false,
        reads: &|address| {
            let here = probes.get(&address).into_iter().flatten();
            here.map(Probe::reads).fold(Live::NONE, Live::and)
        },
        convention: Convention::SystemV,
    };
    let addresses: Vec<u64> = probes.keys().copied().collect();
    machine.load(&code);
    let mut patched = BTreeSet::new();
    for patch in function.patches(&addresses, &mut Padding::default()).patches {
        let points = patch.points.iter().map(|point| {
            patched.insert(point.address);
            Point::new(point, 0, probes[&point.address].clone())
        });
        let points: Vec<Point> = points.collect();
        let (offset, length) = (patch.range.start - base, patch.range.end - patch.range.start);
        machine.patch(offset as usize, length as usize, &points);
    }
    machine.run(&start);
    let is_access = |site: SiteId| !case.probes[site.0 as usize - 1].1.0.is_multiple_of(3);
    let mut recorded = BTreeSet::new();
    for slot in machine.take() {
        let site = slot.site();
        if site.0 as usize > case.probes.len() {
            // The rest of another record.
            continue;
        }
        // Of an access the flags of its descriptor: others say what was found at its address.
        let more = if is_access(site) { slot.frames[0] as u32 & 0xff } else { slot.extra as u32 };
        let said = Said { address: slot.argument, more };
        assert_eq!(Some(said), expected.get(&site.0).map(|expected| expected.0), "{site:?}");
        recorded.insert(said.address);
    }
    // Repetitions make no record, nor do accesses to the thread's own stack.
    let (low, high) = machine.stack_bounds();
    for (said, point) in expected.values().filter(|(_, point)| patched.contains(point)) {
        let is_left_out = (low..high).contains(&said.address);
        assert!(is_left_out || recorded.contains(&said.address), "{said:x?} at {point:#x}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn records_have_what_the_program_has(case in case()) {
        check(&case);
    }
}
