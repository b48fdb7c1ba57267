//! Variables by name and by address, in C, C++ and Rust.

use std::path::Path;

use symbolize::{DebugSearch, Miss, NameMiss, ProcessAddr, Symbolizer, Variable};

use crate::lines;
use crate::support::{Waiting, Workspace, exists, fixture};

fn open(program: &Path) -> Symbolizer {
    Symbolizer::for_executable(program).expect("opens")
}

#[track_caller]
fn find(symbolizer: &Symbolizer, expression: &str) -> Variable {
    symbolizer.lookup_variable(expression).unwrap_or_else(|miss| panic!("{expression}: {miss}"))
}

/// The distance of a member from its variable, and its size.
#[track_caller]
fn place(symbolizer: &Symbolizer, expression: &str, whole: &str) -> (u64, u64) {
    let part = find(symbolizer, expression);
    assert_eq!(part.name, expression);
    (part.address.0 - find(symbolizer, whole).address.0, part.size.expect("a size"))
}

#[track_caller]
fn name_of(symbolizer: &Symbolizer, whole: &str, offset: u64, len: u64) -> String {
    let address = ProcessAddr(find(symbolizer, whole).address.0 + offset);
    match symbolizer.describe(address, len) {
        Ok(described) => described.to_string(),
        Err(miss) => panic!("{whole}+{offset}: {miss}"),
    }
}

fn check_bank(bank: &Symbolizer) {
    for (expression, whole, offset, size) in [
        ("account", "account", 0, 40),
        ("account.id", "account", 0, 8),
        ("account.owner", "account", 8, 16),
        ("account.owner.age", "account", 20, 4),
        ("account.owner.name[3]", "account", 11, 1),
        ("account.balance", "account", 24, 8),
        ("account.limit.halves.high", "account", 34, 2),
        ("accounts", "accounts", 0, 160),
        ("accounts[2].owner.age", "accounts", 100, 4),
        ("matrix", "matrix", 0, 60),
        ("matrix[1]", "matrix", 20, 20),
        ("matrix[1][2]", "matrix", 28, 4),
        ("ready", "ready", 0, 4),
        ("pointer_to_ready", "pointer_to_ready", 0, 8),
        ("deposit::calls", "deposit::calls", 0, 4),
    ] {
        assert_eq!(place(bank, expression, whole), (offset, size), "{expression}");
    }
    assert_eq!(find(bank, "calls").name, "deposit::calls");

    for (whole, offset, len, name) in [
        ("account", 0, 8, "account.id"),
        ("account", 8, 1, "account.owner.name[0]"),
        ("account", 20, 4, "account.owner.age"),
        ("account", 8, 16, "account.owner"),
        ("account", 24, 8, "account.balance"),
        ("account", 25, 1, "account.balance+0x1"),
        ("account", 24, 4, "account.balance"),
        ("account", 32, 4, "account.limit.whole"),
        ("account", 34, 2, "account.limit.halves.high"),
        ("account", 36, 4, "account.{flags, colour}"),
        ("account", 16, 16, "account+0x10"),
        ("account", 0, 40, "account"),
        ("accounts", 100, 4, "accounts[2].owner.age"),
        ("accounts", 80, 40, "accounts[2]"),
        ("matrix", 28, 4, "matrix[1][2]"),
        ("matrix", 24, 8, "matrix+0x18"),
        ("ready", 0, 4, "ready"),
        ("calls", 0, 4, "deposit::calls"),
        ("hidden_total", 0, 8, "hidden_total"),
        ("big_zeroes", 19999, 1, "big_zeroes[19999]"),
    ] {
        assert_eq!(name_of(bank, whole, offset, len), name, "{whole} {offset} {len}");
    }
}

#[test]
fn members_and_elements_of_c_variables_are_found_and_named() {
    let workspace = Workspace::new();
    for options in [
        &["-O0", "-g", "-gdwarf-4"][..],
        &["-O0", "-g", "-gdwarf-5"],
        &["-O0", "-g", "-gdwarf-3", "-gstrict-dwarf"],
        &["-O0", "-g", "-no-pie"],
        &["-O0", "-g", "-gsplit-dwarf", "-gdwarf-4"],
        &["-O0", "-g", "-gsplit-dwarf", "-gdwarf-5"],
        &["-O0", "-g", "-fdebug-types-section", "-gdwarf-4"],
        &["-O0", "-g", "-fdebug-types-section", "-gdwarf-5"],
        &["-O0", "-g", "-fdebug-types-section", "-gsplit-dwarf", "-gdwarf-5"],
        &["-O0", "-g", "-gz=zlib"],
        &["-O0", "-g", "-flto"],
    ] {
        println!("{options:?}");
        check_bank(&open(&workspace.compile("bank.c", "bank", options)));
    }
}

