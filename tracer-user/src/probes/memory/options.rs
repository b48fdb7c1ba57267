//! How much is seen of memory accesses: what the user asks for. How it is done is elsewhere.

use crate::probes::regions::patterns::Pattern;

/// By what means memory accesses are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// None but to what the user or the program names: regions, locks and threads tell enough.
    #[default]
    Sync,
    /// Hardware watchpoints, four at a time, on what regions touch.
    Watch,
    /// A probe beside each instruction of the regions that touches memory.
    Probe,
    /// Both, as far as the overhead allows.
    Auto,
}

impl Level {
    /// Whether instructions of regions are probed.
    #[must_use]
    pub const fn probes_instructions(self) -> bool {
        !matches!(self, Self::Sync)
    }

    /// Whether watchpoints are set to what was not named.
    #[must_use]
    pub const fn samples(self) -> bool {
        matches!(self, Self::Watch | Self::Auto)
    }
}

/// What is to be seen of memory accesses.
#[derive(Clone, Debug)]
pub struct Accesses {
    /// By what means.
    pub level: Level,
    /// How much slower than with [`Level::Sync`] the program may become, in percent.
    pub overhead: u32,
    /// How many calls deep functions of the program are probed that regions call.
    pub depth: u32,
    /// Functions that are probed as well.
    pub also: Vec<Pattern>,
}

impl Default for Accesses {
    fn default() -> Self {
        Self { level: Level::default(), overhead: 100, depth: 2, also: Vec::new() }
    }
}
