//! From an address to functions and source lines, through inlined calls.

use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, PoisonError};

use addr2line::{LookupContinuation as _, LookupResult};

use super::address::LinkAddr;
use super::demangle::Name;
use super::dwarf::{DebugInfo, Dwarf};
use super::elf::ElfFile;
use super::extent::Reader;
use super::miss::Miss;

/// Inlined calls nest this deep at most in what is shown; damaged debug information could nest
/// without end.
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
}

/// What is known about an address of code.
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
    /// Why the frames have no lines.
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
    let function = function_at(file, lookup)
        .map(|(name, start)| (Name::demangle(&name), address.0.saturating_sub(start.0)));
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

/// The symbol of the function around `address`, mangled, and its start.
fn function_at(file: &ElfFile, address: LinkAddr) -> Option<(String, LinkAddr)> {
    match file.function_containing(address) {
        Some(extent) => Some((extent.name?, extent.start)),
        // Hand-written code often has neither a size nor unwind information.
        None => {
            let (symbol, _) = file.symbol_at(address)?;
            Some((symbol.name.to_owned(), symbol.address))
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
    while let Some(found) = found.next().map_err(damaged)? {
        let name = found.function.and_then(|name| Some(name.raw_name().ok()?.into_owned()));
        let location = found.location.as_ref();
        frames.push(Frame {
            function: name.as_deref().map(Name::demangle),
            file: location.and_then(|at| at.file).map(|file| tidy_path(Path::new(file))),
            line: location.and_then(|at| at.line).filter(|&line| line != 0),
            column: location.and_then(|at| at.column).filter(|&column| column != 0),
            inlined: true,
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

fn load_split(info: &DebugInfo, load: &addr2line::SplitDwarfLoad<Reader>) -> Option<Arc<Dwarf>> {
    info.load_split(load.dwo_id, load.comp_dir.as_ref(), load.path.as_ref())
}

/// The path without `.` and, unless that would lead elsewhere through a symbolic link, without
/// `..`.
fn tidy_path(path: &Path) -> PathBuf {
    let undotted: PathBuf = path.components().collect();
    if !undotted.components().any(|component| component == Component::ParentDir) {
        return undotted;
    }
    let mut tidy = PathBuf::new();
    for component in undotted.components() {
        let last = tidy.components().next_back();
        match (component, last) {
            (Component::ParentDir, Some(Component::Normal(_))) => {
                tidy.pop();
            }
            (Component::ParentDir, Some(Component::RootDir)) => {}
            _ => tidy.push(component),
        }
    }
    if undotted.exists() && !tidy.exists() { undotted } else { tidy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_tidied() {
        for (path, tidy) in [
            ("/build/./src/bank.c", "/build/src/bank.c"),
            ("/build/../src/bank.c", "/src/bank.c"),
            ("/../src/bank.c", "/src/bank.c"),
            ("../src/bank.c", "../src/bank.c"),
            ("../../src/../bank.c", "../../bank.c"),
            ("bank.c", "bank.c"),
        ] {
            assert_eq!(tidy_path(Path::new(path)), Path::new(tidy));
        }
    }
}
