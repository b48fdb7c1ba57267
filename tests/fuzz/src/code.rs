//! Parts of a program's file: SystemTap notes in an ELF file, and machine code with its jump tables.

use std::path::Path;

use iced_x86::InstructionInfoFactory;
use plan::regions::markers::markers;
use symbolize::{DebugSearch, ElfFile, bytes::Bytes};
use x86::{
    basic_blocks::BasicBlocks,
    control_flow::{Code64, Flow},
    dataflow::Dataflow,
    exits::{Part, exits},
    loops,
    patching::{Convention, Function, Live, Padding},
};

use crate::Target;

/// SystemTap notes.
pub const NOTES: Target = Target {
    name: "notes",
    run: notes,
    seeds: || {
        let texts = [
            ("avtrace_begin", "transfer", ""),
            ("avtrace_end", "transfer", ""),
            ("avtrace_shared", "balance", "8@account+40(%rip)"),
            ("avtrace_shared", "balance", "8@-16(%rbp,%rax,8)"),
        ];
        let mut seeds =
            texts.map(|(provider, name, arguments)| note(provider, name, arguments)).to_vec();
        seeds.push(seeds.concat());
        seeds
    },
    words: &[
        b"stapsdt\0",
        b"avtrace_shared\0",
        b"@",
        b"(%rip)",
        b"%",
        b",",
        b"+",
        b"-",
        b"0x",
        b"9223372036854775808",
        b"\0\0\0\0",
    ],
};

/// A note as an assembler makes it.
fn note(provider: &str, name: &str, arguments: &str) -> Vec<u8> {
    let mut description = Vec::new();
    [0x1010_u64, 0x2000, 0].iter().for_each(|word| description.extend(word.to_le_bytes()));
    [provider, name, arguments].iter().for_each(|text| {
        description.extend(text.as_bytes());
        description.push(0);
    });
    let size = description.len();
    description.resize(size.next_multiple_of(4), 0);
    let mut note = Vec::new();
    [8, size as u32, 3].iter().for_each(|word| note.extend(word.to_le_bytes()));
    note.extend(b"stapsdt\0");
    [note, description].concat()
}

fn notes(input: &[u8]) {
    let file = ElfFile::from_bytes(
        Path::new("program"),
        Bytes::from(elf_with_notes(input)),
        &DebugSearch::default(),
    );
    let file = file.expect("a file whose headers are right");
    let (markers, misunderstood) = markers(&file);
    // The smallest note has its three sizes and its owner.
    assert!(markers.len() as u64 + misunderstood <= input.len() as u64 / 12 + 1);
    // The file may be anything as well.
    if let Ok(file) = ElfFile::from_bytes(
        Path::new("program"),
        Bytes::from(input.to_vec()),
        &DebugSearch::default(),
    ) {
        let _ = plan::regions::markers::markers(&file);
    }
}

/// Makes an ELF file with a section of notes, and one segment of code.
fn elf_with_notes(notes: &[u8]) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.note.stapsdt\0.stapsdt.base\0.shstrtab\0";
    const HEADER: u64 = 64;
    const SEGMENT: u64 = 56;
    let notes_at = HEADER + SEGMENT;
    let names_at = notes_at + notes.len() as u64;
    let sections_at = (names_at + NAMES.len() as u64).next_multiple_of(8);
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half = |file: &mut Vec<u8>, words: &[u16]| {
        words.iter().for_each(|word| file.extend(word.to_le_bytes()));
    };
    let word = |file: &mut Vec<u8>, words: &[u32]| {
        words.iter().for_each(|word| file.extend(word.to_le_bytes()));
    };
    let long = |file: &mut Vec<u8>, words: &[u64]| {
        words.iter().for_each(|word| file.extend(word.to_le_bytes()));
    };
    half(&mut file, &[3, 62]);
    word(&mut file, &[1]);
    long(&mut file, &[0x1000, HEADER, sections_at]);
    word(&mut file, &[0]);
    half(&mut file, &[64, 56, 1, 64, 4, 3]);
    // Readable and executable.
    word(&mut file, &[1, 5]);
    long(&mut file, &[0, 0x1000, 0x1000, notes_at, 0x8000, 0x1000]);
    file.extend_from_slice(notes);
    file.extend_from_slice(NAMES);
    file.resize(sections_at as usize, 0);
    let mut section = |name: u32, kind: u32, (address, offset, size): (u64, u64, u64)| {
        word(&mut file, &[name, kind]);
        long(&mut file, &[0, address, offset, size]);
        word(&mut file, &[0, 0]);
        long(&mut file, &[1, 0]);
    };
    section(0, 0, (0, 0, 0));
    section(1, 7, (0, notes_at, notes.len() as u64));
    section(15, 1, (0x2000, notes_at, 1));
    section(29, 3, (0, names_at, NAMES.len() as u64));
    file
}

