//! Gaps of regions: the observer against the model of `gap_model`, on random events, and what the promise goes by.

use crate::gap_model::{Facts, Key, Mistake, Model};
use checker::defect::{
    Certainty, Dependence, Describe, PlaceInfo, RegionInfo, RegionRole, Steps, SubjectInfo,
};
use checker::event::{Event, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use checker::finding::Object;
use checker::format::{ReadOptions, TraceReader};
use checker::gap::{Data, Gap, Kind, Observer, named};
use std::collections::BTreeMap;

/// Number of random traces.
const SEEDS: u64 = 4000;

/// Traces on which each mistake must show.
const SEEDS_OF_MISTAKES: u64 = 600;

/// Random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % u64::from(limit)) as u32
    }
}

/// Returns random events: holds of locks do not overlap where they may not, a thread is forked before it acts, and does
/// nothing once it was joined. Regions, and releases of locks that are not held, come as they like.
fn events(seed: u64) -> Vec<Event> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let threads = 2 + random.below(3);
    let (locks, variables, places) =
        (1 + random.below(3), 1 + random.below(3), 3 + random.below(9));
    // Each of three threads takes two of three locks, so that none takes both that another one does.
    let is_ring = seed.is_multiple_of(8);
    let threads = if is_ring { 3 } else { threads };
    let (mut acted, mut joined) = (vec![false; 5], vec![false; 5]);
    let mut held: Vec<(LockId, ThreadId, bool)> = Vec::new();
    // Rest of a critical section of each thread.
    let mut sections: [Vec<Op>; 5] = Default::default();
    let mut events = Vec::new();
    for _ in 0..20 + random.below(60) {
        let thread = ThreadId(random.below(threads));
        let lock = match is_ring {
            true => (thread.0 + random.below(2)) % 3,
            false => random.below(locks),
        };
        let (lock, variable) = (LockId(lock), VarId(random.below(variables)));
        let region = RegionId(random.below(3));
        let other = ThreadId(random.below(threads));
        let section = &mut sections[thread.index()];
        if section.is_empty() && random.below(3) == 0 {
            let accesses = [Op::Read(variable), Op::Write(variable), Op::Write(VarId(0))];
            section.extend([
                Op::Release(lock),
                accesses[random.below(3) as usize],
                Op::Acquire(lock),
            ]);
        }
        if section.is_empty() && is_ring {
            let [one, two] = [thread.0, thread.0 + 1].map(|lock| LockId(lock % 3));
            let [first, second] = if random.below(2) == 0 { [one, two] } else { [two, one] };
            section.extend([Op::End(None), Op::Release(second), Op::Acquire(second)]);
            section.extend([Op::Release(first), Op::Acquire(first), Op::Begin(region)]);
        }
        let scripted = if random.below(4) > 0 { section.pop() } else { None };
        let any = match random.below(26) {
            0..4 => Op::Acquire(lock),
            4..8 => Op::Release(lock),
            8 => Op::AcquireShared(lock),
            9 | 10 => Op::ReleaseShared(lock),
            11..14 => Op::Read(variable),
            14 | 15 => Op::Write(variable),
            16 => Op::CommutingUpdate(variable),
            17..20 => Op::Begin(region),
            20 => Op::End(None),
            21 => Op::End(Some(region)),
            22 => Op::Follow(Some(region).filter(|region| region.0 > 0)),
            23 => Op::Wait(SyncId(0)),
            24 => Op::Fork(other),
            _ => Op::Join(other),
        };
        let op = scripted.unwrap_or(any);
        if joined[thread.index()] || !fits(op, thread, &mut held, &acted, &joined) {
            continue;
        }
        acted[thread.index()] = true;
        match op {
            Op::Fork(child) => acted[child.index()] = true,
            Op::Join(child) => joined[child.index()] = true,
            _ => {}
        }
        events.push(Event { thread, op, location: LocationId(random.below(places)) });
    }
    events
}

