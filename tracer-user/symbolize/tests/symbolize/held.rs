//! Classes of memory behind pointers, in C, C++ and Rust.

use std::{collections::BTreeSet, path::Path};

use symbolize::{DataClass, LinkAddr, ProcessAddr, Symbolizer};

use crate::support::{Workspace, exists, fixture};

/// Returns the best classes of the memory that the code of each line accesses, as `line text: class`.
fn classes(program: &Path, source: &str) -> BTreeSet<String> {
    let symbolizer = Symbolizer::for_executable(program).expect("opens");
    let file = symbolizer.executable().expect("a module").file().expect("opens").clone();
    let text = std::fs::read_to_string(fixture(source)).expect("the fixture");
    let lines: Vec<&str> = text.lines().collect();
    let mut found = BTreeSet::new();
    for symbol in file.symbols().iter().filter(|symbol| symbol.kind.is_function()) {
        let is_own = symbolizer.resolve(ProcessAddr(symbol.address.0)).is_ok_and(|resolution| {
            let files = resolution.frames.iter().filter_map(|frame| frame.file.as_ref());
            files.into_iter().any(|file| file.ends_with(source))
        });
        if !is_own {
            continue;
        }
        for address in (symbol.address.0..symbol.end().0).map(LinkAddr) {
            let paths = x86::data_paths::to_access(&file, address);
            let classes = paths.iter().filter_map(|path| file.data_class(path));
            let Some(best) = classes.min_by_key(|class: &DataClass| class.rank) else { continue };
            let resolution = symbolizer.resolve(ProcessAddr(address.0)).expect("resolves");
            let Some(frame) = resolution.frames.first() else { continue };
            let is_here = frame.file.as_ref().is_some_and(|file| file.ends_with(source));
            let Some(line) = frame.line.filter(|_| is_here) else { continue };
            if let Some((_, mark)) = lines[line as usize - 1].split_once("// ") {
                found.insert(format!("{mark}: {}", best.name));
            }
        }
    }
    found
}

#[track_caller]
fn assert_has(found: &BTreeSet<String>, wanted: &[&str], case: &str) {
    for wanted in wanted {
        assert!(found.contains(*wanted), "{case}: no `{wanted}` in {found:#?}");
    }
}

#[test]
fn memory_in_c_is_named_by_type_and_field() {
    let workspace = Workspace::new();
    for options in [&["-g", "-O0"][..], &["-g", "-O2"], &["-gdwarf-4", "-O2"], &["-g", "-Og"]] {
        let program = workspace.compile("held.c", "held", options);
        let wanted = [
            "counter: *counter",
            "length: queue.length",
            "next: queue.length",
            "height: person_t.owner.height",
            "slots: person_t.slots[]",
            "global: queue.length",
            "local: on_stack::total",
        ];
        assert_has(&classes(&program, "held.c"), &wanted, &options.join(" "));
    }
}

#[test]
fn memory_behind_a_record_has_a_true_name_or_none() {
    let workspace = Workspace::new();
    for options in [&["-g", "-O0"][..], &["-g", "-O1"], &["-g", "-O2"], &["-gdwarf-4", "-O3"]] {
        let found = classes(&workspace.compile("behind.c", "behind", options), "behind.c");
        let case = options.join(" ");
        let wanted = [
            "first: node.tail[]",
            "third: node.tail[]",
            "any: node.tail[]",
            "next: node.tail[]",
            "element: item.price",
        ];
        assert_has(&found, &wanted, &case);
        let is_false = |name: &&String| {
            let of_tail = ["first: ", "third: ", "any: "].iter().any(|mark| name.starts_with(mark));
            of_tail && name.contains("node.") && !name.ends_with("tail[]")
                || name.starts_with("payload: header.") && !name.ends_with(".length")
        };
        let wrong: Vec<_> = found.iter().filter(is_false).collect();
        assert!(wrong.is_empty(), "{case}: {wrong:?}");
    }
}

#[test]
fn memory_in_cpp_is_named_by_type_and_field() {
    let workspace = Workspace::new();
    for options in [&["-g", "-O0"][..], &["-g", "-O2"]] {
        let program = workspace.compile("held.cpp", "held", options);
        let wanted =
            ["this: Account.balance", "reference: Account.balance", "owner: Account.balance"];
        assert_has(&classes(&program, "held.cpp"), &wanted, &options.join(" "));
    }
    let program = workspace.compile("held.cpp", "held", &["-g", "-O0"]);
    assert_has(&classes(&program, "held.cpp"), &["captured: *total"], "-O0");
}

#[test]
fn memory_in_rust_is_named_by_type_and_field() {
    if !exists("rustc") {
        return;
    }
    let workspace = Workspace::new();
    for options in [&["-g", "-Copt-level=0"][..], &["-g", "-Copt-level=2"]] {
        let program = workspace.compile_rust("held.rs", "held", options);
        let wanted = ["field: Account.id", "guarded: Account.id"];
        assert_has(&classes(&program, "held.rs"), &wanted, &options.join(" "));
    }
}
