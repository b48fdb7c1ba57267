//! Expansion of the markers: one note on one nop, for each target. No part of the public interface lives
//! here.

use core::marker::PhantomData;

/// Keeps a guard on the thread that made it.
pub type OfThisThread = PhantomData<*mut ()>;

/// The value of [`OfThisThread`].
pub const OF_THIS_THREAD: OfThisThread = PhantomData;

/// A note on a nop, as assembly.
///
/// From the address of `_.stapsdt.base` a reader that finds that section elsewhere knows that the file was
/// relocated after linking. The flag `?` puts the note in the section group of the code that it is about. The
/// relocation at the end changes nothing in the code; by it a linker that collects unused sections knows that
/// `_.stapsdt.base` is in use.
///
/// The bytes behind the nop are room for a probe that is a jump.
#[doc(hidden)]
#[macro_export]
macro_rules! __avtrace_note {
    (
        $provider:literal, $name:expr, $arguments:literal, [$room:literal, $no_relocation:literal],
        $($operands:tt)*
    ) => {
        ::core::arch::asm!(
            "990: nop",
            $room,
            ".pushsection .note.stapsdt,\"?\",\"note\"",
            ".balign 4",
            ".4byte 992f-991f, 994f-993f, 3",
            "991: .asciz \"stapsdt\"",
            "992: .balign 4",
            "993: .8byte 990b",
            ".8byte _.stapsdt.base",
            ".8byte 0",
            ::core::concat!(".asciz \"", $provider, "\""),
            ::core::concat!(".asciz \"", $name, "\""),
            ::core::concat!(".asciz \"", $arguments, "\""),
            "994: .balign 4",
            ".popsection",
            ".ifndef _.stapsdt.base",
            ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat",
            ".weak _.stapsdt.base",
            ".hidden _.stapsdt.base",
            ".set _.stapsdt.base, .",
            ".space 1",
            ".size _.stapsdt.base, 1",
            ".popsection",
            ".endif",
            ::core::concat!(".reloc 990b, ", $no_relocation, ", _.stapsdt.base"),
            $($operands)*
        )
    };
}

/// A note in the syntax of the target: of a region, or of a place with its size and address.
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
#[doc(hidden)]
#[macro_export]
macro_rules! __avtrace_asm {
    ($provider:literal, $name:expr) => {
        $crate::__avtrace_note!(
            $provider, $name, "",
            [".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0", "R_X86_64_NONE"],
            options(att_syntax, nostack, preserves_flags)
        )
    };
    ($provider:literal, $name:expr, $size:expr, $place:expr) => {
        $crate::__avtrace_note!(
            $provider, $name, "{size}@({place})",
            [".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0", "R_X86_64_NONE"],
            size = const $size,
            place = in(reg) $place,
            options(att_syntax, nostack, preserves_flags)
        )
    };
}

/// A note in the syntax of the target: of a region, or of a place with its size and address.
#[cfg(all(target_os = "linux", target_arch = "aarch64", target_pointer_width = "64", not(miri)))]
#[doc(hidden)]
#[macro_export]
macro_rules! __avtrace_asm {
    ($provider:literal, $name:expr) => {
        $crate::__avtrace_note!(
            $provider, $name, "", ["", "R_AARCH64_NONE"],
            options(nostack, preserves_flags)
        )
    };
    ($provider:literal, $name:expr, $size:expr, $place:expr) => {
        $crate::__avtrace_note!(
            $provider, $name, "{size}@[{place}]", ["", "R_AARCH64_NONE"],
            size = const $size,
            place = in(reg) $place,
            options(nostack, preserves_flags)
        )
    };
}

/// Nothing: there are no markers on this target.
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
)))]
#[doc(hidden)]
#[macro_export]
macro_rules! __avtrace_asm {
    ($provider:literal, $name:expr) => {};
    ($provider:literal, $name:expr, $size:expr, $place:expr) => {
        let _ = ($size, $place);
    };
}

/// A note of a region.
#[doc(hidden)]
#[macro_export]
macro_rules! __avtrace_mark {
    ($provider:literal, $name:literal) => {
        // SAFETY: nops; they change no register, no flag, no memory and no stack.
        unsafe {
            $crate::__avtrace_asm!($provider, $name);
        }
    };
}

/// A note of a place.
#[doc(hidden)]
#[macro_export]
macro_rules! __avtrace_share {
    ($place:expr, $name:expr) => {{
        // The size of the place is a constant only where its type has a name.
        #[inline(always)]
        fn share<T>(place: *const T) {
            // SAFETY: nops; they change no register, no flag, no memory and no stack, and reads nothing.
            unsafe {
                $crate::__avtrace_asm!("avtrace_shared", $name, ::core::mem::size_of::<T>(), place);
            }
        }

        share(&raw const $place);
    }};
}
