//! Descriptions of instructions that access memory, for the programs in the kernel.

use abi::{ACCESS_GROUPS, AccessDescriptor, Cookie, PlanNumber, symbols};
use aya::maps::PerCpuArray;

use super::{Kernel, KernelError};
use linux::bpf::Setting;
use plan::point::ProbePoint;

impl Kernel {
    /// Writes the descriptions for the probes beside instructions, before they fire.
    pub(super) fn describe_accesses(&mut self, points: &[ProbePoint]) -> Result<(), KernelError> {
        if points.iter().all(|point| point.access.is_none()) {
            return Ok(());
        }
        let mut groups = self.access_groups;
        let mut descriptors =
            self.map_of::<u32, Setting<AccessDescriptor>>(symbols::ACCESS_DESCRIPTORS)?;
        for point in points {
            let Some(descriptor) = point.access else { continue };
            groups = groups.max(u32::from(descriptor.group) + 1);
            let inserted =
                descriptors.insert(Cookie(point.cookie).site().0, Setting(descriptor), 0);
            inserted.map_err(|error| KernelError::Refused(error.to_string()))?;
        }
        self.access_groups = groups.min(ACCESS_GROUPS);
        Ok(())
    }

    /// Returns the cost of the probes of each group so far, in nanoseconds.
    #[must_use]
    pub fn access_costs(&self) -> Vec<u64> {
        let costs: Option<PerCpuArray<_, u64>> =
            self.ebpf.map(symbols::COSTS).and_then(|map| PerCpuArray::try_from(map).ok());
        let cost = |group: u32| {
            let values = costs.as_ref()?.get(&group, 0).ok()?;
            Some(values.iter().sum::<u64>() * 100)
        };
        (0..self.access_groups).map(|group| cost(group).unwrap_or(0)).collect()
    }

    /// Removes the descriptions for probes that are detached. `points` are those of one plan.
    pub(super) fn forget_accesses(&mut self, points: &[(PlanNumber, ProbePoint)]) {
        let Ok(mut descriptors) =
            self.map_of::<u32, Setting<AccessDescriptor>>(symbols::ACCESS_DESCRIPTORS)
        else {
            return;
        };
        for (_, point) in points.iter().filter(|(_, point)| point.access.is_some()) {
            // A missing entry was never written.
            let _ = descriptors.remove(&Cookie(point.cookie).site().0);
        }
    }
}
