//! Probes of markers, in a plan.

use abi::{Cookie, Kind, ProbeProgram};
use symbolize::{LinkAddr, ProcessAddr};
use x86::{constants, restartable::restartable_sequences};

use super::{
    markers::{Marker, Meaning, Operand, SharedVariable, markers},
    site::RegionSite,
};
use crate::plan::{
    builder::Planner,
    skipped::{ProbePurpose, SkipReason},
};

impl Planner<'_, '_> {
    pub(crate) fn markers(&mut self) {
        let (markers, misunderstood) = markers(self.file);
        if misunderstood > 0 {
            let (count, module) = (misunderstood, self.module.name());
            self.skip(ProbePurpose::Markers { count, module }, SkipReason::MalformedMarkers);
        }
        let refused = |marker: &Marker| !matches!(self.cost_at(marker.address), Some(Ok(_)));
        let endless: Vec<Meaning> = markers
            .iter()
            .filter(|marker| marker.meaning.is_end() && refused(marker))
            .map(|marker| marker.meaning.clone())
            .collect();
        for marker in markers {
            if let Meaning::Begin(name) = &marker.meaning
                && endless.iter().any(|end| end.may_end(name))
            {
                let purpose = ProbePurpose::RegionBegin { region: name.clone() };
                self.skip(purpose, SkipReason::UnprobableEnds);
            } else {
                self.marker(marker);
            }
        }
    }

    fn marker(&mut self, marker: Marker) {
        let (program, kind, purpose) = match &marker.meaning {
            Meaning::Begin(region) => {
                let purpose = ProbePurpose::RegionBegin { region: region.clone() };
                (ProbeProgram::Region, Kind::Begin, purpose)
            }
            Meaning::End(region) => {
                let purpose = ProbePurpose::RegionEnd { region: region.clone() };
                (ProbeProgram::Region, Kind::End, purpose)
            }
            Meaning::EndInnermost => {
                (ProbeProgram::Region, Kind::EndInnermost, ProbePurpose::InnermostRegionEnd)
            }
            Meaning::Shared(variable) => {
                if let Some(address) = self.static_address(marker.address, variable) {
                    self.plan.shared.push((address, variable.clone()));
                    return;
                }
                let purpose = ProbePurpose::SharedVariable { variable: variable.label.clone() };
                if let Operand::Symbol { name, .. } = &variable.operand {
                    let reason = if name.starts_with("%fs:") {
                        SkipReason::ThreadLocal
                    } else {
                        SkipReason::NoSymbol { module: self.module.name(), symbol: name.clone() }
                    };
                    self.skip(purpose, reason);
                    return;
                }
                (ProbeProgram::Shared, Kind::Shared, purpose)
            }
        };
        let Some(address) = self.module.process_address(marker.address) else { return };
        let is_outside = match &marker.meaning {
            Meaning::Begin(region) => self.leaves_out(region, address, false),
            Meaning::End(region) => !self.plan.looks_at(region),
            Meaning::EndInnermost => self.plan.state.focus.is_some(),
            Meaning::Shared(_) => false,
        };
        let of = if is_outside { RegionSite::Outside } else { RegionSite::Marker };
        let site = self.add_site(address, of(marker.meaning));
        self.add_probe(program, marker.address, Cookie::new(kind, site), purpose);
    }

    /// The variable's address, when it is known before the program runs: by its symbol, or by a constant that the
    /// code loads before the marker.
    fn static_address(&self, marker: LinkAddr, variable: &SharedVariable) -> Option<ProcessAddr> {
        let address = match &variable.operand {
            Operand::Symbol { name, offset } => {
                let symbol = self.file.symbols_named(name).next()?;
                symbol.address.0.wrapping_add_signed(*offset)
            }
            Operand::Registers { displacement, base: Some(base), index: None } => {
                let extent = self.file.function_containing(marker)?;
                let length = usize::try_from(extent.end.0.checked_sub(extent.start.0)?).ok()?;
                let code = self.file.bytes_at(extent.start, length)?;
                constants::register_at(code, extent.start.0, marker.0, base)?
                    .wrapping_add_signed(*displacement)
            }
            Operand::Registers { .. } => return None,
        };
        self.module.process_address(LinkAddr(address))
    }

    /// Counts the restartable sequences of which it is not known where they are.
    pub(crate) fn restartable_sequences(&mut self) {
        let (found, module) = (restartable_sequences(self.file), self.module.name());
        let (malformed, undescribed) = (found.malformed, found.undescribed);
        if malformed > 0 {
            let (count, module) = (malformed as u64, module.clone());
            let purpose = ProbePurpose::RestartableSequences { count, module };
            self.skip(purpose, SkipReason::MalformedSequences);
        }
        if undescribed > 0 {
            let purpose = ProbePurpose::RestartableFunctions { count: undescribed as u64, module };
            self.skip(purpose, SkipReason::UndescribedSequences);
        }
    }
}
