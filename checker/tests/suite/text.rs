//! Text traces for tests: events such as `t1 begin(m)`, one to a line or separated by `;`, and the helper
//! that compares findings with the expected ones.

use checker::event::{Event, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use checker::finding::{Evidence, Findings, Tx};
use checker::{Checker, Davida, Options};
use std::collections::HashMap;

#[derive(Default)]
pub struct Names {
    ids: HashMap<(char, String), u32>,
    names: HashMap<(char, u32), String>,
}

impl Names {
    fn id(&mut self, space: char, name: &str) -> u32 {
        let next = self.ids.keys().filter(|(other, _)| *other == space).count() as u32;
        let id = *self.ids.entry((space, name.to_owned())).or_insert(next);
        self.names.insert((space, id), name.to_owned());
        id
    }

    /// Returns the name of an id in the space `r` of regions, `t` of threads, `v` of variables, `l` of locks or `s`.
    pub fn name(&self, space: char, id: u32) -> &str {
        &self.names[&(space, id)]
    }

    /// Returns the region's name, or for a unary transaction the thread's.
    pub fn region(&self, id: RegionId) -> &str {
        &self.names[&('r', id.0)]
    }

    pub fn tx(&self, tx: Tx) -> &str {
        match tx.region {
            Some(region) => &self.names[&('r', region.0)],
            None => &self.names[&('t', tx.thread.0)],
        }
    }
}

/// Reads a trace; the location of an event is its number, so that no two violations share a static witness.
pub fn parse(trace: &str) -> (Vec<Event>, Names) {
    let mut names = Names::default();
    let mut events = Vec::new();
    for item in trace.split([';', '\n']).map(str::trim).filter(|item| !item.is_empty()) {
        let (thread, op) = item.split_once(' ').expect("THREAD OP");
        let (op, object) = op.trim_end_matches(')').split_once('(').unwrap_or((op, ""));
        let mut id = |space| names.id(space, object);
        let op = match op {
            "split" => {
                let (from, to) = object.split_once(',').expect("split(FROM,TO)");
                Op::SplitVariable { from: VarId(names.id('v', from)), to: VarId(names.id('v', to)) }
            }
            "begin" => Op::Begin(RegionId(id('r'))),
            "end" if object.is_empty() => Op::End(None),
            "end" => Op::End(Some(RegionId(id('r')))),
            "r" => Op::Read(VarId(id('v'))),
            "w" => Op::Write(VarId(id('v'))),
            "u" => Op::Update(VarId(id('v'))),
            "add" => Op::CommutingUpdate(VarId(id('v'))),
            "alloc" => Op::Alloc(VarId(id('v'))),
            "free" => Op::Free(VarId(id('v'))),
            "acq" => Op::Acquire(LockId(id('l'))),
            "rel" => Op::Release(LockId(id('l'))),
            "racq" => Op::AcquireShared(LockId(id('l'))),
            "rrel" => Op::ReleaseShared(LockId(id('l'))),
            "reset" => Op::Reset(LockId(id('l'))),
            "signal" => Op::Signal(SyncId(id('s'))),
            "wait" => Op::Wait(SyncId(id('s'))),
            "arrive" => Op::Arrive(SyncId(id('s'))),
            "depart" => Op::Depart(SyncId(id('s'))),
            "fork" => Op::Fork(ThreadId(id('t'))),
            "join" => Op::Join(ThreadId(id('t'))),
            "follow" if object.is_empty() => Op::Follow(None),
            "follow" => Op::Follow(Some(RegionId(id('r')))),
            "rest" => Op::Rest(RegionId(id('r'))),
            "resume" => Op::Resume(RegionId(id('r'))),
            "exit" => Op::Exit,
            _ => panic!("no such operation: {item}"),
        };
        let thread = ThreadId(names.id('t', thread));
        let location = LocationId(events.len() as u32);
        events.push(Event { thread, op, location });
    }
    (events, names)
}

pub fn run(events: &[Event], options: Options) -> Findings {
    run_on(Davida::new(options), events)
}

pub fn run_on(mut checker: impl Checker, events: &[Event]) -> Findings {
    checker.events(events).expect("well-formed");
    checker.finish()
}

/// Checks a trace. A violation is expected as its evidence and the transactions of its witness, `data: m x
/// m`, where a unary transaction has the name of its thread.
#[track_caller]
pub fn check(trace: &str, expect: &[&str]) -> Findings {
    check_with(trace, Options::default(), expect)
}

#[track_caller]
pub fn check_with(trace: &str, options: Options, expect: &[&str]) -> Findings {
    let (events, names) = parse(trace);
    let findings = run(&events, options);
    let found: Vec<String> = (findings.violations.iter())
        .map(|violation| {
            let evidence = match violation.evidence {
                Evidence::Data => "data",
                Evidence::Sync => "sync",
            };
            let witness: Vec<&str> = violation.witness.iter().map(|&tx| names.tx(tx)).collect();
            format!("{evidence}: {}", witness.join(" "))
        })
        .collect();
    assert_eq!(found, expect);
    findings
}

/// Checks that a trace has no violation, and that its cycle of transactions is the given one, such as `m x
/// m`; none is expected if `cycle` is empty.
#[track_caller]
pub fn check_cycle(trace: &str, cycle: &str) {
    let (events, names) = parse(trace);
    let findings = check(trace, &[]);
    let found = findings.cycle.unwrap_or_default();
    let found: Vec<&str> = found.iter().map(|&tx| names.tx(tx)).collect();
    assert_eq!(found.join(" "), cycle);
    assert_eq!(findings.serializable, Some(cycle.is_empty()));
    let options = Options::default().serializability(false);
    let findings = run(&events, options);
    assert_eq!((findings.serializable, findings.cycle), (None, None));
}
