//! Interleaving trees: the paper's objects as models with the answers of its table, correct objects, and bounds.

use checker::interleaving_tree::{
    Bounds, Exploration, ExploreError, Label, Next, Operation, Program, Run, ThreadIndex, explore,
    is_linearizable, run_randomly,
};

/// Continuation of a thread after an access.
enum Then {
    Next,
    To(usize),
    End,
}

/// An access of a thread: what it is called, whether it can go on, and its effect at a time.
struct Access<S> {
    name: &'static str,
    is_ready: fn(&S) -> bool,
    act: Act<S>,
}

type Act<S> = Box<dyn Fn(&mut S, u64) -> Then>;

fn access<S>(name: &'static str, act: impl Fn(&mut S, u64) -> Then + 'static) -> Access<S> {
    Access { name, is_ready: |_| true, act: Box::new(act) }
}

/// A test of a model: its state with all that threads have of their own, and their accesses.
struct Model<S> {
    initial: S,
    threads: Vec<Vec<Access<S>>>,
    is_correct: fn(&S) -> bool,
}

struct Execution<'m, S> {
    model: &'m Model<S>,
    state: S,
    /// Index of each thread's next access.
    at: Vec<usize>,
    time: u64,
}

impl<'m, S: Clone> Program for &'m Model<S> {
    type Run = Execution<'m, S>;

    fn start(&self) -> Self::Run {
        let at = vec![0; self.threads.len()];
        Execution { model: self, state: self.initial.clone(), at, time: 0 }
    }
}

impl<S> Run for Execution<'_, S> {
    fn threads(&self) -> usize {
        self.at.len()
    }

    fn next(&self, thread: ThreadIndex) -> Next {
        match self.model.threads[thread].get(self.at[thread]) {
            None => Next::Ended,
            Some(access) if (access.is_ready)(&self.state) => Next::Access(access.name.to_owned()),
            Some(_) => Next::Blocked,
        }
    }

    fn step(&mut self, thread: ThreadIndex) {
        let accesses = &self.model.threads[thread];
        self.time += 1;
        self.at[thread] = match (accesses[self.at[thread]].act)(&mut self.state, self.time) {
            Then::Next => self.at[thread] + 1,
            Then::To(index) => index,
            Then::End => accesses.len(),
        };
    }

    fn is_correct(&self) -> bool {
        (self.model.is_correct)(&self.state)
    }
}

fn explored<S: Clone>(model: &Model<S>) -> Exploration {
    let found = explore(&model, Bounds::default(), |_| true).unwrap();
    assert!(found.is_complete && found.cut == 0);
    // Each sequence is what Theorem 3 says, and its schedule ends in the fault.
    for sequence in &found.sequences {
        let (last, before) = sequence.races.split_last().unwrap();
        assert!(before.iter().all(|race| matches!(race.label, Label::WG | Label::BG)));
        assert!(matches!(last.label, Label::BG | Label::G));
        assert!(!replayed(model, &sequence.schedule));
    }
    assert_eq!(found.first_fault.is_some(), found.faults > 0);
    assert!(found.first_fault.iter().all(|schedule| !replayed(model, schedule)));
    found
}

/// Returns whether an execution of these threads is correct.
fn replayed<S: Clone>(model: &Model<S>, schedule: &[ThreadIndex]) -> bool {
    let mut run = (&model).start();
    schedule.iter().for_each(|&thread| run.step(thread));
    assert!((0..run.threads()).all(|thread| run.next(thread) == Next::Ended));
    run.is_correct()
}

fn patterns(found: &Exploration) -> Vec<String> {
    let mut patterns: Vec<String> = found.sequences.iter().map(|one| one.pattern()).collect();
    patterns.dedup();
    patterns
}

/// Figure 1 of the paper.
#[derive(Clone)]
struct PairSnapshot {
    d: [i32; 2],
    x: i32,
    y: i32,
    call: Option<u64>,
    history: Vec<Operation<Snapshot>>,
}

#[derive(Clone)]
enum Snapshot {
    Write(usize, i32),
    Read(i32, i32),
}

