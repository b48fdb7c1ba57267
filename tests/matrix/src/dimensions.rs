//! Dimensions of the matrix and their values. Half of the values are those on which rules may be decided; on the other
//! half rules are judged.

/// Use of a value for rules of avtrace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Rules may be made with it.
    Decided,
    /// Rules are judged by it alone.
    Judged,
    /// Both: a dimension with few values.
    Both,
}

impl Half {
    /// Word for tables and the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Decided => "decided",
            Self::Judged => "judged",
            Self::Both => "both",
        }
    }

    /// Returns whether values of this half belong to `wanted`, too.
    #[must_use]
    pub fn is_in(self, wanted: Self) -> bool {
        self == wanted || self == Self::Both || wanted == Self::Both
    }
}

/// Set of values of which each program has one.
pub trait Dimension: Copy + Eq + 'static {
    /// Name for tables.
    const NAME: &'static str;
    /// Every value.
    const ALL: &'static [Self];

    /// Word for identifiers and tables.
    fn word(self) -> &'static str;

    /// Half that the value belongs to.
    fn half(self) -> Half;

    /// Value with this word.
    fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.word() == word)
    }
}

macro_rules! dimension {
    ($(#[$doc:meta])* $name:ident $title:literal { $($value:ident $word:literal $half:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = concat!("`", $word, "`.")] $value,)*
        }

        impl Dimension for $name {
            const NAME: &'static str = $title;
            const ALL: &'static [Self] = &[$(Self::$value,)*];

            fn word(self) -> &'static str {
                match self { $(Self::$value => $word,)* }
            }

            fn half(self) -> Half {
                match self { $(Self::$value => Half::$half,)* }
            }
        }
    };
}

dimension! {
    /// Steps of the function that should be atomic, and those of the other threads.
    Pattern "pattern" {
        TwoCounters "two-counters" Decided,
        PutThenTake "put-then-take" Judged,
        SetThenCount "set-then-count" Decided,
        LookAgain "look-again" Decided,
        CheckAgain "check-again" Judged,
        ReadTwice "read-twice" Judged,
        ReadThenCount "read-then-count" Judged,
        LostUpdate "lost-update" Decided,
        CheckWrite "check-write" Judged,
        CheckIncrement "check-increment" Decided,
        CheckDecrement "check-decrement" Judged,
        LoserReads "loser-reads" Decided,
        SizeIndex "size-index" Judged,
        InitOnce "init-once" Decided,
        Torn "torn" Decided,
        TornReversed "torn-reversed" Judged,
        WriteSkew "write-skew" Judged,
        Move "move" Decided,
        LookupFreed "lookup-freed" Judged,
        FlagData "flag-data" Decided,
        Notify "notify" Judged,
        IterateRemove "iterate-remove" Decided,
        RefZero "ref-zero" Judged,
    }
}

dimension! {
    /// Language of the source.
    Language "language" { C "c" Both, Cpp "cpp" Both, Rust "rust" Both, }
}

dimension! {
    /// Protection of the shared state.
    Lock "lock" {
        Mutex "mutex" Decided,
        RwLock "rwlock" Judged,
        Spin "spin" Decided,
        Recursive "recursive" Decided,
        Timed "timed" Judged,
        OwnSpin "own-spin" Judged,
        Ticket "ticket" Decided,
        Macro "macro" Judged,
        Wrapper "wrapper" Decided,
        Guard "guard" Judged,
        TwoLocks "two-locks" Judged,
        ParkingLot "parking-lot" Judged,
        Atomics "atomics" Decided,
    }
}

dimension! {
    /// Place and type of the shared state.
    Data "data" {
        Global "global" Decided,
        StaticLocal "static-local" Judged,
        Heap "heap" Decided,
        Stack "stack" Judged,
        Member "member" Decided,
        Vector "vector" Judged,
        Map "map" Decided,
        Text "text" Judged,
        Optional "optional" Decided,
        List "list" Decided,
        Table "table" Judged,
    }
}

dimension! {
    /// Division of the code into functions.
    Shape "shape" {
        Function "function" Decided,
        Helpers "helpers" Decided,
        HelperTwice "helper-twice" Judged,
        Methods "methods" Decided,
        Closures "closures" Judged,
        Virtual "virtual" Judged,
        Callback "callback" Decided,
        Generic "generic" Decided,
        ThreadBody "thread-body" Judged,
        Pool "pool" Decided,
        EarlyReturn "early-return" Judged,
        Fallible "fallible" Decided,
        OneLine "one-line" Judged,
        Library "library" Decided,
    }
}

dimension! {
    /// Step between the two sections.
    Gap "gap" {
        Nothing "nothing" Decided,
        Compute "compute" Judged,
        Sleep "sleep" Decided,
        Yield "yield" Judged,
        File "file" Decided,
        Log "log" Judged,
        Alloc "alloc" Decided,
        OtherLock "other-lock" Judged,
        RareSleep "rare-sleep" Decided,
    }
}

dimension! {
    /// Compiler and options.
    Build "build" {
        GccO0 "gcc-O0" Decided,
        GccO1 "gcc-O1" Judged,
        GccO2 "gcc-O2" Decided,
        GccO3 "gcc-O3" Judged,
        ClangO0 "clang-O0" Judged,
        ClangO2 "clang-O2" Decided,
        Lto "gcc-O2-lto" Judged,
        Debug "debug" Decided,
        Release "release" Judged,
        ReleaseDebug "release-debug" Decided,
    }
}

dimension! {
    /// Number of threads.
    Threads "threads" { Two "2" Decided, Three "3" Judged, Four "4" Decided, Eight "8" Judged, }
}

dimension! {
    /// Executions of the function: one for each thread; many in a tight loop, which threads begin together by a lock or
    /// by spinning on a counter; some with pauses; one for each thread of several groups, one group after the other.
    Runs "runs" { Once "once" Decided, Loop "loop" Judged, SpinStart "spin-start" Decided, Paused "paused" Decided, Again "again" Judged, }
}

impl Threads {
    /// Number.
    #[must_use]
    pub fn count(self) -> u32 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

impl Pattern {
    /// Returns whether the pattern is correct without its twin: its two steps are independent.
    #[must_use]
    pub fn is_control(self) -> bool {
        matches!(
            self,
            Self::TwoCounters
                | Self::PutThenTake
                | Self::SetThenCount
                | Self::ReadThenCount
                | Self::LookAgain
                | Self::CheckAgain
                | Self::ReadTwice
        )
    }
}
