//! Summaries of functions: what their results, and the memory that they write for their callers, come from.

use super::labels::Labels;
use crate::instruction::ARGUMENTS;

/// A summary. The default is that of an unknown function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Summary {
    /// Value in `rax`.
    pub result: Labels,
    /// Value in `rdx`.
    pub second_result: Labels,
    /// Value in `xmm0`.
    pub vector_result: Labels,
    /// Writes to memory behind arguments.
    pub stores: Vec<StoreBehind>,
    /// Writes to memory at constant addresses.
    pub fixed: Vec<(u64, Labels)>,
    /// Values that were written where they cannot be followed: behind pointers that the function did not get.
    pub escaped: Labels,
    /// The result does not depend on the way that led to the call: that a lock was taken, for example.
    pub is_of_no_way: bool,
}

/// A write to memory that an argument points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StoreBehind {
    /// Number of the argument.
    pub argument: usize,
    /// Distance from the address that was passed.
    pub offset: i64,
    /// In bytes.
    pub size: u32,
    /// The value that is written.
    pub value: Labels,
}

impl Default for Summary {
    fn default() -> Self {
        let mut all = Labels::VECTORS.join(Labels::STACK).join(Labels::LOADED);
        for number in 0..ARGUMENTS.len() {
            all = all.join(Labels::argument(number)).join(Labels::behind(number));
        }
        let all = all.possibly();
        let behind = |argument| StoreBehind { argument, offset: 0, size: 8, value: all };
        Self {
            result: all,
            second_result: all,
            vector_result: all,
            stores: (0..ARGUMENTS.len()).map(behind).collect(),
            fixed: Vec::new(),
            escaped: Labels::NONE,
            is_of_no_way: false,
        }
    }
}

impl Summary {
    /// Summary of a function whose result is its success.
    pub fn independent() -> Self {
        Self { is_of_no_way: true, ..Self::constant() }
    }

    pub fn constant() -> Self {
        Self {
            result: Labels::NONE,
            second_result: Labels::NONE,
            vector_result: Labels::NONE,
            stores: Vec::new(),
            fixed: Vec::new(),
            escaped: Labels::NONE,
            is_of_no_way: false,
        }
    }

    pub fn copies() -> Self {
        /// Bytes of a copy that are followed.
        const SIZE: u32 = 64;
        let store = StoreBehind { argument: 0, offset: 0, size: SIZE, value: Labels::behind(1) };
        Self { result: Labels::argument(0), stores: vec![store], ..Self::constant() }
    }
}