#[test]
fn members_are_found_in_clangs_debug_information() {
    if !exists("clang") {
        return;
    }
    let workspace = Workspace::new();
    let source = fixture("bank.c");
    for options in [&["-gdwarf-4"][..], &["-gdwarf-5"], &["-gsplit-dwarf"]] {
        println!("{options:?}");
        let common = ["-O0", "-g", source.to_str().expect("UTF-8"), "-o", "bank"];
        workspace.run("clang", &[&common[..], options].concat());
        check_bank(&open(&workspace.join("bank")));
    }
}

#[test]
fn members_are_found_in_separate_debug_files() {
    let workspace = Workspace::new();
    workspace.compile("bank.c", "whole", &["-g", "-Wl,--build-id=0x0102030405060708"]);
    let directory = workspace.join("root/.build-id/01");
    std::fs::create_dir_all(&directory).expect("mkdir");
    let debug_file = directory.join("02030405060708.debug");
    let debug_file = debug_file.to_str().expect("UTF-8");
    workspace.run("objcopy", &["--only-keep-debug", "whole", debug_file]);
    workspace.run("strip", &["whole", "-o", "bank"]);
    let search = DebugSearch::with_roots([workspace.join("root")]);
    let bank = Symbolizer::for_executable_with(&workspace.join("bank"), &search).expect("opens");
    check_bank(&bank);
}

#[test]
fn debug_information_that_files_share_is_found() {
    if !exists("dwz") {
        return;
    }
    let workspace = Workspace::new();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        for name in ["bank", "other"] {
            workspace.compile("bank.c", name, &["-O0", "-g", version]);
        }
        workspace.run("dwz", &["-m", "shared", "bank", "other"]);
        let sections = workspace.output("readelf", &["-SW", "bank"]);
        assert!(sections.contains(".gnu_debugaltlink"), "{sections}");
        let bank = open(&workspace.join("bank"));
        check_bank(&bank);
        lines::check_bank(&bank);
    }
}

#[test]
fn debug_information_without_symbols_is_enough() {
    let workspace = Workspace::new();
    let program = workspace.compile("bank.c", "bank", &["-O0", "-g"]);
    let with_symbols = open(&program);
    workspace.run("objcopy", &["--remove-section=.symtab", "bank", "unnamed"]);
    let without = open(&workspace.join("unnamed"));
    for name in ["account.balance", "matrix[1][2]", "deposit::calls", "hidden_total"] {
        let variable = find(&without, name);
        assert_eq!(variable.address, find(&with_symbols, name).address, "{name}");
        let described = without.describe(variable.address, variable.size.expect("a size"));
        assert_eq!(described.expect("known").to_string(), name);
    }
    assert_eq!(without.near_names("acount", 1), ["account"]);
}

#[test]
fn without_debug_information_there_are_symbols_and_offsets() {
    let workspace = Workspace::new();
    let bank = open(&workspace.compile("bank.c", "bank", &["-O0"]));
    assert_eq!(find(&bank, "account").size, Some(40));
    assert_eq!(name_of(&bank, "account", 0, 8), "account");
    assert_eq!(name_of(&bank, "account", 24, 8), "account+0x18");
    assert_eq!(find(&bank, "calls").size, Some(4));
    assert_eq!(name_of(&bank, "calls", 0, 4), "calls");
    let miss = bank.lookup_variable("account.balance").expect_err("no types");
    assert!(matches!(&miss, NameMiss::NoType { name, .. } if name == "account"), "{miss}");

    let module = workspace.join("bank").display().to_string();
    let file = bank.executable().expect("the program").file().expect("opened");
    let main = ProcessAddr(file.symbols_named("main").next().expect("a symbol").address.0);
    assert_eq!(bank.describe(main, 1), Err(Miss::NoSymbol { module }));
    assert_eq!(bank.describe(ProcessAddr(1 << 40), 1), Err(Miss::NotMapped));
}

