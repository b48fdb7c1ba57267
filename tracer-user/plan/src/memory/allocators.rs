//! Functions that allocate and free memory: the effect of each, and the argument that has the size. A new one
//! is a line here.
//!
//! If one calls another, both are recorded: the second record means the same.

use abi::{AllocCookie, Kind, ProbeProgram};
use symbolize::{ElfFile, LinkAddr};
use x86::{
    call_graph::Imports,
    control_flow::ControlFlowError,
    placement::{Needs, PlaceRules},
};

use crate::sync::call_points::{CallPointsError, Function};
use iced_x86::Register;
use serde::{Deserialize, Serialize};

/// A function that gives memory out or takes it back, by its exported name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorSpec {
    /// Name in the symbol table.
    pub name: &'static str,
    /// Effect of a call.
    pub role: Allocator,
}

/// Allocation or deallocation by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allocator {
    /// Gives out as many bytes as its first argument says.
    First,
    /// Allocates the number of bytes in the second argument.
    Second,
    /// Allocates the product of the first two arguments.
    Product,
    /// Allocates the number of bytes in the third argument, at an address that the function writes to the
    /// target of the first one.
    Into,
    /// Takes back the block that is its first argument, and gives out as many bytes as the second says. When it fails
    /// the block lives on.
    Reallocate,
    /// Reallocation to as many bytes as the product of the next two arguments.
    ReallocateProduct,
    /// Rust: takes back its first argument, as many bytes as the second says, and gives out at least the
    /// smaller of these and what its fourth argument says: as many as the second are taken for the block. It
    /// does not live on.
    RustReallocate,
    /// Maps as many bytes as its second argument says.
    Map,
    /// Unmaps its first argument, as many bytes as the second says, and maps as many as the third says.
    Remap,
    /// C++: as [`First`](Self::First), and an exception may leave it.
    New,
    /// Takes back the block that is its first argument.
    Free,
    /// Takes back its first argument, as many bytes as the second says.
    FreeSized,
    /// Unmaps its first argument, as many bytes as the second says.
    Unmap,
}

impl Allocator {
    /// Returns true if the memory is whole pages.
    #[must_use]
    pub const fn is_mapping(self) -> bool {
        matches!(self, Self::Map | Self::Remap | Self::Unmap)
    }

    /// Returns true if the block survives a call that fails.
    #[must_use]
    pub const fn may_fail(self) -> bool {
        matches!(self, Self::Reallocate | Self::ReallocateProduct)
    }

    pub(super) const fn gives_out(self) -> bool {
        !matches!(self, Self::Free | Self::FreeSized | Self::Unmap)
    }

    /// Flags of the cookies at its entry and its returns.
    const fn flags(self) -> u8 {
        match self {
            Self::First | Self::New | Self::Free => 0,
            Self::Second => AllocCookie::SECOND,
            Self::Product => AllocCookie::PRODUCT,
            Self::Into => AllocCookie::SECOND | AllocCookie::THIRD | AllocCookie::INTO,
            Self::Reallocate => AllocCookie::SECOND | AllocCookie::OLD,
            Self::ReallocateProduct => {
                AllocCookie::SECOND | AllocCookie::PRODUCT | AllocCookie::OLD
            }
            Self::Map => AllocCookie::SECOND | AllocCookie::MAPS,
            Self::Remap => {
                AllocCookie::THIRD | AllocCookie::OLD | AllocCookie::OLD_SIZE | AllocCookie::MAPS
            }
            Self::RustReallocate => AllocCookie::SECOND | AllocCookie::OLD | AllocCookie::OLD_SIZE,
            Self::FreeSized | Self::Unmap => AllocCookie::OLD_SIZE,
        }
    }

    const fn arguments(self) -> &'static [Register] {
        match self {
            Self::First | Self::New | Self::Free => &[Register::RDI],
            Self::Second
            | Self::Product
            | Self::Reallocate
            | Self::RustReallocate
            | Self::Map
            | Self::FreeSized
            | Self::Unmap => &[Register::RDI, Register::RSI],
            Self::Into | Self::ReallocateProduct | Self::Remap => {
                &[Register::RDI, Register::RSI, Register::RDX]
            }
        }
    }
}

const fn spec(name: &'static str, role: Allocator) -> AllocatorSpec {
    AllocatorSpec { name, role }
}

