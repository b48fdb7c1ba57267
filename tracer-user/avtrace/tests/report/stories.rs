//! The runs that the tests report on.

use checker::event::{RegionId, ThreadId};
use checker::finding::Action::{Acquire, Read, Release, Signal, Update, Wait, Write};
use checker::finding::{Evidence, Object, Order, Tx};
use report::{
    Busiest, Limitation, LostEvents, Missing, ObjectKind, Process, RegionName, SkippedProbes,
    SourceFrame, Subject, ThreadName,
};

use crate::fixtures::{Story, edge, point, racy, tx};

const BANK: &str = "/home/user/bank/src/bank.c";

/// `transfer` releases the account's mutex and reacquires it; `audit` gets in between.
pub fn lock_split() -> Story {
    let mut s = Story::new();
    let (main, auditor) = (s.thread("bank", 4711), s.thread("auditor", 4712));
    let (transfer, transfer_at) = s.region("transfer", BANK, 41, "AVTRACE_BEGIN(transfer);");
    let (audit, audit_at) = s.region("audit", BANK, 60, "AVTRACE_BEGIN(audit);");
    assert_ne!(transfer_at, audit_at);
    let unlock = s.place(BANK, 45, "transfer", "pthread_mutex_unlock(&from->lock);");
    let lock_again = s.place(BANK, 48, "transfer", "pthread_mutex_lock(&from->lock);");
    let audit_lock = s.place(BANK, 61, "audit", "pthread_mutex_lock(&a->lock);");
    let audit_unlock = s.place(BANK, 64, "audit", "pthread_mutex_unlock(&a->lock);");
    let lock = s.mutex(0, "account.lock");
    let t = tx(main, 3, Some(transfer), 20);
    let a = tx(auditor, 0, Some(audit), 27);
    let released = point(t, 24, Release, unlock);
    let reacquired = point(t, 33, Acquire, lock_again);
    let edges = vec![
        edge(lock, released, point(a, 28, Acquire, audit_lock)),
        edge(lock, point(a, 31, Release, audit_unlock), reacquired),
    ];
    s.violation(transfer_at, &[t, a, t], edges, 50);
    s.split(lock, released, reacquired, Some(a));
    s.findings.violations[0].data.without = vec![t, a];
    s.counts(412, 101, 1, 98);
    s
}

/// [`lock_split`] with the balance watched: its data is the evidence, in the order of the locks.
pub fn watched_split() -> Story {
    let mut s = lock_split();
    let balance = s.variable(0, "account.balance");
    let take = s.place(BANK, 44, "transfer", "from->balance -= amount;");
    let give = s.place(BANK, 49, "transfer", "to->balance += amount;");
    let sum = s.place(BANK, 62, "audit", "total = a->balance + b->balance;");
    let violation = &mut s.findings.violations[0];
    let (t, a) = (violation.witness[0], violation.witness[1]);
    violation.evidence = Evidence::Data;
    violation.edges = vec![
        edge(balance, point(t, 22, Write, take), point(a, 29, Read, sum)),
        edge(balance, point(a, 29, Read, sum), point(t, 34, Write, give)),
    ];
    violation.trigger_event = 34;
    violation.source_event = 29;
    s.value(22, Some("100"), Some("60"));
    s.value(29, Some("60"), None);
    s.value(34, Some("60"), Some("100"));
    s
}

/// [`watched_split`] and [`lock_split`] in one report, as a run with a watched balance finds both.
pub fn reported_twice() -> Story {
    let mut s = watched_split();
    let by_locks = lock_split().findings.violations.remove(0);
    s.findings.counts.violations += by_locks.occurrences;
    s.findings.counts.distinct_witnesses += 1;
    s.findings.violations.push(by_locks);
    s
}

/// Atomic counters: each operation is whole, the region is not.
pub fn atomics() -> Story {
    let mut s = racy_data();
    let violation = &mut s.findings.violations[0];
    for edge in &mut violation.edges {
        edge.source.action = Update;
        edge.sink.action = Update;
        edge.order = Order::Synchronised;
    }
    violation.order = Order::Synchronised;
    s.names.values.clear();
    s
}

