//! From an address to functions and source lines, through inlined calls.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use addr2line::{LookupContinuation as _, LookupResult};

use super::address::LinkAddr;
use super::demangle::Name;
use super::dwarf::{DebugEntry, DebugInfo, Unit};
use super::extent::{Dwarf, FunctionExtent, Reader};
use super::file::ElfFile;
use super::miss::Miss;
use super::tidy_path::tidy_path;

/// Largest depth of inlined calls that is shown; damaged debug information could nest without end.
const MAX_INLINED: usize = 256;

/// A function that was active at an address, and the line in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    /// The function, when it is known.
    pub function: Option<Name>,
    /// The source file, absolute where the debug information says what it is relative to.
    pub file: Option<PathBuf>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
    /// The function was inlined into that of the next frame, whose line is that of the call.
    pub inlined: bool,
    /// The line of the function's name in its definition, where that is in the same file.
    pub declared: Option<u32>,
}

/// Module, symbol and source frames of an address of code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolution {
    /// The file that the address belongs to, as the process sees it.
    pub module: PathBuf,
    /// The address in that file, as it was asked for.
    pub address: LinkAddr,
    /// The function that the address is in, and the offset into it in bytes. From the symbol table,
    /// so not an inlined one.
    pub function: Option<(Name, u64)>,
    /// The active functions, the innermost inlined one first and the function itself last. Without
    /// debug information there is at most one, that has only a name.
    pub frames: Vec<Frame>,
    /// Reason why the frames have no lines.
    pub lines_missing: Option<Miss>,
}

impl std::fmt::Display for Resolution {
    /// `function+0x12 (program)`, or `program+0x1234` when no function is known. Offsets are in
    /// bytes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let module = self.module.file_name().unwrap_or(self.module.as_os_str()).to_string_lossy();
        match &self.function {
            Some((name, offset)) => write!(f, "{name}+{offset:#x} ({module})"),
            None => write!(f, "{module}+{}", self.address),
        }
    }
}

/// Resolves `address` in `file`. The lines looked up are those of `lookup`, which for a return
/// address is the call before it.
pub(crate) fn resolve(
    file: &ElfFile,
    module: &Path,
    address: LinkAddr,
    lookup: LinkAddr,
) -> Resolution {
    let function =
        function_at(file, lookup).map(|(name, start)| (name, address.0.saturating_sub(start.0)));
    let (mut frames, lines_missing) = match frames(file, module, lookup) {
        Ok(frames) => (frames, None),
        Err(miss) => (Vec::new(), Some(miss)),
    };
    if let Some((name, _)) = &function {
        // A unit may give lines without functions, as after `-g1` or for assembler.
        match frames.last_mut() {
            Some(frame) => frame.function.get_or_insert_with(|| name.clone()),
            None => {
                frames.push(Frame { function: Some(name.clone()), ..Frame::default() });
                name
            }
        };
    }
    Resolution { module: module.into(), address, function, frames, lines_missing }
}

/// The name of the function around `address`, and its start.
fn function_at(file: &ElfFile, address: LinkAddr) -> Option<(Name, LinkAddr)> {
    match file.function_containing(address) {
        Some(FunctionExtent { start, name: Some(symbol), .. }) => {
            Some((Name::demangle(&symbol), start))
        }
        Some(FunctionExtent { start, .. }) => Some((file.name_by_address(start), start)),
        // Hand-written code often has neither a size nor unwind information.
        None => {
            let (symbol, _) = file.symbol_at(address)?;
            Some((Name::demangle(symbol.name), symbol.address))
        }
    }
}

