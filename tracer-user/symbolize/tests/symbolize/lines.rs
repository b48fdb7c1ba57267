//! Functions and source lines, with and without debug information of all kinds.

use std::path::Path;

use symbolize::{
    DebugSearch, ElfFile, Frame, Miss, ProcessAddr, Resolution, Symbolizer, is_wrapper,
};

use crate::support::{Workspace, exists, fixture, line_of};

/// The addresses after all calls in the function `caller` to the function `callee`, as the
/// disassembler sees it.
fn calls(workspace: &Workspace, program: &Path, caller: &str, callee: &str) -> Vec<ProcessAddr> {
    let option = format!("--disassemble={caller}");
    let arguments = [&option, "--no-show-raw-insn", program.to_str().expect("UTF-8")];
    let text = workspace.output("objdump", &arguments);
    let lines: Vec<(u64, &str)> = text
        .lines()
        .filter_map(|line| {
            let (address, instruction) = line.split_once(":\t")?;
            Some((u64::from_str_radix(address.trim(), 16).ok()?, instruction))
        })
        .collect();
    let target = format!("<{callee}>");
    lines
        .windows(2)
        .filter(|pair| pair[0].1.starts_with("call") && pair[0].1.ends_with(&target))
        .map(|pair| ProcessAddr(pair[1].0))
        .collect()
}

fn one_call(workspace: &Workspace, program: &Path, caller: &str, callee: &str) -> ProcessAddr {
    let found = calls(workspace, program, caller, callee);
    assert_eq!(found.len(), 1, "calls of {callee} in {caller}: {found:?}");
    found[0]
}

/// The functions and line numbers of the frames, of which all lines must be in `source`.
fn shape<'a>(resolution: &'a Resolution, source: &str) -> Vec<(&'a str, u32, bool)> {
    let frames = resolution.frames.iter();
    frames
        .map(|frame| {
            assert_eq!(frame.file.as_deref(), Some(&*fixture(source)));
            let function = frame.function.as_ref().expect("a function");
            (function.short.as_str(), frame.line.expect("a line"), frame.inlined)
        })
        .collect()
}

/// Every address of `function` that resolves to the inlined line of `add_fee`.
fn inlined(symbolizer: &Symbolizer, function: &str) -> Vec<Resolution> {
    let module = symbolizer.executable().expect("the program");
    let file = module.file().expect("opened");
    let symbol = file.symbols_named(function).next().expect("a symbol");
    let addresses = symbol.address.0..symbol.end().0;
    let resolutions = addresses.map(|at| symbolizer.resolve(ProcessAddr(at)).expect("covered"));
    resolutions.filter(|found| found.frames.len() == 2).collect()
}

pub fn check_bank(symbolizer: &Symbolizer) {
    let found = inlined(symbolizer, "deposit");
    let expected = [
        ("add_fee", line_of("bank.c", "inlined line"), true),
        ("deposit", line_of("bank.c", "deposit calls add_fee"), false),
    ];
    let matching = found.iter().find(|resolution| shape(resolution, "bank.c") == expected);
    let resolution = matching.unwrap_or_else(|| panic!("{found:#?}"));
    let (name, offset) = resolution.function.as_ref().expect("a function");
    assert_eq!(name.short, "deposit");
    assert_eq!(resolution.lines_missing, None);
    assert_eq!(resolution.to_string(), format!("deposit+{offset:#x} (bank)"));
}