fn pair_snapshot(checks_both: bool) -> Model<PairSnapshot> {
    let write = |i: usize, v: i32| {
        access("d[i] = v", move |s: &mut PairSnapshot, now| {
            s.d[i] = v;
            let operation = Snapshot::Write(i, v);
            s.history.push(Operation { call: now, ret: now, operation });
            Then::Next
        })
    };
    let read = vec![
        access("x = d[0]", |s: &mut PairSnapshot, now| {
            s.call.get_or_insert(now);
            s.x = s.d[0];
            Then::Next
        }),
        access("y = d[1]", |s: &mut PairSnapshot, _| {
            s.y = s.d[1];
            Then::Next
        }),
        access("x == d[0]", move |s: &mut PairSnapshot, now| {
            // The repaired one compares all it has read with one state.
            if s.x != s.d[0] || checks_both && s.y != s.d[1] {
                return Then::To(0);
            }
            let operation = Snapshot::Read(s.x, s.y);
            s.history.push(Operation { call: s.call.unwrap(), ret: now, operation });
            Then::Next
        }),
    ];
    let (x, y, call, history) = (0, 0, None, Vec::new());
    Model {
        initial: PairSnapshot { d: [1, 1], x, y, call, history },
        threads: vec![vec![write(0, 2), write(1, 2), write(1, 1), write(0, 1)], read],
        is_correct: |s| {
            let apply = |&state: &[i32; 2], operation: &Snapshot| match *operation {
                Snapshot::Write(i, v) => {
                    let mut next = state;
                    next[i] = v;
                    Some(next)
                }
                Snapshot::Read(x, y) => (state == [x, y]).then_some(state),
            };
            is_linearizable(&s.history, &[1, 1], &apply, &|_| true)
        },
    }
}

/// Figures 5 and 7, and the row of the table.
#[test]
fn pair_snapshot_is_decided_by_six_races() {
    let model = pair_snapshot(false);
    let found = explored(&model);
    assert_eq!(patterns(&found), ["Wg{5}G"]);
    assert_eq!((found.sequences.len(), found.label), (1, Some(Label::WG)));
    let sequence = &found.sequences[0];
    let winners: Vec<_> = sequence.races.iter().map(|race| race.winner.1.as_str()).collect();
    // The order of Figure 3.
    let write = "d[i] = v";
    assert_eq!(winners, ["x = d[0]", write, write, "y = d[1]", write, write]);
    assert_eq!(sequence.schedule, [1, 0, 0, 1, 0, 0, 1]);
    assert_eq!(sequence.races[0].losers, [(0, write.to_owned(), Label::W)]);
    assert_eq!(found.faults, 1);
}

#[test]
fn a_snapshot_that_is_repaired_has_no_fault() {
    let found = explored(&pair_snapshot(true));
    assert_eq!((found.faults, found.label, found.sequences.len()), (0, Some(Label::W), 0));
    assert!(found.runs > 10);
}

/// Values that operations of a queue or a set returned, by thread.
#[derive(Clone, Default)]
struct Results {
    head: usize,
    item: [usize; 2],
    marked: bool,
    returned: Vec<(ThreadIndex, usize)>,
}

fn differ(results: &Results) -> bool {
    let (one, other) = (results.returned[0].1, results.returned[1].1);
    one != other
}

/// Row OptimisticQueue: `head.getItem()`, then `casHead()`, and nothing makes sure that it is the same head.
#[test]
fn optimistic_queue() {
    let poll = |thread: ThreadIndex| {
        vec![
            access("head.getItem()", move |s: &mut Results, _| {
                s.item[thread] = s.head + 1;
                Then::Next
            }),
            access("casHead()", move |s: &mut Results, _| {
                s.head += 1;
                s.returned.push((thread, s.item[thread]));
                Then::Next
            }),
        ]
    };
    let model =
        Model { initial: Results::default(), threads: vec![poll(0), poll(1)], is_correct: differ };
    let found = explored(&model);
    assert_eq!((patterns(&found), found.label), (vec!["G".to_owned()], Some(Label::GG)));
    assert_eq!((found.runs, found.faults), (6, 4));
    assert!(found.sequences[0].races[0].winner.1 == "head.getItem()");
    let random = run_randomly(&&model, 7, 1000, 100, || true);
    assert_eq!(random, run_randomly(&&model, 7, 1000, 100, || true));
    let mut asked = 0;
    let ended = run_randomly(&&model, 7, 1000, 100, || {
        asked += 1;
        asked <= 10
    });
    assert_eq!(ended.runs, 10);
    assert!(random.faults > 500 && random.first_fault.is_some_and(|first| first < 20));
}