/// All functions that are probed, in whatever module defines them: the C library, or an allocator in its place. Where
/// two are the same code the first one counts.
pub const ALLOCATORS: &[AllocatorSpec] = &[
    spec("malloc", Allocator::First),
    spec("calloc", Allocator::Product),
    spec("realloc", Allocator::Reallocate),
    spec("reallocarray", Allocator::ReallocateProduct),
    spec("aligned_alloc", Allocator::Second),
    spec("memalign", Allocator::Second),
    spec("posix_memalign", Allocator::Into),
    spec("valloc", Allocator::First),
    spec("pvalloc", Allocator::First),
    spec("free", Allocator::Free),
    spec("cfree", Allocator::Free),
    spec("mmap", Allocator::Map),
    spec("mmap64", Allocator::Map),
    spec("munmap", Allocator::Unmap),
    spec("mremap", Allocator::Remap),
];

/// C++'s, where they are no thin layer over `malloc`: `operator new` and `operator new[]`, as they are, aligned, and
/// without exceptions; and `operator delete`, with and without the size.
pub const CPP_ALLOCATORS: &[AllocatorSpec] = &[
    spec("_Znwm", Allocator::New),
    spec("_Znam", Allocator::New),
    spec("_ZnwmRKSt9nothrow_t", Allocator::New),
    spec("_ZnamRKSt9nothrow_t", Allocator::New),
    spec("_ZnwmSt11align_val_t", Allocator::New),
    spec("_ZnamSt11align_val_t", Allocator::New),
    spec("_ZnwmSt11align_val_tRKSt9nothrow_t", Allocator::New),
    spec("_ZnamSt11align_val_tRKSt9nothrow_t", Allocator::New),
    spec("_ZdlPv", Allocator::Free),
    spec("_ZdaPv", Allocator::Free),
    spec("_ZdlPvm", Allocator::Free),
    spec("_ZdaPvm", Allocator::Free),
    spec("_ZdlPvRKSt9nothrow_t", Allocator::Free),
    spec("_ZdaPvRKSt9nothrow_t", Allocator::Free),
    spec("_ZdlPvSt11align_val_t", Allocator::Free),
    spec("_ZdaPvSt11align_val_t", Allocator::Free),
    spec("_ZdlPvmSt11align_val_t", Allocator::Free),
    spec("_ZdaPvmSt11align_val_t", Allocator::Free),
];

/// Returns the effect of a function of a program that has an allocator of its own: for objects of a class in
/// C++, or for all of Rust's (`#[global_allocator]`).
#[must_use]
pub fn of_program(symbol: &str, name: &str) -> Option<Allocator> {
    let of_class = [
        ("::operator new", &["nwEm", "nwEmSt11align_val_t"][..], Allocator::New),
        ("::operator new[]", &["naEm", "naEmSt11align_val_t"], Allocator::New),
        ("::operator delete", &["dlEPv", "dlEPvm"], Allocator::Free),
        ("::operator delete[]", &["daEPv", "daEPvm"], Allocator::Free),
    ];
    let of_rust = [
        ("12___rust_alloc", Allocator::First),
        ("19___rust_alloc_zeroed", Allocator::First),
        ("14___rust_realloc", Allocator::RustReallocate),
        ("14___rust_dealloc", Allocator::FreeSized),
    ];
    if symbol.starts_with("_R") {
        return of_rust.iter().find(|(end, _)| symbol.ends_with(end)).map(|&(_, role)| role);
    }
    let of_class = of_class.into_iter().find(|(ends, symbols, _)| {
        name.ends_with(ends) && symbols.iter().any(|end| symbol.ends_with(end))
    });
    of_class.map(|(_, _, role)| role)
}

/// Returns true if `operator new` and `operator delete` of a module are calls of `malloc` and `free`, by the
/// module's name.
#[must_use]
pub fn is_over_malloc(module: &str) -> bool {
    ["libstdc++.", "libc++.", "libc++abi."].iter().any(|name| module.starts_with(name))
}

/// A place to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorPoint {
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