fn fits(
    op: Op,
    thread: ThreadId,
    held: &mut Vec<(LockId, ThreadId, bool)>,
    acted: &[bool],
    joined: &[bool],
) -> bool {
    match op {
        Op::Acquire(lock) | Op::AcquireShared(lock) => {
            let is_shared = op == Op::AcquireShared(lock);
            let excludes = |&(other, _, shared): &(LockId, ThreadId, bool)| {
                other == lock && !(shared && is_shared)
            };
            let again = held.iter().any(|&(other, of, _)| (other, of) == (lock, thread));
            let fits = !again && !held.iter().any(excludes);
            if fits {
                held.push((lock, thread, is_shared));
            }
            fits
        }
        Op::Release(lock) => {
            held.retain(|hold| *hold != (lock, thread, false));
            true
        }
        Op::ReleaseShared(lock) => {
            held.retain(|hold| *hold != (lock, thread, true));
            true
        }
        Op::Fork(child) => child != thread && !acted[child.index()],
        Op::Join(child) => {
            let holds = held.iter().any(|(_, of, _)| *of == child);
            child != thread && acted[child.index()] && !joined[child.index()] && !holds
        }
        _ => true,
    }
}

fn observed(events: &[Event]) -> Vec<Gap> {
    let mut observer = Observer::default();
    events.iter().for_each(|event| observer.event(event));
    observer.gaps()
}

fn facts(gaps: &[Gap]) -> BTreeMap<Key, Facts> {
    let facts = |gap: &Gap| {
        let key = (gap.kind, gap.region.0, gap.is_followed, gap.left.0, gap.returned.0);
        let counts = [gap.crossed, gap.cut, gap.repeated, gap.waited];
        let regions = gap.remotes.iter().map(|remote| remote.region).collect();
        (key, (counts, gap.data, gap.together, gap.other_threads, regions))
    };
    // The model knows steps on one object only.
    gaps.iter().filter(|gap| !gap.is_by_code).map(facts).collect()
}

#[test]
fn gaps_are_those_of_the_definition() {
    let mut kinds = BTreeMap::<(Kind, Data, bool), u32>::new();
    for seed in 0..SEEDS {
        let events = events(seed);
        let gaps = observed(&events);
        let model = Model::new(&events, Mistake::None).gaps();
        assert_eq!(facts(&gaps), model, "seed {seed}: {events:#?}");
        for gap in gaps.into_iter().filter(|gap| !gap.is_by_code) {
            *kinds.entry((gap.kind, gap.data, gap.is_followed)).or_default() += 1;
        }
    }
    // Access gaps always have data.
    assert_eq!(kinds.len(), 22, "{kinds:?}");
}

#[test]
fn each_mistake_shows() {
    for mistake in Mistake::ALL {
        let shows = (0..SEEDS_OF_MISTAKES).any(|seed| {
            let events = events(seed);
            facts(&observed(&events)) != Model::new(&events, mistake).gaps()
        });
        assert!(shows, "{mistake:?}");
    }
}

/// Reads a text trace and returns its gaps, and the trace's names of regions, by promise.
fn of_text(trace: &str) -> Vec<(String, Gap, f64)> {
    struct Labels<'a>(&'a checker::format::Names);
    impl Describe for Labels<'_> {
        fn region(&mut self, region: RegionId) -> RegionInfo {
            let name = self.0.region_label(region).into_owned();
            RegionInfo { name, role: RegionRole::Function, ..RegionInfo::default() }
        }
        fn place(&mut self, location: LocationId) -> PlaceInfo {
            let text = self.0.label(location).unwrap_or_default().into_owned();
            PlaceInfo { text, ..PlaceInfo::default() }
        }
        fn subject(&mut self, object: Object) -> SubjectInfo {
            SubjectInfo { name: format!("{object:?}"), ..SubjectInfo::default() }
        }
        fn dependence(&mut self, Steps { earlier, later, .. }: Steps) -> Dependence {
            let [earlier, later] = [earlier, later].map(|at| self.0.label(at).unwrap_or_default());
            let value = match (&*earlier, &*later) {
                (_, "other") => Certainty::No,
                ("asks", "acts") => Certainty::Yes,
                _ => Certainty::Unknown,
            };
            Dependence { value, address: value, control: value, ..Dependence::default() }
        }
    }
    let mut reader =
        TraceReader::from_reader(trace.as_bytes(), ReadOptions::new("gaps.std")).expect("a trace");
    let mut observer = Observer::default();
    while let Some(item) = reader.next_item().expect("an event") {
        if let checker::format::Item::Events(batch) = item {
            batch.events.iter().for_each(|event| observer.event(event));
        }
    }
    let mut labels = Labels(reader.names());
    let gaps = named(&observer.gaps(), &mut labels);
    let region = |gap: &Gap| reader.names().region_label(gap.region).into_owned();
    gaps.into_iter().map(|found| (region(&found.gap), found.gap, found.promise)).collect()
}