#[test]
fn what_cannot_be_found_is_explained() {
    let workspace = Workspace::new();
    let bank = open(&workspace.compile("bank.c", "bank", &["-O0", "-g"]));
    let miss = |expression| bank.lookup_variable(expression).expect_err(expression);

    assert_eq!(miss("acount.id"), NameMiss::NotFound { name: "acount".into() });
    assert_eq!(bank.near_names("acount.id", 3), ["account", "accounts"]);
    assert_eq!(bank.near_names("something_else", 3), Vec::<String>::new());
    let members = ["id", "owner", "balance", "limit", "flags", "colour"].map(String::from).to_vec();
    let (name, member) = ("account".into(), "balanse".into());
    assert_eq!(miss("account.balanse"), NameMiss::NoMember { name, member, members });
    let name = || "accounts".to_owned();
    assert_eq!(miss("accounts[4]"), NameMiss::NoElement { name: name(), index: 4 });
    let (id, member) = ("accounts[0].id".to_owned(), "x".to_owned());
    assert_eq!(miss("accounts[0].id.x"), NameMiss::NoMember { name: id, member, members: vec![] });
    assert_eq!(miss("ready[0]"), NameMiss::NoElement { name: "ready".into(), index: 0 });
    for malformed in ["", ".", "account.", "account[", "account[x]", ".id", " account"] {
        let expected = NameMiss::Malformed { expression: malformed.into() };
        assert_eq!(miss(malformed), expected);
    }
    // A function is no variable.
    assert_eq!(miss("deposit"), NameMiss::NotFound { name: "deposit".into() });
}

