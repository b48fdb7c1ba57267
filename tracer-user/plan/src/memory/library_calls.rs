//! Calls of functions of the C library that access memory of their callers: the accesses that each is bound to make, by
//! its arguments, and the probes at the calls. A function does at least what is listed; how far it looks for the end of
//! a string depends on the data.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use abi::{AccessDescriptor, Operand};
use iced_x86::{Code, Instruction};
use symbolize::{ElfFile, LinkAddr};
use x86::{
    call_graph::{Import, Imports},
    exits::Part,
    instruction::decode,
    placement::Cost,
};

use super::instructions::{AccessProbe, Coverage, MAX_ACCESSES, PlannedAccess, UnprobedReason};
use crate::sync::runtime_libraries::{STRING_STEPS, is_container, is_string};

/// Access of a function to the memory that one of its arguments points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ArgumentAccess {
    /// Number of the argument, from 1.
    pointer: u8,
    length: Length,
    flags: u8,
}

/// Number of bytes that a function accesses in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    /// A single byte: the first character of a string.
    First,
    /// The number in the argument with this number.
    All(u8),
    /// A single byte, unless the argument with this number is 0.
    FirstOf(u8),
}

const fn reads(pointer: u8, length: Length) -> ArgumentAccess {
    ArgumentAccess { pointer, length, flags: AccessDescriptor::READ }
}

const fn writes(pointer: u8, length: Length) -> ArgumentAccess {
    ArgumentAccess { pointer, length, flags: AccessDescriptor::WRITE }
}

use Length::{All, First, FirstOf};

const STRING: &[ArgumentAccess] = &[reads(1, First)];
const TWO_STRINGS: &[ArgumentAccess] = &[reads(1, First), reads(2, First)];
const TWO_BOUNDED_STRINGS: &[ArgumentAccess] = &[reads(1, FirstOf(3)), reads(2, FirstOf(3))];

/// Functions by their names, without what compilers and C libraries add to them, in the order of their pages in POSIX.
const FUNCTIONS: &[(&[&str], &[ArgumentAccess])] = &[
    (&["memcpy", "memmove", "mempcpy"], &[reads(2, All(3)), writes(1, All(3))]),
    (&["bcopy"], &[reads(1, All(3)), writes(2, All(3))]),
    (&["memset"], &[writes(1, All(3))]),
    (&["bzero", "explicit_bzero"], &[writes(1, All(2))]),
    // C11, 7.24.4.1: it compares the first n characters of both. Where it may stop earlier, it has read the first.
    (&["memcmp", "bcmp"], TWO_BOUNDED_STRINGS),
    (&["memchr", "memrchr"], &[reads(1, FirstOf(3))]),
    (&["strcpy", "stpcpy"], &[reads(2, First), writes(1, First)]),
    // The rest of the buffer is filled with zeros.
    (&["strncpy", "stpncpy"], &[reads(2, FirstOf(3)), writes(1, All(3))]),
    (&["strcmp", "strcasecmp", "strcoll", "strstr", "strcasestr"], TWO_STRINGS),
    (&["strspn", "strcspn", "strpbrk"], STRING),
    (&["strncmp", "strncasecmp"], TWO_BOUNDED_STRINGS),
    (&["strlen", "strdup", "strchr", "strrchr", "strchrnul"], STRING),
    (&["strnlen", "strndup"], &[reads(1, FirstOf(2))]),
    (&["strtol", "strtoll", "strtoul", "strtoull", "strtoimax", "strtoumax"], STRING),
    (&["strtof", "strtod", "strtold", "atoi", "atol", "atoll", "atof"], STRING),
    (&["sscanf", "vsscanf"], STRING),
    (&["snprintf", "vsnprintf"], &[writes(1, FirstOf(2))]),
    (&["sprintf", "vsprintf"], &[writes(1, First)]),
];

/// Returns the accesses that a function is bound to make, by its symbol: `strtoull`, `__isoc23_strtoull`,
/// `__memcpy_chk`. Empty for a function that is not listed.
fn accesses_of(symbol: &str) -> &'static [ArgumentAccess] {
    let name = symbol.trim_start_matches('_');
    let name =
        ["isoc99_", "isoc23_"].iter().find_map(|start| name.strip_prefix(start)).unwrap_or(name);
    let name = name.strip_suffix("_chk").unwrap_or(name);
    let found = FUNCTIONS.iter().find(|(names, _)| names.contains(&name));
    found.map_or(&[], |(_, accesses)| accesses)
}

/// Returns whether the accesses of a function are reported at its calls.
#[must_use]
pub fn is_listed(symbol: &str) -> bool {
    !accesses_of(symbol).is_empty()
}

/// Returns the number of the register that has an argument.
const fn register(argument: u8) -> u8 {
    // rdi, rsi, rdx, rcx.
    const ARGUMENTS: [u8; 4] = [7, 6, 2, 1];
    ARGUMENTS[(argument - 1) as usize & 3]
}