#[test]
fn what_is_checked_before_a_gap_and_changed_after_it_comes_first() {
    let gaps = of_text(
        "A|begin(withdraw)|1\nA|acq(l)|2\nA|r(balance)|3\nA|rel(l)|4\n\
         A|acq(l)|5\nA|w(balance)|6\nA|rel(l)|7\nA|end|8\n\
         A|begin(log)|11\nA|acq(k)|12\nA|w(lines)|13\nA|rel(k)|14\n\
         A|acq(k)|15\nA|w(bytes)|16\nA|rel(k)|17\nA|end|18\n\
         A|begin(poll)|21\nA|acq(m)|22\nA|rel(m)|23\nA|acq(m)|24\nA|rel(m)|25\nA|end|26\n\
         B|begin(deposit)|31\nB|acq(l)|32\nB|w(balance)|33\nB|rel(l)|34\nB|end|35\n\
         B|begin(rotate)|41\nB|acq(k)|42\nB|w(lines)|43\nB|w(bytes)|44\nB|rel(k)|45\n\
         B|acq(m)|46\nB|rel(m)|47\nB|end|48\n",
    );
    let locks: Vec<(&str, Data)> = (gaps.iter())
        .filter(|(_, gap, _)| gap.kind == Kind::Lock)
        .map(|(region, gap, _)| (region.as_str(), gap.data))
        .collect();
    let expected = [("withdraw", Data::Checked), ("log", Data::Different), ("poll", Data::Unseen)];
    assert_eq!(locks, expected);
    assert!(gaps.iter().all(|(.., promise)| (0.0..=1.0).contains(promise)), "{gaps:?}");
}

#[test]
fn what_depends_on_the_steps_before_a_gap_comes_first() {
    let gaps = of_text(
        "A|begin(counts)|1\nA|acq(l)|2\nA|r(x)|3\nA|rel(l)|4\nA|acq(l)|5\nA|w(x)|other\nA|rel(l)|7\nA|end|8\n\
         A|begin(moves)|11\nA|acq(l)|12\nA|r(x)|asks\nA|rel(l)|14\n\
         A|acq(l)|15\nA|w(y)|acts\nA|r(y)|16\nA|rel(l)|17\nA|end|18\n\
         B|acq(l)|32\nB|w(x)|33\nB|w(y)|34\nB|rel(l)|35\n",
    );
    let locks: Vec<(&str, Data)> = (gaps.iter())
        .filter(|(_, gap, _)| gap.kind == Kind::Lock)
        .map(|(region, gap, _)| (region.as_str(), gap.data))
        .collect();
    assert_eq!(locks, [("moves", Data::Different), ("counts", Data::Checked)]);
}

#[test]
fn a_lock_that_one_thread_takes_has_no_gap() {
    let one = "A|begin(r)|1\nA|acq(l)|2\nA|rel(l)|3\nA|acq(l)|4\nA|rel(l)|5\nA|end|6\n";
    assert_eq!(of_text(one).len(), 0);
    assert_eq!(of_text(&format!("{one}B|acq(l)|7\nB|rel(l)|8\n")).len(), 1);
    let joined = format!("M|fork(A)|0\n{one}M|join(A)|7\nM|acq(l)|8\nM|rel(l)|9\n");
    assert_eq!(of_text(&joined).len(), 0, "the other steps come after the end of the thread");
}

#[test]
fn threads_that_hand_on_could_get_into_a_section_gap() {
    let publish = "A|begin(publish)|1\nA|acq(price)|2\nA|rel(price)|3\nA|acq(shipped)|4\nA|rel(shipped)|5\nA|end|6\n";
    let copies = |first: &str, second: &str| {
        let copy = |thread: &str, line: u32, [one, two]: [&str; 2]| {
            format!(
                "{thread}|begin(copy{thread})|{line}\n{thread}|acq({one})|{line}1\n{thread}|rel({one})|{line}2\n\
                 {thread}|acq({two})|{line}3\n{thread}|rel({two})|{line}4\n{thread}|end|{line}5\n"
            )
        };
        let gaps = of_text(&format!(
            "{publish}{}{}",
            copy("B", 1, ["price", first]),
            copy("C", 2, [second, "shipped"])
        ));
        let of_publish = gaps.into_iter().filter(|(region, ..)| region == "publish");
        of_publish.map(|(_, gap, _)| (gap.other_threads, gap.remotes.len())).collect::<Vec<_>>()
    };
    assert_eq!(copies("order", "order"), [(1, 1)], "B takes what it hands on to C");
    assert_eq!(copies("order", "other"), [], "they have nothing in common");
    assert_eq!(copies("shipped", "order"), [(1, 1)], "B alone takes both");
}

