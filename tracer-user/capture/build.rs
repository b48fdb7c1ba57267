//! Compiles the kernel programs into `OUT_DIR/avtrace-bpf.o`, for the library to embed. Without a toolchain for them it
//! takes the object that comes with the package.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs, process};

use bpf_build::Toolchain;

fn main() -> Result<(), Box<dyn Error>> {
    for variable in [bpf_build::RUSTC_VARIABLE, bpf_build::LINKER_VARIABLE] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let package_dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let source_dir = package_dir
        .ancestors()
        .nth(2)
        .ok_or("the package is in no workspace")?
        .join(bpf_build::DIRECTORY);
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);

    let toolchain = match Toolchain::find() {
        Ok(toolchain) => toolchain,
        // Cargo shows this line and nothing else; it fails the build by itself.
        Err(missing) => {
            for file in [bpf_build::SHIPPED_OBJECT, bpf_build::SHIPPED_SOURCES] {
                println!("cargo::rerun-if-changed={}", package_dir.join(file).display());
            }
            println!("cargo::rerun-if-changed={}", source_dir.display());
            match bpf_build::shipped(&package_dir, &source_dir)? {
                Some(object) => fs::write(out_dir.join("avtrace-bpf.o"), object)?,
                None => println!(
                    "cargo::error=the kernel programs cannot be built: {missing}; those that come with the sources are \
                     of other sources"
                ),
            }
            return Ok(());
        }
    };
    for input in bpf_build::inputs(&toolchain, &source_dir) {
        println!("cargo::rerun-if-changed={}", input.display());
    }
    match bpf_build::build(&toolchain, &source_dir, &out_dir) {
        Ok(object) => {
            for line in object.warnings.lines().filter(|line| !line.trim().is_empty()) {
                println!("cargo::warning={line}");
            }
            fs::copy(&object.path, out_dir.join("avtrace-bpf.o"))?;
            Ok(())
        }
        Err(error) => {
            eprintln!("{error}; toolchain: {toolchain}");
            if let bpf_build::Error::Failed { diagnostics, .. } = &error {
                eprintln!("{diagnostics}");
            }
            process::exit(1);
        }
    }
}
