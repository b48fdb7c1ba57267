//! Symbols, sections, extents and debug files of files that do not run.

use std::path::Path;

use symbolize::{
    Binding, CallerFrame, DebugSearch, ElfFile, Error, ExtentSource, LinkAddr, ProcessAddr,
    SymbolKind,
};

use crate::support::Workspace;

fn one<'a>(file: &'a ElfFile, name: &str) -> symbolize::Symbol<'a> {
    let found: Vec<_> = file.symbols_named(name).collect();
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found[0]
}

#[test]
fn symbols_are_found_by_name_and_address() {
    let workspace = Workspace::new();
    let file = ElfFile::open(&workspace.compile("bank.c", "bank", &["-g"])).expect("opens");

    let transfer = one(&file, "transfer");
    assert_eq!((transfer.kind, transfer.binding), (SymbolKind::Function, Binding::Global));
    let account = one(&file, "account");
    assert_eq!((account.kind, account.size), (SymbolKind::Object, 40));
    assert_eq!(one(&file, "hidden_total").binding, Binding::Local);

    let inside = LinkAddr(transfer.address.0 + 5);
    let (symbol, offset) = file.symbol_at(inside).expect("covered");
    assert_eq!((symbol.name, offset), ("transfer", 5));
    let (symbol, offset) = file.symbol_at(LinkAddr(account.address.0 + 39)).expect("covered");
    assert_eq!((symbol.name, offset), ("account", 39));
    let far = LinkAddr(u64::MAX);
    assert_eq!(file.symbol_at(far), None);

    let extent = file.function_containing(inside).expect("covered");
    assert_eq!((extent.start, extent.end), (transfer.address, transfer.end()));
    assert_eq!((extent.name.as_deref(), extent.source), (Some("transfer"), ExtentSource::Symbol));
    assert_eq!(file.function_containing(account.address), None);
}

#[test]
fn addresses_and_offsets_are_converted_both_ways() {
    let workspace = Workspace::new();
    for options in [&["-no-pie"][..], &["-pie"], &["-static"], &["-static-pie"]] {
        let file = ElfFile::open(&workspace.compile("bank.c", "bank", options)).expect("opens");
        let fixed = matches!(options[0], "-no-pie" | "-static");
        assert_eq!(file.is_position_independent(), !fixed, "{options:?}");

        let transfer = one(&file, "transfer");
        let offset = file.file_offset(transfer.address).expect("code is in the file");
        assert_eq!(file.link_address(offset), Some(transfer.address), "{options:?}");
        let code = file.bytes_at(transfer.address, 16).expect("code is in the file");
        assert_eq!(code, &file.bytes()[offset.0 as usize..][..16]);

        let zeroes = one(&file, "big_zeroes");
        assert_eq!(file.file_offset(LinkAddr(zeroes.end().0 - 1)), None, "{options:?}");
        assert_eq!(file.bytes_at(LinkAddr(zeroes.end().0 - 1), 1), None);
    }
}

#[test]
fn what_never_changes_is_told_from_variables() {
    let workspace = Workspace::new();
    let options = ["-pie", "-Wl,-z,relro"];
    let file = ElfFile::open(&workspace.compile("bank.c", "bank", &options)).expect("opens");
    assert!(file.is_constant(one(&file, "transfer").address));
    assert!(file.is_constant(one(&file, "_DYNAMIC").address), "the linker protects it");
    assert!(!file.is_constant(one(&file, "account").address));
    assert!(!file.is_constant(one(&file, "big_zeroes").address));
    assert!(!file.is_constant(LinkAddr(u64::MAX)));
}

#[test]
fn stripped_code_has_extents_by_unwind_information() {
    let workspace = Workspace::new();
    let path = workspace.compile("bank.c", "bank", &["-O1", "-g"]);
    let whole = ElfFile::open(&path).expect("opens");
    workspace.run("strip", &["bank", "-o", "stripped"]);
    // Without its search table the unwind information must be read from end to end.
    workspace.run("objcopy", &["--remove-section=.eh_frame_hdr", "stripped", "untabled"]);
    for name in ["stripped", "untabled"] {
        let stripped = ElfFile::open(&workspace.join(name)).expect("opens");
        assert_eq!(stripped.symbols_named("transfer").count(), 0);
        for function in ["transfer", "deposit", "main"] {
            let symbol = one(&whole, function);
            let last = LinkAddr(symbol.end().0 - 1);
            let extent = stripped.function_containing(last).expect("an entry covers it");
            assert_eq!((extent.start, extent.end), (symbol.address, symbol.end()), "{function}");
            assert_eq!((extent.name, extent.source), (None, ExtentSource::Fde));
        }
    }
}

