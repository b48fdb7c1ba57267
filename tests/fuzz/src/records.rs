//! Records: of the kernel's ring buffer, and words that inline probes write to memory which the traced program shares.
//! Whatever they are, they become events or are left out.

use std::{
    ops::Range,
    slice,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use abi::{CopyRecord, Header, Kind, PlanNumber, Record, SiteId};
use checker::format::ObjectKind;
use events::{
    code_map::{CodeMap, CodeModule, NoFunction},
    source::Source,
};
use inline::{
    arena::{Arena, ArenaLayout, ThreadStart},
    encoding::{CONTINUATION, OWNED, RecordSite, VOID, decode, decode_owned, encode},
    layout::{Mode, Slot},
    memory::{Offset, ProcessAddress, SharedWords as _, WORD},
    merge::{Batch, Merge, Patience, Surroundings},
    ring::Ring,
    sites::SiteTable,
    tracer::{Note, Notes},
};
use plan::{
    memory::{
        allocators::Allocator,
        site::{AccessPlace, AllocatorSite, MemorySite},
    },
    plan::Site,
    regions::{markers::Meaning, non_local_exits::NonLocalExit, site::RegionSite},
    sync::{
        function_roles::FunctionRole,
        functions::{CallSpec, Role},
        site::SyncSite,
    },
};
use symbolize::ProcessAddr;

use crate::{Target, input::Input};

/// Records in the kernel's ring buffer, each behind its length.
pub const KERNEL: Target = Target {
    name: "kernel_records",
    run: kernel,
    seeds: kernel_seeds,
    words: &[b"\0\0\0\0\0\0\0\0", b"\x01\0\0\0"],
};

/// Bytes for a record of any kind.
const RECORD: usize = u8::MAX as usize + 1;

fn kernel_seeds() -> Vec<Vec<u8>> {
    let record = |kind: Kind, tid: u8, site: u8| {
        let mut bytes = vec![0; RECORD];
        bytes[..4].copy_from_slice(&(kind as u32).to_ne_bytes());
        bytes[4] = tid;
        bytes[8] = site;
        bytes[16..].iter_mut().step_by(8).zip(1..).for_each(|(byte, value)| *byte = value);
        [&[u8::MAX][..], &bytes].concat()
    };
    let mut seeds: Vec<_> =
        Kind::ALL.iter().map(|&kind| record(kind, 1, kind as u8 % SITES)).collect();
    seeds.push(seeds.concat());
    seeds
}

fn kernel(input: &[u8]) {
    let (mut input, mut process) = (Input(input), Process::new());
    while let Some(length) = input.byte() {
        let bytes = input.up_to(length as usize + 1);
        let _ = CopyRecord::decode(bytes);
        if let Some(record) = Record::decode(bytes) {
            assert_eq!(record.header().kind, record.kind() as u32);
            process.record(&record);
        }
    }
}

/// Slots of inline probes, as words.
pub const INLINE: Target = Target {
    name: "inline_records",
    run: inline_slots,
    seeds: || {
        let all = |number: u8| [number; 3 * 64 + 24];
        [0, 1, 0x7f, 0xff].map(|number| all(number).to_vec()).into()
    },
    words: &[],
};

fn inline_slots(input: &[u8]) {
    let (mut input, mut process) = (Input(input), Process::new());
    while let Some(record) = slots(&mut input) {
        let Some(record) = record else { continue };
        process.record(&record);
        if let Some(encoded) = encode(&record, 7) {
            assert!((1..=3).contains(&encoded.count()));
            assert_eq!(encoded.numbered(5).count(), encoded.count());
        }
    }
}

/// Takes the slots of a record; the outer value is `None` at the end of the input.
fn slots(input: &mut Input<'_>) -> Option<Option<Record>> {
    let (kind, point, epoch) = (input.byte()?, input.edge()?, input.edge()?);
    let further = usize::from(input.byte()? % 3);
    let mut slot = || {
        let mut words = [0; 8];
        for word in &mut words {
            *word = input.edge()?;
        }
        let [head, order, argument, sp, extra, a, b, c] = words;
        Some(Slot { head, order, argument, sp, extra, frames: [a, b, c] })
    };
    let first = slot()?;
    let more: Vec<Slot> = (0..further).map_while(|_| slot()).collect();
    let _ = decode_owned(&first);
    let kind = Kind::ALL[usize::from(kind) % Kind::ALL.len()];
    let site = SiteId::new(PlanNumber(0), u32::from(first.head as u8 % SITES));
    let header = Header { tid: 1, site, ..Header::default() };
    Some(decode(&first, &more, &RecordSite { kind, point }, header, epoch))
}

/// Rings of threads in shared memory, to which the program writes anything at any time.
pub const RINGS: Target = Target {
    name: "rings",
    run: rings,
    seeds: || {
        let write =
            |at: u16, value: u64| [&[0][..], &at.to_le_bytes(), &value.to_le_bytes()].concat();
        let publish = |slot: u8, site: u8| vec![3, 0, slot, site, 0, 9, 9, 9, 9, 9, 9];
        vec![
            [publish(0, 0), publish(1, 1), vec![1, 9, 2], publish(2, 2), vec![1, 40, 2]].concat(),
            [write(0, 5), write(1, u64::MAX), vec![1, 200], vec![2, 0], vec![1, 255, 0]].concat(),
        ]
    },
    words: &[],
};

/// Threads of the process whose rings are read.
const THREADS: u32 = 3;

/// Surroundings in which time passes as the input says.
struct Clocks {
    now: u64,
    elapsed: Duration,
}

impl Surroundings for Clocks {
    fn now(&mut self) -> u64 {
        self.now
    }

    fn barrier(&mut self) {}

    fn elapsed(&mut self) -> Duration {
        self.elapsed
    }

    fn wake(&mut self) {}
}

fn rings(input: &[u8]) {
    const BASE: ProcessAddress = ProcessAddress(0x7f00_0000_0000);
    let layout = ArenaLayout { words: 0, cells: 0, slots: 16, threads: THREADS.into() };
    let memory: Arc<[AtomicU64]> =
        (0..layout.file_size() / WORD).map(|_| AtomicU64::new(0)).collect();
    let mut arena = Arena::new(layout, BASE, &memory);
    let (notes, mut sites) = (Notes::default(), SiteTable::default());
    let mut segments = Vec::new();
    for tid in 1..=THREADS {
        let mode = if tid == 1 { Mode::Drop } else { Mode::Lossless };
        let stack = (ProcessAddress(0x1000), ProcessAddress(0x9000));
        let thread = ThreadStart { tid, epoch: 1, stack, mode };
        let segment = arena.start(thread, &memory).expect("there is room");
        let ring = Box::new(Ring::new(segment, mode));
        notes.add(Note::Started { tid, process: 1, ring });
        segments.push(segment);
    }
    for (number, kind) in
        (0..).zip([Kind::Begin, Kind::End, Kind::Access, Kind::Alloc, Kind::Acquire])
    {
        sites.add(SiteId::new(PlanNumber(0), number), RecordSite { kind, point: 0x1000 });
    }
    let mut clocks = Clocks { now: 1, elapsed: Duration::ZERO };
    let mut merge = Merge::new(memory.clone(), Patience::default(), true);
    let (mut input, mut process) = (Input(input), Process::new());
    let mut records = Vec::new();
    while let Some(action) = input.byte() {
        let segment = segments[usize::from(action >> 4) % segments.len()];
        match action % 5 {
            // Any word of a thread's part.
            0 => {
                let Some(at) = input.bytes().map(u16::from_le_bytes) else { break };
                let Some(value) = input.edge() else { break };
                memory.store(segment.block.plus(u64::from(at % 512) * WORD), value);
            }
            1 => {
                let Some(time) = input.byte() else { break };
                clocks.now = clocks.now.saturating_add(u64::from(time) << (time % 56));
                clocks.elapsed += Duration::from_millis(u64::from(time) * 8);
                let most = if time % 4 == 0 { 1 } else { usize::MAX };
                let batch = merge.batch(&mut clocks, &sites, &notes, &mut records, most);
                assert_eq!(batch.records, records.len());
                records.drain(..).for_each(|record| process.record(&record));
            }
            2 => {
                let tid = u32::from(action >> 4) % THREADS + 1;
                notes.add(Note::Ended { tid });
            }
            3 => {
                // A record where a thread would write its next one, with any words.
                let Some([_, number, site]) = input.bytes() else { break };
                let site = match site {
                    0xff => CONTINUATION,
                    0xfe => OWNED,
                    0xfd => VOID,
                    site => SiteId::new(PlanNumber(0), u32::from(site % 8)),
                };
                let number = u64::from(number);
                let at = segment.slots().plus(number % segment.capacity * 64);
                for word in 1..8 {
                    let Some(value) = input.edge() else { break };
                    memory.store(at.plus(word * WORD), value);
                }
                memory.store(at, inline::layout::head(number, site));
                memory.store(segment.block, number + 1);
            }
            _ => {
                // The page that all threads share.
                let Some(at) = input.byte() else { break };
                let Some(value) = input.edge() else { break };
                memory.store(Offset(u64::from(at) * WORD), value);
            }
        }
    }
    // Whatever was written, the stream ends: a slot a batch at the latest.
    merge.end();
    let most = layout.capacity() * u64::from(THREADS) + 2;
    let is_read = (0..most).any(|_| {
        let batch = merge.batch(&mut clocks, &sites, &notes, &mut records, usize::MAX);
        records.drain(..).for_each(|record| process.record(&record));
        batch == Batch::default()
    });
    assert!(is_read, "nothing is left");
}

/// Process with one function, and sites of several kinds.
struct Process {
    source: Source,
    sites: Vec<Site>,
    code: Code,
    records: usize,
}

/// Number of sites, and two more that do not exist.
const SITES: u8 = 14;

impl Process {
    fn new() -> Self {
        let sites = sites();
        let mut source = Source::new(1, 1);
        source.extend(&sites, &Code);
        Self { source, sites, code: Code, records: 0 }
    }

    fn record(&mut self, record: &Record) {
        self.source.records(slice::from_ref(record), &self.sites, &mut self.code);
        self.records += 1;
        let _ = self.source.take_shared();
        if self.records.is_multiple_of(8) {
            self.source.consume();
        }
    }
}

fn sites() -> Vec<Site> {
    let access = AccessPlace {
        instruction: ProcessAddr(START),
        returns_to: None,
        group: 0,
        commuting: None,
        stores: false,
        polls: false,
        is_library: false,
        sees_value: true,
    };
    let call = |object, role| {
        let spec = CallSpec { name: "f", object, role, argument: 1 };
        SyncSite::Call { spec, end: ProcessAddr(START + 4), object: None, extent: None }.into()
    };
    let allocator = |role| MemorySite::Allocator(AllocatorSite { role, is_complete: true }).into();
    let kinds = [
        RegionSite::Marker(Meaning::Begin("r".to_owned())).into(),
        RegionSite::Marker(Meaning::EndInnermost).into(),
        MemorySite::Access(access).into(),
        allocator(Allocator::First),
        allocator(Allocator::Reallocate),
        RegionSite::NonLocalExit(NonLocalExit::Jump).into(),
        call(ObjectKind::Lock, Role::ACQUIRE),
        call(ObjectKind::Lock, Role::RELEASE),
        call(ObjectKind::Lock, Role::CONDITION_WAIT),
        call(ObjectKind::Lock, Role::BARRIER),
        call(ObjectKind::Lock, Role::CREATE),
        call(ObjectKind::Lock, Role::JOIN),
    ];
    let address = ProcessAddr(START);
    kinds.into_iter().map(|kind| Site { address, kind }).collect()
}

/// Start of the function.
const START: u64 = 0x1000;

/// `mov [rdi],rax; ret`.
const CODE: [u8; 4] = [0x48, 0x89, 0x07, 0xc3];

/// Code of the process.
struct Code;

const fn range() -> Range<ProcessAddr> {
    ProcessAddr(START)..ProcessAddr(START + CODE.len() as u64)
}

impl CodeMap for Code {
    fn bytes_at(&self, address: ProcessAddr, length: usize) -> Option<&[u8]> {
        let code = CODE.get(address.0.checked_sub(START)? as usize..)?;
        (!code.is_empty()).then(|| &code[..length.min(code.len())])
    }

    fn function_at(&self, address: ProcessAddr) -> Result<Range<ProcessAddr>, NoFunction> {
        if range().contains(&address) { Ok(range()) } else { Err(NoFunction::NoFile) }
    }

    fn confirms_return(&mut self, address: ProcessAddr) -> bool {
        address.0 & 1 == 0
    }

    fn module_count(&self) -> usize {
        1
    }

    fn module_at(&self, address: ProcessAddr) -> Option<CodeModule> {
        let module = CodeModule { range: range(), is_program: true, runtime: None };
        range().contains(&address).then_some(module)
    }

    fn role_at(&self, _: ProcessAddr) -> FunctionRole {
        FunctionRole::default()
    }

    fn is_runtime_data(&self, _: ProcessAddr) -> bool {
        false
    }
}
