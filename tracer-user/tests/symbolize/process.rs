//! Modules of running processes.

use tracer_user::symbolize::{Module, Symbolizer};

use crate::support::{Waiting, Workspace};

const PRINTED: usize = 7;

fn symbol<'a>(module: &'a Module, name: &'a str) -> tracer_user::symbolize::Symbol<'a> {
    let file = module.file().expect("opened");
    file.symbols_named(name).next().unwrap_or_else(|| panic!("no symbol `{name}`"))
}

#[test]
fn addresses_in_a_process_are_those_of_its_files() {
    let workspace = Workspace::new();
    for options in [&["-no-pie"][..], &["-pie"], &["-static"], &["-static-pie"]] {
        let program = workspace.compile("bank.c", "bank", options);
        let mut waiting = Waiting::start(&program, PRINTED);
        let symbolizer = Symbolizer::from_pid(waiting.pid()).expect("readable");
        waiting.finish();
        std::fs::remove_file(&program).expect("remove");

        let module = symbolizer.executable().expect("the program is a module");
        assert_eq!(module.path(), program);
        let fixed = matches!(options[0], "-no-pie" | "-static");
        assert_eq!(module.load_bias() == 0, fixed, "{options:?}");
        for name in ["deposit", "account"] {
            let address = waiting.address(name);
            let link = symbol(module, name).address;
            assert_eq!(module.link_address(address), Some(link), "{options:?} {name}");
            assert_eq!(module.process_address(link), Some(address));
            let offset = module.file_offset(address).expect("in the file");
            assert_eq!(module.address_of_offset(offset), Some(address));
            assert_eq!(symbolizer.module_at(address).expect("mapped").path(), program);
        }
        // The end of `.bss` has no file behind it and is the program's all the same.
        let zeroes = waiting.address("big_zeroes");
        assert_eq!(symbolizer.module_at(zeroes).expect("mapped").path(), program);
        assert_eq!(module.file_offset(zeroes), None);
        assert!(symbolizer.module_at(tracer_user::symbolize::ProcessAddr(8)).is_none());
    }
}

#[test]
fn libraries_and_the_vdso_are_modules() {
    let workspace = Workspace::new();
    let program = workspace.compile("bank.c", "bank", &["-pie"]);
    let waiting = Waiting::start(&program, PRINTED);
    let symbolizer = Symbolizer::from_pid(waiting.pid()).expect("readable");

    let printf = waiting.address("printf");
    let module = symbolizer.module_at(printf).expect("mapped");
    assert!(module.name().starts_with("libc"), "{}", module.name());
    assert_eq!(module.process_address(symbol(module, "printf").address), Some(printf));

    let vdso = symbolizer.modules().find(|module| module.name() == "[vdso]").expect("mapped");
    assert!(vdso.process_address(symbol(vdso, "__vdso_clock_gettime").address).is_some());
}

#[test]
fn a_deleted_program_is_still_read() {
    let workspace = Workspace::new();
    let program = workspace.compile("bank.c", "bank", &["-pie"]);
    let waiting = Waiting::start(&program, PRINTED);
    std::fs::remove_file(&program).expect("remove");
    std::fs::write(&program, "another file of that name").expect("write");
    let symbolizer = Symbolizer::from_pid(waiting.pid()).expect("readable");
    let module = symbolizer.executable().expect("the program is a module");
    assert_eq!(module.path(), program);
    match module.file() {
        Ok(_) => assert_eq!(
            module.process_address(symbol(module, "deposit").address),
            Some(waiting.address("deposit"))
        ),
        // Without privilege only the name leads to the file, and it leads elsewhere.
        Err(error) => assert!(error.to_string().contains("replaced"), "{error}"),
    }
}

#[test]
fn libraries_that_come_later_are_added_once() {
    let workspace = Workspace::new();
    let program = workspace.compile("bank.c", "bank", &["-pie"]);
    let waiting = Waiting::start(&program, PRINTED);
    let mut symbolizer = Symbolizer::from_pid(waiting.pid()).expect("readable");
    let count = symbolizer.modules().len();
    assert_eq!(symbolizer.refresh().expect("readable"), 0);
    assert_eq!(symbolizer.modules().len(), count);

    let line = format!("10000000-10100000 r-xp 00000000 00:00 1 {}\n", program.display());
    let maps = tracer_user::symbolize::parse_maps(line.as_bytes()).expect("well-formed");
    assert_eq!(symbolizer.add_maps(&maps), 1);
    assert_eq!(symbolizer.add_maps(&maps), 0);
}

#[test]
fn a_process_that_is_gone_is_an_error() {
    // Beyond the highest process id that Linux can give.
    let error = Symbolizer::from_pid(1 << 30).expect_err("no such process");
    assert!(error.to_string().contains("/proc/"), "{error}");
}
