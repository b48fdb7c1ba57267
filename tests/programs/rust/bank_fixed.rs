//! bank.rs with one locked section in `transfer`, which is now atomic.
//!
//! ```text
//! cd tests/programs/rust
//! cargo build --release
//! sudo avtrace target/release/bank_fixed
//! ```
//!
//! The transfer invites the audit in at the same place as before, between its read and its write, but holds
//! the lock all along. The audit can only wait until the transfer is over:
//!
//! ```text
//! thread 1: transfer                         thread 2: audit
//!
//! lock, read 1000
//!                          -- go_audit -->
//!                                            lock (has to wait)
//! write 900, unlock
//!                                            read 900, write 895, unlock
//! ```
//!
//! The transfer does not wait for the audit here: the two would wait for each other forever.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::thread;

const AUDIT_FEE: i64 = 5;

#[repr(C)]
struct Account {
    lock: libc::pthread_mutex_t,
    /// Guarded by `lock`.
    balance: i64,
}

static mut ACCOUNT: Account = Account { lock: libc::PTHREAD_MUTEX_INITIALIZER, balance: 1000 };

fn give_turn(mut turn: &PipeWriter) {
    turn.write_all(b"!").expect("write to a pipe");
}

fn await_turn(mut turn: &PipeReader) {
    turn.read_exact(&mut [0]).expect("read from a pipe");
}

/// Takes `amount` out of the account. Meant to be atomic, and is.
fn transfer(amount: i64, go_audit: &PipeWriter) {
    let _region = avtrace_markers::region!("transfer"); // @transfer_begin

    // SAFETY: the mutex is a valid static one, and the balance is used with it held.
    unsafe {
        libc::pthread_mutex_lock(&raw mut ACCOUNT.lock); // @transfer_lock
        let balance = ACCOUNT.balance; // @transfer_read

        give_turn(go_audit); // The audit may start, but the lock is taken.

        ACCOUNT.balance = balance - amount; // @transfer_write
        libc::pthread_mutex_unlock(&raw mut ACCOUNT.lock); // @transfer_unlock
    }
}

/// Looks at the account and charges the fee for it.
fn audit() {
    let _region = avtrace_markers::region!("audit"); // @audit_begin

    // SAFETY: the mutex is a valid static one, and the balance is used with it held.
    unsafe {
        libc::pthread_mutex_lock(&raw mut ACCOUNT.lock); // @audit_lock
        let balance = ACCOUNT.balance; // @audit_read
        ACCOUNT.balance = balance - AUDIT_FEE; // @audit_write
        libc::pthread_mutex_unlock(&raw mut ACCOUNT.lock); // @audit_unlock
    }
}

fn main() {
    let (audit_may_go, go_audit) = pipe().expect("a pipe");

    let teller = thread::spawn(move || transfer(100, &go_audit));
    let auditor = thread::spawn(move || {
        await_turn(&audit_may_go);
        audit();
    });
    teller.join().expect("the teller's end");
    auditor.join().expect("the auditor's end");

    // SAFETY: no other thread is left.
    println!("balance: {}", unsafe { ACCOUNT.balance }); // 895 = 1000 - 100 - 5
}