/// Two threads add to a balance without any lock: a lost update, seen by watchpoints.
pub fn racy_data() -> Story {
    let mut s = Story::new();
    let (first, second) = (s.thread("teller-1", 4712), s.thread("teller-2", 4713));
    let (deposit, begin) = s.region("deposit", BANK, 30, "AVTRACE_BEGIN(deposit);");
    let read = s.place(BANK, 31, "deposit", "long old = account.balance;");
    let write = s.place(BANK, 33, "deposit", "account.balance = old + amount;");
    let balance = s.variable(0, "account.balance");
    let a = tx(first, 0, Some(deposit), 10);
    let b = tx(second, 0, Some(deposit), 12);
    let edges = vec![
        racy(balance, point(a, 11, Read, read), point(b, 14, Write, write)),
        racy(balance, point(b, 14, Write, write), point(a, 15, Write, write)),
    ];
    s.violation(begin, &[a, b, a], edges, 7);
    s.value(11, Some("100"), None);
    s.value(14, Some("100"), Some("150"));
    s.value(15, Some("150"), Some("110"));
    s.counts(48, 16, 0, 21);
    s.context.summary.watchpoints = Some(1);
    s
}

/// Three threads, each between two parts of the first one, with C++ wrappers around the locks.
pub fn three_threads() -> Story {
    const FILE: &str = "/home/user/shop/src/orders/checkout_service.cpp";
    let mut s = Story::new();
    let threads = [s.thread("checkout", 900), s.thread("stock", 901), s.thread("ledger", 902)];
    let (order, begin) =
        s.region("place_order", FILE, 112, "avtrace::scope scope(\"place_order\");");
    let (reserve, _) =
        s.region("reserve", "/home/user/shop/src/stock.cpp", 40, "avtrace::scope s(\"reserve\");");
    let (book, _) =
        s.region("book", "/home/user/shop/src/ledger.cpp", 77, "avtrace::scope s(\"book\");");
    let mut guarded = |file: &str, line: u32, function: &str, wrapper: &str, text: &str| {
        s.names.lines.insert((file.to_owned(), line), text.to_owned());
        let frame = |function: &str, file: &str, line, is_wrapper| SourceFrame {
            function: Some(function.to_owned()),
            file: Some(file.to_owned()),
            line: Some(line),
            column: None,
            module: Some("/home/user/shop/shop".to_owned()),
            is_wrapper,
            declared: None,
        };
        s.frames(vec![
            frame("__gthread_mutex_lock", "/usr/include/c++/12/bits/gthr-default.h", 749, true),
            frame("std::mutex::lock", "/usr/include/c++/12/bits/std_mutex.h", 100, true),
            frame(wrapper, "/usr/include/c++/12/bits/std_mutex.h", 229, true),
            frame(function, file, line, false),
        ])
    };
    let guard = "std::lock_guard<std::mutex>::lock_guard(std::mutex&)";
    let drop = "std::lock_guard<std::mutex>::~lock_guard()";
    let stock_cpp = "/home/user/shop/src/stock.cpp";
    let ledger_cpp = "/home/user/shop/src/ledger.cpp";
    let release_cart = guarded(FILE, 118, "Checkout::place(Order&)", drop, "}  // cart_lock");
    let take_stock = guarded(
        stock_cpp,
        44,
        "Stock::reserve(int)",
        guard,
        "std::lock_guard guard(cart.mutex());",
    );
    let release_stock = guarded(stock_cpp, 51, "Stock::reserve(int)", drop, "}");
    let take_ledger =
        guarded(ledger_cpp, 80, "Ledger::book(int)", guard, "std::lock_guard guard(stock_mutex);");
    let release_ledger = guarded(ledger_cpp, 86, "Ledger::book(int)", drop, "}");
    let take_order = guarded(
        FILE,
        121,
        "Checkout::place(Order&)",
        guard,
        "std::lock_guard guard(ledger.mutex());",
    );
    let cart = s.mutex(0, "cart.mutex_");
    let stock = s.mutex(1, "stock_mutex");
    let ledger = s.mutex(2, "ledger.mutex_");
    let o = tx(threads[0], 0, Some(order), 100);
    let r = tx(threads[1], 4, Some(reserve), 103);
    let b = tx(threads[2], 2, Some(book), 90);
    let edges = vec![
        edge(cart, point(o, 102, Release, release_cart), point(r, 104, Acquire, take_stock)),
        edge(stock, point(r, 106, Release, release_stock), point(b, 107, Acquire, take_ledger)),
        edge(ledger, point(b, 109, Release, release_ledger), point(o, 110, Acquire, take_order)),
    ];
    s.violation(begin, &[o, r, b, o], edges, 1);
    s.counts(212, 40, 12, 33);
    s
}