/// Row LockFreeList: `attemptMark()` succeeds for a node that is marked already.
#[test]
fn lock_free_list() {
    let remove = |thread: ThreadIndex| {
        vec![
            access("pred.next.get()", |_: &mut Results, _| Then::Next),
            access("curr.next.get()", move |s: &mut Results, _| {
                if s.marked {
                    s.returned.push((thread, 0));
                    return Then::End;
                }
                Then::Next
            }),
            access("attemptMark()", move |s: &mut Results, _| {
                s.marked = true;
                s.returned.push((thread, 1));
                Then::Next
            }),
        ]
    };
    let threads = vec![remove(0), remove(1)];
    let model = Model { initial: Results::default(), threads, is_correct: differ };
    let found = explored(&model);
    assert_eq!(patterns(&found), ["WgG", "G"]);
    let longest = &found.sequences[0];
    assert_eq!(longest.races[1].winner.1, "curr.next.get()");
    assert_eq!(longest.races[1].losers[0].1, "attemptMark()");
}

#[derive(Clone, Default)]
struct List {
    /// Values in order, and where each thread's new node goes.
    values: Vec<i32>,
    after: [usize; 2],
    seen: [Vec<i32>; 2],
    count: usize,
    at: usize,
    is_removed: bool,
}

/// Row SimpleList: `pred.next = node` overwrites what another thread has put there.
#[test]
fn simple_list() {
    let add = |thread: usize, value: i32| {
        vec![
            access("pred.next", move |s: &mut List, _| {
                s.seen[thread] = s.values.clone();
                Then::Next
            }),
            access("curr.val < v", move |s: &mut List, _| {
                s.after[thread] = s.seen[thread].iter().filter(|&&other| other < value).count();
                Then::Next
            }),
            access("pred.next = node", move |s: &mut List, _| {
                let mut values = s.seen[thread].clone();
                values.insert(s.after[thread], value);
                s.values = values;
                Then::Next
            }),
        ]
    };
    let model = Model {
        initial: List { values: vec![1], ..List::default() },
        threads: vec![add(0, 3), add(1, 4)],
        is_correct: |s| s.values == [1, 3, 4],
    };
    let patterns = patterns(&explored(&model));
    for pattern in ["Bg", "BgG"] {
        assert!(patterns.iter().any(|found| found == pattern), "{pattern} in {patterns:?}");
    }
}

/// Row LinkedList: `size()` counts a node that is removed, and one that is added later.
#[test]
fn linked_list() {
    let change = vec![
        access("synchronized() { remove(1) }", |s: &mut List, _| {
            s.is_removed = true;
            Then::Next
        }),
        access("synchronized() { add(9) }", |s: &mut List, _| {
            s.values.push(9);
            Then::Next
        }),
    ];
    let size = vec![
        access("head.next == tail", |s: &mut List, _| {
            s.at = usize::from(s.is_removed);
            s.count = 1;
            Then::Next
        }),
        access("node.next == tail", |s: &mut List, _| {
            s.at += 1;
            if s.at == s.values.len() {
                return Then::End;
            }
            s.count += 1;
            Then::To(1)
        }),
    ];
    let model = Model {
        initial: List { values: vec![1, 5], ..List::default() },
        threads: vec![change, size],
        // Two before, one in between, two after.
        is_correct: |s| s.count <= 2,
    };
    let patterns = patterns(&explored(&model));
    assert!(patterns.iter().any(|found| found == "WgWgG"), "{patterns:?}");
}

#[derive(Clone, Default)]
struct Stack {
    /// Values from the top, as linked nodes are: each push makes a new list.
    top: Vec<i32>,
    seen: [Vec<i32>; 3],
    calls: [u64; 3],
    history: Vec<Operation<(bool, Option<i32>)>>,
}

/// A stack whose top is changed by compare-and-swap: a push in each of two threads, and a pop in a third.
#[test]
fn a_correct_stack_has_no_fault_in_three_threads() {
    let change = |thread: usize, pushed: Option<i32>| {
        vec![
            access("top.load()", move |s: &mut Stack, now| {
                if s.calls[thread] == 0 {
                    s.calls[thread] = now;
                }
                s.seen[thread] = s.top.clone();
                Then::Next
            }),
            access("top.compare_exchange()", move |s: &mut Stack, now| {
                if s.top != s.seen[thread] {
                    return Then::To(0);
                }
                let value = match pushed {
                    Some(value) => {
                        s.top.push(value);
                        Some(value)
                    }
                    None => s.top.pop(),
                };
                let operation = (pushed.is_some(), value);
                s.history.push(Operation { call: s.calls[thread], ret: now, operation });
                Then::Next
            }),
        ]
    };
    let model = Model {
        initial: Stack::default(),
        threads: vec![change(0, Some(1)), change(1, Some(2)), change(2, None)],
        is_correct: |s| {
            let apply = |state: &Vec<i32>, &(pushes, value): &(bool, Option<i32>)| {
                let mut next = state.clone();
                if pushes {
                    next.extend(value);
                    return Some(next);
                }
                (next.pop() == value).then_some(next)
            };
            is_linearizable(&s.history, &Vec::new(), &apply, &|end| *end == s.top)
        },
    };
    let found = explored(&model);
    assert_eq!((found.faults, found.label), (0, Some(Label::W)));
    assert_eq!(run_randomly(&&model, 1, 200, 100, || true).faults, 0);
    // One thread after the other: there is an execution for each order.
    let bounds = Bounds { preemptions: 0, ..Bounds::default() };
    let bounded = explore(&&model, bounds, |_| true).unwrap();
    assert_eq!(bounded.runs, 6);
    assert!(bounded.is_complete && bounded.left_out > 0);
}

