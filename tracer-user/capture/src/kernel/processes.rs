//! State of processes shared between the programs in the kernel and user space: the plan of each traced process, and
//! its stops. The reaction to a stop is decided elsewhere.

use std::{io, os::fd::AsFd as _};

use abi::{PlanNumber, symbols};
use aya::{
    Pod,
    maps::{HashMap, Map, MapData},
};

use super::{Kernel, KernelError};
use linux::{
    bpf::CallKey,
    guardian::Guardian,
    ids::{KernelPid, NsPid},
};

impl Kernel {
    /// Starts the process that lets others go on when this one is killed. To be called while this process is
    /// single-threaded.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start_guardian(&self, known: Option<(NsPid, u32)>) -> io::Result<Guardian> {
        let data = |name: &str| match self.ebpf.map(name) {
            Some(Map::HashMap(data)) => Ok(data.fd().as_fd()),
            _ => Err(io::Error::other(format!("no map `{name}`"))),
        };
        Guardian::start(data(symbols::STOPPED)?, data(symbols::CONTINUED)?, known)
    }

    fn numbers(&mut self, name: &str) -> Result<HashMap<&mut MapData, u32, u32>, KernelError> {
        self.map_of(name)
    }

    pub(super) fn map_of<K: Pod, V: Pod>(
        &mut self,
        name: &str,
    ) -> Result<HashMap<&mut MapData, K, V>, KernelError> {
        let map = self.ebpf.map_mut(name).and_then(|map| HashMap::try_from(map).ok());
        map.ok_or_else(|| KernelError::Object(format!("no map `{name}`")))
    }

    /// The number of a process's latest stop; 0 without one.
    pub fn stops(&mut self, process: NsPid) -> u32 {
        self.numbers(symbols::STOPPED).ok().and_then(|map| map.get(&process.0, 0).ok()).unwrap_or(0)
    }

    /// The stops of a process up to this number are over. More may have come since.
    pub fn mark_continued(&mut self, process: NsPid, number: u32) {
        // When it fails, the guardian looks at a process that runs.
        let _ = self.numbers(symbols::CONTINUED).map(|mut map| map.insert(process.0, number, 0));
    }

    /// A process has ended: its id may be that of another one.
    pub fn forget_stops(&mut self, process: NsPid) {
        for name in [symbols::STOPPED, symbols::CONTINUED] {
            // Most were never stopped.
            let _ = self.numbers(name).map(|mut map| map.remove(&process.0));
        }
    }

    /// From now on a process is traced by this plan.
    ///
    /// # Errors
    ///
    /// When there are too many processes.
    pub fn set_plan(&mut self, process: KernelPid, plan: PlanNumber) -> Result<(), KernelError> {
        let mut plans = self.numbers(symbols::PROCESSES)?;
        plans.insert(process.0, plan.0, 0).map_err(|error| KernelError::Refused(error.to_string()))
    }

    /// Forgets calls of a process that have not returned: its stacks are gone.
    pub fn forget_calls(&mut self, process: KernelPid) {
        let Ok(mut calls) = self.map_of::<CallKey, [u64; 3]>(symbols::PENDING) else { return };
        let places: Vec<CallKey> = calls.keys().flatten().collect();
        for place in places.iter().filter(|place| place.process == u64::from(process.0)) {
            let _ = calls.remove(place);
        }
    }
}
