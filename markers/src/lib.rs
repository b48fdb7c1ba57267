//! Markers for avtrace, for Rust programs: they name atomic regions and shared variables. Nothing is traced
//! here; a marker is a place in the code that avtrace finds.
//!
//! ```
//! fn transfer(amount: i64) -> i64 {
//!     let _region = avtrace_markers::region!("transfer"); // until the end of this scope, however it is left
//!     1_000 - amount
//! }
//!
//! assert_eq!(transfer(100), 900);
//! ```
//!
//! # What a marker costs
//!
//! A `nop` of one byte and one of ten on x86-64 (one instruction on AArch64) in the code, and a note in a section that
//! is not loaded into memory. [`shared!`] takes one more instruction, for the address. Every marker is also a
//! compiler barrier: the compiler moves no access to memory that others can see across it, so that what is
//! written inside a region stays inside. A place named by [`shared!`] lives in memory, not in a register.
//!
//! # Names
//!
//! A name is a string literal. It may hold anything but the double quote, the backslash and the braces, which
//! the compiler or the assembler would take for their own. Names of letters, digits, `_`, `-` and `.` are the
//! easiest to hand to other tools.
//!
//! # Reading markers with other tools
//!
//! The notes are those of SystemTap (`stapsdt`, version 3), the same that `avtrace.h` makes for C and C++:
//!
//! ```text
//! readelf --notes ./prog
//! bpftrace -e 'usdt:./prog:avtrace_begin:transfer { printf("%d begins\n", tid); }'
//! ```
//!
//! | provider | probe name | argument |
//! |---|---|---|
//! | `avtrace_begin` | the region | |
//! | `avtrace_end` | the region | |
//! | `avtrace_shared` | the variable | `SIZE@OPERAND`: its size in bytes, and its place |
//!
//! For avtrace the address of `OPERAND` matters; other tools see the value.
//!
//! One marker can have several notes, because the compiler copies the code around it, and none, where the
//! code around it is never generated: a generic function that nobody calls, for one. `strip` leaves the notes
//! in place. Rust links with `--gc-sections`: a function that nothing reaches is dropped, and LLD keeps its
//! notes with an address outside the code. A reader has to skip those, as avtrace does.
//!
//! # Limitations
//!
//! Markers work on Linux, on x86-64 and AArch64. Elsewhere, and under Miri, they expand to nothing.
//!
//! Without optimisation the end of a [`region!`] is a few calls away from the code around it, inside the
//! compiler's drop glue. Nothing of the region's own code runs later than that.
//!
//! A region belongs to the thread that opened it. A guard held across an `.await` that moves the task to
//! another thread would say something wrong, so the guard is not [`Send`]; the compiler then refuses the
//! future where it needs to be.

#![no_std]

#[doc(hidden)]
pub mod __private;

/// Opens an atomic region and returns the guard that closes it.
///
/// The region ends where the guard is dropped, also when that is by `?`, by `break`, or by a panic that
/// unwinds. Give the guard a name: `let _ = region!("…")` would end the region at once.
///
/// ```
/// fn parse(text: &str) -> Result<i32, std::num::ParseIntError> {
///     let _region = avtrace_markers::region!("parse");
///     let number: i32 = text.parse()?; // leaves the region as well
///     Ok(number + 1)
/// }
///
/// assert_eq!(parse("41"), Ok(42));
/// assert!(parse("none").is_err());
/// ```
///
/// The guard stays on its thread:
///
/// ```compile_fail
/// let region = avtrace_markers::region!("moved");
/// std::thread::spawn(move || drop(region));
/// ```
#[macro_export]
macro_rules! region {
    ($name:literal) => {{
        #[must_use = "the region ends where this guard is dropped"]
        struct Region($crate::__private::OfThisThread);

        impl ::core::ops::Drop for Region {
            #[inline(always)]
            fn drop(&mut self) {
                $crate::end!($name);
            }
        }

        $crate::begin!($name);
        Region($crate::__private::OF_THIS_THREAD)
    }};
}

/// Opens an atomic region by hand; the same thread closes it with [`end!`] and the same name.
///
/// Use [`region!`] where a scope will do: a region that is left without its end, by an early return or a
/// panic, goes on until avtrace sees that its stack frame is gone.
///
/// ```
/// avtrace_markers::begin!("refill");
/// let stock: i32 = [1, 2, 3].iter().sum();
/// avtrace_markers::end!("refill");
/// assert_eq!(stock, 6);
/// ```
#[macro_export]
macro_rules! begin {
    ($name:literal) => {
        $crate::__avtrace_mark!("avtrace_begin", $name)
    };
}

/// Closes an atomic region opened by [`begin!`] with the same name.
///
/// ```
/// avtrace_markers::begin!("empty");
/// avtrace_markers::end!("empty");
/// ```
#[macro_export]
macro_rules! end {
    ($name:literal) => {
        $crate::__avtrace_mark!("avtrace_end", $name)
    };
}

/// Names a variable that threads share and that is worth watching.
///
/// The argument is a place: a static, a field, what a pointer points to. Its address is taken, nothing is
/// read. The name is the text of the argument, or a label of your own, which has to be given where that text
/// holds a character that a name may not (see [the crate's page](crate#names)).
///
/// ```
/// use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
///
/// static BALANCE: AtomicI64 = AtomicI64::new(1_000);
///
/// avtrace_markers::shared!(BALANCE);
/// let slots = [0_u32; 4];
/// avtrace_markers::shared!(slots[2], "third slot");
/// assert_eq!(BALANCE.load(Relaxed), 1_000);
/// ```
///
/// Naming what a raw pointer points to is unsafe where every other use of the place is:
///
/// ```
/// static mut HITS: u64 = 0;
///
/// let hits = &raw mut HITS;
/// avtrace_markers::shared!(HITS);
/// // SAFETY: `hits` points to a static.
/// unsafe { avtrace_markers::shared!(*hits) };
/// ```
#[macro_export]
macro_rules! shared {
    ($place:expr) => {
        $crate::__avtrace_share!($place, ::core::stringify!($place))
    };
    ($place:expr, $label:literal) => {
        $crate::__avtrace_share!($place, $label)
    };
}

/// Example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
