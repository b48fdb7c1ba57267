//! Functions that return something, and others.

use symbolize::ElfFile;

use crate::support::Workspace;

#[test]
fn functions_without_a_result_are_known_by_types_alone() {
    let workspace = Workspace::new();
    let named = ["_ZN7Counter3setEl", "_ZNK7Counter3getEv", "nothing", "a_number"];
    let results = |options: &[&str]| {
        let program = workspace.compile("results.cpp", "results", options);
        let file = ElfFile::open(&program).expect("opens");
        named.map(|name| {
            let symbol = file.symbols_named(name).next().expect("a symbol");
            file.returns_nothing(symbol.address)
        })
    };
    let all = [Some(true), Some(false), Some(true), Some(false)];
    assert_eq!(results(&["-g", "-O0"]), all);
    assert_eq!(results(&["-g", "-O2"]), all);
    for lines_alone in ["-g1", "-g0"] {
        assert_eq!(results(&[lines_alone, "-O1"]), [None; 4], "{lines_alone}");
    }
}