/// Machine code of a function, which any bytes are, and the tables that it jumps through.
pub const MACHINE_CODE: Target = Target {
    name: "machine_code",
    run: machine_code,
    seeds: || {
        let codes: [&[u8]; 4] = [
            // cmp edi,3; ja; lea rdx,[rip+…]; movsxd rax,[rdx+rdi*4]; add rax,rdx; jmp rax; ret
            b"\x83\xff\x03\x77\x10\x48\x8d\x15\x10\0\0\0\x48\x63\x04\xba\x48\x01\xd0\xff\xe0\xc3\x90\x90\xc3\x90\x90\x90\
              \xfa\xff\xff\xff\xfb\xff\xff\xff\xfc\xff\xff\xff\xfd\xff\xff\xff",
            // cmp edi,7; ja; jmp [rdi*8+0x1020]; ret
            b"\x83\xff\x07\x77\x07\xff\x24\xfd\x20\x10\0\0\xc3\x0f\x1f\x44\0\0\x0f\x1f\x40\0",
            // push rbp; mov rbp,rsp; sub rsp,32; lock xadd [rdi],eax; loop back; leave; ret
            b"\x55\x48\x89\xe5\x48\x83\xec\x20\xf0\x0f\xc1\x07\x48\xff\xc9\x75\xf7\xe8\0\0\0\0\xc9\xc3",
            // endbr64; rep movsb; cmpxchg; call [rip]; jmp start
            b"\xf3\x0f\x1e\xfa\xf3\xa4\xf0\x0f\xb1\x17\xff\x15\0\0\0\0\xeb\xee",
        ];
        codes.map(<[u8]>::to_vec).into()
    },
    words: &[
        b"\x0f\x1f\0",
        b"\xff\xe0",
        b"\xc3",
        b"\xeb",
        b"\xe8",
        b"\x48\x8d\x15",
        b"\x48\x63",
        b"\xf2",
        b"\xf3",
        b"\xf0",
        b"\x41",
        b"\x66",
    ],
};

/// Address of the function.
const START: u64 = 0x1000;

fn machine_code(input: &[u8]) {
    let input = &input[..input.len().min(4096)];
    let word_at = |address: u64| {
        let at = usize::try_from(address.checked_sub(START)?).ok()?;
        Some(u32::from_le_bytes(*input.get(at..)?.first_chunk()?))
    };
    // Functions may have a part elsewhere; also at the end of addresses.
    let (near, far) = input.split_at(input.len() / 4 * 3);
    let whole = [Part { start: START, code: input }];
    let split = [
        Part { start: START, code: near },
        Part { start: 0u64.wrapping_sub(far.len() as u64), code: far },
    ];
    for parts in [&whole[..], &split] {
        let _ = exits(parts, START);
        let flow = loops::Flow::new(parts, &word_at, &|_| false);
        let _ = flow.body(START, START + near.len() as u64);
        if let Some(blocks) = BasicBlocks::analyze(parts, &word_at) {
            let _ = blocks.dataflow().instructions().len();
        }
        let values = Dataflow::analyze(parts, &|address| address & 8 == 0, &word_at);
        if let Some(values) = &values {
            for index in 0..values.instructions().len() {
                let _ = (
                    values.before(index, &|_| false),
                    values.successors(index),
                    values.predecessors(index),
                );
            }
        }
        let function = Function {
            parts,
            word_at: &word_at,
            is_target: &|_| false,
            is_restartable: &|_| false,
            reads: &|address| if address.is_multiple_of(2) { Live::ALL } else { Live::NONE },
            convention: Convention::SystemV,
        };
        let points: Vec<u64> = (START..START + input.len() as u64).step_by(3).collect();
        let mut padding = Padding::default();
        padding.add(START, input);
        let _ = function.patches(&points, &mut padding);
    }
    let bounds = |offset: u64| (offset < input.len() as u64).then_some((0, input.len() as u64));
    let code = Code64 { bytes: input, function_at: &bounds };
    for flow in [Flow::from(&code, 0), Flow::with_tail_calls(&code, 0)].into_iter().flatten() {
        let _ = (flow.returns(), flow.after_call_of_second_argument(), flow.tail_calls().count());
    }
    let mut info = InstructionInfoFactory::new();
    for instruction in x86::instruction::decode(input, START) {
        let _ = info.info(&instruction).used_memory().len();
    }
}
