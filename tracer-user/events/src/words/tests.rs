//! Meaning of each step in each state of a word.

use super::*;

const A: ThreadId = ThreadId(0);
const B: ThreadId = ThreadId(1);
const AT: u64 = 0x1004;
/// Address of the stores.
const CODE: u64 = 0x40_1000;

const WAITS: Meaning = Meaning::Orders { waits: true, signals: false };
const SIGNALS: Meaning = Meaning::Orders { waits: false, signals: true };
const BOTH: Meaning = Meaning::Orders { waits: true, signals: true };

/// Access by a thread: the kind of instruction, whether it reads, whether it writes.
type Doing = (Step, bool, bool);

const LOAD: Doing = (Step::Plain, true, false);
const STORE: Doing = (Step::Plain, false, true);
const INCREMENT: Doing = (Step::Plain, true, true);
const SWAPPED: Doing = (Step::Compare, true, true);
const FAILED: Doing = (Step::Compare, true, false);
const EXCHANGE: Doing = (Step::Exchange, true, true);
const ATOMIC_STORE: Doing = (Step::Store, true, true);
const ADD: Doing = (Step::Adds, true, false);
const BITS: Doing = (Step::Bits, true, false);

fn at(
    words: &mut Words,
    address: u64,
    thread: ThreadId,
    doing: Doing,
    transaction: u64,
) -> Meaning {
    words.access(&access(address, thread, doing, transaction))
}

fn access(address: u64, thread: ThreadId, doing: Doing, transaction: u64) -> WordAccess {
    let (step, reads, writes) = doing;
    WordAccess {
        thread,
        address,
        bytes: 4,
        step,
        reads,
        writes,
        instruction: CODE,
        transaction: (transaction > 0).then_some(transaction),
    }
}

#[track_caller]
fn check(steps: &[(ThreadId, Doing, Meaning)]) {
    let mut words = Words::default();
    for (number, &(thread, doing, meaning)) in steps.iter().enumerate() {
        assert_eq!(at(&mut words, AT, thread, doing, 1), meaning, "step {number}");
    }
}

#[test]
fn what_is_only_loaded_stored_and_added_to_is_data() {
    let data = |thread, doing| (thread, doing, Meaning::Data);
    check(&[
        data(A, LOAD),
        data(B, STORE),
        data(A, STORE),
        data(B, INCREMENT),
        data(A, ADD),
        data(A, BITS),
    ]);
}

#[test]
fn a_lock_orders_its_sections_and_its_attempts_order_nothing() {
    check(&[
        (A, STORE, Meaning::Data),
        (A, SWAPPED, WAITS),
        (B, FAILED, Meaning::Nothing),
        (B, LOAD, Meaning::Nothing),
        (A, STORE, SIGNALS),
        (B, SWAPPED, WAITS),
        (A, EXCHANGE, Meaning::Nothing),
        (B, SWAPPED, BOTH),
        (A, EXCHANGE, WAITS),
        (B, EXCHANGE, Meaning::Nothing),
        (A, BITS, SIGNALS),
        (B, EXCHANGE, WAITS),
        (B, EXCHANGE, BOTH),
    ]);
}

#[test]
fn readers_are_not_ordered_among_themselves() {
    check(&[
        (A, SWAPPED, WAITS),
        (A, ADD, Meaning::Nothing),
        (B, SWAPPED, WAITS),
        (A, SWAPPED, WAITS),
        (B, ADD, Meaning::Nothing),
        (A, ADD, Meaning::Nothing),
        (A, SWAPPED, WAITS),
    ]);
}

#[test]
fn a_flag_that_is_checked_again_orders_nothing() {
    check(&[
        (B, SWAPPED, WAITS),
        (B, ATOMIC_STORE, SIGNALS),
        (A, LOAD, Meaning::Nothing),
        (B, ATOMIC_STORE, SIGNALS),
        (A, LOAD, Meaning::Nothing),
        (A, ATOMIC_STORE, SIGNALS),
    ]);
}

#[test]
fn a_word_that_is_only_loaded_and_stored_is_data() {
    check(&[
        (B, ATOMIC_STORE, Meaning::Data),
        (A, LOAD, Meaning::Data),
        (B, ATOMIC_STORE, Meaning::Data),
        (A, ATOMIC_STORE, Meaning::Data),
    ]);
}

