//! Addresses, each of which says the space it lives in; no conversions, which need a module or a
//! file.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        pub struct $name(pub u64);

        impl $name {
            /// Returns the address `bytes` further on; `None` past the end of the address space.
            #[must_use]
            pub fn checked_add(self, bytes: u64) -> Option<Self> {
                self.0.checked_add(bytes).map(Self)
            }

            /// Returns the address `bytes` before; `None` below zero.
            #[must_use]
            pub fn checked_sub(self, bytes: u64) -> Option<Self> {
                self.0.checked_sub(bytes).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    };
}

address! {
    /// A virtual address in a running process, as in a register or in `/proc/PID/maps`.
    ProcessAddr
}

address! {
    /// A virtual address as the link editor wrote it in an ELF file: what symbols, program headers
    /// and DWARF speak of. It differs from the [`ProcessAddr`] by the load bias of the module.
    LinkAddr
}

address! {
    /// A position in a file, in bytes from its start: what uprobes are placed by.
    FileOffset
}
