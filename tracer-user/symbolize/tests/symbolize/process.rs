//! Modules of running processes.

use std::process::Command;

use symbolize::{Miss, Module, Symbolizer};

use crate::support::{Waiting, Workspace, fixture, line_of};

const PRINTED: usize = 7;

fn symbol<'a>(module: &'a Module, name: &str) -> symbolize::Symbol<'a> {
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
        assert!(symbolizer.module_at(symbolize::ProcessAddr(8)).is_none());
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
    let maps = symbolize::parse_maps(line.as_bytes()).expect("well-formed");
    assert_eq!(symbolizer.add_maps(&maps), 1);
    assert_eq!(symbolizer.add_maps(&maps), 0);
}

#[test]
fn a_library_that_was_loaded_later_is_found_after_a_refresh() {
    let workspace = Workspace::new();
    let library = workspace.compile("fee.c", "libfee.so", &["-shared", "-fPIC", "-g"]);
    let main = "#include <dlfcn.h>\n#include <stdio.h>\nint main(void) {\n\
        puts(\"start 0x1\"); fflush(stdout); getchar();\n\
        void *fee = dlopen(\"./libfee.so\", RTLD_NOW);\n\
        printf(\"fee_of %p\\n\", dlsym(fee, \"fee_of\")); fflush(stdout);\n\
        while (getchar() != EOF) {} }";
    std::fs::write(workspace.join("main.c"), main).expect("write");
    workspace.run("gcc", &["main.c", "-ldl", "-o", "main"]);
    let mut command = Command::new(workspace.join("main"));
    let mut waiting = Waiting::start_command(command.current_dir(workspace.path()), 1);
    let mut symbolizer = Symbolizer::from_pid(waiting.pid()).expect("readable");
    waiting.go_on(1);
    let address = waiting.address("fee_of");
    assert_eq!(symbolizer.resolve(address), Err(Miss::NotMapped));
    assert_eq!(symbolizer.refresh().expect("readable"), 1);
    let resolution = symbolizer.resolve(address).expect("mapped");
    assert_eq!(resolution.module, library);
    assert_eq!(resolution.frames[0].line, Some(line_of("fee.c", "int fee_of(") + 1));

    // Known modules stay known after the process has ended.
    waiting.finish();
    assert!(symbolizer.refresh().is_err() || symbolizer.modules().len() > 3);
    assert!(symbolizer.resolve(address).is_ok());
}

#[test]
fn a_process_with_another_root_directory_is_read_there() {
    // A path that this process can see, and one in a mount namespace of its own, as in a container.
    let pivot = "mount --make-rprivate / && mount --bind root root && cd root && pivot_root . old";
    let ways = [
        ("chroot", &["sh"][..], "cd root && exec chroot . /bin/bank".to_owned()),
        ("namespace", &["unshare", "--mount", "sh"], format!("{pivot} && exec /bin/bank")),
    ];
    for (name, shell, script) in ways {
        println!("{name}");
        let workspace = Workspace::new();
        workspace.compile("bank.c", "whole", &["-static", "-g", "-Wl,--build-id=0x01020304"]);
        let root = workspace.join("root");
        let directory = root.join("usr/lib/debug/.build-id/01");
        std::fs::create_dir_all(&directory).expect("mkdir");
        std::fs::create_dir_all(root.join("bin")).expect("mkdir");
        std::fs::create_dir_all(root.join("old")).expect("mkdir");
        let debug_file = directory.join("020304.debug");
        let debug_path = debug_file.to_str().expect("UTF-8");
        workspace.run("objcopy", &["--only-keep-debug", "whole", debug_path]);
        workspace.run("strip", &["whole", "-o", "root/bin/bank"]);

        let start = |arguments: &str| {
            let mut command = Command::new(shell[0]);
            command.args(&shell[1..]).arg("-c").arg(format!("{script} {arguments}"));
            command.current_dir(workspace.path());
            command
        };
        if !start("").output().is_ok_and(|output| output.status.success()) {
            println!("skipped: no privilege to change the root directory");
            continue;
        }
        let mut waiting = Waiting::start_command(&mut start("wait"), PRINTED);
        let symbolizer = Symbolizer::from_pid(waiting.pid()).expect("readable");
        waiting.finish();
        std::fs::remove_dir_all(&root).expect("remove");

        let program = symbolizer.executable().expect("the program is a module");
        assert!(program.path().ends_with("bin/bank"), "{}", program.path().display());
        let resolution = symbolizer.resolve(waiting.address("deposit")).expect("mapped");
        assert_eq!(resolution.frames[0].file.as_deref(), Some(&*fixture("bank.c")));
        let balance = symbolizer.describe(waiting.address("balance"), 8).expect("known");
        assert_eq!(balance.to_string(), "account.balance");
    }
}

#[test]
fn symbolizers_can_be_sent_and_shared() {
    fn check<T: Send + Sync>() {}
    check::<Symbolizer>();
    check::<symbolize::ElfFile>();
}

#[test]
fn a_process_that_is_gone_is_an_error() {
    // Beyond the highest process id that Linux can give.
    let error = Symbolizer::from_pid(1 << 30).expect_err("no such process");
    assert!(error.to_string().contains("/proc/"), "{error}");
}
