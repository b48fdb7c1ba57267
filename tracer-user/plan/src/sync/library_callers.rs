//! Callers of the functions of a language's library that have a lock inlined, in code without frame pointers: where
//! their return address lies, by the unwind information. Unoptimized Rust calls these functions for each lock; without
//! the caller, all locks would be acquired in the library's source.

use std::{cell::OnceCell, collections::BTreeSet, rc::Rc};

use rustc_hash::{FxHashMap, FxHashSet};
use symbolize::{ElfFile, LinkAddr};
use x86::{
    call_graph::{Callee, Imports, facts_of},
    functions::{Function, Functions},
    instruction::decode,
};

use crate::regions::known_names::{is_drop_glue, is_library, is_lock_library};

/// Calls between the instruction and the caller that are passed over, at most.
const MAX_CALLS: usize = 4;

/// Longest instruction, in bytes.
const MAX_INSTRUCTION: usize = 15;

/// Place of the return address to a caller, at an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LibraryCaller {
    /// Distance of the return address from the stack pointer, in words of 8 bytes.
    pub distance: u8,
    /// All that the return address may be, sorted: where calls in between are passed over, which others than the known
    /// ones may take the place of. `None` where it is certain.
    pub returns: Option<Rc<[LinkAddr]>>,
}

/// Finds the callers for one file.
pub(crate) struct LibraryCallers<'file> {
    file: &'file ElfFile,
    functions: &'file Functions,
    /// Starts of functions that count as a library's.
    others: FxHashSet<u64>,
    /// The return addresses of the calls of each function about locks that a library has, by its start.
    calls: OnceCell<FxHashMap<u64, Vec<LinkAddr>>>,
}

impl<'file> LibraryCallers<'file> {
    pub(crate) fn new(file: &'file ElfFile, functions: &'file Functions) -> Self {
        Self::with(file, functions, FxHashSet::default())
    }

    /// Functions that start at `others` are passed over as a library's are.
    pub(crate) const fn with(
        file: &'file ElfFile,
        functions: &'file Functions,
        others: FxHashSet<u64>,
    ) -> Self {
        Self { file, functions, others, calls: OnceCell::new() }
    }

    /// Returns where the return address to the user's code lies at an instruction. `None` outside of libraries, where
    /// the frame pointer leads to it, and where its distance is not known or too far.
    pub(crate) fn of(&self, address: u64) -> Option<LibraryCaller> {
        let at = LinkAddr(address);
        let is_passed = |function: &&Function| {
            is_library(&function.name) || self.others.contains(&function.start.0)
        };
        let function = self.function(at).filter(is_passed)?;
        let mut distance = self.distance(at)?;
        let mut called = vec![function];
        for _ in 0..MAX_CALLS {
            let Some((further, callers)) = self.further(&called) else { break };
            // The return address that is passed over is a word itself.
            distance += 1 + further;
            called = callers;
        }
        let is_certain = matches!(called.as_slice(), [only] if only.start == function.start);
        let returns = (!is_certain).then(|| self.returns(&called).into_iter().collect());
        let distance = u8::try_from(distance).ok()?;
        Some(LibraryCaller { distance, returns })
            .filter(|_| distance <= abi::InlinedCookie::MAX_CALLER)
    }

    fn function(&self, address: LinkAddr) -> Option<&'file Function> {
        self.functions.get(self.functions.containing(address)?)
    }

    /// Returns the distance of the return address from the stack pointer, in words: at least one.
    fn distance(&self, address: LinkAddr) -> Option<u64> {
        let bytes = self.file.return_address_distance(address)?;
        Some(bytes / 8).filter(|words| bytes % 8 == 0 && *words > 0)
    }

    /// Returns the functions that call these, if none but libraries do, and the distance of their own return address,
    /// which has to be one for all.
    fn further(&self, called: &[&Function]) -> Option<(u64, Vec<&'file Function>)> {
        let (mut distances, mut callers) = (BTreeSet::new(), Vec::new());
        for address in self.returns(called) {
            // Before the return address is the call, where the stack is as it will be.
            let call = LinkAddr(address.0 - 1);
            distances.insert(self.distance(call)?);
            callers.push(self.function(call).filter(|caller| is_library(&caller.name))?);
        }
        callers.dedup_by_key(|function| function.start);
        let distance = distances.pop_first().filter(|_| distances.is_empty())?;
        Some((distance, callers))
    }

    /// Returns the return addresses of all known calls of functions.
    fn returns(&self, called: &[&Function]) -> BTreeSet<LinkAddr> {
        let calls = self.calls.get_or_init(|| self.calls());
        called.iter().filter_map(|of| calls.get(&of.start.0)).flatten().copied().collect()
    }

    fn calls(&self) -> FxHashMap<u64, Vec<LinkAddr>> {
        let of_library = |function: &&Function| {
            is_lock_library(&function.name)
                || self.others.contains(&function.start.0)
                || !self.others.is_empty() && is_drop_glue(&function.name)
        };
        let targets: FxHashSet<u64> =
            self.functions.iter().filter(of_library).map(|function| function.start.0).collect();
        let imports = Imports::from_file(self.file);
        let slots = imports.own().filter(|(_, own)| targets.contains(&own.0)).map(|(slot, _)| slot);
        let mentions: FxHashSet<u64> = targets.iter().copied().chain(slots).collect();
        let mut calls: FxHashMap<u64, Vec<LinkAddr>> = FxHashMap::default();
        for (index, function) in self.functions.iter().enumerate() {
            if !self.mentions(function, &mentions) {
                continue;
            }
            for call in facts_of(self.file, self.functions, &imports, index).calls {
                let Callee::Own(callee) = call.callee else { continue };
                let Some(callee) = self.functions.get(callee).map(|callee| callee.start.0) else {
                    continue;
                };
                let code = self.file.bytes_at(call.at, MAX_INSTRUCTION).unwrap_or_default();
                if call.returns
                    && targets.contains(&callee)
                    && let Some(instruction) = decode(code, call.at.0).next()
                {
                    calls.entry(callee).or_default().push(LinkAddr(instruction.next_ip()));
                }
            }
        }
        calls
    }

    /// Returns whether there is a distance to one of these addresses in a function's code: each call of one has it.
    fn mentions(&self, function: &Function, addresses: &FxHashSet<u64>) -> bool {
        /// Length of a distance, in bytes.
        const DISTANCE: usize = 4;
        let parts = function.parts(self.file).unwrap_or_default();
        parts.iter().any(|part| {
            part.code.windows(DISTANCE).enumerate().any(|(at, bytes)| {
                let distance = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                let after = part.start + (at + DISTANCE) as u64;
                addresses.contains(&after.wrapping_add_signed(distance.into()))
            })
        })
    }
}