#[test]
fn a_lost_update_makes_data_of_a_word_and_of_what_else_the_instruction_stores_to() {
    for store in [STORE, ATOMIC_STORE] {
        let mut words = Words::default();
        assert_eq!(at(&mut words, AT, B, SWAPPED, 0), WAITS);
        assert_eq!(at(&mut words, AT, B, ATOMIC_STORE, 0), SIGNALS);
        assert_eq!(at(&mut words, AT, A, LOAD, 1), Meaning::Nothing);
        assert_eq!(at(&mut words, AT, B, store, 0), SIGNALS);
        assert_eq!(at(&mut words, AT, A, store, 2), SIGNALS, "in another transaction");
        assert_eq!(at(&mut words, AT, A, LOAD, 3), Meaning::Nothing);
        assert_eq!(at(&mut words, AT, B, store, 0), SIGNALS);
        for doing in [store, LOAD, SWAPPED] {
            assert_eq!(at(&mut words, AT, A, doing, 3), Meaning::Data);
        }
        assert_eq!(at(&mut words, AT + 0x100, B, SWAPPED, 0), Meaning::Data);
        assert!(words.classify_deferred(&access(AT, B, STORE, 0)).is_none());
    }
    check(&[
        (B, SWAPPED, WAITS),
        (B, ATOMIC_STORE, SIGNALS),
        (A, LOAD, Meaning::Nothing),
        (B, ATOMIC_STORE, SIGNALS),
        (A, SWAPPED, WAITS),
        (A, STORE, SIGNALS),
        (A, LOAD, Meaning::Nothing),
        (B, STORE, SIGNALS),
        (A, STORE, SIGNALS),
    ]);
}

#[test]
fn no_update_is_known_to_be_lost_where_loads_are_left_out() {
    let mut words = Words::default();
    words.become_partial();
    assert_eq!(at(&mut words, AT, B, SWAPPED, 0), WAITS);
    assert_eq!(at(&mut words, AT, B, ATOMIC_STORE, 0), SIGNALS);
    for transaction in 1..3 {
        assert_eq!(at(&mut words, AT, A, LOAD, transaction), Meaning::Nothing);
        assert_eq!(at(&mut words, AT, B, STORE, 0), SIGNALS);
        // It may have loaded the word again.
        assert_eq!(at(&mut words, AT, A, STORE, transaction), SIGNALS);
    }
}

#[test]
fn a_release_may_be_left_out() {
    for take in [EXCHANGE, SWAPPED] {
        let mut words = Words::default();
        words.become_partial();
        // Each of them may have released it by a store that is left out: the next one waits, whoever it is, and none is
        // a release itself.
        for thread in [A, B, B, A] {
            assert_eq!(at(&mut words, AT, thread, take, 0), WAITS);
        }
    }
    let mut words = Words::default();
    let steps = |words: &mut Words, thread, all: &[Doing]| {
        for &doing in all {
            at(words, AT, thread, doing, 0);
        }
    };
    steps(&mut words, A, &[SWAPPED, STORE]);
    words.become_partial();
    steps(&mut words, B, &[SWAPPED]);
    steps(&mut words, A, &[STORE]);
    assert!(words.is_lock(AT, 4), "that it was released and acquired between is left out");
}

#[test]
fn an_increment_in_two_steps_is_of_whoever_took_the_word_or_of_data() {
    check(&[(A, SWAPPED, WAITS), (A, INCREMENT, SIGNALS), (B, INCREMENT, Meaning::Data)]);
}

#[test]
fn memory_that_is_given_back_and_bytes_beside_a_word_are_others() {
    let mut words = Words::default();
    assert_eq!(at(&mut words, AT, A, SWAPPED, 0), WAITS);
    assert_eq!(at(&mut words, AT - 4, A, STORE, 0), Meaning::Data, "the other half");
    let first = words.id(AT, 4, || SyncId(7));
    assert_eq!((first, words.id(AT, 4, || SyncId(8))), (Some(SyncId(7)), Some(SyncId(7))));
    words.forget(&(AT..AT + 4));
    assert_eq!(at(&mut words, AT, B, STORE, 0), Meaning::Data);
    assert_eq!(words.id(AT, 4, || SyncId(9)), None);
}

