//! Log of the BPF programs, on standard error.

use std::{
    io::{self, Write as _},
    os::fd::AsFd as _,
    thread,
};

use aya_log::EbpfLogger;

use super::{Kernel, KernelError, error::refused};

impl Kernel {
    /// Prints the kernel side's log to standard error until the session ends.
    ///
    /// # Errors
    ///
    /// When the log cannot be read.
    pub fn print_log(&mut self) -> Result<(), KernelError> {
        let mut logger = EbpfLogger::init_with_logger(&mut self.ebpf, Printer)
            .map_err(|error| refused(&error))?;
        let print = move || {
            loop {
                logger.flush();
                let mut poll =
                    [nix::poll::PollFd::new(logger.as_fd(), nix::poll::PollFlags::POLLIN)];
                if nix::poll::poll(&mut poll, nix::poll::PollTimeout::from(100u8)).is_err() {
                    thread::yield_now();
                }
            }
        };
        thread::Builder::new()
            .name("avtrace-log".to_owned())
            .spawn(print)
            .map_err(|error| KernelError::Refused(error.to_string()))?;
        Ok(())
    }
}

struct Printer;

impl log::Log for Printer {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // Nothing is left to do when standard error is closed.
        let _ = writeln!(io::stderr(), "avtrace: bpf: {}", record.args());
    }

    fn flush(&self) {}
}
