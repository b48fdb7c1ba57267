//! Every way to build a binary: levels of optimisation, position-independent or not, static and dynamic, of two C
//! libraries, link-time optimisation, and every place for debug information. In each the same violation is found with
//! the same lines and names, and the repaired program is clean.

use std::fs;
use std::path::Path;
use std::process::Command;

use tests::programs::install;
use tests::{Avtrace, Program, c, c_by, process, require_bpf, runs, target_dir};

/// Checks both bank programs, built in the same way.
#[track_caller]
fn check(build: impl Fn(&str) -> Program) {
    let (bank, fixed) = (build("bank"), build("bank_fixed"));
    for _ in 0..runs(1) {
        let (ended, report) = Avtrace::on(&bank).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
        let violation = report.only_violation();
        assert_eq!(violation.region, "transfer");
        assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"]);
        let places: Vec<_> = violation
            .edges
            .iter()
            .map(|edge| {
                let line = |place: &Option<tests::Location>| {
                    let place = place.as_ref().expect("a place");
                    assert!(place.file.ends_with("bank.c"), "{place:?}");
                    place.line
                };
                (edge.name(), line(&edge.source), line(&edge.sink))
            })
            .collect();
        let line = |mark| Some(bank.line(mark));
        assert_eq!(
            places,
            [
                ("account.lock", line("transfer_unlock"), line("audit_lock")),
                ("account.lock", line("audit_unlock"), line("transfer_relock")),
            ]
        );
    }
    for _ in 0..runs(1) {
        let (ended, report) = Avtrace::on(&fixed).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "balance: 895\n"), "{}", ended.stderr);
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        assert_eq!(report.serializable, Some(true));
    }
}

#[test]
fn at_every_level_of_optimisation() {
    require_bpf!();
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os", "-Og"] {
        check(|name| c(name, &["-g", level]));
    }
}

#[test]
fn at_fixed_addresses() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        check(|name| c(name, &["-g", level, "-fno-pie", "-no-pie"]));
    }
}

#[test]
fn linked_statically() {
    require_bpf!();
    check(|name| c(name, &["-g", "-O2", "-static"]));
    check(|name| c(name, &["-g", "-O2", "-static-pie"]));
}

#[test]
fn with_musl() {
    require_bpf!();
    check(|name| c_by("musl-gcc", name, &["-g", "-O2"]));
    check(|name| c_by("musl-gcc", name, &["-g", "-O2", "-static"]));
}

#[test]
fn with_a_c_library_of_its_own() {
    require_bpf!();
    // The system's, under other names in another place: also its file is another one.
    let folder = target_dir().join("programs/own-c-library");
    fs::create_dir_all(&folder).expect("a folder");
    let listed = process::run(Command::new("ldd").arg(&c("bank", &["-g", "-O2"]).path)).stdout;
    let find = |name: &str| {
        let mut words = listed.split_whitespace().filter(|word| word.starts_with('/'));
        words.find(|word| word.contains(name)).unwrap_or_else(|| panic!("{name} in {listed}"))
    };
    let linker = folder.join("linker.so");
    install(Path::new(find("ld-linux")), &linker, 0o755);
    fs::copy(find("libc.so"), folder.join("libc.so.6")).expect("a copy");
    let interpreter = format!("-Wl,--dynamic-linker={}", linker.display());
    let libraries = format!("-Wl,-rpath,{}", folder.display());
    check(|name| c(name, &["-g", "-O2", &interpreter, &libraries]));
}

#[test]
fn with_link_time_optimisation() {
    require_bpf!();
    check(|name| c(name, &["-g", "-O2", "-flto"]));
}

#[test]
fn with_debug_information_of_every_version() {
    require_bpf!();
    for version in ["-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        check(|name| c(name, &[version, "-O2"]));
    }
    check(|name| c(name, &["-g", "-O2", "-gz=zlib"]));
}

#[test]
fn with_debug_information_in_a_file_beside_it() {
    require_bpf!();
    check(|name| c(name, &["-g", "-O2"]).with_debug_link());
}

#[test]
fn with_split_debug_information() {
    require_bpf!();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        check(|name| c(name, &[version, "-O2", "-gsplit-dwarf"]));
    }
}

#[test]
fn with_split_debug_information_in_a_package() {
    require_bpf!();
    // No other test has these flags, because the single files are removed.
    check(|name| c(name, &["-gdwarf-4", "-O1", "-gsplit-dwarf"]).packaged());
}