/// The places to probe for the function at `start`.
///
/// # Errors
///
/// When there is no place that is right whatever the function does.
pub fn allocator_points(
    file: &ElfFile,
    role: Allocator,
    start: LinkAddr,
    rules: PlaceRules,
) -> Result<Vec<AllocatorPoint>, CallPointsError> {
    let function = Function::at(file, start)?;
    let gives_out = role.gives_out();
    let needs = Needs { arguments: role.arguments(), stack: gives_out };
    let place = rules.entry(function.code, needs).ok_or(CallPointsError::NoEntry)?;
    let kind = if gives_out { Kind::Alloc } else { Kind::Free };
    let point = |program, address, depth| AllocatorPoint {
        program,
        address,
        kind,
        flags: role.flags(),
        depth,
    };
    let entry = LinkAddr(start.0 + place.offset);
    Ok(match role {
        Allocator::Free | Allocator::FreeSized | Allocator::Unmap => {
            vec![point(ProbeProgram::Free, entry, place.depth)]
        }
        // A return probe would abort a program when an exception passes it.
        Allocator::New if rules.has_return_probes() => {
            let returns = function.returns_of(&function.flow()?)?;
            let returns =
                returns.into_iter().map(|address| point(ProbeProgram::AllocEnd, address, 0));
            let entry = point(ProbeProgram::AllocEnter, entry, place.depth);
            std::iter::once(entry).chain(returns).collect()
        }
        _ if !rules.has_return_probes() => {
            let (returns, tail_calls) = ends(&function)?;
            let returns =
                returns.into_iter().map(|address| point(ProbeProgram::AllocEnd, address, 0));
            let tail_calls = tail_calls.into_iter().map(|address| AllocatorPoint {
                flags: role.flags() | AllocCookie::FIRST,
                ..point(ProbeProgram::AllocEnd, address, 0)
            });
            let entry = point(ProbeProgram::AllocEnter, entry, place.depth);
            std::iter::once(entry).chain(returns).chain(tail_calls).collect()
        }
        _ => vec![
            point(ProbeProgram::AllocEnter, entry, place.depth),
            point(ProbeProgram::AllocReturn, entry, place.depth),
        ],
    })
}

/// Functions that return their first argument.
const RETURN_FIRST: [&str; 5] = ["memset", "memcpy", "memmove", "__memset_chk", "__memcpy_chk"];

/// Finds the ends of calls of an allocator: its returns, and its tail calls of functions that return their first
/// argument, which is the block then. One of another allocator has that one's probes.
fn ends(function: &Function<'_>) -> Result<(Vec<LinkAddr>, Vec<LinkAddr>), CallPointsError> {
    let flow = function.flow_with_tail_calls()?;
    let mut jumps = Vec::new();
    let imports = flow.tail_calls().next().map(|_| Imports::from_file(function.file));
    for (call, imports) in flow.tail_calls().zip(imports.iter().cycle()) {
        let (jump, stub) = function.places_of(call);
        let leads_to = |names: &[&str]| imports.leads_to(function.file, stub, names);
        if leads_to(&RETURN_FIRST) {
            jumps.push(jump);
        } else if !ALLOCATORS.iter().any(|spec| leads_to(&[spec.name])) {
            return Err(ControlFlowError::IndirectJump(call.jump).into());
        }
    }
    let returns = function.returns_of(&flow);
    let only_jumps = flow.tail_calls().next().is_some();
    let returns = returns.or_else(|error| if only_jumps { Ok(Vec::new()) } else { Err(error) });
    Ok((returns?, jumps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_c_library_end_in_tail_calls_too() {
        let paths = ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6"];
        let Some(path) = paths.into_iter().find(|path| std::path::Path::new(path).exists()) else {
            println!("skipped: no C library at a known place");
            return;
        };
        let file = ElfFile::open(path.as_ref()).unwrap();
        for name in ["malloc", "calloc", "realloc", "reallocarray", "posix_memalign"] {
            let spec = ALLOCATORS.iter().find(|spec| spec.name == name).unwrap();
            let start = file.symbols_named(name).next().unwrap().address;
            let points = allocator_points(&file, spec.role, start, PlaceRules::InProcess);
            let points = points.unwrap_or_else(|error| panic!("{name}: {error}"));
            let is_end = |point: &&AllocatorPoint| point.program == ProbeProgram::AllocEnd;
            assert!(points.iter().any(|point| is_end(&point)), "{name}");
        }
    }

    #[test]
    fn the_size_is_read_before_it_is_gone() {
        for spec in ALLOCATORS.iter().chain(CPP_ALLOCATORS) {
            let (flags, arguments) = (spec.role.flags(), spec.role.arguments().len());
            let third = AllocCookie::THIRD | AllocCookie::PRODUCT;
            let needed = match flags {
                flags if flags & AllocCookie::THIRD != 0 => 3,
                flags
                    if flags & third == AllocCookie::PRODUCT
                        && flags & AllocCookie::SECOND != 0 =>
                {
                    3
                }
                flags if flags & (AllocCookie::SECOND | AllocCookie::PRODUCT) != 0 => 2,
                flags if flags & AllocCookie::OLD_SIZE != 0 => 2,
                _ => 1,
            };
            assert_eq!(arguments, needed, "{}", spec.name);
        }
    }

    #[test]
    fn no_function_is_named_twice() {
        let mut names: Vec<_> =
            ALLOCATORS.iter().chain(CPP_ALLOCATORS).map(|spec| spec.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
