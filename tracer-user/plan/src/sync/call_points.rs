//! Probe points of a function that synchronizes: at its entry and its returns, by its machine code. The
//! functions are in `functions`.

use abi::{CallCookie, Kind, ProbeProgram};
use iced_x86::FlowControl;
use serde::{Deserialize, Serialize};
use symbolize::{ElfFile, LinkAddr};
use x86::{
    control_flow::{Code64, ControlFlowError, Flow, TailCall},
    instruction::decode,
    placement::{Needs, PlaceRules, Placement},
};

use super::functions::{CallSpec, Ending, Role};

/// A place to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPoint {
    /// By which program.
    pub program: ProbeProgram,
    /// Link-time address.
    pub address: LinkAddr,
    /// Kind of the record.
    pub kind: Kind,
    /// Flags of the cookie.
    pub flags: u8,
    /// Distance in bytes of the stack pointer below its value at the function's first instruction.
    pub depth: u16,
}

/// Reason why a function cannot be probed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CallPointsError {
    /// No code in the file.
    #[error("its code is not in the file")]
    NoCode,
    /// Returns that cannot be found.
    #[error(transparent)]
    ControlFlowError(#[from] ControlFlowError),
    /// No visible return.
    #[error("it has no return")]
    NoReturn,
    /// No instruction of its entry is executed once a call.
    #[error("its first instruction is executed more than once a call, or cannot be probed")]
    NoEntry,
    /// The call of the once routine was not found.
    #[error("the place where it calls the routine is not found")]
    NoRoutine,
}

/// A function's code in its file.
pub(crate) struct Function<'file> {
    pub(crate) file: &'file ElfFile,
    start: LinkAddr,
    /// From its first instruction to its last.
    pub(crate) code: &'file [u8],
}

/// Finds the places to probe for a function at `start`. The result is empty if the function only jumps to one of
/// `others`, the starts of functions with the same role.
///
/// # Errors
///
/// When there is no place that is right whatever the function does.
pub fn call_points(
    file: &ElfFile,
    spec: CallSpec,
    start: LinkAddr,
    others: &[LinkAddr],
    rules: PlaceRules,
) -> Result<Vec<CallPoint>, CallPointsError> {
    let function = Function::at(file, start)?;
    let entry = |stack| function.entry(spec, stack, rules);
    let flow = function.flow();
    let mut points = Vec::new();
    if let Some((program, kind)) = spec.role.at_entry() {
        // A second record of the same call would be a second release, or a second arrival.
        let tail_calls = |flow: &Flow| others.iter().any(|other| function.reaches(flow, *other));
        if flow.as_ref().is_ok_and(tail_calls) {
            return Ok(points);
        }
        let place = entry(false)?;
        points.push(function.point(program, place, kind, spec.role.flags()));
    }
    match spec.role.at_return() {
        None => {}
        Some((Ending::ReturnProbe, kind)) => {
            points.extend(function.with_return_probe(spec, kind, flow, rules)?);
        }
        Some((Ending::EachReturn, kind)) if spec.role == Role::WAIT_ALWAYS && flow.is_err() => {
            let place = entry(false)?;
            points.push(function.point(ProbeProgram::CallEnter, place, kind, spec.role.flags()));
            points.extend(function.all_returns(kind, spec.role.flags())?);
        }
        Some((Ending::EachReturn, kind)) => {
            let flow = flow?;
            let flags = spec.role.flags();
            match entry(false) {
                // A function that begins with a loop may still know at its end what it was about.
                Err(CallPointsError::NoEntry) if flow.keeps_argument(spec.register()) => {
                    points.extend(function.returns(&flow, kind, flags | CallCookie::LEAF)?);
                }
                place => {
                    points.push(function.point(ProbeProgram::CallEnter, place?, kind, flags));
                    points.extend(function.returns(&flow, kind, flags)?);
                }
            }
            if spec.role == Role::ONCE {
                points.push(function.routine(&flow)?);
            }
        }
    }
    Ok(points)
}

/// Maximum distance of tail jumps that are followed, in bytes, in both directions.
const MAX_TAIL_JUMP_DISTANCE: u64 = 1 << 20;

impl<'file> Function<'file> {
    pub(crate) fn at(file: &'file ElfFile, start: LinkAddr) -> Result<Self, CallPointsError> {
        /// More than any of these functions has, in bytes; where their size is unknown.
        const MAX_CODE_LENGTH: usize = 4096;
        let extent = file.function_containing(start).filter(|extent| extent.start == start);
        let length = extent.map_or(MAX_CODE_LENGTH, |extent| (extent.end.0 - start.0) as usize);
        let code = file.bytes_at(start, length).ok_or(CallPointsError::NoCode)?;
        Ok(Function { file, start, code })
    }

    /// Returns the lowest address that control flow may reach.
    fn low(&self) -> u64 {
        let segment = self.file.segments().iter().find(|segment| segment.contains(self.start));
        let segment = segment.map_or(self.start.0, |segment| segment.address.0);
        segment.max(self.start.0.saturating_sub(MAX_TAIL_JUMP_DISTANCE))
    }

    pub(crate) fn flow(&self) -> Result<Flow, ControlFlowError> {
        self.flow_by(Flow::from)
    }

    /// Follows control flow up to tail calls of other modules.
    pub(crate) fn flow_with_tail_calls(&self) -> Result<Flow, ControlFlowError> {
        self.flow_by(Flow::with_tail_calls)
    }