#[test]
fn every_kind_of_debug_information_gives_lines() {
    let workspace = Workspace::new();
    for options in [
        &["-O0", "-g", "-gdwarf-4"][..],
        &["-O0", "-g", "-gdwarf-5"],
        &["-O2", "-g", "-gdwarf-4"],
        &["-O2", "-g", "-gdwarf-5"],
        &["-O2", "-g", "-no-pie"],
        &["-O2", "-g", "-gz=zlib"],
        &["-O2", "-g", "-gz=zlib-gnu", "-gdwarf-4"],
        &["-O2", "-g", "-gsplit-dwarf", "-gdwarf-5"],
        &["-O2", "-g", "-gsplit-dwarf", "-gdwarf-4"],
        &["-O2", "-g", "-fdebug-types-section", "-gdwarf-4"],
        &["-O2", "-g", "-fdebug-types-section", "-gdwarf-5"],
        &["-O2", "-g", "-flto"],
        &["-O2", "-g", "-ffunction-sections"],
    ] {
        println!("{options:?}");
        let program = workspace.compile("bank.c", "bank", options);
        check_bank(&Symbolizer::for_executable(&program).expect("opens"));
    }
}

#[test]
fn clangs_debug_information_gives_lines() {
    if !exists("clang") {
        return;
    }
    let workspace = Workspace::new();
    let source = fixture("bank.c");
    for options in [&["-gdwarf-4"][..], &["-gdwarf-5"], &["-gsplit-dwarf"]] {
        println!("{options:?}");
        let common = ["-O1", "-g", source.to_str().expect("UTF-8"), "-o", "bank"];
        workspace.run("clang", &[&common[..], options].concat());
        check_bank(&Symbolizer::for_executable(&workspace.join("bank")).expect("opens"));
    }
}

#[test]
fn packages_of_split_debug_information_are_read() {
    let workspace = Workspace::new();
    // That of binutils does not know version 5.
    for (version, tool) in [("-gdwarf-4", "dwp"), ("-gdwarf-5", "llvm-dwp")] {
        println!("{version}");
        if !exists(tool) {
            continue;
        }
        let program = workspace.compile("bank.c", "bank", &["-O2", "-g", "-gsplit-dwarf", version]);
        workspace.run(tool, &["-e", "bank", "-o", "bank.dwp"]);
        workspace.remove_all(".dwo");
        check_bank(&Symbolizer::for_executable(&program).expect("opens"));
        std::fs::remove_file(workspace.join("bank.dwp")).expect("remove");

        // Without either, the symbol and, from the skeleton, the line remain.
        let symbolizer = Symbolizer::for_executable(&program).expect("opens");
        let after = one_call(&workspace, &program, "transfer", "deposit");
        let resolution = symbolizer.resolve_return_address(after).expect("covered");
        assert_eq!(
            shape(&resolution, "bank.c"),
            [("transfer", line_of("bank.c", "transfer calls deposit"), false)]
        );
    }
}

#[test]
fn split_files_that_moved_with_the_program_are_found() {
    let workspace = Workspace::new();
    workspace.compile("bank.c", "bank", &["-O2", "-g", "-gsplit-dwarf"]);
    let elsewhere = Workspace::new();
    for entry in std::fs::read_dir(workspace.path()).expect("a directory") {
        let from = entry.expect("an entry").path();
        let to = elsewhere.path().join(from.file_name().expect("a name"));
        std::fs::rename(from, to).expect("move");
    }
    check_bank(&Symbolizer::for_executable(&elsewhere.join("bank")).expect("opens"));
}

#[test]
fn a_return_address_is_resolved_at_its_call() {
    let workspace = Workspace::new();
    let program = workspace.compile("bank.c", "bank", &["-O0", "-g"]);
    let symbolizer = Symbolizer::for_executable(&program).expect("opens");
    let after = one_call(&workspace, &program, "transfer", "deposit");
    let resolution = symbolizer.resolve_return_address(after).expect("covered");
    let line = line_of("bank.c", "transfer calls deposit");
    assert_eq!(shape(&resolution, "bank.c"), [("transfer", line, false)]);
    assert_eq!(ProcessAddr(resolution.address.0), after);

    let file = symbolizer.executable().expect("the program").file().expect("opened");
    let transfer = file.symbols_named("transfer").next().expect("a symbol").address;
    assert!(symbolizer.uses_frame_pointer_at(after));
    assert!(!symbolizer.uses_frame_pointer_at(ProcessAddr(transfer.0)));
}