#[test]
fn versions_of_a_library_are_told_apart() {
    let workspace = Workspace::new();
    let source = workspace.join("versions.c");
    std::fs::write(
        &source,
        "__asm__(\".symver old_twice, twice@V1\");\n\
         __asm__(\".symver new_twice, twice@@V2\");\n\
         int old_twice(int n) { return n + n; }\n\
         int new_twice(int n) { return 2 * n; }\n",
    )
    .expect("write");
    std::fs::write(workspace.join("map"), "V1 { global: twice; local: *; };\nV2 { } V1;\n")
        .expect("write");
    let arguments = ["-shared", "-fPIC", "-Wl,--version-script=map", "versions.c"];
    workspace.run("gcc", &[&arguments[..], &["-o", "libversions.so"]].concat());
    workspace.run("strip", &["libversions.so", "-o", "stripped.so"]);

    for name in ["libversions.so", "stripped.so"] {
        let file = ElfFile::open(&workspace.join(name)).expect("opens");
        let found: Vec<_> = file
            .symbols_named("twice")
            .map(|symbol| (symbol.version, symbol.default_version))
            .collect();
        assert_eq!(found, [(Some("V2"), true), (Some("V1"), false)], "{name}");
    }
}

/// Splits `bank` into a stripped program and a debug file, in the way that distributions do.
fn split(workspace: &Workspace, debug_file: &str, options: &[&str]) {
    workspace.compile("bank.c", "bank", &[&["-g"], options].concat());
    workspace.run("objcopy", &["--only-keep-debug", "bank", debug_file]);
    workspace.run("strip", &["bank", "-o", "stripped"]);
}

#[test]
fn a_debug_file_is_found_by_link() {
    let workspace = Workspace::new();
    let no_id = ["-Wl,--build-id=none"];
    split(&workspace, "bank.debug", &no_id);
    workspace.run("objcopy", &["--add-gnu-debuglink=bank.debug", "stripped"]);
    let open = || ElfFile::open(&workspace.join("stripped")).expect("opens");
    assert_eq!(open().build_id(), None);
    assert_eq!(one(&open(), "hidden_total").size, 8);
    assert_eq!(open().debug_file().expect("found").path(), workspace.join("bank.debug"));

    std::fs::create_dir(workspace.join(".debug")).expect("mkdir");
    std::fs::rename(workspace.join("bank.debug"), workspace.join(".debug/bank.debug"))
        .expect("move");
    assert_eq!(open().debug_file().expect("found").path(), workspace.join(".debug/bank.debug"));

    // Below a debug directory the program's whole path is repeated.
    let root = workspace.join("root");
    let place = root.join(workspace.path().strip_prefix("/").expect("absolute"));
    std::fs::create_dir_all(&place).expect("mkdir");
    std::fs::rename(workspace.join(".debug/bank.debug"), place.join("bank.debug")).expect("move");
    assert!(open().debug_file().is_none());
    let search = DebugSearch::with_roots([root]);
    let file = ElfFile::open_with(&workspace.join("stripped"), &search).expect("opens");
    assert_eq!(one(&file, "hidden_total").size, 8);

    // Another build's debug file has another checksum.
    let place = place.join("bank.debug");
    let mut contents = std::fs::read(&place).expect("read");
    *contents.last_mut().expect("not empty") ^= 1;
    std::fs::write(&place, contents).expect("write");
    let file = ElfFile::open_with(&workspace.join("stripped"), &search).expect("opens");
    assert!(file.debug_file().is_none());
}

#[test]
fn a_debug_file_is_found_by_build_id() {
    let workspace = Workspace::new();
    split(&workspace, "bank.debug", &["-Wl,--build-id=0x0123456789abcdef"]);
    let place = workspace.join("root/.build-id/01");
    std::fs::create_dir_all(&place).expect("mkdir");
    let debug_file = place.join("23456789abcdef.debug");
    std::fs::rename(workspace.join("bank.debug"), &debug_file).expect("move");

    let search = DebugSearch::with_roots([workspace.join("root")]);
    let open = || ElfFile::open_with(&workspace.join("stripped"), &search).expect("opens");
    assert_eq!(open().build_id(), Some(&[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef][..]));
    assert_eq!(open().debug_file().expect("found").path(), debug_file);
    assert_eq!(one(&open(), "hidden_total").size, 8);

    // A file of another build in that place is passed over.
    split(&workspace, "other.debug", &["-Wl,--build-id=0xff23456789abcdef"]);
    std::fs::rename(workspace.join("other.debug"), &debug_file).expect("move");
    split(&workspace, "bank.debug", &["-Wl,--build-id=0x0123456789abcdef"]);
    assert!(open().debug_file().is_none());
}