#[test]
fn a_condition_wait_is_no_gap() {
    let gaps = of_text(
        "A|begin(r)|1\nA|acq(l)|2\nA|rel(l)|3\nA|wait(c)|3\nA|acq(l)|3\nA|rel(l)|4\nA|end|5\nB|acq(l)|6\nB|rel(l)|7\n",
    );
    assert_eq!(gaps.len(), 0, "one call gives the lock up and takes it");
}

#[test]
fn another_life_of_an_object_is_another_object() {
    let (l, r) = (LockId(0), Op::Begin(RegionId(0)));
    let event =
        |(line, (thread, op))| Event { thread: ThreadId(thread), op, location: LocationId(line) };
    let gap = [(0, r), (0, Op::Acquire(l)), (0, Op::Release(l))];
    let back = [(0, Op::Acquire(l)), (0, Op::Release(l)), (0, Op::End(None))];
    let other = [(1, Op::Acquire(l)), (1, Op::Release(l))];
    let reset = [(1, Op::Reset(l))];
    let of = |parts: &[&[(u32, Op)]]| {
        let all = parts.iter().copied().flatten().copied();
        observed(&(0..).zip(all).map(event).collect::<Vec<_>>()).len()
    };
    assert_eq!(of(&[&gap, &back, &other]), 1);
    assert_eq!(of(&[&gap, &reset, &back, &other]), 0, "the lock acquired is another one");
    assert_eq!(of(&[&gap, &back, &reset, &other]), 0, "nobody else took it");
    assert_eq!(of(&[&other, &gap, &back, &reset]), 1, "decided when its memory is given back");
}

#[test]
fn threads_that_run_the_code_of_a_gap_could_get_in() {
    let of = |rounds: &str| {
        let gaps =
            of_text(&format!("M|fork(A)|0\nM|fork(B)|0\n{rounds}M|join(A)|8\nM|join(B)|8\n"));
        gaps.into_iter()
            .map(|(_, gap, _)| (gap.crossed, gap.data, gap.is_by_code))
            .collect::<Vec<_>>()
    };
    // The loser of a check only reads, and each object is fresh.
    let stop = |winner: &str, loser: &str, flag: &str| {
        format!(
            "{winner}|begin(stop)|1\n{winner}|r({flag})|2\n{winner}|w({flag})|3\n{winner}|end|4\n\
             {loser}|begin(stop)|1\n{loser}|r({flag})|2\n{loser}|end|4\n"
        )
    };
    let rounds = [stop("A", "B", "x"), stop("A", "B", "y")].concat();
    assert_eq!(of(&rounds), [(2, Data::Checked, true)]);
    let ordered = "M|begin(stop)|1\nM|r(x)|2\nM|w(x)|3\nM|end|4\nM|fork(C)|5\nC|begin(stop)|1\nC|r(x)|2\nC|end|4\n";
    assert_eq!(of(ordered), [], "nobody runs beside the first");
    let own = ["A", "B"].map(|thread| {
        format!("{thread}|begin(stop)|1\n{thread}|r({thread})|2\n{thread}|w({thread})|3\n{thread}|end|4\n")
    });
    assert_eq!(of(&own.concat()), [], "each thread has its own");
    let reader =
        "A|begin(stop)|1\nA|r(x)|2\nA|w(x)|3\nA|end|4\nB|begin(poll)|5\nB|r(x)|6\nB|end|7\n";
    assert_eq!(of(reader), [], "the other one has no code that writes");
    // Whole objects are filled at one place.
    let filled = "A|w(x)|5\nA|w(z)|5\nB|w(z)|7\n";
    assert_eq!(of(&format!("{reader}{filled}")), [], "fields are of different classes");
}

