//! Differential test of the access probes: their records are compared with a list of all accesses, from executing the
//! program instruction by instruction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use checker::event::{Op, ThreadId, VarId};
use checker::format::{Item, LocationKind, Names, ReadOptions, TraceReader};
use object::{Object as _, ObjectSegment as _};
use serde_json::Value;
use tests::steps::{self, Access, Kind};
use tests::{Avtrace, Program, c, cpp, require_bpf, rust};

/// A thread, in the order in which they were made, an instruction's address in the file, and what it does to memory.
type Seen = (u32, u64, Kind);

/// A program, and the functions of it that are looked into.
struct Case<'case> {
    program: Program,
    arguments: &'case [&'case str],
    /// Each as its symbol, and as a pattern for avtrace: the regions.
    regions: &'case [(&'case str, &'case str)],
    /// Functions that no region calls, in the same form.
    others: &'case [(&'case str, &'case str)],
    /// Set if the functions acquire and release locks by inline atomic instructions, and have no others: these access a
    /// lock, and no variable.
    locks_in_line: bool,
    /// Number of bytes modulo which addresses are the same in each run: a page's, since mappings are elsewhere, or what
    /// allocators align to, where threads allocate in any order.
    granule: u64,
    /// Exit status of the run: 66 where it finds the violation.
    code: i32,
}

const PAGE: u64 = 4096;

/// Alignment of blocks.
const BLOCK: u64 = 16;

/// Variables of a block that has ended give their ids to others: the recording does not say which address one had when.
const UNKNOWN: u64 = 1;

impl<'case> Case<'case> {
    /// All that the functions do to shared memory is in avtrace's recording, and the recording has nothing else.
    #[track_caller]
    fn check(&self) {
        let symbols = |functions: &'case [(&'case str, &'case str)]| -> Vec<&'case str> {
            functions.iter().map(|(symbol, _)| *symbol).collect()
        };
        let (regions, others) = (symbols(self.regions), symbols(self.others));
        let exact = steps::accesses(&self.program, self.arguments, &regions, &others);
        let Recorded { seen, commuting, places, memory } = self.record();
        self.compare_places(&exact, &places);

        let all: BTreeSet<Seen> = exact.iter().map(key).collect();
        // A commuting update is recorded as such whether it was made in one step or in two.
        let steps = commuting.into_iter().flat_map(|(thread, at)| {
            let update = (thread, at, Kind::Update);
            let both = [(thread, at, Kind::Read), (thread, at, Kind::Write)];
            if all.contains(&update) { vec![update] } else { both.to_vec() }
        });
        let seen: BTreeSet<Seen> = seen.into_iter().chain(steps).collect();
        let needed = needed(&exact).into_iter();
        let is_lock = |access: &Access| self.locks_in_line && access.kind == Kind::Update;
        let needed: BTreeSet<Seen> =
            needed.filter(|access| !is_lock(access)).map(|access| key(&access)).collect();
        assert!(!needed.is_empty(), "the functions touch shared memory");
        let lines = |set: &BTreeSet<Seen>| -> Vec<String> {
            set.iter().map(|&(thread, at, kind)| format!("{thread} {at:#x} {kind:?}")).collect()
        };

        let invented = lines(&seen.difference(&all).copied().collect());
        assert!(invented.is_empty(), "{self}: not executed: {invented:#?}");

        let count = |key: &str| memory[key].as_u64().expect("a number");
        let left_out = memory["left_out"].as_array().expect("a list").iter();
        let left_out: u64 = left_out.map(|one| one["count"].as_u64().expect("a number")).sum();
        let claimed = count("emulated") + count("single_stepped");
        let missed: BTreeSet<Seen> = needed.difference(&seen).copied().collect();
        println!(
            "{self}: {claimed} of {} accesses are claimed, {} of {} that were made are seen",
            claimed + left_out,
            needed.len() - missed.len(),
            needed.len(),
        );
        assert!(claimed * 10 >= (claimed + left_out) * 9, "{self}: {memory:#}");
        // Missed accesses must be among the places that the report says were left out.
        let instructions: BTreeSet<u64> = missed.iter().map(|missed| missed.1).collect();
        let missed = lines(&missed);
        assert!(instructions.len() as u64 <= left_out, "{self}: {missed:#?} {memory:#}");
    }

    /// Every address in avtrace's recording is one that its instruction has accessed in the same thread, as
    /// far as addresses are the same in each run.
    #[track_caller]
    fn compare_places(&self, exact: &[Access], places: &[(u32, u64, u64)]) {
        // The first thread's stack begins anywhere in a page.
        const STACK: u64 = 0x7ff0_0000_0000;
        let mut accessed: BTreeMap<(u32, u64), Vec<&Access>> = BTreeMap::new();
        for access in exact {
            accessed.entry((access.thread, access.instruction)).or_default().push(access);
        }
        let is_there = |&&(thread, at, place): &&(u32, u64, u64)| {
            let accesses = accessed.get(&(thread, at)).into_iter().flatten();
            accesses.clone().any(|access| {
                let offset = place.wrapping_sub(access.address) % self.granule;
                access.address >= STACK || offset < access.bytes.max(1)
            })
        };
        let elsewhere: Vec<String> = places
            .iter()
            .filter(|place| !is_there(place))
            .map(|(thread, at, place)| format!("{thread} {at:#x}: {place:#x}"))
            .collect();
        assert!(elsewhere.is_empty(), "{self}: accesses that were not made: {elsewhere:#?}");
        println!("{self}: {} addresses are those of the program", places.len());
    }

