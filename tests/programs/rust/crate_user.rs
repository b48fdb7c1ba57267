//! The user of a crate: a function of its own and one of the crate have the same bug. Threads take turns through pipes.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::Mutex;
use std::thread;

static CRATES: Mutex<u64> = Mutex::new(0);
static OWN: Mutex<u64> = Mutex::new(0);

/// The bug of the program's own.
#[inline(never)]
fn pay_in(coins: &Mutex<u64>, meanwhile: &mut dyn FnMut()) {
    let seen = *coins.lock().unwrap();
    meanwhile();
    *coins.lock().unwrap() = seen + 1;
}

fn give(turn: &mut PipeWriter) {
    turn.write_all(b"!").unwrap();
}

fn take(turn: &mut PipeReader) {
    turn.read_exact(&mut [0]).unwrap();
}

fn main() {
    let (mut go, mut give_go) = pipe().unwrap();
    let (mut back, mut give_back) = pipe().unwrap();
    let other = thread::spawn(move || {
        take(&mut go);
        jar::add_coin(&CRATES, &mut || ());
        give(&mut give_back);
        take(&mut go);
        pay_in(&OWN, &mut || ());
        give(&mut give_back);
    });
    let mut meanwhile = || {
        give(&mut give_go);
        take(&mut back);
    };
    jar::add_coin(&CRATES, &mut meanwhile);
    pay_in(&OWN, &mut meanwhile);
    other.join().unwrap();
    println!("{} {}", CRATES.lock().unwrap(), OWN.lock().unwrap());
}
