//! A program with the transfer of `examples/cargo`.

fn main() {
    println!("balance: {}", bank::transfer_during_audit());
}