    /// Records the program with avtrace.
    fn record(&self) -> Recorded {
        let folder = tests::folder();
        let file = folder.path().join("t.avt");
        let mut run = Avtrace::on(&self.program).seeing_memory().options(["--accesses", "probe"]);
        for (_, pattern) in self.regions {
            run = run.options(["--atomic", pattern]);
        }
        for (_, pattern) in self.regions.iter().chain(self.others) {
            run = run.options(["--probe", pattern]);
        }
        // Functions that regions call are looked into when they are named.
        run = run.options(["--probe-depth", "0", "--record"]).options([&file]);
        let (ended, report) = run.arguments(self.arguments).report();
        assert_eq!(ended.code, Some(self.code), "{self}: {report:#?}");
        assert_eq!(report.counts.lost_events, 0, "{self}");
        let trace = fs::read(&file).expect("the recording");
        let mut reader = TraceReader::from_bytes(&trace, ReadOptions::new("t.avt"));
        let reader = reader.as_mut().expect("a recording");
        let (mut seen, mut commuting, mut places) = (Vec::new(), Vec::new(), Vec::new());
        // The table of variables has an address for each; one that is divided keeps its first part.
        let address = |names: &Names, variable: VarId| names.variable(variable)?.address;
        let mut threads = BTreeMap::from([(ThreadId(0), 0)]);
        while let Some(item) = reader.next_item().expect("a whole recording") {
            let Item::Events(batch) = item else { panic!("{self}: a gap") };
            let events = batch.events.to_vec();
            for event in events {
                let variable = match event.op {
                    Op::Read(variable)
                    | Op::Write(variable)
                    | Op::Update(variable)
                    | Op::CommutingUpdate(variable) => Some(variable),
                    _ => None,
                };
                let place = variable.and_then(|variable| address(reader.names(), variable));
                places.extend(place.map(|place| (threads[&event.thread], event.location, place)));
                let kind = match event.op {
                    Op::Fork(thread) => {
                        let number = u32::try_from(threads.len()).expect("few threads");
                        threads.insert(thread, number);
                        continue;
                    }
                    Op::Read(_) => Kind::Read,
                    Op::Write(_) => Kind::Write,
                    Op::Update(_) => Kind::Update,
                    Op::CommutingUpdate(_) => {
                        commuting.push((threads[&event.thread], event.location));
                        continue;
                    }
                    _ => continue,
                };
                seen.push((threads[&event.thread], event.location, kind));
            }
        }
        let instruction = |location| self.instruction(reader.names(), location);
        let seen = seen.iter().map(|&(thread, at, kind)| (thread, instruction(at), kind));
        let commuting = commuting.iter().map(|&(thread, at)| (thread, instruction(at))).collect();
        // Accesses by the C library are recorded at its calls; a call by itself accesses the stack alone.
        let code = fs::read(&self.program.path).expect("the program");
        let code = object::File::parse(&*code).expect("an ELF file");
        let seen = seen.filter(|&(_, at, _)| !is_call(&code, at));
        let places = places.iter().map(|&(thread, at, place)| (thread, instruction(at), place));
        let places: Vec<_> = places.filter(|&(_, at, _)| !is_call(&code, at)).collect();
        assert!(!places.is_empty(), "{self}: variables have addresses");
        let memory = report.memory.expect("what was seen of memory");
        Recorded { seen: seen.collect(), commuting, places, memory }
    }

    /// The address in the program's file of the instruction that made an access.
    fn instruction(&self, names: &Names, location: checker::event::LocationId) -> u64 {
        let location = names.location(location).expect("a place");
        assert_eq!(location.kind, LocationKind::Access, "{self}: {location:?}");
        let module = location.stack[0].module.and_then(|module| names.module(module));
        let path = module.map(|module| module.path.as_str());
        assert_eq!(path, self.program.path.to_str(), "{self}: {location:?}");
        location.stack[0].address
    }
}

impl std::fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.program.path.display(), self.arguments.join(" "))
    }
}

/// Recording of a program by avtrace.
struct Recorded {
    /// Accesses of instructions.
    seen: BTreeSet<Seen>,
    /// Those among them that commute: thread and instruction.
    commuting: Vec<(u32, u64)>,
    /// Addresses of accesses: thread, instruction and address.
    places: Vec<(u32, u64, u64)>,
    /// Memory in the report.
    memory: Value,
}

/// Returns true for a direct call, by its address in the file.
fn is_call(file: &object::File<'_>, address: u64) -> bool {
    let mut bytes = file.segments().filter_map(|one| one.data_range(address, 1).ok().flatten());
    bytes.next() == Some(&[0xe8][..])
}

