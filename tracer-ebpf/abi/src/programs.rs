//! Programs for probes, by their purpose.

/// The programs that are attached to places in the traced program's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ProbeProgram {
    /// Markers of regions.
    Region,
    /// Markers of shared variables.
    Shared,
    /// Entries of functions whose return counts.
    CallEnter,
    /// Returns of functions that are never unwound.
    CallReturn,
    /// `ret` instructions of functions that may be unwound, and places inside them.
    CallEnd,
    /// Entries of functions that count when they are called.
    Call,
    /// A call of which another argument counts as well.
    CallPair,
    /// Entries of functions that jump.
    Jump,
    /// Places where a lock is acquired or released in line.
    Inlined,
    /// Beside an instruction that accesses memory.
    Access,
    /// Beside one that may access much of it.
    AccessLarge,
    /// Entries of functions that give memory out.
    AllocEnter,
    /// Returns of allocators that are never unwound.
    AllocReturn,
    /// `ret` instructions of the others.
    AllocEnd,
    /// Entries of functions that take memory back.
    Free,
    /// Place at which to stop the process that the cookie names.
    Halt,
    /// Place where the dynamic linker notifies debuggers of changes.
    Libraries,
    /// Anywhere; without any effect.
    Anchor,
    /// Place at which threads are delayed. The last one: of the probes at one place, that which was attached last acts
    /// first.
    Delay,
}

impl ProbeProgram {
    /// All programs.
    pub const ALL: [Self; 19] = [
        Self::Region,
        Self::Shared,
        Self::CallEnter,
        Self::CallReturn,
        Self::CallEnd,
        Self::Call,
        Self::CallPair,
        Self::Jump,
        Self::Inlined,
        Self::Access,
        Self::AccessLarge,
        Self::AllocEnter,
        Self::AllocReturn,
        Self::AllocEnd,
        Self::Free,
        Self::Halt,
        Self::Libraries,
        Self::Anchor,
        Self::Delay,
    ];

    /// Name of the BPF function.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Shared => "shared",
            Self::CallEnter => "call_enter",
            Self::CallReturn => "call_return",
            Self::CallEnd => "call_end",
            Self::Call => "call",
            Self::CallPair => "call_pair",
            Self::Jump => "jump",
            Self::Inlined => "inline_lock",
            Self::Access => "access",
            Self::AccessLarge => "access_large",
            Self::AllocEnter => "alloc_enter",
            Self::AllocReturn => "alloc_return",
            Self::AllocEnd => "alloc_end",
            Self::Free => "free",
            Self::Halt => "halt",
            Self::Libraries => "libraries",
            Self::Anchor => "anchor",
            Self::Delay => "delay",
        }
    }

    /// Name of a program that does the same better, where the kernel is new enough for it.
    #[must_use]
    pub const fn newer(self) -> Option<&'static str> {
        match self {
            Self::AccessLarge => Some("access_any_size"),
            Self::Delay => Some("delay_long"),
            _ => None,
        }
    }

    /// Returns true if few traced programs need it and its verification takes long.
    #[must_use]
    pub const fn is_rare(self) -> bool {
        matches!(self, Self::AccessLarge | Self::Delay)
    }

    /// Returns true if the kernel may preempt it anywhere.
    #[must_use]
    pub const fn may_sleep(self) -> bool {
        matches!(self, Self::Delay)
    }

    /// Returns true if it runs when the probed function returns.
    #[must_use]
    pub const fn is_at_return(self) -> bool {
        matches!(self, Self::CallReturn | Self::AllocReturn)
    }
}