fn frames(file: &ElfFile, module: &Path, address: LinkAddr) -> Result<Vec<Frame>, Miss> {
    let module = || module.display().to_string();
    let damaged =
        |error: gimli::Error| Miss::Damaged { module: module(), reason: error.to_string() };

    let info = file
        .debug_info()
        .map_err(|error| Miss::Damaged { module: module(), reason: error.to_string() })?
        .ok_or_else(|| Miss::NoDebugInfo { module: module() })?;
    // The parser adds one to the address.
    if address.0 == u64::MAX {
        return Err(Miss::NotCovered { module: module() });
    }
    let context = info.context().map_err(damaged)?.lock().unwrap_or_else(PoisonError::into_inner);

    let mut result = context.find_frames(address.0);
    let mut found = loop {
        result = match result {
            LookupResult::Output(found) => break found.map_err(damaged)?,
            LookupResult::Load { load, continuation } => {
                continuation.resume(load_split(info, &load))
            }
        };
    };
    let mut frames = Vec::new();
    let mut unit = None;
    while let Some(found) = found.next().map_err(damaged)? {
        let file = found.location.as_ref().and_then(|at| at.file);
        let file = file.map(|file| tidy_path(Path::new(file)));
        let declared = found.dw_die_offset.zip(file.as_deref()).and_then(|(function, file)| {
            let unit = unit.get_or_insert_with(|| unit_of(info, &context, address)).as_ref()?;
            declaration(info, unit, function).filter(|(of, _)| of == file).map(|(_, line)| line)
        });
        let name = found.function.and_then(|name| Some(name.raw_name().ok()?.into_owned()));
        let location = found.location.as_ref();
        frames.push(Frame {
            function: name.as_deref().map(Name::demangle),
            file,
            line: location.and_then(|at| at.line).filter(|&line| line != 0),
            column: location.and_then(|at| at.column).filter(|&column| column != 0),
            inlined: true,
            declared,
        });
        if frames.len() == MAX_INLINED {
            break;
        }
    }
    match frames.last_mut() {
        Some(outermost) => outermost.inlined = false,
        None => return Err(Miss::NotCovered { module: module() }),
    }
    Ok(frames)
}

/// The unit of the code at `address`, with what its entries refer to.
pub(crate) fn unit_of(
    info: &DebugInfo,
    context: &addr2line::Context<Reader>,
    address: LinkAddr,
) -> Option<Arc<Unit>> {
    let mut result = context.find_dwarf_and_unit(address.0);
    let found = loop {
        result = match result {
            LookupResult::Output(found) => break found?,
            LookupResult::Load { load, continuation } => {
                continuation.resume(load_split(info, &load))
            }
        };
    };
    let is_it = |unit: &Arc<Unit>| match found.dwo_id {
        Some(id) => unit.unit.dwo_id == Some(id),
        None => unit.unit.header == found.header,
    };
    let by_offset = found.header.debug_info_offset();
    let by_offset = by_offset.and_then(|offset| info.unit(info.unit_index(offset.0)?));
    by_offset.filter(is_it).or_else(|| {
        let split = found.dwo_id.is_some();
        let mut units =
            (0..info.unit_count()).filter(|_| split).filter_map(|index| info.unit(index));
        units.find(is_it)
    })
}

/// The file and line where a function is defined: those of its name (DWARF 5, section 2.14).
fn declaration(
    info: &DebugInfo,
    unit: &Arc<Unit>,
    function: gimli::UnitOffset,
) -> Option<(PathBuf, u32)> {
    /// Maximum number of references that are followed: more are a circle.
    const MAX_REFERENCES: usize = 8;
    let mut place = DebugEntry { unit: Arc::clone(unit), offset: function };
    for _ in 0..MAX_REFERENCES {
        let entry = place.unit.unit.entry(place.offset).ok()?;
        if let Some(line) = entry.attr_value(gimli::DW_AT_decl_line) {
            let file = entry.attr_value(gimli::DW_AT_decl_file)?;
            let file = match file {
                gimli::AttributeValue::FileIndex(index) => index,
                other => other.udata_value()?,
            };
            let line = u32::try_from(line.udata_value()?).ok().filter(|&line| line > 0)?;
            return Some((place.unit.file(file)?, line));
        }
        // The definition comes first, and what it completes follows.
        let refers = |name| info.follow(&place.unit, entry.attr_value(name)?);
        place =
            refers(gimli::DW_AT_abstract_origin).or_else(|| refers(gimli::DW_AT_specification))?;
    }
    None
}

fn load_split(info: &DebugInfo, load: &addr2line::SplitDwarfLoad<Reader>) -> Option<Arc<Dwarf>> {
    info.load_split(load.dwo_id, load.comp_dir.as_ref(), load.path.as_ref())
}
