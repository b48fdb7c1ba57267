//! Has the linker compress the executable's debug information, to a quarter of its size. Backtraces read it as it is.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
}