/// A single write outside every region gets in between.
pub fn unary() -> Story {
    let mut s = Story::new();
    let (main, reset) = (s.thread("bank", 4711), s.thread("reset", 4712));
    let (transfer, begin) = s.region("transfer", BANK, 41, "AVTRACE_BEGIN(transfer);");
    let read = s.place(BANK, 43, "transfer", "if (account.limit >= amount) {");
    let read_again = s.place(BANK, 47, "transfer", "left = account.limit - amount;");
    let write = s.place(BANK, 90, "reset_limits", "account.limit = 0;");
    let limit = s.variable(0, "account.limit");
    let t = tx(main, 0, Some(transfer), 5);
    let u = tx(reset, 9, None, 8);
    let edges = vec![
        edge(limit, point(t, 6, Read, read), point(u, 8, Write, write)),
        edge(limit, point(u, 8, Write, write), point(t, 11, Read, read_again)),
    ];
    s.violation(begin, &[t, u, t], edges, 2);
    s.counts(60, 31, 30, 12);
    s
}

/// Two reads and a write, each outside every region, get in between.
pub fn several_unary() -> Story {
    let mut s = unary();
    let violation = &mut s.findings.violations[0];
    let (t, u) = (violation.witness[0], violation.witness[1]);
    let late = Tx { ordinal: 10, begin_event: 9, ..u };
    violation.witness = vec![t, u, late, t];
    violation.edges[1].source = point(late, 9, Read, violation.edges[0].sink.location);
    s
}

/// A program without debug information: functions with offsets at best, addresses of locks only.
pub fn no_debug_info() -> Story {
    let mut s = Story::new();
    let threads = [s.thread("bank", 4711), s.thread("bank", 4712)];
    let at = |s: &mut Story, function: Option<&str>| {
        s.frames(vec![SourceFrame {
            function: function.map(str::to_owned),
            module: Some("/usr/local/bin/bank".to_owned()),
            ..SourceFrame::default()
        }])
    };
    let (transfer, _) = s.region("transfer", "-", 1, "");
    let (audit, _) = s.region("audit", "-", 1, "");
    s.names.regions[0].frames = Vec::new();
    s.names.regions[1].frames = Vec::new();
    let begin = at(&mut s, Some("transfer+0x1c"));
    let unlock = at(&mut s, Some("transfer+0x58"));
    let relock = at(&mut s, Some("transfer+0x71"));
    let audit_lock = at(&mut s, Some("audit+0x20"));
    let audit_unlock = at(&mut s, None);
    let lock = s.mutex(0, "");
    let t = tx(threads[0], 0, Some(transfer), 1);
    let a = tx(threads[1], 0, Some(audit), 4);
    let released = point(t, 3, Release, unlock);
    let reacquired = point(t, 8, Acquire, relock);
    let edges = vec![
        edge(lock, released, point(a, 5, Acquire, audit_lock)),
        edge(lock, point(a, 7, Release, audit_unlock), reacquired),
    ];
    s.violation(begin, &[t, a, t], edges, 1);
    s.split(lock, released, reacquired, Some(a));
    s.findings.violations[0].data.without = vec![t, a];
    s.counts(12, 2, 0, 2);
    s
}

/// [`lock_split`], in which the same audit splits the transfer at other lines too, as does another
/// transfer, which is another kind.
pub fn several_ways() -> Story {
    let mut s = lock_split();
    let first = s.findings.violations[0].clone();
    let (t, a) = (first.witness[0], first.witness[1]);
    let begin = first.begin.location;
    for line in 0..7 {
        let unlock = s.place(BANK, 70 + line, "transfer", "pthread_mutex_unlock(&from->lock);");
        let again = s.place(BANK, 80 + line, "transfer", "pthread_mutex_lock(&from->lock);");
        let mut edges = first.edges.clone();
        edges[0].source = point(t, 24, Release, unlock);
        edges[1].sink = point(t, 33, Acquire, again);
        s.violation(begin, &[t, a, t], edges, u64::from(line) + 1);
    }
    let other = tx(a.thread, 1, t.region, 27);
    let mut edges = first.edges;
    (edges[0].sink.tx, edges[1].source.tx) = (other, other);
    s.violation(begin, &[t, other, t], edges, 1);
    s.counts(412, 101, 9, 98);
    s
}

