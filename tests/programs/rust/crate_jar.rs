//! A crate with a function that is not atomic, built as one of a registry.

use std::sync::Mutex;

/// Adds a coin; `meanwhile` runs between reading and writing.
#[inline(never)]
pub fn add_coin(coins: &Mutex<u64>, meanwhile: &mut dyn FnMut()) {
    let seen = *coins.lock().unwrap();
    meanwhile();
    *coins.lock().unwrap() = seen + 1;
}