#[derive(Clone, Default)]
struct Locks([bool; 2]);

/// Two locks in both orders: threads that wait for one another are a fault.
#[test]
fn deadlocks_are_faults() {
    let body = |first: usize, second: usize| {
        let ready: [fn(&Locks) -> bool; 2] = [|s| !s.0[0], |s| !s.0[1]];
        let acquire = |lock: usize| Access {
            is_ready: ready[lock],
            ..access("lock", move |s: &mut Locks, _| {
                s.0[lock] = true;
                Then::Next
            })
        };
        let release = access("unlock", |s: &mut Locks, _| {
            s.0 = [false; 2];
            Then::Next
        });
        vec![acquire(first), acquire(second), release]
    };
    let threads = vec![body(0, 1), body(1, 0)];
    let model = Model { initial: Locks::default(), threads, is_correct: |_| true };
    let found = explore(&&model, Bounds::default(), |_| true).unwrap();
    assert_eq!((found.deadlocks, found.faults), (2, 2));
    assert_eq!(found.label, Some(Label::GG));
    assert_eq!(patterns(&found), ["G"]);
    let random = run_randomly(&&model, 3, 100, 100, || true);
    assert!(random.faults > 10 && random.faults < 90, "{random:?}");
}

#[test]
fn bounds_are_kept_and_counted() {
    // A thread that waits actively for another one.
    let spin = access("flag", |s: &mut Results, _| if s.marked { Then::Next } else { Then::To(0) });
    let set = access("flag = true", |s: &mut Results, _| {
        s.marked = true;
        Then::Next
    });
    let threads = vec![vec![spin], vec![set]];
    let model = Model { initial: Results::default(), threads, is_correct: |_| true };
    let bounds = Bounds { depth: 8, ..Bounds::default() };
    let found = explore(&&model, bounds, |_| true).unwrap();
    assert_eq!((found.cut, found.faults, found.is_complete), (2, 0, true));
    assert_eq!(found.runs, 9);
    let bounds = Bounds { runs: 3, ..bounds };
    let found = explore(&&model, bounds, |_| true).unwrap();
    assert_eq!((found.runs, found.is_complete), (3, false));
    let found = explore(&&model, Bounds { runs: 9, ..bounds }, |so_far| so_far.runs < 5).unwrap();
    assert_eq!((found.runs, found.is_complete), (5, false));
}

/// A program with other accesses in each execution.
struct Fickle(std::cell::Cell<u32>);

struct Fickled(u32, u32);

impl Program for Fickle {
    type Run = Fickled;

    fn start(&self) -> Fickled {
        self.0.set(self.0.get() + 1);
        Fickled(self.0.get(), 0)
    }
}

impl Run for Fickled {
    fn threads(&self) -> usize {
        2
    }

    fn next(&self, _thread: ThreadIndex) -> Next {
        if self.1 == 3 { Next::Ended } else { Next::Access(format!("a{}", self.0)) }
    }

    fn step(&mut self, _thread: ThreadIndex) {
        self.1 += 1;
    }

    fn is_correct(&self) -> bool {
        true
    }
}

#[test]
fn tests_that_differ_from_run_to_run_are_refused() {
    let error = explore(&Fickle(0.into()), Bounds::default(), |_| true).unwrap_err();
    assert!(matches!(error, ExploreError::Differs { depth: 0, .. }));
    let expected = "the test differs from run to run: access 0 had [(0, \"a1\"), (1, \"a1\")] choices, \
                    and now has [(0, \"a2\"), (1, \"a2\")]";
    assert_eq!(error.to_string(), expected);
}
