//! End of the capture in processes that go on: asked for by one thread, carried out by the one that checks.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crossbeam_channel::{Receiver, Sender, bounded};

use capture::kernel::{Gate, KernelError};

/// Request for the end of the capture.
#[derive(Debug)]
pub struct EndRequest {
    is_asked_for: Arc<AtomicBool>,
    closed: Receiver<Result<(), KernelError>>,
}

/// The end of the capture, as the thread that checks carries it out.
#[derive(Debug)]
pub struct CaptureEnd {
    is_asked_for: Arc<AtomicBool>,
    /// Gate of programs in the kernel, if these capture.
    gate: Option<Gate>,
    closed: Sender<Result<(), KernelError>>,
}

impl EndRequest {
    /// Ends the capture, and waits until the gate is closed: nothing is recorded any more then.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to close the gate, which it never does.
    pub fn close(self) -> Result<(), KernelError> {
        self.is_asked_for.store(true, Ordering::Release);
        // Without the other thread nothing is left to close.
        self.closed.recv().unwrap_or(Ok(()))
    }
}

impl CaptureEnd {
    /// Creates the end of a capture, and what asks for it.
    #[must_use]
    pub fn new(gate: Option<Gate>) -> (EndRequest, Self) {
        let is_asked_for = Arc::<AtomicBool>::default();
        let (sender, closed) = bounded(1);
        let request = EndRequest { is_asked_for: Arc::clone(&is_asked_for), closed };
        (request, Self { is_asked_for, gate, closed: sender })
    }

    /// Returns whether the end is asked for.
    #[must_use]
    pub fn is_asked_for(&self) -> bool {
        self.is_asked_for.load(Ordering::Acquire)
    }

    /// Closes the gate: probes that are attached still record nothing.
    pub fn close_gate(mut self) {
        // Nobody waits for it when that thread has ended.
        let closed = self.gate.as_mut().map_or(Ok(()), Gate::close);
        let _ = self.closed.send(closed);
    }
}
