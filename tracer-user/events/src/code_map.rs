//! Narrow view of a process's code, in numbers: bytes, bounds of functions, and the roles of libraries and functions.
//! Names are left out, so that events cannot depend on a symbol lookup.

use std::ops::Range;

use symbolize::ProcessAddr;

use plan::sync::{function_roles::FunctionRole, runtime_libraries::Own};

/// Code of a process.
pub trait CodeMap {
    /// Returns the bytes at an address as its file has them: at most `length`, fewer at the end of a segment. `None`
    /// where no file is mapped or its file cannot be read.
    fn bytes_at(&self, address: ProcessAddr, length: usize) -> Option<&[u8]>;

    /// Returns the bounds of the function around an address.
    ///
    /// # Errors
    ///
    /// See [`NoFunction`].
    fn function_at(&self, address: ProcessAddr) -> Result<Range<ProcessAddr>, NoFunction>;

    /// Returns whether the code at a return address keeps its frame pointer in `rbp`, so that the return address above
    /// its frame is one. May find libraries that were loaded since.
    fn confirms_return(&mut self, address: ProcessAddr) -> bool;

    /// Returns the number of modules known.
    fn module_count(&self) -> usize;

    /// Returns the module that an address is in.
    fn module_at(&self, address: ProcessAddr) -> Option<CodeModule>;

    /// Returns the role of the function around an address, or the role of ordinary code if no function is known there.
    fn role_at(&self, address: ProcessAddr) -> FunctionRole;

    /// Returns whether an address is in a runtime library whose locks are recognised by the place of their data.
    fn is_runtime_data(&self, address: ProcessAddr) -> bool;
}

impl CodeMap for &mut dyn CodeMap {
    fn bytes_at(&self, address: ProcessAddr, length: usize) -> Option<&[u8]> {
        (**self).bytes_at(address, length)
    }

    fn function_at(&self, address: ProcessAddr) -> Result<Range<ProcessAddr>, NoFunction> {
        (**self).function_at(address)
    }

    fn confirms_return(&mut self, address: ProcessAddr) -> bool {
        (**self).confirms_return(address)
    }

    fn module_count(&self) -> usize {
        (**self).module_count()
    }

    fn module_at(&self, address: ProcessAddr) -> Option<CodeModule> {
        (**self).module_at(address)
    }

    fn role_at(&self, address: ProcessAddr) -> FunctionRole {
        (**self).role_at(address)
    }

    fn is_runtime_data(&self, address: ProcessAddr) -> bool {
        (**self).is_runtime_data(address)
    }
}

/// Module of a process, as far as its accesses are attributed by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeModule {
    /// Addresses from its first segment to its last.
    pub range: Range<ProcessAddr>,
    /// Set for the program itself.
    pub is_program: bool,
    /// For a runtime library: which of its lock operations are internal to it.
    pub runtime: Option<Own>,
}

/// Reason for which the function around an address is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFunction {
    /// The address is in no mapped file, or the file cannot be read.
    NoFile,
    /// Neither a symbol nor unwind information says where a function with this code starts.
    NoBounds,
}

#[cfg(test)]
pub(crate) mod fake {
    //! Code of a process that does not exist: one function of a module.

    use super::*;

    /// Module with one function, for tests.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct FakeCode {
        /// Start of the function.
        pub start: u64,
        /// Its code.
        pub code: Vec<u8>,
        /// Its role.
        pub role: FunctionRole,
        /// Kind of library that it is in.
        pub runtime: Option<Own>,
        /// Set if it is the program's.
        pub is_program: bool,
        /// Data of a runtime library.
        pub data: Range<u64>,
        /// Return addresses that are confirmed.
        pub confirmed: Vec<u64>,
    }

    impl FakeCode {
        fn range(&self) -> Range<ProcessAddr> {
            ProcessAddr(self.start)..ProcessAddr(self.start + self.code.len() as u64)
        }
    }

    impl CodeMap for FakeCode {
        fn bytes_at(&self, address: ProcessAddr, length: usize) -> Option<&[u8]> {
            let rest =
                self.code.get(usize::try_from(address.0.checked_sub(self.start)?).ok()?..)?;
            Some(&rest[..length.min(rest.len())]).filter(|bytes| !bytes.is_empty())
        }

        fn function_at(&self, address: ProcessAddr) -> Result<Range<ProcessAddr>, NoFunction> {
            Some(self.range()).filter(|range| range.contains(&address)).ok_or(NoFunction::NoFile)
        }

        fn confirms_return(&mut self, address: ProcessAddr) -> bool {
            self.confirmed.contains(&address.0)
        }

        fn module_count(&self) -> usize {
            1
        }

        fn module_at(&self, address: ProcessAddr) -> Option<CodeModule> {
            let range = self.range();
            let (is_program, runtime) = (self.is_program, self.runtime);
            range.contains(&address).then_some(CodeModule { range, is_program, runtime })
        }

        fn role_at(&self, address: ProcessAddr) -> FunctionRole {
            if self.range().contains(&address) { self.role } else { FunctionRole::default() }
        }

        fn is_runtime_data(&self, address: ProcessAddr) -> bool {
            self.data.contains(&address.0)
        }
    }
}
