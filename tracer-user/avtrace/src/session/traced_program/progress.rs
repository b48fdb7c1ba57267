//! Progress of the tracing of a program.

use super::TracedProgram;

impl TracedProgram {
    /// Returns the number of its events so far.
    pub(in crate::session) const fn events(&self) -> u64 {
        self.source.stream().events()
    }

    /// Returns whether something was found since the last call.
    pub(in crate::session) const fn has_news(&mut self) -> bool {
        self.checking.has_news()
    }
}