#[test]
fn what_was_done_alone_is_a_signal_if_it_lets_go() {
    let mut words = Words::default();
    let alone = |words: &mut Words, step, writes: bool| {
        words.classify_deferred(&access(AT, A, (step, !writes, writes), 0))
    };
    assert_eq!(alone(&mut words, Step::Plain, true), None);
    assert_eq!(at(&mut words, AT, A, SWAPPED, 0), WAITS);
    assert_eq!(alone(&mut words, Step::Plain, true), Some(true));
    assert_eq!(alone(&mut words, Step::Plain, false), Some(false));
    assert_eq!(alone(&mut words, Step::Compare, true), Some(false));
    assert_eq!(at(&mut words, AT, B, EXCHANGE, 0), Meaning::Nothing, "the other one holds it");
    assert_eq!(alone(&mut words, Step::Adds, false), Some(false));
    assert_eq!(at(&mut words, AT, B, EXCHANGE, 0), WAITS);
}

#[test]
fn a_load_that_was_made_alone_counts_for_a_lost_update() {
    let late_load = |words: &mut Words, transaction| {
        let load = access(AT, A, LOAD, transaction);
        assert_eq!(words.classify_deferred(&load), Some(false));
    };
    let mut words = Words::default();
    assert_eq!(at(&mut words, AT, B, SWAPPED, 0), WAITS);
    assert_eq!(at(&mut words, AT, B, ATOMIC_STORE, 0), SIGNALS);
    late_load(&mut words, 0);
    assert_eq!(at(&mut words, AT, B, ATOMIC_STORE, 0), SIGNALS);
    assert_eq!(at(&mut words, AT, A, STORE, 3), SIGNALS, "loaded before the transaction");
    late_load(&mut words, 4);
    assert_eq!(at(&mut words, AT, B, ATOMIC_STORE, 0), SIGNALS);
    assert_eq!(at(&mut words, AT, A, STORE, 4), Meaning::Data);
}

#[test]
fn after_a_gap_nobody_holds_anything() {
    let mut words = Words::default();
    assert_eq!(at(&mut words, AT, A, EXCHANGE, 0), WAITS);
    words.gap();
    assert_eq!(at(&mut words, AT, B, EXCHANGE, 0), WAITS);
}

#[test]
fn an_exchange_whose_result_is_not_used_is_a_store() {
    let unused = |code: &[u8]| {
        let instruction = decode_first(code, 0);
        let register = exchanged(&instruction).unwrap();
        let end = Some(code.len() as u64);
        is_unused(&|at| code.get(at as usize..), instruction.next_ip(), end, register)
    };
    assert!(unused(&[0x87, 0x3e, 0xc3]), "xchg [rsi],edi; ret");
    assert!(!unused(&[0x87, 0x06, 0xc3]), "xchg [rsi],eax; ret: it may be the result");
    assert!(unused(&[0x87, 0x06, 0x31, 0xc0, 0xc3]), "xchg [rsi],eax; xor eax,eax; ret");
    assert!(!unused(&[0x87, 0x06, 0x85, 0xc0, 0xc3]), "xchg [rsi],eax; test eax,eax");
    assert!(!unused(&[0x86, 0x06, 0x84, 0xc0, 0xc3]), "xchg [rsi],al; test al,al");
    assert!(unused(&[0x86, 0x06, 0xb8, 0, 0, 0, 0, 0xc3]), "xchg [rsi],al; mov eax,0");
    assert!(!unused(&[0x87, 0x06, 0xb0, 1, 0xc3]), "xchg [rsi],eax; mov al,1: the rest remains");
    assert!(unused(&[0x87, 0x3e, 0x74, 0x00, 0xc3]), "xchg [rsi],edi; je; ret");
}

#[test]
fn a_lock_word_is_released_by_whoever_has_taken_it() {
    let is_lock = |steps: &[(ThreadId, Doing)]| {
        let mut words = Words::default();
        for &(thread, doing) in steps {
            at(&mut words, AT, thread, doing, 0);
        }
        words.is_lock(AT, 4)
    };
    assert!(is_lock(&[(A, SWAPPED), (B, FAILED), (B, LOAD), (A, STORE), (B, SWAPPED)]));
    assert!(is_lock(&[(A, EXCHANGE), (B, EXCHANGE), (A, ATOMIC_STORE)]));
    assert!(!is_lock(&[(A, SWAPPED), (A, SWAPPED), (B, SWAPPED)]), "a number");
    assert!(!is_lock(&[(A, SWAPPED), (A, STORE), (B, SWAPPED), (A, SWAPPED)]), "while it is held");
    assert!(!is_lock(&[(A, SWAPPED), (A, STORE), (B, STORE)]), "a store by somebody else");
    assert!(!is_lock(&[(A, SWAPPED), (A, STORE), (B, ADD)]));
    assert!(!is_lock(&[(A, LOAD), (A, STORE)]));
}
