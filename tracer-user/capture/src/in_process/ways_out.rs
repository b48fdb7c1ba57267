//! Ways out of the trampolines of a program.

use std::{collections::BTreeMap, sync::Arc};

use inline::trampoline::WayOut;

/// Ways out of trampolines, which are emitted when a thread needs them.
#[derive(Debug, Default)]
pub(super) struct WaysOut {
    /// By the addresses of their trampolines; `None` where there is no form or no room.
    pub(super) of: BTreeMap<u64, Option<Arc<WayOut>>>,
    /// By their own addresses.
    pub(super) at: BTreeMap<u64, Arc<WayOut>>,
}