#[test]
fn a_part_of_a_variable_has_the_past_of_the_whole() {
    let (x, y) = (VarId(0), VarId(1));
    let ops = [
        (1, Op::Write(x)),
        (0, Op::SplitVariable { from: x, to: y }),
        (0, Op::Begin(RegionId(0))),
        (0, Op::Read(y)),
        (0, Op::Write(y)),
        (0, Op::End(None)),
    ];
    let event =
        |(line, (thread, op))| Event { thread: ThreadId(thread), op, location: LocationId(line) };
    let gaps = observed(&(0..).zip(ops).map(event).collect::<Vec<_>>());
    assert_eq!((gaps.len(), gaps[0].data), (1, Data::Checked));
}

#[test]
fn events_that_do_not_fit_and_lost_ones_do_no_harm() {
    for seed in 0..500 {
        let mut random = Random(seed | 1);
        let mut observer = Observer::default();
        for _ in 0..300 {
            let (lock, variable) = (LockId(random.below(3)), VarId(random.below(3)));
            let op = match random.below(18) {
                0 => Op::Acquire(lock),
                1 => Op::Release(lock),
                2 => Op::AcquireShared(lock),
                3 => Op::ReleaseShared(lock),
                4 => Op::Reset(lock),
                5 => Op::Alloc(variable),
                6 => Op::SplitVariable { from: variable, to: VarId(random.below(3)) },
                7 => Op::Fork(ThreadId(random.below(4))),
                8 => Op::Join(ThreadId(random.below(4))),
                9 => Op::Exit,
                10 => Op::End(None),
                11 => Op::Follow(None),
                14 => Op::Rest(RegionId(random.below(3))),
                15 => Op::Resume(RegionId(random.below(3))),
                12 => Op::Read(variable),
                13 => Op::Write(variable),
                _ => Op::Begin(RegionId(random.below(3))),
            };
            let thread = ThreadId(random.below(4));
            observer.event(&Event { thread, op, location: LocationId(random.below(8)) });
            if random.below(50) == 0 {
                observer.gap();
            }
        }
        for gap in observer.gaps() {
            assert!(gap.cut <= gap.crossed && gap.other_threads > 0 && !gap.remotes.is_empty());
        }
    }
}

#[test]
fn what_is_remembered_does_not_grow_with_the_trace() {
    let mut observer = Observer::default();
    for round in 0..20_000 {
        for thread in 0..3 {
            let lock = LockId(round % 200);
            let ops = [
                Op::Begin(RegionId(0)),
                Op::Acquire(lock),
                Op::Release(lock),
                Op::Acquire(lock),
                Op::Release(lock),
                Op::End(None),
            ];
            for (line, op) in (0..).zip(ops) {
                let location = LocationId(line);
                observer.event(&Event { thread: ThreadId(thread), op, location });
            }
        }
    }
    let gaps = observer.gaps();
    assert_eq!(
        (gaps.len(), gaps[0].crossed, gaps[0].cut, gaps[0].other_threads),
        (1, 60_000, 0, 2)
    );
}

#[test]
fn copies_of_the_code_of_a_gap_are_known() {
    /// Locations that are ten apart are of one line.
    struct Lines;
    impl Describe for Lines {
        fn region(&mut self, _: RegionId) -> RegionInfo {
            RegionInfo { name: "claim".to_owned(), ..RegionInfo::default() }
        }
        fn place(&mut self, location: LocationId) -> PlaceInfo {
            PlaceInfo { text: (location.0 % 10).to_string(), ..PlaceInfo::default() }
        }
        fn subject(&mut self, object: Object) -> SubjectInfo {
            SubjectInfo { name: format!("{object:?}"), ..SubjectInfo::default() }
        }
    }
    let l = LockId(0);
    let ops = [
        Op::Begin(RegionId(0)),
        Op::Acquire(l),
        Op::Release(l),
        Op::Acquire(l),
        Op::Release(l),
        Op::End(None),
    ];
    let mut events = Vec::new();
    for (thread, first) in [(0, 10), (1, 20), (0, 10), (1, 30)] {
        for (place, op) in (first..).zip(ops) {
            events.push(Event { thread: ThreadId(thread), op, location: LocationId(place) });
        }
    }
    let gaps = named(&observed(&events), &mut Lines);
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(gaps[0].gap.crossed, 4);
    let mut places: Vec<LocationId> = gaps[0].copies.clone();
    places.push(gaps[0].gap.left);
    places.sort();
    assert_eq!(places, [12, 22, 32].map(LocationId));
}
