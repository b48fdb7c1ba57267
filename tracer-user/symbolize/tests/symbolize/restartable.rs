//! Restartable sequences in files of all kinds, by their descriptors or by what the code says.

use std::path::Path;

use symbolize::{DebugSearch, ElfFile, LinkAddr};
use x86::restartable::restartable_sequences;

use crate::support::Workspace;

/// The address of a symbol.
fn at(file: &ElfFile, name: &str) -> u64 {
    file.symbols_named(name).next().expect("a symbol").address.0
}

/// Checks which instructions of the fixture count, by the symbols of one file and the sequences of another.
fn check(symbols: &ElfFile, file: &ElfFile) {
    let contains = |address: u64| restartable_sequences(file).contains(LinkAddr(address));
    for name in ["listed", "hidden"] {
        let of = |label: &str| at(symbols, &format!("{name}_{label}"));
        assert!(
            !contains(at(symbols, name)),
            "{name} begins before its sequence: {:x?}",
            restartable_sequences(file)
        );
        for address in of("start")..of("end") {
            assert!(contains(address), "{name}: {address:#x}");
        }
        assert!(!contains(of("end")), "{name} has done it");
        assert!(!contains(of("abort") - 5) && contains(of("abort") - 4), "{name}: the signature");
        assert!(contains(of("abort") - 1) && !contains(of("abort")), "{name}: the signature");
    }
    assert!(!contains(at(symbols, "registers") + 1));
}

#[test]
fn sequences_are_found_wherever_they_are_described() {
    let workspace = Workspace::new();
    for options in [
        &["-no-pie"][..],
        &["-pie", "-fPIE"],
        &["-static"],
        &["-static-pie", "-fPIE"],
        &["-shared", "-fPIC"],
        &["-pie", "-fPIE", "-Wl,-z,pack-relative-relocs"],
    ] {
        let path = workspace.compile("restartable.c", "restartable", options);
        let file = ElfFile::open(&path).expect("opens");
        check(&file, &file);
        let found = restartable_sequences(&file);
        assert_eq!((found.malformed, found.undescribed), (1, 1), "{options:?}");
        let made = at(&file, "made");
        assert!(found.contains(LinkAddr(made)) && found.contains(LinkAddr(made + 3)));

        let stripped = workspace.join("stripped");
        workspace.run("strip", &["--strip-all", "restartable", "-o", "stripped"]);
        let stripped = ElfFile::open(&stripped).expect("opens");
        check(&file, &stripped);
        let found = restartable_sequences(&stripped);
        assert_eq!((found.malformed, found.undescribed), (1, 1), "{options:?}");

        // Without a table of sections.
        let mut bytes = file.bytes().to_vec();
        bytes[0x28..0x30].fill(0);
        bytes[0x3c..0x40].fill(0);
        let bare = ElfFile::from_bytes(Path::new("bare"), bytes.into(), &DebugSearch::default());
        let bare = bare.expect("an ELF file");
        assert!(bare.section("__rseq_cs").expect("no damage").is_none());
        check(&file, &bare);
    }
}

#[test]
fn most_files_have_none() {
    let workspace = Workspace::new();
    let file = ElfFile::open(&workspace.compile("bank.c", "bank", &["-g"])).expect("opens");
    assert_eq!(*restartable_sequences(&file), symbolize::RestartableSequences::default());
}
