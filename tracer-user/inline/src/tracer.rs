//! Notes for the reader of rings: threads that start and end, records of the thread that follows the traced process by
//! ptrace, and windows of capture, each with its place in the order of the probes' records.

use std::sync::{Mutex, PoisonError};

use abi::Record;

use crate::ring::Ring;

/// Note for the reader.
#[derive(Debug)]
pub enum Note {
    /// A thread has a ring. Noted before its first instruction.
    Started {
        /// The thread's id, in the numbers of its own PID namespace.
        tid: u32,
        /// Its process, as in the headers of records.
        process: u32,
        /// Its ring.
        ring: Box<Ring>,
    },
    /// A thread has executed its last instruction.
    Ended {
        /// The thread's id.
        tid: u32,
    },
    /// A record that no probe makes: the start or end of a thread, a stop, a signal.
    Record(OrderedRecord),
    /// A window of capture begins or ends at this place in the order.
    Window {
        /// The order that was read then.
        order: u64,
        /// The window begins.
        begins: bool,
    },
}

/// Record of the tracer with its place in the order.
#[derive(Clone, Copy, Debug)]
pub struct OrderedRecord {
    /// The order that was read when it was made.
    pub order: u64,
    /// The record. Its epoch and the number of lost events are set when it is handed on.
    pub record: Record,
}

/// Notes that the reader has not taken yet.
#[derive(Debug, Default)]
pub struct Notes(Mutex<Vec<Note>>);

impl Notes {
    /// Adds a note about a thread.
    pub fn add(&self, note: Note) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    /// Adds a record of an event that was just observed. The lock of the notes is held while `order` is read: when the
    /// reader hands on all records up to a time, the tracer's records are among them.
    pub fn record(&self, record: Record, order: impl FnOnce() -> u64) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let order = order();
        notes.push(Note::Record(OrderedRecord { order, record }));
    }

    /// Adds the begin or the end of a window of capture, as [`record`](Self::record) does.
    pub fn window(&self, begins: bool, order: impl FnOnce() -> u64) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let order = order();
        notes.push(Note::Window { order, begins });
    }

    /// Returns whether there are no notes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Takes all notes, in the order in which they were made.
    #[must_use]
    pub fn take(&self) -> Vec<Note> {
        core::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