    /// Returns a jump of a tail call, and the stub that it leads to.
    pub(crate) fn places_of(&self, call: &TailCall) -> (LinkAddr, LinkAddr) {
        (LinkAddr(self.low() + call.jump), LinkAddr(self.low() + call.stub))
    }

    fn flow_by(
        &self,
        follow: fn(&Code64<'_>, u64) -> Result<Flow, ControlFlowError>,
    ) -> Result<Flow, ControlFlowError> {
        let low = self.low();
        let length = (self.start.0 - low + MAX_TAIL_JUMP_DISTANCE) as usize;
        let bytes = self.file.bytes_at(LinkAddr(low), length).unwrap_or_default();
        let function_at = |offset: u64| {
            let extent = self.file.function_containing(LinkAddr(low + offset))?;
            Some((extent.start.0.checked_sub(low)?, extent.end.0.checked_sub(low)?))
        };
        follow(&Code64 { bytes, function_at: &function_at }, self.start.0 - low)
    }

    fn reaches(&self, flow: &Flow, other: LinkAddr) -> bool {
        other != self.start
            && other.0.checked_sub(self.low()).is_some_and(|offset| flow.reaches(offset))
    }

    fn entry(
        &self,
        spec: CallSpec,
        stack: bool,
        rules: PlaceRules,
    ) -> Result<Placement, CallPointsError> {
        let arguments = spec.role.registers().unwrap_or(spec.registers());
        rules.entry(self.code, Needs { arguments, stack }).ok_or(CallPointsError::NoEntry)
    }

    fn point(&self, program: ProbeProgram, place: Placement, kind: Kind, flags: u8) -> CallPoint {
        let address = LinkAddr(self.start.0 + place.offset);
        CallPoint { program, address, kind, flags, depth: place.depth }
    }

    /// Finds the places for a function through which no exception unwinds.
    fn with_return_probe(
        &self,
        spec: CallSpec,
        kind: Kind,
        flow: Result<Flow, ControlFlowError>,
        rules: PlaceRules,
    ) -> Result<Vec<CallPoint>, CallPointsError> {
        let entry = self.entry(spec, true, rules);
        let is_cheap = entry.as_ref().is_ok_and(|place| place.cost.is_cheap());
        match flow {
            // One dear probe is better than two, and than none where the entry is a loop's. Without return probes each
            // return has one in any case.
            Ok(flow)
                if !(is_cheap && rules.has_return_probes())
                    && flow.keeps_argument(spec.register()) =>
            {
                self.returns(&flow, kind, CallCookie::LEAF)
            }
            flow if !rules.has_return_probes() => {
                let ends = match flow {
                    Ok(flow) => self.returns(&flow, kind, 0)?,
                    Err(_) => self.all_returns(kind, 0)?,
                };
                let entry = self.point(ProbeProgram::CallEnter, entry?, kind, 0);
                Ok(std::iter::once(entry).chain(ends).collect())
            }
            _ => {
                let place = entry?;
                let programs = [ProbeProgram::CallEnter, ProbeProgram::CallReturn];
                Ok(programs.map(|program| self.point(program, place, kind, 0)).into())
            }
        }
    }

    fn returns(
        &self,
        flow: &Flow,
        kind: Kind,
        flags: u8,
    ) -> Result<Vec<CallPoint>, CallPointsError> {
        let point =
            |address| CallPoint { program: ProbeProgram::CallEnd, address, kind, flags, depth: 0 };
        Ok(self.returns_of(flow)?.into_iter().map(point).collect())
    }

    /// Finds the `ret` instructions of a function.
    pub(crate) fn returns_of(&self, flow: &Flow) -> Result<Vec<LinkAddr>, CallPointsError> {
        let low = self.low();
        let returns: Vec<LinkAddr> =
            flow.returns().into_iter().map(|offset| LinkAddr(low + offset)).collect();
        if returns.is_empty() { Err(CallPointsError::NoReturn) } else { Ok(returns) }
    }

    /// The returns in the code of a function whose jumps hide some of its ways. One that is not there is not
    /// seen, which only hides something.
    fn all_returns(&self, kind: Kind, flags: u8) -> Result<Vec<CallPoint>, CallPointsError> {
        let point = |address| {
            let program = ProbeProgram::CallEnd;
            CallPoint { program, address: LinkAddr(address), kind, flags, depth: 0 }
        };
        let points: Vec<CallPoint> = decode(self.code, self.start.0)
            .take_while(|instruction| !instruction.is_invalid())
            .filter(|instruction| instruction.flow_control() == FlowControl::Return)
            .map(|instruction| point(instruction.ip()))
            .collect();
        if points.is_empty() { Err(CallPointsError::NoReturn) } else { Ok(points) }
    }

    /// Finds the point where the routine of a once function has just returned. Threads that wait for it are let
    /// through after that.
    fn routine(&self, flow: &Flow) -> Result<CallPoint, CallPointsError> {
        let (offset, depth) =
            flow.after_call_of_second_argument().ok_or(CallPointsError::NoRoutine)?;
        Ok(CallPoint {
            program: ProbeProgram::CallEnd,
            address: LinkAddr(self.low() + offset),
            kind: Kind::Signal,
            flags: CallCookie::INSIDE,
            depth: u16::try_from(depth).map_err(|_| CallPointsError::NoRoutine)?,
        })
    }
}