fn key(access: &Access) -> Seen {
    (access.thread, access.instruction, access.kind)
}

/// The accesses that have to be in a recording. It may leave out those to constants, and an access to bytes that the
/// thread itself has touched last, in the same way or by writing, and in the same stretch of its run.
fn needed(exact: &[Access]) -> Vec<Access> {
    // Who touched a byte last, in which stretch, and whether he has written it.
    let mut bytes: BTreeMap<u64, (u32, u64, bool)> = BTreeMap::new();
    let mut needed = Vec::new();
    for access in exact {
        let writes = access.kind != Kind::Read;
        let mut repeats = access.bytes > 0;
        for byte in access.address..access.address + access.bytes {
            let own = (access.thread, access.stretch);
            let last = bytes.get(&byte).filter(|&&(thread, stretch, _)| (thread, stretch) == own);
            let was_written = last.is_some_and(|last| last.2);
            repeats &= if writes { was_written } else { last.is_some() };
            bytes.insert(byte, (own.0, own.1, was_written || writes));
        }
        if !repeats && access.can_change {
            needed.push(*access);
        }
    }
    needed
}

const LEVELS: [&str; 2] = ["-O0", "-O2"];

/// Variants of `data.c`, with and without `fixed`: both are run where they use different instructions.
const WRONG: &[bool] = &[false];
const BOTH: &[bool] = &[false, true];

/// A kind of `data.c`, with its regions.
#[track_caller]
fn check_data(kind: &str, regions: &[&str], ways: &[bool]) {
    require_bpf!();
    let regions: Vec<_> = regions.iter().map(|&region| (region, region)).collect();
    for level in LEVELS {
        for &fixed in ways {
            let arguments = [kind, "fixed"];
            let case = Case {
                program: c("data", &["-g", level]),
                arguments: &arguments[..if fixed { 2 } else { 1 }],
                regions: &regions,
                others: &[("main", "main"), ("other", "other"), ("let_other", "let_other")],
                // A flag that is claimed by a compare-and-swap synchronises, and is no data.
                locks_in_line: fixed && kind == "check",
                granule: PAGE,
                code: if fixed { 0 } else { 66 },
            };
            case.check();
        }
    }
}

#[test]
fn a_global_account() {
    check_data("global", &["transfer", "audit"], WRONG);
}

#[test]
fn an_account_on_the_heap() {
    check_data("heap", &["transfer", "audit"], WRONG);
}

#[test]
fn a_total_without_a_lock() {
    check_data("lost", &["add", "charge"], BOTH);
}

#[test]
fn a_place_that_is_looked_at_and_taken() {
    check_data("check", &["claim"], BOTH);
}

#[test]
fn a_pair_that_is_torn() {
    check_data("torn", &["look", "set"], WRONG);
}

#[test]
fn blocks_that_go_from_thread_to_thread() {
    require_bpf!();
    for level in LEVELS {
        let case = Case {
            program: c("churn", &["-g", level]),
            arguments: &["3"],
            regions: &[("use", "use"), ("scratch", "scratch")],
            others: &[("run", "run"), ("main", "main")],
            locks_in_line: false,
            granule: UNKNOWN,
            code: 0,
        };
        case.check();
    }
}

#[test]
fn accessors_of_a_class() {
    require_bpf!();
    for level in LEVELS {
        let case = Case {
            program: cpp("account", &["-g", level]),
            arguments: &[],
            regions: &[("_ZL8transferR7accountl", "transfer"), ("_ZL5auditR7account", "audit")],
            others: &[
                ("_ZNK7account7balanceEv", "account::balance"),
                ("_ZN7account11set_balanceEl", "account::set_balance"),
                ("_ZN7account4lockEv", "account::lock"),
                ("_ZNK4turn4giveEv", "turn::give"),
                ("_ZNK4turn5awaitEv", "turn::await"),
            ],
            locks_in_line: false,
            granule: PAGE,
            code: 66,
        };
        case.check();
    }
}

#[test]
fn accounts_behind_a_mutex_or_a_cell_of_rust() {
    require_bpf!();
    for (kind, transfer, audit) in [
        ("mutex", ("_ZN4data8transfer", "data::transfer"), ("_ZN4data5audit", "data::audit")),
        (
            "cell",
            ("_ZN4data13transfer_cell", "data::transfer_cell"),
            ("_ZN4data10audit_cell", "data::audit_cell"),
        ),
    ] {
        let case = Case {
            program: rust("data", true),
            arguments: &[kind],
            regions: &[transfer, audit],
            others: &[("_ZN4data5Turns9let_other", "data::Turns::let_other")],
            locks_in_line: true,
            granule: PAGE,
            code: 66,
        };
        case.check();
    }
}

#[test]
fn stores_by_a_register_that_is_dead() {
    require_bpf!();
    let case = Case {
        program: c("dead_register", &["-O1"]),
        arguments: &["20"],
        regions: &[("set_up", "set_up")],
        others: &[],
        locks_in_line: false,
        granule: BLOCK,
        code: 0,
    };
    case.check();
}
