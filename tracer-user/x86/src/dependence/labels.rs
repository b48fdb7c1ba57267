//! Labels of values: which inputs of a function, or whether the value of the earlier step, they come from.

use crate::instruction::{ARGUMENTS, RSP};

/// Certainty of a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// It is false.
    #[default]
    No,
    /// It is not known.
    Unknown,
    /// It is true.
    Yes,
}

/// A set of labels that a value has, and of those that it may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Labels {
    certain: u32,
    possible: u32,
}

const VECTORS: usize = 2 * ARGUMENTS.len();
const STACK: usize = VECTORS + 1;
const SOURCE: usize = STACK + 1;
const LOADED: usize = SOURCE + 1;
const AT_BEGIN: usize = LOADED + 1;

/// Number of general registers.
pub(super) const REGISTERS: usize = 16;

impl Labels {
    pub const NONE: Self = Self { certain: 0, possible: 0 };
    /// The value that the earlier step has loaded.
    pub const SOURCE: Self = Self::one(SOURCE);
    /// Arguments in vector registers.
    pub const VECTORS: Self = Self::one(VECTORS);
    /// Arguments on the stack.
    pub const STACK: Self = Self::one(STACK);

    /// Memory that no argument points to.
    pub const LOADED: Self = Self::one(LOADED);
    /// The stack and vector registers at the begin of the region, where it begins within a function.
    pub const AT_BEGIN: Self = Self::at_begin(RSP as usize);

    const fn one(number: usize) -> Self {
        Self { certain: 1 << number, possible: 0 }
    }

    /// An argument in a general register.
    pub const fn argument(number: usize) -> Self {
        Self::one(number)
    }

    /// Memory that an argument points to.
    pub const fn behind(number: usize) -> Self {
        Self::one(ARGUMENTS.len() + number)
    }

    /// A general register at the begin of the region, where it begins within a function.
    pub const fn at_begin(register: usize) -> Self {
        Self::one(AT_BEGIN + register)
    }

    /// Labels of the memory behind arguments that a pointer may lead to: how far it is from them is not known.
    pub fn behind_arguments(self) -> Self {
        const ALL: u32 = (1 << ARGUMENTS.len()) - 1;
        let pointers = (self.certain | self.possible) & ALL;
        Self { certain: 0, possible: pointers << ARGUMENTS.len() }
    }

    /// Returns the labels without that of the earlier step.
    pub const fn without_source(self) -> Self {
        let source = !(1 << SOURCE);
        Self { certain: self.certain & source, possible: self.possible & source }
    }

    /// Returns whether all labels are possible ones that `other` has, too.
    pub const fn is_implied_by(self, other: Self) -> bool {
        self.certain == 0 && self.possible & !(other.certain | other.possible) == 0
    }

    pub const fn is_none(self) -> bool {
        self.certain | self.possible == 0
    }

    /// Returns whether the label of memory that no argument points to may be one of them.
    pub const fn may_be_loaded(self) -> bool {
        (self.certain | self.possible) >> LOADED & 1 != 0
    }

    /// Returns whether the value comes from inputs in registers or on the stack, and from no other memory.
    pub const fn is_given(self) -> bool {
        const BEHIND: u32 = ((1 << ARGUMENTS.len()) - 1) << ARGUMENTS.len();
        !self.may_be_loaded() && (self.certain | self.possible) & BEHIND == 0
    }

    /// Returns whether two values may come from one input. Several registers may hold what was computed from one value
    /// before the region began.
    pub const fn may_meet(self, other: Self) -> bool {
        const ALL_AT_BEGIN: u32 = !0 << AT_BEGIN;
        let shared = (self.certain | self.possible) & (other.certain | other.possible);
        shared != 0 || self.certain & ALL_AT_BEGIN != 0 && other.certain & ALL_AT_BEGIN != 0
    }

    /// Returns whether one value comes from an input that the other may come from as well.
    pub const fn has_label_of(self, other: Self) -> bool {
        (self.certain | self.possible) & (other.certain | other.possible) != 0
    }

    #[must_use]
    pub const fn join(self, other: Self) -> Self {
        Self { certain: self.certain | other.certain, possible: self.possible | other.possible }
    }

    /// All labels as possible ones.
    #[must_use]
    pub const fn possibly(self) -> Self {
        Self { certain: 0, possible: self.certain | self.possible }
    }

    pub fn of_source(self) -> Certainty {
        match Self::SOURCE.certain {
            source if self.certain & source != 0 => Certainty::Yes,
            source if self.possible & source != 0 => Certainty::Unknown,
            _ => Certainty::No,
        }
    }
}

/// Labels of the caller for each label that the callee of a call gives to its inputs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Substitution {
    /// By the number of the callee's label.
    given: [Labels; SOURCE],
}

impl Substitution {
    pub fn set_argument(&mut self, number: usize, value: Labels, behind: Labels) {
        self.given[number] = value;
        self.given[ARGUMENTS.len() + number] = behind;
    }

    pub fn set_vectors(&mut self, value: Labels) {
        self.given[VECTORS] = value;
    }

    pub fn set_stack(&mut self, value: Labels) {
        self.given[STACK] = value;
    }

    /// Labels of each argument in a general register.
    pub fn in_registers(&self) -> &[Labels] {
        &self.given[..ARGUMENTS.len()]
    }

    /// Returns a value of the callee in labels of the caller. Labels that are of no input stay.
    pub fn apply(&self, labels: Labels) -> Labels {
        let kept = !0 << SOURCE;
        let mut result =
            Labels { certain: labels.certain & kept, possible: labels.possible & kept };
        for (number, &given) in self.given.iter().enumerate() {
            if labels.certain >> number & 1 != 0 {
                result = result.join(given);
            } else if labels.possible >> number & 1 != 0 {
                result = result.join(given.possibly());
            }
        }
        result
    }

    pub fn map(&self, change: impl Fn(Labels) -> Labels) -> Self {
        Self { given: self.given.map(change) }
    }
}