#[test]
fn a_separate_debug_file_gives_lines() {
    let workspace = Workspace::new();
    workspace.compile("bank.c", "whole", &["-O2", "-g", "-Wl,--build-id=0x0102030405060708"]);
    workspace.run("objcopy", &["--only-keep-debug", "whole", "bank.debug"]);
    workspace.run("objcopy", &["--strip-all", "--add-gnu-debuglink=bank.debug", "whole", "bank"]);
    check_bank(&Symbolizer::for_executable(&workspace.join("bank")).expect("opens"));

    let directory = workspace.join("root/.build-id/01");
    std::fs::create_dir_all(&directory).expect("mkdir");
    std::fs::rename(workspace.join("bank.debug"), directory.join("02030405060708.debug"))
        .expect("move");
    let search = DebugSearch::with_roots([workspace.join("root")]);
    let symbolizer = Symbolizer::for_executable_with(&workspace.join("bank"), &search);
    check_bank(&symbolizer.expect("opens"));
}

#[test]
fn without_debug_information_there_are_functions() {
    let workspace = Workspace::new();
    let program = workspace.compile("bank.c", "bank", &["-O2"]);
    let symbolizer = Symbolizer::for_executable(&program).expect("opens");
    let after = one_call(&workspace, &program, "transfer", "deposit");
    let resolution = symbolizer.resolve_return_address(after).expect("covered");
    let (name, offset) = resolution.function.clone().expect("a function");
    assert_eq!(name.short, "transfer");
    assert_eq!(resolution.to_string(), format!("transfer+{offset:#x} (bank)"));
    assert_eq!(resolution.frames, [Frame { function: Some(name), ..Frame::default() }]);
    let module = program.display().to_string();
    assert_eq!(resolution.lines_missing, Some(Miss::NoDebugInfo { module }));

    // Stripped, the function's bounds are all that is left.
    workspace.run("strip", &["bank"]);
    let symbolizer = Symbolizer::for_executable(&program).expect("opens");
    let resolution = symbolizer.resolve_return_address(after).expect("covered");
    let (name, same_offset) = resolution.function.clone().expect("its bounds");
    assert_eq!((name.short, same_offset), (format!("bank+{:#x}", after.0 - offset), offset));
}

#[test]
fn a_stripped_library_has_the_names_of_its_exported_functions_only() {
    let workspace = Workspace::new();
    let options = ["-shared", "-fPIC", "-O1", "-g", "-fno-optimize-sibling-calls"];
    let library = workspace.compile("fee.c", "libfee.so", &options);
    let look_up = one_call(&workspace, &library, "fee_of", "look_up");
    let look_up_start = {
        let file = ElfFile::open(&library).expect("opens");
        file.symbols_named("look_up").next().expect("a symbol").address
    };

    let symbolizer = Symbolizer::for_executable(&library).expect("opens");
    let resolution = symbolizer.resolve_return_address(look_up).expect("covered");
    assert_eq!(shape(&resolution, "fee.c"), [("fee_of", line_of("fee.c", "library call"), false)]);

    workspace.run("strip", &["libfee.so"]);
    let symbolizer = Symbolizer::for_executable(&library).expect("opens");
    let resolution = symbolizer.resolve_return_address(look_up).expect("covered");
    let (name, _) = resolution.function.expect("it is exported");
    assert_eq!(name.short, "fee_of");
    // The function that is not exported must not pass for its neighbour.
    let resolution = symbolizer.resolve(ProcessAddr(look_up_start.0 + 1)).expect("covered");
    let (name, offset) = resolution.function.expect("its bounds");
    assert_eq!((name.short, offset), (format!("libfee.so+{look_up_start}"), 1));
}

