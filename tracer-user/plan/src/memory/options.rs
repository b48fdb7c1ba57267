//! Options for memory accesses, as the user sets them.

use crate::regions::patterns::Pattern;

/// By what means memory accesses are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Only accesses to memory that the user or the program names. Regions, locks and threads are enough.
    #[default]
    Sync,
    /// Hardware watchpoints, four at a time, on what regions access.
    Watch,
    /// A probe beside each instruction of the regions that accesses memory.
    Probe,
    /// Probes and watchpoints, as far as the overhead allows.
    Auto,
}

impl Level {
    /// Returns true if instructions of regions are probed.
    #[must_use]
    pub const fn probes_instructions(self) -> bool {
        !matches!(self, Self::Sync)
    }

    /// Returns true if watchpoints are set to memory that was not named.
    #[must_use]
    pub const fn samples(self) -> bool {
        matches!(self, Self::Watch | Self::Auto)
    }
}

/// Requested coverage of memory accesses.
#[derive(Clone, Debug)]
pub struct Accesses {
    /// By what means.
    pub level: Level,
    /// Maximum slowdown in percent, compared with [`Level::Sync`].
    pub overhead: u32,
    /// Depth of calls from regions down to which functions of the program are probed; `None` for two calls, and more
    /// where that is little code.
    pub depth: Option<u32>,
    /// Functions that are probed as well.
    pub also: Vec<Pattern>,
}

impl Default for Accesses {
    fn default() -> Self {
        Self { level: Level::default(), overhead: 100, depth: None, also: Vec::new() }
    }
}