impl ArgumentAccess {
    fn descriptor(self) -> AccessDescriptor {
        const NONE: u8 = Operand::NONE as u8;
        let (rounds, most) = match self.length {
            First => (NONE, 0),
            // The first bytes show that a block takes part in a violation; a longer record would need a program of
            // its own in the kernel.
            All(count) => (register(count), AccessDescriptor::MAX_USUAL as u8),
            FirstOf(count) => (register(count), 1),
        };
        AccessDescriptor {
            flags: self.flags,
            size: 1,
            base: register(self.pointer),
            index: NONE,
            rounds,
            most,
            ..AccessDescriptor::default()
        }
    }
}

/// Calls from a file to functions of libraries, and the accesses that these functions make.
pub(super) struct LibraryCalls<'file> {
    file: &'file ElfFile,
    imports: Imports,
    /// Symbols, by the addresses of the linker's stubs.
    stubs: HashMap<u64, Option<Arc<Import>>>,
}

impl<'file> LibraryCalls<'file> {
    pub(super) fn of(file: &'file ElfFile) -> Self {
        Self { file, imports: Imports::from_file(file), stubs: HashMap::new() }
    }

    /// The functions of libraries that the file calls.
    pub(super) const fn imports(&self) -> &Imports {
        &self.imports
    }

    /// Adds probes at a function's calls to the probes of its instructions. A call through a pointer gets no probe: the
    /// kernel would single-step it, often on a hot path.
    pub(super) fn add_probes(
        &mut self,
        parts: &[Part<'_>],
        taken: &dyn Fn(u64) -> bool,
        points: &mut Vec<AccessProbe>,
        coverage: &mut Coverage,
    ) {
        // Instructions are certain only where the control flow is.
        if coverage.left_out.contains_key(&UnprobedReason::HiddenFlow) {
            return;
        }
        let mut at: BTreeMap<u64, usize> =
            (0..).zip(&*points).map(|(n, point)| (point.at, n)).collect();
        for call in parts.iter().flat_map(|part| decode(part.code, part.start)) {
            let accesses = self.accesses_at(&call);
            if accesses.is_empty() || taken(call.ip()) {
                continue;
            }
            let index = *at.entry(call.ip()).or_insert_with(|| {
                points.push(AccessProbe {
                    at: call.ip(),
                    cost: Cost::Emulated,
                    accesses: Vec::new(),
                });
                points.len() - 1
            });
            let point = &mut points[index].accesses;
            if point.len() + accesses.len() > MAX_ACCESSES {
                continue;
            }
            coverage.emulated += accesses.len() as u64;
            point.extend(accesses.iter().map(|access| PlannedAccess {
                instruction: call.ip(),
                descriptor: access.descriptor(),
                is_static: false,
                sees_value: true,
            }));
        }
    }

    /// Returns the symbols of the container functions that code calls, with the functions that they consist of.
    pub(super) fn containers<'code>(
        &mut self,
        parts: impl Iterator<Item = Part<'code>>,
    ) -> BTreeSet<String> {
        let mut symbols = BTreeSet::new();
        for call in parts.flat_map(|part| decode(part.code, part.start)) {
            let import = self.import_at(&call);
            let symbol = import.map(|import| &import.symbol);
            if let Some(symbol) = symbol.filter(|symbol| is_container(symbol))
                && !symbols.contains(symbol)
            {
                symbols.insert(symbol.clone());
                if is_string(symbol) {
                    symbols.extend(STRING_STEPS.map(str::to_owned));
                }
            }
        }
        symbols
    }

    fn accesses_at(&mut self, call: &Instruction) -> &'static [ArgumentAccess] {
        self.import_at(call).map_or(&[], |import| accesses_of(&import.symbol))
    }

    fn import_at(&mut self, call: &Instruction) -> Option<&Import> {
        if call.code() != Code::Call_rel32_64 {
            return None;
        }
        let Self { file, imports, stubs } = self;
        let stub = call.near_branch_target();
        let import = stubs.entry(stub).or_insert_with(|| imports.behind(file, LinkAddr(stub)));
        import.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_the_names_that_programs_import() {
        for symbol in ["strtoull", "__isoc23_strtoull", "__isoc99_sscanf", "__memcpy_chk", "atoi"] {
            assert!(is_listed(symbol), "{symbol}");
        }
        for symbol in ["strcat", "strtok", "read", "qsort", "memcpy_of_mine", "strlength"] {
            assert!(!is_listed(symbol), "{symbol}");
        }
    }

    #[test]
    fn a_copy_reads_and_writes_as_many_bytes_as_its_third_argument_says() {
        let [read, write] = accesses_of("memmove") else { panic!("two accesses") };
        let (read, write) = (read.descriptor(), write.descriptor());
        assert_eq!((read.flags, read.base), (AccessDescriptor::READ, 6));
        assert_eq!((write.flags, write.base), (AccessDescriptor::WRITE, 7));
        assert_eq!((read.size, read.rounds, write.rounds), (1, 2, 2));
        assert!(!read.may_be_large(), "its first bytes stand for it");
        let [bounded] = accesses_of("snprintf") else { panic!("one access") };
        assert_eq!((bounded.descriptor().rounds, bounded.descriptor().most), (6, 1));
    }
}
