//! Patterns: the steps of the function that should be atomic, the step of the other threads, and the anomaly that the
//! program counts afterwards. The steps are in a small language that [`expand`](crate::expand) turns into others.
//!
//! Variables of the steps are `v`, set by the first one, and `r`, the result; `i` is the round and `me` the thread.
//! `$w` is `v`, or the index of a loop up to `v`. `$x` and `$y` are the shared values: `$x <- E;` and `$x += E;` are
//! lines that change one. `$len`, `$at(E)`, `$push(E)` and `$pop` are operations on a shared sequence.

use crate::Pattern;

/// Threads that run the function; the others run the other step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Every thread.
    All,
    /// The first thread alone.
    First,
    /// Every thread but the second.
    ButSecond,
    /// The first two threads; the others do nothing.
    Pair,
}

/// Anomalies, counted when all threads have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harm {
    /// Value of an expression over `fx` and `fy` (final values), `sum` and `others` (sums of results) and `ops`
    /// (executions of the function), without sign.
    Differs(&'static str),
    /// Value of such an expression if it is positive.
    Exceeds(&'static str),
    /// Rounds that not exactly one thread won.
    NotOneWinner,
    /// Rounds that more than one thread won.
    ManyWinners,
    /// Times in which the first two threads were away together.
    BothAway,
}

/// Steps of a pattern.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    /// Names of the function, of helpers for its two steps, and of the function of the other threads.
    pub(crate) names: [&'static str; 4],
    /// Statements of the first step.
    pub(crate) first: &'static str,
    /// Set if the first step writes nothing.
    pub(crate) first_reads: bool,
    /// Condition of the second step.
    pub(crate) condition: Option<&'static str>,
    /// Set if the second step is repeated `v` times.
    pub(crate) repeats: bool,
    /// Statements of the second step.
    pub(crate) second: &'static str,
    /// Step of its own after an execution with a result.
    pub(crate) after: Option<&'static str>,
    /// Statements of the other threads.
    pub(crate) other: &'static str,
    /// Set if the other threads write nothing.
    pub(crate) other_reads: bool,
    pub(crate) role: Role,
    /// Initial state.
    pub(crate) prepare: &'static str,
    pub(crate) harm: Harm,
    /// Both steps as one, where the values are atomic variables: `$cas(x, OLD, NEW)` says whether it has changed one.
    pub(crate) atomic_twin: Option<&'static str>,
    /// Set if the first step uses `$x` alone, and the second one `$y`.
    pub(crate) has_two_slots: bool,
    /// Set if the state is a sequence.
    pub(crate) has_items: bool,
    /// Set if tasks of a pool can run it.
    pub(crate) is_for_pools: bool,
}

const EMPTY: Steps = Steps {
    names: ["update", "look", "act", "other"],
    first: "v = $x;",
    first_reads: true,
    condition: None,
    repeats: false,
    second: "",
    after: None,
    other: "",
    other_reads: false,
    role: Role::All,
    prepare: "$x <- 0;\n$y <- 0;",
    harm: Harm::Differs("0"),
    atomic_twin: None,
    has_two_slots: false,
    has_items: false,
    is_for_pools: false,
};

/// Steps of a pattern.
pub(crate) fn steps(pattern: Pattern) -> Steps {
    match pattern {
        Pattern::TwoCounters
        | Pattern::PutThenTake
        | Pattern::SetThenCount
        | Pattern::ReadThenCount => control(pattern),
        Pattern::LookAgain | Pattern::CheckAgain | Pattern::ReadTwice => looks_again(pattern),
        Pattern::SizeIndex | Pattern::IterateRemove => items(pattern),
        Pattern::Torn
        | Pattern::TornReversed
        | Pattern::FlagData
        | Pattern::Move
        | Pattern::LoserReads => two_values(pattern),
        Pattern::WriteSkew | Pattern::LookupFreed | Pattern::Notify | Pattern::RefZero => {
            special(pattern)
        }
        _ => one_value(pattern),
    }
}

fn control(pattern: Pattern) -> Steps {
    let usual = Steps { has_two_slots: true, is_for_pools: true, first_reads: false, ..EMPTY };
    match pattern {
        Pattern::TwoCounters => Steps {
            names: ["serve", "count_request", "count_bytes", "other"],
            first: "$x += 1;",
            second: "$y += 1;",
            harm: Harm::Differs("(fx - ops) * (fx - ops) + (fy - ops) * (fy - ops)"),
            atomic_twin: Some("$x += 1;\n$gap\n$y += 1;"),
            ..usual
        },
        Pattern::PutThenTake => Steps {
            names: ["exchange", "submit", "take_next", "other"],
            first: "$x += 1;",
            second: "if ($y > 0) {\n$y <- $y - 1;\nr = 1;\n}",
            prepare: "$x <- 0;\n$y <- OPS / 2;",
            harm: Harm::Differs("(fx - ops) * (fx - ops) + (fy + sum - OPS / 2)"),
            ..usual
        },
        Pattern::SetThenCount => Steps {
            names: ["visit", "remember_last", "count_visit", "other"],
            first: "$x <- me;",
            second: "$y += 1;",
            harm: Harm::Differs("fy - ops"),
            atomic_twin: Some("$x <- me;\n$gap\n$y += 1;"),
            ..usual
        },
        _ => Steps {
            names: ["handle", "read_level", "count_call", "set_level"],
            first_reads: true,
            second: "$y += 1;",
            other: "$x += 1;",
            role: Role::ButSecond,
            harm: Harm::Differs("fy - ops"),
            is_for_pools: false,
            ..usual
        },
    }
}

/// Correct: the second step looks again at what others may have changed.
fn looks_again(pattern: Pattern) -> Steps {
    match pattern {
        Pattern::LookAgain => Steps {
            names: ["obtain", "is_there", "make", "other"],
            condition: Some("v < i + 1"),
            second: "if ($x < i + 1) {\n$x <- i + 1;\nr = 1;\n}",
            harm: Harm::ManyWinners,
            ..EMPTY
        },
        Pattern::CheckAgain => Steps {
            names: ["book", "rooms_left", "take_room", "other"],
            condition: Some("v > 0"),
            second: "if ($x > 0) {\n$x += -1;\nr = 1;\n}",
            prepare: "$x <- OPS / 2;\n$y <- 0;",
            harm: Harm::Exceeds("0 - fx"),
            is_for_pools: true,
            ..EMPTY
        },
        _ => Steps {
            names: ["watch", "first_level", "next_level", "raise_level"],
            second: "if ($x < $w) {\nr = 1;\n}",
            other: "$x += 1;",
            role: Role::ButSecond,
            harm: Harm::Exceeds("sum"),
            ..EMPTY
        },
    }
}

fn one_value(pattern: Pattern) -> Steps {
    match pattern {
        Pattern::LostUpdate => Steps {
            names: ["deposit", "get_balance", "set_balance", "other"],
            second: "$x <- $w + 1;",
            harm: Harm::Differs("ops - fx"),
            atomic_twin: Some(
                "while (true) {\nv = $x;\n$gap\nif ($cas(x, v, v + 1)) {\nbreak;\n}\n}",
            ),
            is_for_pools: true,
            ..EMPTY
        },
        Pattern::CheckWrite => Steps {
            names: ["claim", "current_turn", "take_turn", "other"],
            condition: Some("v == i"),
            second: "$x <- i + 1;\nr = 1;",
            harm: Harm::NotOneWinner,
            atomic_twin: Some("v = $x;\n$gap\nif (v == i && $cas(x, i, i + 1)) {\nr = 1;\n}"),
            ..EMPTY
        },
        Pattern::CheckIncrement => Steps {
            names: ["admit", "guests", "add_guest", "other"],
            condition: Some("v < OPS / 2"),
            second: "$x += 1;\nr = 1;",
            harm: Harm::Exceeds("fx - OPS / 2"),
            atomic_twin: Some(
                "v = $x;\nwhile (v < OPS / 2 && r == 0) {\n$gap\nif ($cas(x, v, v + 1)) {\nr = 1;\n} else {\nv = $x;\n}\n}",
            ),
            is_for_pools: true,
            ..EMPTY
        },
        Pattern::CheckDecrement => Steps {
            names: ["sell", "seats_left", "take_seat", "other"],
            condition: Some("v > 0"),
            second: "$x += -1;\nr = 1;",
            prepare: "$x <- OPS / 2;\n$y <- 0;",
            harm: Harm::Exceeds("0 - fx"),
            atomic_twin: Some(
                "v = $x;\nwhile (v > 0 && r == 0) {\n$gap\nif ($cas(x, v, v - 1)) {\nr = 1;\n} else {\nv = $x;\n}\n}",
            ),
            is_for_pools: true,
            ..EMPTY
        },
        _ => Steps {
            names: ["instance", "cached", "create", "other"],
            condition: Some("v < i + 1"),
            second: "$x <- i + 1;\nr = 1;",
            harm: Harm::ManyWinners,
            atomic_twin: Some("v = $x;\n$gap\nif (v < i + 1 && $cas(x, v, i + 1)) {\nr = 1;\n}"),
            ..EMPTY
        },
    }
}

fn two_values(pattern: Pattern) -> Steps {
    let usual = Steps { has_two_slots: true, first_reads: false, ..EMPTY };
    let torn = Steps {
        names: ["publish", "set_width", "set_height", "measure"],
        first: "$x <- i + 1;",
        second: "$y <- i + 1;",
        other_reads: true,
        role: Role::First,
        harm: Harm::Exceeds("others"),
        ..usual
    };
    match pattern {
        Pattern::Torn => Steps { other: "v = $x;\nif (v != $y) {\nr = 1;\n}", ..torn },
        Pattern::TornReversed => Steps { other: "v = $y;\nif (v != $x) {\nr = 1;\n}", ..torn },
        Pattern::FlagData => Steps {
            names: ["announce", "raise_flag", "store_data", "receive"],
            other: "v = $x;\nif ($y < v) {\nr = 1;\n}",
            ..torn
        },
        Pattern::Move => Steps {
            names: ["transfer", "take_from", "give_to", "audit"],
            first: "$x += -1;",
            second: "$y += 1;",
            prepare: "$x <- 1000000;\n$y <- 0;",
            other: "if ($x + $y != 1000000) {\nr = 1;\n}",
            other_reads: true,
            role: Role::ButSecond,
            harm: Harm::Exceeds("others"),
            ..usual
        },
        _ => Steps {
            names: ["send", "is_open", "enqueue", "shut"],
            first: "v = $x;",
            first_reads: true,
            condition: Some("v == 0"),
            second: "$y += 1;",
            other: "if (i == ROUNDS / 2) {\n$x <- 1;\nr = $y;\n}",
            role: Role::ButSecond,
            harm: Harm::Differs("fy - others"),
            ..usual
        },
    }
}

fn items(pattern: Pattern) -> Steps {
    let usual = Steps {
        first: "v = $len;",
        other: "if (i % 2 == 0) {\n$pop\n} else {\n$push(4)\n}",
        role: Role::ButSecond,
        prepare: "$push(4)\n$push(4)\n$push(4)\n$push(4)\n$push(4)\n$push(4)",
        harm: Harm::Exceeds("sum"),
        has_items: true,
        ..EMPTY
    };
    if pattern == Pattern::SizeIndex {
        return Steps {
            names: ["last_item", "item_count", "item_at", "change_items"],
            condition: Some("v > 0"),
            second: "if ($w > $len) {\nr = 1;\n} else if ($at($w - 1) == 0) {\nr = 1;\n}",
            ..usual
        };
    }
    Steps {
        names: ["visit_all", "item_count", "visit_item", "change_items"],
        repeats: true,
        second: "if ($w >= $len) {\nr = r + 1;\n} else if ($at($w) == 0) {\nr = r + 1;\n}",
        ..usual
    }
}

fn special(pattern: Pattern) -> Steps {
    match pattern {
        Pattern::WriteSkew => Steps {
            names: ["leave", "other_is_here", "go", "come_back"],
            first: "if (me % 2 == 0) {\nv = $y;\n} else {\nv = $x;\n}",
            condition: Some("v == 1"),
            second: "if (me % 2 == 0) {\n$x <- 0;\n} else {\n$y <- 0;\n}\nr = $now;",
            after: Some("r = $now;\nif (me % 2 == 0) {\n$x <- 1;\n} else {\n$y <- 1;\n}"),
            role: Role::Pair,
            prepare: "$x <- 1;\n$y <- 1;",
            harm: Harm::BothAway,
            ..EMPTY
        },
        Pattern::LookupFreed => Steps {
            names: ["use_item", "find_item", "touch_item", "replace_item"],
            second: "struct item *found = (struct item *)$w;\nif (found->alive != 1) {\nr = 1;\n}\nfound->uses++;",
            other: "v = $x;\n$x <- (long)new_item();\n((struct item *)v)->alive = 0;\nfree((void *)v);",
            role: Role::ButSecond,
            prepare: "$x <- (long)new_item();",
            harm: Harm::Exceeds("sum"),
            ..EMPTY
        },
        Pattern::Notify => Steps {
            names: ["wait_for_news", "news", "sleep_until_news", "post_news"],
            condition: Some("v == 0"),
            second: "$wait\nif (late && $x > $w) {\nr = 1;\n}",
            other: "$x += 1;\n$signal",
            role: Role::First,
            harm: Harm::Exceeds("sum"),
            ..EMPTY
        },
        _ => Steps {
            names: ["release", "drop_reference", "free_if_last", "other"],
            first: "$x += -1;",
            first_reads: false,
            second: "if ($x == 0) {\nr = 1;\n}",
            prepare: "$x <- THREADS;",
            harm: Harm::Differs("sum - 1"),
            ..EMPTY
        },
    }
}
