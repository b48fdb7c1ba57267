//! Delays: their table in the kernel, and its counts.

use abi::{DelayPlace, symbols};
use aya::maps::Array;

use super::{Kernel, KernelError};
use linux::{bpf::Setting, time_stamp::monotonic};
use plan::perturbation::DelayTable;

impl Kernel {
    /// Sets the delays of programs that start now. Their counts begin anew.
    ///
    /// # Errors
    ///
    /// When the kernel does not take them.
    pub fn set_delays(&mut self, table: &DelayTable) -> Result<(), KernelError> {
        let missing = |name: &str| KernelError::Object(format!("no map `{name}`"));
        let wrong = |error: aya::maps::MapError| KernelError::Object(error.to_string());
        let places = self.ebpf.map_mut(symbols::DELAYS);
        let places = places.and_then(|map| Array::<_, Setting<DelayPlace>>::try_from(map).ok());
        let mut places = places.ok_or_else(|| missing(symbols::DELAYS))?;
        for (number, place) in (0..).zip(&table.places) {
            places.set(number, Setting(*place), 0).map_err(wrong)?;
        }
        let totals = self.ebpf.map_mut(symbols::DELAY_TOTALS);
        let totals = totals.and_then(|map| Array::<_, [u64; 4]>::try_from(map).ok());
        let mut totals = totals.ok_or_else(|| missing(symbols::DELAY_TOTALS))?;
        totals.set(0, [table.share, monotonic(), 0, 0], 0).map_err(wrong)
    }

    /// Returns the places of delays with their counts so far, as many as there are.
    #[must_use]
    pub fn delays(&self) -> Vec<DelayPlace> {
        let places = self.ebpf.map(symbols::DELAYS);
        let places = places.and_then(|map| Array::<_, Setting<DelayPlace>>::try_from(map).ok());
        places.map_or_else(Vec::new, |places| {
            places.iter().map_while(Result::ok).map(|Setting(place)| place).collect()
        })
    }
}
