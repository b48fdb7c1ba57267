//! What the programs in the kernel are told of instructions that touch memory.

use tracer_ebpf::{Cookie, Touch, symbols};

use super::{Kernel, KernelError, ProbePoint};
use crate::sys::bpf::Setting;

impl Kernel {
    /// Tells what the probes beside instructions are to look at, before they fire.
    pub(super) fn describe_touches(&mut self, points: &[ProbePoint]) -> Result<(), KernelError> {
        if points.iter().all(|point| point.touch.is_none()) {
            return Ok(());
        }
        let mut touches = self.map_of::<u32, Setting<Touch>>(symbols::TOUCHES)?;
        for point in points {
            let Some(touch) = point.touch else { continue };
            let told = touches.insert(Cookie(point.cookie).site(), Setting(touch), 0);
            told.map_err(|error| KernelError::Refused(error.to_string()))?;
        }
        Ok(())
    }

    /// Forgets what was told of probes that are detached. `points` are those of one plan.
    pub(super) fn forget_touches(&mut self, points: &[(u32, ProbePoint)]) {
        let Ok(mut touches) = self.map_of::<u32, Setting<Touch>>(symbols::TOUCHES) else { return };
        for (_, point) in points.iter().filter(|(_, point)| point.touch.is_some()) {
            // What is not there was not told.
            let _ = touches.remove(&Cookie(point.cookie).site());
        }
    }
}
