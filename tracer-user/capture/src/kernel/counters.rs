//! Stream of records, and the counters of lost events.

use abi::{CLASSES, Class, symbols};
use aya::maps::{Array, MapData, PerCpuArray, RingBuf};

use super::{
    Kernel,
    error::{KernelError, cause},
};

/// Numbers of lost events, by class.
pub type Lost = [(Class, u64); CLASSES.len()];

impl Kernel {
    /// Makes a gap in the stream: the next record shows that something is missing before it.
    pub fn mark_gap(&mut self) {
        self.change_number(symbols::LOST_TOTAL, 0, |total| total + 1);
    }

    /// Changes a number of an array in the kernel.
    pub(super) fn change_number(&mut self, map: &str, index: u32, change: impl Fn(u64) -> u64) {
        let numbers = self.ebpf.map_mut(map).and_then(|map| Array::<_, u64>::try_from(map).ok());
        // The map is there, takes numbers and has room: it is this build's own.
        let _ = numbers.map(|mut numbers| {
            let before = numbers.get(&index, 0).unwrap_or(0);
            numbers.set(index, change(before), 0)
        });
    }

    /// The stream of records; once.
    ///
    /// # Errors
    ///
    /// When it cannot be mapped.
    pub fn take_events(&mut self) -> Result<RingBuf<MapData>, KernelError> {
        let map = self.ebpf.take_map(symbols::EVENTS);
        let map = map.ok_or_else(|| KernelError::Object("no map of events".to_owned()))?;
        RingBuf::try_from(map).map_err(|error| KernelError::Buffer(cause(&error)))
    }

    /// Returns the number of events of each class that found no room so far; `None` when the counters cannot be read.
    #[must_use]
    pub fn lost(&self) -> Option<Lost> {
        let counters: PerCpuArray<_, u64> =
            self.ebpf.map(symbols::LOST).and_then(|map| PerCpuArray::try_from(map).ok())?;
        let mut lost = CLASSES.map(|class| (class, 0));
        for (class, count) in &mut lost {
            *count = counters.get(&(*class as u32), 0).ok()?.iter().sum();
        }
        Some(lost)
    }
}