#[test]
fn equal_names_are_told_apart_by_function_or_file() {
    let workspace = Workspace::new();
    for (file, name) in [("one.c", "first"), ("two.c", "second")] {
        let text = format!(
            "static long total = 1; static int twice[2];\n\
             long {name}(void) {{ static int calls; calls++; return total += twice[calls & 1]; }}\n"
        );
        std::fs::write(workspace.join(file), text).expect("write");
    }
    let main = "long first(void), second(void); int main(void) { return first() + second() > 9; }";
    std::fs::write(workspace.join("main.c"), main).expect("write");
    workspace.run("gcc", &["-g", "one.c", "two.c", "main.c", "-o", "both"]);
    let both = open(&workspace.join("both"));

    let candidates = |name| match both.lookup_variable(name) {
        Err(NameMiss::Ambiguous { mut candidates, .. }) => {
            candidates.sort();
            candidates
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(candidates("total"), ["one.c::total", "two.c::total"]);
    assert_eq!(candidates("calls"), ["first::calls", "second::calls"]);
    assert_eq!(candidates("twice[1]"), ["one.c::twice", "two.c::twice"]);
    for name in ["one.c::total", "two.c::total", "first::calls", "second::calls"] {
        let variable = find(&both, name);
        let described = both.describe(variable.address, 1).expect("known").to_string();
        assert!(name.ends_with(&described), "{name} {described}");
    }
    assert_ne!(find(&both, "one.c::total").address, find(&both, "two.c::total").address);
    assert_eq!(find(&both, "two.c::twice[1]").size, Some(4));
}

#[test]
fn cpp_variables_go_by_their_qualified_names() {
    let workspace = Workspace::new();
    for options in [
        &["-g", "-gdwarf-4"][..],
        &["-g", "-gdwarf-5"],
        &["-g", "-gsplit-dwarf"],
        &["-g", "-fdebug-types-section"],
        &["-g", "-O2"],
    ] {
        println!("{options:?}");
        let options = [options, &["-pthread"]].concat();
        let shop = open(&workspace.compile("shop.cpp", "shop", &options));
        for (name, full, size) in [
            ("shop::stock", "shop::stock", 120),
            ("stock", "shop::stock", 120),
            ("_ZN4shop5stockE", "shop::stock", 120),
            ("shop::Stock::total", "shop::Stock::total", 8),
            ("Stock::total", "shop::Stock::total", 8),
            ("shop::stock.count", "shop::stock.count", 8),
            ("stock.base_id", "shop::stock.base_id", 4),
            ("stock.items[2].price", "shop::stock.items[2].price", 8),
            ("pair.second", "shop::pair.second", 4),
            ("hidden", "shop::(anonymous namespace)::hidden", 4),
            ("Stock::add::added", "shop::Stock::add::added", 4),
            ("other::shadowed", "other::shadowed", 4),
            ("shadowed", "shadowed", 4),
        ] {
            let variable = find(&shop, name);
            assert_eq!((variable.name.as_str(), variable.size), (full, Some(size)));
            let described = shop.describe(variable.address, size).expect("known");
            if name != "shop::stock" && name != "stock" && !name.starts_with('_') {
                assert_eq!(described.to_string(), full);
            }
        }
        assert_ne!(find(&shop, "shadowed").address, find(&shop, "other::shadowed").address);
        let miss = shop.lookup_variable("per_thread");
        assert_eq!(miss, Err(NameMiss::ThreadLocal { name: "per_thread".into() }));
        assert_eq!(shop.near_names("stocks", 2), ["shop::stock"]);
        assert_eq!(name_of(&shop, "stock", 0, 8), "shop::stock._vptr.Base");
    }
}

#[test]
fn rust_statics_go_by_their_paths() {
    let workspace = Workspace::new();
    for mangling in ["legacy", "v0"] {
        let mangling = format!("-Csymbol-mangling-version={mangling}");
        let options = ["-g", "--edition=2021", "-Zunstable-options", &mangling];
        let program = workspace.compile_rust("vault.rs", "vault", &options);
        let waiting = Waiting::start(&program, 6);
        let vault = Symbolizer::from_pid(waiting.pid()).expect("readable");
        for (name, len, printed) in [
            ("bank::BALANCE", 8, "balance"),
            ("BALANCE", 8, "balance"),
            ("vault::bank::BALANCE", 8, "balance"),
            ("bank::ACCOUNT.balance", 8, "account_balance"),
            ("bank::ACCOUNT.limits.1", 8, "limit1"),
            ("bank::SHARED.0[2]", 4, "shared2"),
            ("bank::ACCOUNTS[1].balance", 8, "accounts1_balance"),
        ] {
            let variable = find(&vault, name);
            assert_eq!(variable.address, waiting.address(printed), "{name}");
            assert_eq!(variable.size, Some(len), "{name}");
            let described = vault.describe(variable.address, len).expect("known").to_string();
            assert!(described.ends_with(name), "{described}");
            assert!(described.starts_with("vault::bank::"), "{described}");
        }
        let locked = waiting.address("locked");
        assert_eq!(find(&vault, "LOCKED").address, locked);
        let data = find(&vault, "LOCKED.data");
        assert_eq!((data.size, data.address > locked), (Some(8), true));
        let described = vault.describe(data.address, 8).expect("known");
        assert_eq!(described.to_string(), "vault::bank::LOCKED", "people speak of the value so");
        assert_eq!(find(&vault, "deposit::CALLS").size, Some(4));
        let since = find(&vault, "DOOR.0.Open.since");
        let described = vault.describe(since.address, 8).expect("known").to_string();
        assert_eq!(described, "vault::bank::DOOR.0.Open.since");
        assert_eq!(vault.near_names("bank::BALANSE", 1), ["vault::bank::BALANCE"]);
    }
}

#[test]
fn addresses_in_a_process_are_described() {
    let workspace = Workspace::new();
    let program = workspace.compile("bank.c", "bank", &["-g", "-pie"]);
    let mut waiting = Waiting::start(&program, 7);
    let bank = Symbolizer::from_pid(waiting.pid()).expect("readable");
    waiting.finish();
    for (printed, len, name) in [
        ("balance", 8, "account.balance"),
        ("accounts2_age", 4, "accounts[2].owner.age"),
        ("matrix12", 4, "matrix[1][2]"),
        ("big_zeroes", 1, "big_zeroes[19999]"),
    ] {
        let address = waiting.address(printed);
        assert_eq!(bank.describe(address, len).expect("known").to_string(), name);
        assert_eq!(find(&bank, name).address, address);
    }

    let program = workspace.compile("shop.cpp", "shop", &["-g", "-pthread"]);
    let waiting = Waiting::start(&program, 3);
    let shop = Symbolizer::from_pid(waiting.pid()).expect("readable");
    for (printed, name) in
        [("count", "shop::stock.count"), ("price1", "shop::stock.items[1].price")]
    {
        let address = waiting.address(printed);
        assert_eq!(shop.describe(address, 8).expect("known").to_string(), name);
        assert_eq!(find(&shop, name).address, address);
    }
}

#[test]
fn variables_of_libraries_come_after_those_of_the_program() {
    let workspace = Workspace::new();
    workspace.compile("fee.c", "libfee.so", &["-shared", "-fPIC", "-g"]);
    let main = "#include <stdio.h>\n#include \"fee.h\"\nint own;\n\
        int main(void) { printf(\"own %p\\n\", (void *)&own); fflush(stdout);\n\
        while (getchar() != EOF) {} return fee_of(own); }";
    std::fs::write(workspace.join("main.c"), main).expect("write");
    let include = format!("-I{}", fixture("").display());
    let arguments = ["-g", &include, "main.c", "-L.", "-lfee", "-Wl,-rpath,$ORIGIN", "-o", "main"];
    workspace.run("gcc", &arguments);
    let waiting = Waiting::start(&workspace.join("main"), 1);
    let symbolizer = Symbolizer::from_pid(waiting.pid()).expect("readable");
    assert_eq!(find(&symbolizer, "own").address, waiting.address("own"));
    let table = find(&symbolizer, "fee_table[2]");
    assert_eq!(table.module, workspace.join("libfee.so"));
    assert_eq!(table.size, Some(4));
    let described = symbolizer.describe(table.address, 4).expect("known");
    assert_eq!(described.to_string(), "fee_table[2]");
}