#[test]
fn sections_are_decompressed() {
    let workspace = Workspace::new();
    let plain = ElfFile::open(&workspace.compile("bank.c", "plain", &["-g"])).expect("opens");
    let expected = plain.section(".debug_str").expect("sound").expect("present").data;
    assert!(!expected.is_empty());
    for format in ["zlib", "zlib-gnu", "zstd"] {
        let option = format!("--compress-debug-sections={format}");
        workspace.run("objcopy", &[&option, "plain", "small"]);
        let small = ElfFile::open(&workspace.join("small")).expect("opens");
        assert!(small.bytes().len() < plain.bytes().len(), "{format}");
        let section = small.section(".debug_str").expect("sound").expect("present");
        assert_eq!(section.data[..], expected[..], "{format}");
    }
    assert!(plain.section(".no_such_section").expect("sound").is_none());
}

#[test]
fn what_is_not_an_elf_file_is_said_to_be_none() {
    let workspace = Workspace::new();
    let path = workspace.join("file");
    for contents in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", &[0; 64]] {
        std::fs::write(&path, contents).expect("write");
        assert!(matches!(ElfFile::open(&path), Err(Error::NotElf { .. })));
    }
    assert!(matches!(ElfFile::open(Path::new("/no/such/file")), Err(Error::Io { .. })));
    assert!(matches!(ElfFile::open(workspace.path()), Err(Error::Io { .. })));
}

#[test]
fn frame_pointers_are_trusted_where_they_are_set_up() {
    let workspace = Workspace::new();
    let path = workspace.compile("bank.c", "bank", &["-O0", "-fno-omit-frame-pointer"]);
    let file = ElfFile::open(&path).expect("opens");
    let deposit = one(&file, "deposit");
    // At the first instruction nothing is pushed yet; in the middle the frame stands.
    assert!(!file.uses_frame_pointer_at(deposit.address));
    assert!(file.uses_frame_pointer_at(LinkAddr(deposit.address.0 + deposit.size / 2)));
    assert!(!file.uses_frame_pointer_at(LinkAddr(deposit.end().0 - 1)), "at the return");

    // The caller of a function, from its first instruction and from its middle.
    let word = |stack: &'static [(u64, u64)]| {
        move |address| stack.iter().find(|(at, _)| *at == address).map(|(_, word)| *word)
    };
    let caller = file.caller(deposit.address, 0x1000, 0x2000, word(&[(0x1000, 0x42)]));
    let expected =
        |stack_pointer, rbp| CallerFrame { return_address: ProcessAddr(0x42), stack_pointer, rbp };
    assert_eq!(caller, Some(expected(0x1008, 0x2000)));
    let middle = LinkAddr(deposit.address.0 + deposit.size / 2);
    let caller = file.caller(middle, 0x1000, 0x2000, word(&[(0x2000, 0x3000), (0x2008, 0x42)]));
    assert_eq!(caller, Some(expected(0x2010, 0x3000)));
    let caller = file.caller(middle, 0x1000, 0x2000, word(&[(0x2000, 0x3000)]));
    assert_eq!(caller, None, "memory that cannot be read");
    assert_eq!(file.caller(LinkAddr(1), 0x1000, 0x2000, word(&[])), None, "no code");

    let path = workspace.compile("bank.c", "bank", &["-O2", "-fomit-frame-pointer"]);
    let file = ElfFile::open(&path).expect("opens");
    let deposit = one(&file, "deposit");
    for offset in 0..deposit.size {
        assert!(!file.uses_frame_pointer_at(LinkAddr(deposit.address.0 + offset)));
    }
    assert!(!file.uses_frame_pointer_at(LinkAddr(1 << 60)));
}

#[test]
fn a_stripped_file_has_the_ranges_of_its_functions() {
    let workspace = Workspace::new();
    let whole = ElfFile::open(&workspace.compile("bank.c", "bank", &["-O1"])).expect("opens");
    let stripped = workspace.compile("bank.c", "stripped", &["-O1", "-s"]);
    let stripped = ElfFile::open(&stripped).expect("opens");
    assert!(stripped.is_stripped() && !whole.is_stripped());
    let ranges = stripped.unwind_ranges();
    assert!(ranges.is_sorted_by_key(|range| range.start));
    for name in ["transfer", "main", "_start"] {
        let symbol = one(&whole, name);
        let range = ranges.iter().find(|range| range.start == symbol.address).expect(name);
        assert_eq!((range.end, range.is_part), (symbol.end(), false), "{name}");
    }
    for stubs in [".plt", ".init"] {
        let Ok(Some(section)) = stripped.section(stubs) else { continue };
        assert!(ranges.iter().all(|range| range.start != section.address), "{stubs}");
    }
    assert_eq!(stripped.name_by_address(LinkAddr(0x1234)).short, "stripped+0x1234");
}
