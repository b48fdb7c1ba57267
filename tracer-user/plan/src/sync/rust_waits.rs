//! Functions of Rust's standard library that are steps of synchronization other than by locks, or have inlined
//! ones: once flags, parked threads, channels. Names and instructions to look for; machine code is in
//! `inline_locks::atomic_waits`.

use checker::format::ObjectKind;
use symbolize::Name;

use super::{inline_locks::atomic_waits::Look, slow_paths::plain};

/// Functions of Rust's standard library that are steps of synchronization, or have inlined ones: start and end
/// of the name, instructions to look for, name in reports, and the object.
const STEPS: [(&str, &str, Look, &str, ObjectKind); 8] = [
    (STD, "::Once::call", Look::Ran, "std::sync::Once", ObjectKind::Once),
    // Unoptimised.
    (ONCE_LOCK, "::get", Look::Passed, "std::sync::OnceLock", ObjectKind::Once),
    (ONCE_LOCK, "::get_mut", Look::Passed, "std::sync::OnceLock", ObjectKind::Once),
    (ONCE_LOCK, "::is_initialized", Look::Passed, "std::sync::OnceLock", ObjectKind::Once),
    (THREAD, "::park", Look::Parked, "std::thread::park", ObjectKind::Parker),
    (THREAD, "::park_timeout", Look::Parked, "std::thread::park_timeout", ObjectKind::Parker),
    (STD, "Parker::park", Look::Parked, "std::thread::park", ObjectKind::Parker),
    (STD, "Parker::park_timeout", Look::Parked, "std::thread::park_timeout", ObjectKind::Parker),
];

/// Functions of the channels of Rust's standard library: what is in the name, its last part, what is looked for, and
/// the number of bits below a message's number. Where they are out of line is up to the compiler.
const CHANNELS: [(&str, &str, Look, u8); 10] = [
    (LIST, "send", Look::Sent, LIST_FLAGS),
    (LIST, "start_send", Look::Sent, LIST_FLAGS),
    (LIST, "recv", Look::Received, LIST_FLAGS),
    (LIST, "try_recv", Look::Received, LIST_FLAGS),
    (LIST, "start_recv", Look::Received, LIST_FLAGS),
    (ARRAY, "send", Look::Sent, ARRAY_FLAGS),
    (ARRAY, "try_send", Look::Sent, ARRAY_FLAGS),
    (ARRAY, "recv", Look::Received, ARRAY_FLAGS),
    (ARRAY, "try_recv", Look::Received, ARRAY_FLAGS),
    (ARRAY, "start_recv", Look::Received, ARRAY_FLAGS),
];

/// Bits below the number of a message, of unbounded channels and of bounded ones.
pub const CHANNEL_FLAGS: [u8; 2] = [LIST_FLAGS, ARRAY_FLAGS];
const LIST_FLAGS: u8 = 1;
const ARRAY_FLAGS: u8 = 0;

const LIST: &str = "std::sync::mpmc::list::Channel";
const ARRAY: &str = "std::sync::mpmc::array::Channel";

/// Returns true if a function is a part of channels.
#[must_use]
pub fn is_of_channels(name: &Name) -> bool {
    name.short.trim_start_matches('<').starts_with("std::sync::mpmc::")
}

/// Returns the instructions to look for in a function of a channel of this name, the number of bits below a message's
/// number, and true if users' code may call it.
#[must_use]
pub fn channel_steps_in(name: &Name) -> Option<(Look, u8, bool)> {
    let short = plain(&name.short);
    let (before, last) = short.rsplit_once("::")?;
    CHANNELS
        .iter()
        .find(|(part, end, ..)| before.contains(part) && last == *end)
        .map(|&(.., look, flags)| (look, flags, !last.starts_with("start_")))
}

const STD: &str = "std::sys";
const ONCE_LOCK: &str = "std::sync::once_lock::OnceLock";
const THREAD: &str = "std::thread::";

/// Returns the instructions to look for in a function of this name, the name in reports, and the object.
#[must_use]
pub fn steps_in(name: &Name) -> Option<(Look, &'static str, ObjectKind)> {
    let short = plain(&name.short);
    STEPS
        .iter()
        .find(|(start, end, ..)| short.starts_with(start) && short.ends_with(end))
        .map(|&(.., look, what, object)| (look, what, object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_arguments_are_no_part_of_a_name() {
        assert_eq!(plain("<a::Once>::call::<b::<c>>"), "a::Once::call");
        assert_eq!(plain("a::Lock<T>::get"), "a::LockT::get");
        assert_eq!(plain("a::Lock<T>"), "a::LockT");
    }

    #[test]
    fn what_parks_a_thread_is_known() {
        let park = "_ZN3std6thread9functions4park17h0123456789abcdefE";
        let found = steps_in(&Name::demangle(park));
        assert_eq!(found, Some((Look::Parked, "std::thread::park", ObjectKind::Parker)));
        let unpark = "_ZN3std6thread6thread6Thread6unpark17h0123456789abcdefE";
        assert_eq!(steps_in(&Name::demangle(unpark)), None);
    }
}
