//! Starvation of threads by the thread that traces them: it holds one for a while, as for a change of probes.

use super::{asking::Asking, shared::Request};

/// Means of starving threads.
#[derive(Clone, Debug)]
pub struct Starver(pub(super) Asking);

impl Starver {
    /// Has a thread get no processor from soon on. Returns false if the thread cannot be held now.
    #[must_use]
    pub fn starve(&self, thread: u32) -> bool {
        self.0.ask(|answer| Request::Starve { thread, answer }).unwrap_or(false)
    }

    /// Lets a starved thread go on, if it has not ended.
    pub fn release(&self, thread: u32) {
        // Without a tracer it goes on.
        let _ = self.0.ask(|answer| Request::Feed { thread, answer });
    }
}
