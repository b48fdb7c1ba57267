//! A transfer that is not atomic, although every access to the account is locked.
//!
//! Build and trace it:
//!
//! ```text
//! cd tests/programs/rust
//! cargo build --release
//! sudo avtrace target/release/bank
//! ```
//!
//! This is bank.c in Rust, with the same pthread mutex, taken through the crate `libc` as a binding to a C
//! library would. `transfer` has two locked sections. Between the two, `audit` charges its fee, and the
//! transfer then writes a balance that knows nothing of it.
//!
//! The interleaving, the same in every run:
//!
//! ```text
//! thread 1: transfer                         thread 2: audit
//!
//! lock, read 1000, unlock
//!                          -- go_audit -->
//!                                            lock, read 1000, write 995, unlock
//!                        <-- go_transfer --
//! lock, write 900, unlock                    (the fee of 5 is gone)
//! ```
//!
//! The two threads take turns through pipes, one byte per turn. A pipe is nothing that avtrace records, so
//! it forces the order and leaves no trace of its own. A channel would be a synchronisation like the mutex.
//!
//! bank_fixed.rs is the same program with one locked section in `transfer`.

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

/// Takes `amount` out of the account. Meant to be atomic, and says so by a region.
fn transfer(amount: i64, go_audit: &PipeWriter, go_transfer: &PipeReader) {
    let _region = avtrace_markers::region!("transfer"); // @transfer_begin

    // SAFETY: the mutex is a valid static one, and the balance is read with it held.
    let balance = unsafe {
        libc::pthread_mutex_lock(&raw mut ACCOUNT.lock); // @transfer_lock
        let balance = ACCOUNT.balance; // @transfer_read
        libc::pthread_mutex_unlock(&raw mut ACCOUNT.lock); // @transfer_unlock
        balance
    };

    give_turn(go_audit); // The lock is free, and the audit uses it.
    await_turn(go_transfer);

    // SAFETY: as above; the balance is written with the mutex held.
    unsafe {
        libc::pthread_mutex_lock(&raw mut ACCOUNT.lock); // @transfer_relock
        ACCOUNT.balance = balance - amount; // @transfer_write: `balance` is out of date by now.
        libc::pthread_mutex_unlock(&raw mut ACCOUNT.lock); // @transfer_reunlock
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
    let (transfer_may_go, go_transfer) = pipe().expect("a pipe");

    let teller = thread::spawn(move || transfer(100, &go_audit, &transfer_may_go));
    let auditor = thread::spawn(move || {
        await_turn(&audit_may_go);
        audit();
        give_turn(&go_transfer);
    });
    teller.join().expect("the teller's end");
    auditor.join().expect("the auditor's end");

    // SAFETY: no other thread is left.
    println!("balance: {}", unsafe { ACCOUNT.balance }); // 900; it should be 1000 - 100 - 5 = 895
}
