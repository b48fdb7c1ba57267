//! A program as a choice of one value for each dimension: its identifier, and which choices can be had.

use crate::{
    Build, Data, Dimension, Gap, Half, Language, Lock, Pattern, Runs, Shape, Threads,
    pattern::steps,
};

/// Choice of one value for each dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types say it")]
pub struct Program {
    pub pattern: Pattern,
    pub language: Language,
    pub lock: Lock,
    pub data: Data,
    pub shape: Shape,
    pub gap: Gap,
    pub build: Build,
    pub threads: Threads,
    pub runs: Runs,
}

/// Value of a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    /// Name of the dimension.
    pub dimension: &'static str,
    /// Word of the value.
    pub word: &'static str,
    /// Half of the value.
    pub half: Half,
}

fn value<D: Dimension>(value: D) -> Value {
    Value { dimension: D::NAME, word: value.word(), half: value.half() }
}

impl Program {
    /// Values in the order of the identifier.
    #[must_use]
    pub fn values(&self) -> [Value; 9] {
        [
            value(self.pattern),
            value(self.language),
            value(self.lock),
            value(self.data),
            value(self.shape),
            value(self.gap),
            value(self.build),
            value(self.threads),
            value(self.runs),
        ]
    }

    /// Identifier: the words of the values with dots between.
    #[must_use]
    pub fn id(&self) -> String {
        self.values().map(|value| value.word).join(".")
    }

    /// Program with this identifier, if it can be had.
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        let words: Vec<&str> = id.split('.').collect();
        let [pattern, language, lock, data, shape, gap, build, threads, runs] = words[..] else {
            return None;
        };
        let program = Self {
            pattern: Dimension::parse(pattern)?,
            language: Dimension::parse(language)?,
            lock: Dimension::parse(lock)?,
            data: Dimension::parse(data)?,
            shape: Dimension::parse(shape)?,
            gap: Dimension::parse(gap)?,
            build: Dimension::parse(build)?,
            threads: Dimension::parse(threads)?,
            runs: Dimension::parse(runs)?,
        };
        program.is_valid().then_some(program)
    }

    /// Half that all values belong to, if there is one.
    #[must_use]
    pub fn half(&self) -> Option<Half> {
        let values = self.values();
        let is_in = |half: Half| values.iter().all(|value| value.half.is_in(half));
        [Half::Decided, Half::Judged].into_iter().find(|half| is_in(*half))
    }

    /// Returns whether the values go together.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.suits_language() && self.suits_pattern() && self.suits_lock() && self.suits_shape()
    }

    fn suits_language(&self) -> bool {
        use Language::{C, Cpp, Rust};
        let of = |languages: &[Language]| languages.contains(&self.language);
        let lock = match self.lock {
            Lock::Mutex | Lock::RwLock | Lock::OwnSpin | Lock::TwoLocks | Lock::Atomics => true,
            Lock::Spin | Lock::Macro => of(&[C]),
            Lock::Ticket => of(&[C, Cpp]),
            Lock::Recursive | Lock::Timed | Lock::Wrapper => of(&[Cpp]),
            Lock::Guard => of(&[Cpp, Rust]),
            Lock::ParkingLot => of(&[Rust]),
        };
        let data = match self.data {
            Data::Global | Data::Heap | Data::Stack => true,
            Data::StaticLocal => of(&[C, Cpp]),
            Data::Member => of(&[Cpp]),
            Data::Vector | Data::Map | Data::Text | Data::Optional => of(&[Cpp, Rust]),
            Data::List | Data::Table => of(&[C]),
        };
        let shape = match self.shape {
            Shape::Methods
            | Shape::Closures
            | Shape::Virtual
            | Shape::Generic
            | Shape::Fallible => of(&[Cpp, Rust]),
            Shape::Callback => of(&[C]),
            Shape::Library => of(&[C, Cpp]),
            _ => true,
        };
        let build = match self.build {
            Build::Debug | Build::Release | Build::ReleaseDebug => of(&[Rust]),
            _ => of(&[C, Cpp]),
        };
        lock && data && shape && build
    }

    fn suits_pattern(&self) -> bool {
        let steps = steps(self.pattern);
        let data = !steps.has_items
            || matches!(
                self.data,
                Data::Global | Data::Heap | Data::Stack | Data::Vector | Data::Text | Data::Table
            );
        let once = self.is_once();
        // Threads that run something short once seldom meet.
        let takes_time = matches!(self.gap, Gap::Compute | Gap::Sleep);
        let special = match self.pattern {
            Pattern::LookupFreed => self.language != Language::Rust,
            Pattern::RefZero => once && self.shape != Shape::Pool,
            Pattern::Notify => {
                once && matches!(self.lock, Lock::Mutex | Lock::Macro | Lock::Guard)
                    && matches!(self.shape, Shape::Function | Shape::ThreadBody | Shape::OneLine)
            }
            _ => true,
        };
        data && special && (!once || takes_time)
    }

    fn suits_lock(&self) -> bool {
        let steps = steps(self.pattern);
        let plain = matches!(self.data, Data::Global | Data::Heap | Data::Stack);
        match self.lock {
            // A thread that waits for it keeps its processor.
            Lock::Spin => {
                !matches!(self.gap, Gap::Sleep | Gap::File | Gap::RareSleep | Gap::Log)
                    && self.threads.count() <= 4
            }
            Lock::TwoLocks => {
                let data = self.language != Language::Rust || plain;
                steps.has_two_slots
                    && data
                    && !matches!(self.shape, Shape::Closures | Shape::Callback)
            }
            Lock::Atomics => {
                let shape = matches!(
                    self.shape,
                    Shape::Function | Shape::Helpers | Shape::OneLine | Shape::Pool
                );
                steps.atomic_twin.is_some() && plain && shape
            }
            _ => true,
        }
    }

    fn suits_shape(&self) -> bool {
        let steps = steps(self.pattern);
        let shape = match self.shape {
            Shape::Pool => steps.is_for_pools && !self.is_once(),
            Shape::EarlyReturn | Shape::Fallible => steps.condition.is_some(),
            Shape::Library => !matches!(self.data, Data::Stack | Data::Member),
            _ => true,
        };
        shape && (self.data != Data::Member || self.shape == Shape::Methods)
    }

    /// Returns whether a build needs crates besides the standard library.
    #[must_use]
    pub fn needs_crates(&self) -> bool {
        self.lock == Lock::ParkingLot
    }

    /// Returns whether each thread runs the function once.
    pub(crate) fn is_once(&self) -> bool {
        matches!(self.runs, Runs::Once | Runs::Again)
    }

    /// Executions of the function for each thread that is started.
    #[must_use]
    pub(crate) fn rounds(&self) -> u32 {
        let many = match self.gap {
            Gap::Nothing => 16000,
            Gap::Compute | Gap::Alloc | Gap::OtherLock => 10000,
            Gap::Yield | Gap::RareSleep => 4000,
            Gap::Log => 4000,
            Gap::File => 1000,
            Gap::Sleep => 80,
        };
        let rounds = match self.runs {
            Runs::Once | Runs::Again => return 1,
            Runs::Loop | Runs::SpinStart => many / self.threads.count(),
            Runs::Paused if self.gap == Gap::Sleep => 20,
            Runs::Paused => 300,
        };
        match self.pattern {
            Pattern::IterateRemove => rounds / 4,
            Pattern::WriteSkew => rounds.min(60),
            _ => rounds,
        }
    }

    /// Number of groups of threads that are started one after the other.
    #[must_use]
    pub(crate) fn groups(&self) -> u32 {
        if self.runs == Runs::Again { 20 } else { 1 }
    }
}