/// A run with `number` distinct violations.
pub fn many(number: u32) -> Story {
    let mut s = Story::new();
    let (main, other) = (s.thread("server", 70), s.thread("worker", 71));
    for i in 0..number {
        let name = format!("handler_{i}");
        let (region, begin) =
            s.region(&name, "/srv/app/handlers.c", 100 * (i + 1), "AVTRACE_BEGIN(handler);");
        let read = s.place("/srv/app/handlers.c", 100 * (i + 1) + 1, &name, "n = hits[i];");
        let write = s.place("/srv/app/handlers.c", 100 * (i + 1) + 2, &name, "hits[i] = n + 1;");
        let hits = s.variable(i, &format!("hits[{i}]"));
        let at = u64::from(i) * 10;
        let a = tx(main, u64::from(i), Some(region), at);
        let b = tx(other, u64::from(i), Some(region), at + 2);
        let edges = vec![
            edge(hits, point(a, at + 1, Read, read), point(b, at + 3, Update, write)),
            edge(hits, point(b, at + 3, Update, write), point(a, at + 4, Write, write)),
        ];
        s.violation(begin, &[a, b, a], edges, u64::from(i) + 1);
    }
    s.counts(9_000, 2_000, 100, 800);
    s
}

/// A text trace: threads named T1 and T2, locations that are labels.
pub fn text_trace() -> Story {
    let mut s = Story::new();
    s.context.subject =
        Subject::Trace { path: "lost-update.std".to_owned(), exit_code: None, signal: None };
    s.context.summary = Default::default();
    s.names.threads =
        ["T1", "T2"].map(|name| ThreadName { name: Some(name.to_owned()), tid: None }).to_vec();
    s.names.regions = vec![RegionName { name: "add".to_owned(), ..RegionName::default() }];
    let mut at = |label: &str| s.frames(vec![SourceFrame::from_label(label)]);
    let (begin, read, other, write) = (at("l1"), at("adder.c:7"), at("31"), at("adder.c:9"));
    let x = s.variable(0, "x");
    s.names.objects.values_mut().for_each(|object| object.address = None);
    let t = tx(ThreadId(0), 0, Some(RegionId(0)), 0);
    let u = tx(ThreadId(1), 0, None, 2);
    let edges = vec![
        edge(x, point(t, 1, Read, read), point(u, 2, Write, other)),
        edge(x, point(u, 2, Write, other), point(t, 3, Write, write)),
    ];
    s.violation(begin, &[t, u, t], edges, 1);
    s.counts(5, 2, 1, 2);
    s
}

/// A function is a region that causes most events, and the program was killed in the end.
pub fn busy() -> Story {
    let mut s = clean();
    let busiest = Busiest { region: "cache::lookup".to_owned(), events: 7_250_000 };
    s.context.summary.busiest = Some(busiest);
    s.context.subject = Subject::Process {
        pid: 4711,
        argv: vec!["./server".to_owned()],
        exit_code: None,
        signal: Some(11),
        parent: None,
        program: 1,
        replaced: false,
        name: None,
    };
    s.findings.counts.events = 10_000_000;
    s
}

/// Nothing found, and something was checked.
pub fn clean() -> Story {
    let mut s = Story::new();
    s.thread("bank", 4711);
    s.thread("auditor", 4712);
    s.region("transfer", BANK, 41, "AVTRACE_BEGIN(transfer);");
    s.region("audit", BANK, 60, "AVTRACE_BEGIN(audit);");
    s.counts(1_234_567, 100_001, 1, 98_000);
    s.findings.serializable = Some(true);
    s
}

/// Locks were seen and no region.
pub fn nothing_seen() -> Story {
    let mut s = Story::new();
    s.thread("cat", 12);
    s.counts(6, 6, 6, 0);
    s.findings.serializable = Some(true);
    s
}

/// A run without findings, and with many limitations.
pub fn losses() -> Story {
    let mut s = clean();
    s.findings.counts.gaps = 2;
    let unseen = &mut s.context.not_seen;
    unseen.lost_events = vec![
        LostEvents { class: "lock".to_owned(), count: 1_200 },
        LostEvents { class: "region".to_owned(), count: 0 },
        LostEvents { class: "access".to_owned(), count: 3 },
    ];
    unseen.skipped_probes = vec![
        SkippedProbes {
            what: "pthread_mutex_clocklock in libc.so.6".to_owned(),
            reason: "no such symbol".to_owned(),
            count: 1,
            kind: None,
            reason_kind: None,
        },
        SkippedProbes {
            what: "region exits in libshop.so".to_owned(),
            reason: "the instruction has a lock prefix".to_owned(),
            count: 3,
            kind: Some("region_end".to_owned()),
            reason_kind: Some("refused".to_owned()),
        },
    ];
    unseen.unresolved_symbols =
        vec![Missing { what: "libvendor.so".to_owned(), reason: "stripped".to_owned() }];
    unseen.unfollowed_processes =
        vec![Process { pid: 4720, name: Some("sh".to_owned()) }, Process { pid: 4721, name: None }];
    unseen.undecoded_accesses = 1;
    unseen.limitations = vec![Limitation::UnwatchedChild];
    s
}