#[test]
fn cpp_names_and_library_headers_are_told_apart() {
    let workspace = Workspace::new();
    let program = workspace.compile("shop.cpp", "shop", &["-O2", "-g", "-pthread"]);
    let symbolizer = Symbolizer::for_executable(&program).expect("opens");
    let module = symbolizer.executable().expect("the program");
    let file = module.file().expect("opened");
    let add = file.symbols_named("_ZN4shop5Stock3addEl").next().expect("a symbol");
    let resolutions: Vec<Resolution> = (add.address.0..add.end().0)
        .map(|address| symbolizer.resolve(ProcessAddr(address)).expect("covered"))
        .collect();

    // The lock is acquired in a header; the first frame outside it is the line that acquires it.
    let locking = resolutions.iter().filter(|found| found.frames.iter().any(is_wrapper));
    let own_lines: Vec<(u32, &str)> = locking
        .filter_map(|found| found.frames.iter().find(|frame| !is_wrapper(frame)))
        .map(|frame| {
            assert_eq!(frame.file.as_deref(), Some(&*fixture("shop.cpp")));
            (frame.line.expect("a line"), frame.function.as_ref().expect("a name").short.as_str())
        })
        .collect();
    let expected = (line_of("shop.cpp", "takes the lock"), "shop::Stock::add");
    assert!(own_lines.contains(&expected), "{own_lines:?}");

    let (name, _) = resolutions[0].function.as_ref().expect("a function");
    assert_eq!(name.full, "shop::Stock::add(long)");
    let twice = file.symbols_named("_ZN4shop5twiceIlEET_S1_").next().expect("a symbol");
    let found = symbolizer.resolve(ProcessAddr(twice.address.0)).expect("covered");
    assert_eq!(found.frames[0].function.as_ref().expect("a name").short, "shop::twice<long>");
}

#[test]
fn rust_names_and_lines_are_found() {
    let workspace = Workspace::new();
    for mangling in ["legacy", "v0"] {
        let mangling = format!("-Csymbol-mangling-version={mangling}");
        let options = ["-g", "-Copt-level=0", "--edition=2021", "-Zunstable-options", &mangling];
        let program = workspace.compile_rust("vault.rs", "vault", &options);
        let symbolizer = Symbolizer::for_executable(&program).expect("opens");
        let file = symbolizer.executable().expect("the program").file().expect("opened");
        let deposit = file
            .symbols()
            .iter()
            .find(|symbol| symbol.kind.is_function() && symbol.name.contains("7deposit"))
            .expect("a symbol");
        let mut found = (deposit.address.0..deposit.end().0)
            .map(|address| symbolizer.resolve(ProcessAddr(address)).expect("covered"));
        let line = line_of("vault.rs", "deposit adds");
        let own = found
            .find_map(|found| {
                let frame = found.frames.iter().find(|frame| !is_wrapper(frame))?.clone();
                (frame.line == Some(line)).then_some(frame)
            })
            .expect("the line has code");
        assert_eq!(own.function.expect("a name").short, "vault::bank::deposit", "{mangling}");
        assert_eq!(own.file.as_deref(), Some(&*fixture("vault.rs")));
    }
}

#[test]
fn addresses_outside_all_code_are_misses() {
    let workspace = Workspace::new();
    let program = workspace.compile("bank.c", "bank", &["-O0", "-g"]);
    let symbolizer = Symbolizer::for_executable(&program).expect("opens");
    for address in [u64::MAX, 1 << 40] {
        assert_eq!(symbolizer.resolve(ProcessAddr(address)), Err(Miss::NotMapped));
    }
    assert_eq!(symbolizer.resolve_return_address(ProcessAddr(0)), Err(Miss::NotMapped));
    // Start-up code from the C library has a symbol and no lines.
    let file = symbolizer.executable().expect("the program").file().expect("opened");
    let resolution = symbolizer.resolve(ProcessAddr(file.entry().0)).expect("covered");
    assert_eq!(resolution.function.expect("a symbol").0.short, "_start");
    assert!(matches!(resolution.lines_missing, Some(Miss::NotCovered { .. })));
}
