//! Probes of markers, in a plan.

use tracer_ebpf::{Cookie, Kind, ProbeProgram};

use super::{
    markers::{Marker, Meaning, Operand, SharedVariable, markers},
    site::RegionSite,
};
use crate::{
    probes::builder::Planner,
    symbolize::{LinkAddr, ProcessAddr},
    x86::{constants, restartable::restartable_sequences},
};

impl Planner<'_, '_> {
    pub(in crate::probes) fn markers(&mut self) {
        let (markers, misunderstood) = markers(self.file);
        if misunderstood > 0 {
            self.skip(
                format!("{misunderstood} markers in {}", self.module.name()),
                "their notes are malformed".to_owned(),
            );
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
                let what = format!("begin of region `{name}`");
                self.skip(what, "not all of its ends can be probed".to_owned());
            } else {
                self.marker(marker);
            }
        }
    }

    fn marker(&mut self, marker: Marker) {
        let (program, kind, what) = match &marker.meaning {
            Meaning::Begin(name) => {
                (ProbeProgram::Region, Kind::Begin, format!("begin of region `{name}`"))
            }
            Meaning::End(name) => {
                (ProbeProgram::Region, Kind::End, format!("end of region `{name}`"))
            }
            Meaning::EndInnermost => {
                (ProbeProgram::Region, Kind::EndInnermost, "end of the innermost region".to_owned())
            }
            Meaning::Shared(variable) => {
                if let Some(address) = self.static_address(marker.address, variable) {
                    self.plan.shared.push((address, variable.clone()));
                    return;
                }
                let what = format!("shared variable `{}`", variable.label);
                if let Operand::Symbol { name, .. } = &variable.operand {
                    let reason = if name.starts_with("%fs:") {
                        "it is thread-local: each thread has its own".to_owned()
                    } else {
                        format!("{} has no symbol `{name}`", self.module.name())
                    };
                    self.skip(what, reason);
                    return;
                }
                (ProbeProgram::Shared, Kind::Shared, what)
            }
        };
        let Some(address) = self.module.process_address(marker.address) else { return };
        let site = self.add_site(address, RegionSite::Marker(marker.meaning));
        self.add_probe(program, marker.address, Cookie::new(kind, site), what);
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
    pub(in crate::probes) fn restartable_sequences(&mut self) {
        let (found, module) = (restartable_sequences(self.file), self.module.name());
        let (malformed, undescribed) = (found.malformed, found.undescribed);
        if malformed > 0 {
            let what = format!("descriptors of {malformed} restartable sequences in {module}");
            self.skip(what, "they are malformed: probes may be inside these sequences".to_owned());
        }
        if undescribed > 0 {
            let what = format!("functions around {undescribed} restartable sequences in {module}");
            let reason = "what is described while the program runs is not known: none of their code is probed, where it \
                          is known which functions they are";
            self.skip(what, reason.to_owned());
        }
    }
}