/// A cycle of transactions that no region alone accounts for.
pub fn cycle_only() -> Story {
    let mut s = clean();
    let (main, auditor) = (ThreadId(0), ThreadId(1));
    let (transfer, audit) = (RegionId(0), RegionId(1));
    let (t, a) = (tx(main, 4, Some(transfer), 70), tx(auditor, 2, Some(audit), 72));
    s.findings.serializable = Some(false);
    s.findings.cycle = Some(vec![t, a, t]);
    let (from, to) = (s.variable(0, "from.balance"), s.variable(1, "to.balance"));
    let take = s.place(BANK, 44, "transfer", "from->balance -= amount;");
    let give = s.place(BANK, 49, "transfer", "to->balance += amount;");
    let first = s.place(BANK, 62, "audit", "total = from->balance;");
    let second = s.place(BANK, 63, "audit", "total += to->balance;");
    s.findings.cycle_edges = vec![
        edge(from, point(t, 75, Write, take), point(a, 78, Read, first)),
        edge(to, point(a, 74, Read, second), point(t, 77, Write, give)),
    ];
    s.context.subject =
        Subject::Trace { path: "run.avt".to_owned(), exit_code: None, signal: None };
    s.context.summary = Default::default();
    s
}

/// Names and source lines that try to act on the terminal, and names that are too long or too wide.
pub fn hostile() -> Story {
    let mut s = lock_split();
    s.names.regions[0].name = "pay\x1b]0;owned\x07\u{202e}".to_owned();
    s.names.regions[1].name = "audit_".repeat(40);
    s.names.threads[0].name = Some("\u{9b}31mred".to_owned());
    s.names.threads[1].name = Some("監査スレッド".repeat(8));
    for text in s.names.lines.values_mut() {
        text.push_str("\t// 残高を更新する \x1b[2J\u{7}");
        text.push_str(&" long".repeat(60));
    }
    for object in s.names.objects.values_mut() {
        object.name = Some("lock\r\n\x1b[1A".to_owned());
    }
    for frame in s.names.places.iter_mut().flatten() {
        frame.file = Some("/home/user/\x1b[5m/a/very/deep/tree/of/directories/残高.c".to_owned());
    }
    s.names.lines = s
        .names
        .lines
        .drain()
        .map(|((_, line), text)| {
            (("/home/user/\x1b[5m/a/very/deep/tree/of/directories/残高.c".to_owned(), line), text)
        })
        .collect();
    s
}

/// A relay through many threads: each hands a token on to the next, the last back to the first.
pub fn relay(threads: u32) -> Story {
    let mut s = Story::new();
    let file = "/srv/relay/relay.c";
    let ids: Vec<_> = (0..threads).map(|i| s.thread(&format!("runner-{i}"), 800 + i)).collect();
    let (lap, begin) = s.region("lap", file, 20, "AVTRACE_BEGIN(lap);");
    let (leg, _) = s.region("leg", file, 40, "AVTRACE_BEGIN(leg);");
    let post = s.place(file, 25, "lap", "sem_post(&token[next]);");
    let wait = s.place(file, 27, "lap", "sem_wait(&token[self]);");
    let tx_of = |i: u32| -> Tx {
        tx(ids[i as usize], 0, Some(if i == 0 { lap } else { leg }), u64::from(i) * 10)
    };
    let edges = (0..threads)
        .map(|i| {
            let next = (i + 1) % threads;
            let token: Object = s.sync(next, ObjectKind::Semaphore, &format!("token[{next}]"));
            let sent = u64::from(i) * 10 + 5;
            let (from, to) = (tx_of(i), tx_of(next));
            edge(token, point(from, sent, Signal, post), point(to, sent + 6, Wait, wait))
        })
        .collect();
    let mut witness: Vec<Tx> = (0..threads).map(tx_of).collect();
    witness.push(tx_of(0));
    s.violation(begin, &witness, edges, 3);
    s.counts(500, 40, 2, 60);
    s
}

/// A condition-variable wait: one call releases the mutex and reacquires it.
pub fn wait_in_region() -> Story {
    let mut s = lock_split();
    let violation = &mut s.findings.violations[0];
    let place = violation.released_locks[0].released.location;
    violation.released_locks[0].reacquired.location = place;
    violation.edges[1].sink.location = place;
    s
}
