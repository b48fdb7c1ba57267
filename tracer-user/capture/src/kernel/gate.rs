//! Gate of the records of a process that runs already: probes record once all of them are attached, and until the
//! tracing has ended.

use std::fmt;

use abi::symbols;
use aya::maps::{Array, MapData};

use super::{Kernel, KernelError, error::cause};

/// Gate of the stream. It is closed at first.
pub struct Gate(Array<MapData, u64>);

impl fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl Gate {
    /// Has events recorded from now on.
    ///
    /// # Errors
    ///
    /// When the kernel refuses it, which it never does.
    pub fn open(&mut self) -> Result<(), KernelError> {
        self.set(1)
    }

    /// Has no event recorded from now on, but for those of programs that run at this moment.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn close(&mut self) -> Result<(), KernelError> {
        self.set(0)
    }

    fn set(&mut self, value: u64) -> Result<(), KernelError> {
        self.0.set(0, value, 0).map_err(|error| KernelError::Resources(cause(&error)))
    }
}

impl Kernel {
    /// Takes the gate, which is closed; once.
    ///
    /// # Errors
    ///
    /// When it was taken before.
    pub fn take_gate(&mut self) -> Result<Gate, KernelError> {
        let missing = || KernelError::Object(format!("no map `{}`", symbols::GATE));
        let map = self.ebpf.take_map(symbols::GATE).ok_or_else(missing)?;
        Array::try_from(map).map(Gate).map_err(|_| missing())
    }
}
