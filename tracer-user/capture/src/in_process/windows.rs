//! Windows of capture. Between two windows all probes of a process are off, and its stream has the tracer's records
//! alone. As after a loss of events, the time in between is unknown.

use std::{
    mem::offset_of,
    sync::{Arc, atomic::Ordering},
};

use inline::{arena::CONTROL, layout::Control, memory::SharedWords as _, merge::Surroundings as _};

use super::{image::Image, records::Stream, ring_surroundings::RingSurroundings};

/// Windows of a program, and of children that it has forked, which share its memory with avtrace.
#[derive(Debug)]
pub struct Windows {
    image: Arc<Image>,
    stream: Arc<Stream>,
}

/// Place of [`Control::window`]: the upper half of a word.
const WORD: u64 = offset_of!(Control, waiting) as u64;
const _: () = assert!(offset_of!(Control, window) == offset_of!(Control, waiting) + 4);

impl Windows {
    pub(super) const fn new(image: Arc<Image>, stream: Arc<Stream>) -> Self {
        Self { image, stream }
    }

    /// Ends the window. Capture starts within a window. Later events have no records.
    pub fn end(&self) {
        // Records of threads that have not seen the switches are left out.
        self.stream.note_window(false);
        self.image.rest(true);
    }

    /// Begins a window. Later events have records.
    pub fn begin(&self) {
        self.image.rings.add(CONTROL.plus(WORD), 1 << 32);
        self.image.rest(false);
        // Whatever a thread does behind the begin, it has seen the switches before.
        RingSurroundings::new(Arc::clone(&self.image.rings), self.image.clock).barrier();
        self.stream.note_window(true);
    }

    /// Returns the number of records so far, of all programs that the tracer follows.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.stream.counts().records.load(Ordering::Relaxed)
    }

    /// Returns the number of times that their threads have waited for the reader so far.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.stream.counts().waits.load(Ordering::Relaxed)
    }
}
