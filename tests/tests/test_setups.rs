//! Set-ups of tests in `examples/`, by the commands of `docs/testing.md`: in each the failing form fails, with the
//! region and the lines in its output, and the fixed form passes.
//!
//! A test whose tools are missing is skipped, and says how to get them; where `CI` is set it fails.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use tempfile::TempDir;
use tests::programs::install_contents;
use tests::{Ended, Program, Running, c, root, target_dir, tracer};

/// Test frameworks are compiled, on a machine that does other things as well.
const LIMIT: Duration = Duration::from_secs(600);

/// An example, and a folder for its runs.
struct Setup {
    example: PathBuf,
    folder: TempDir,
    path: OsString,
}

impl Setup {
    /// Prepares an example, with an `avtrace` on the path that captures in the process, so that no root is needed.
    fn of(example: &str) -> Self {
        let folder = tests::folder();
        let avtrace = tracer::avtrace().display();
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = run ]; then shift; exec '{avtrace}' run --capture inline \"$@\"; fi\n\
             exec '{avtrace}' \"$@\"\n"
        );
        install_contents(script, &folder.path().join("avtrace"));
        let before = env::var_os("PATH").unwrap_or_default();
        let folders =
            [folder.path().to_owned(), tools()].into_iter().chain(env::split_paths(&before));
        let path = env::join_paths(folders).expect("a path");
        Self { example: root().join("examples").join(example), folder, path }
    }

    /// Runs a command of a shell in the example's directory.
    fn run(&self, command: &str, environment: &[(&str, &str)]) -> Ended {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(&self.example).env("PATH", &self.path);
        shell.env("CARGO_TARGET_DIR", target_dir().join("examples")).env("AVTRACE", self.avtrace());
        shell.env("CARGO_TERM_COLOR", "never").env("PYTHONDONTWRITEBYTECODE", "1");
        for variable in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND", "CARGO_BUILD_TARGET"]
        {
            shell.env_remove(variable);
        }
        for variable in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "RUST_TEST_THREADS", "COLUMNS"] {
            shell.env_remove(variable);
        }
        shell.envs(environment.iter().copied());
        Running::start(&mut shell, None, LIMIT).wait()
    }

    /// Runs a command that `docs/testing.md` has, with some words replaced and others added.
    #[track_caller]
    fn documented(&self, command: &str, replaced: &[(&str, &str)], more: &str) -> Ended {
        let manual = fs::read_to_string(root().join("docs/testing.md")).expect("the manual");
        assert!(manual.contains(command), "docs/testing.md has no `{command}`");
        let mut words = command.to_owned();
        for (from, to) in replaced {
            assert!(words.contains(from), "`{from}` in `{command}`");
            words = words.replace(from, to);
        }
        self.run(&format!("{words} {more}"), &[])
    }

    fn avtrace(&self) -> PathBuf {
        self.folder.path().join("avtrace")
    }

    /// Directory of reports, and the runner that writes to it.
    fn reports(&self) -> (PathBuf, String) {
        let directory = self.folder.path().join("reports");
        let runner = format!("avtrace run --report-dir {} --", directory.display());
        (directory, runner)
    }
}

/// Directory of the tools that `cargo xtask setup` installs for the examples.
fn tools() -> PathBuf {
    target_dir().join("test-tools/bin")
}

/// Returns whether a command succeeds; where it does not, says how to get the tool.
fn has(setup: &Setup, command: &str, remedy: &str) -> bool {
    let is_there = setup.run(command, &[]).code == Some(0);
    if !is_there {
        assert!(env::var_os("CI").is_none(), "`{command}` fails: {remedy}");
        eprintln!("skipped: `{command}` fails: {remedy}");
    }
    is_there
}

const BY_SETUP: &str = "run `cargo xtask setup`";

/// Lines of the gap of a transfer: `FILE:LINE` of both ends.
fn gap(source: &str) -> [String; 2] {
    let source = root().join("examples").join(source);
    let name = source.file_name().expect("a name").to_str().expect("text").to_owned();
    let program = Program { path: PathBuf::new(), source };
    ["read", "write"].map(|mark| format!("{name}:{}", program.line(mark)))
}

/// Checks that output has the report on the transfer.
#[track_caller]
fn check_report(output: &str, region: &str, source: &str) {
    let headline = format!(" in `{region}`, by ");
    let is_headline = |line: &str| line.contains(&headline) && line.contains(": lost update of ");
    assert!(output.lines().any(is_headline), "{output}");
    for place in gap(source) {
        assert!(output.contains(&format!("{place}:")), "{place}: {output}");
    }
}

fn all(ended: &Ended) -> String {
    format!("{}{}", ended.stdout, ended.stderr)
}

/// Number of reports in a directory.
fn count(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

const CARGO: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=\"avtrace run --\" cargo test";

#[test]
fn documentation_tests_have_the_names_of_their_sources() {
    let setup = Setup::of("cargo");
    let package = setup.folder.path().join("documented");
    fs::create_dir_all(package.join("src")).expect("a package");
    let source = "//! ```\n//! std::thread::spawn(|| ()).join().unwrap();\n//! ```\n";
    fs::write(package.join("src/lib.rs"), source).expect("a source");
    let (reports, runner) = setup.reports();
    for (edition, name, shown) in
        [("2021", "src_lib.rs_1.", "src/lib.rs:1"), ("2024", "doc_tests.", "doc tests")]
    {
        let manifest =
            format!("[package]\nname = \"documented\"\nedition = \"{edition}\"\n[workspace]\n");
        fs::write(package.join("Cargo.toml"), manifest).expect("a manifest");
        let command = format!("cd '{}' && cargo test --offline --doc", package.display());
        let ended =
            setup.run(&command, &[("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", &runner)]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        let files: Vec<_> = fs::read_dir(&reports).expect("reports").flatten().collect();
        let has = |name: &str| {
            files.iter().any(|file| file.file_name().to_string_lossy().starts_with(name))
        };
        assert!(has(name) && !has("rust_out"), "{edition}: {files:?}");
        let texts: Vec<_> = files.iter().map(|file| fs::read_to_string(file.path())).collect();
        let shown = format!("\"name\":\"{shown}\"");
        assert!(texts.iter().flatten().any(|text| text.contains(&shown)), "{shown}: {texts:?}");
    }
}

#[test]
fn cargo_test_fails_for_a_defect() {
    let setup = Setup::of("cargo");
    let (directory, runner) = setup.reports();
    let runner = [("avtrace run --", runner.as_str())];
    let ended = setup.documented(CARGO, &runner, "--no-fail-fast");
    assert_eq!(ended.code, Some(101), "{}", all(&ended));
    assert!(ended.stdout.contains("test transfer_arrives ... ok"), "{}", ended.stdout);
    assert!(ended.stdout.contains("test result: ok. 2 passed"), "{}", ended.stdout);
    check_report(&ended.stderr, "bank::transfer", "cargo/src/lib.rs");

    // Of the executables of the library and of its tests.
    assert_eq!(count(&directory), 2);
    let shown = setup.run(&format!("avtrace report {}", directory.display()), &[]);
    assert_eq!(shown.code, Some(66), "{}", all(&shown));
    check_report(&shown.stdout, "bank::transfer", "cargo/src/lib.rs");
    assert!(shown.stdout.contains(" in 1 of 2 reports: transfers-"), "{}", shown.stdout);
    // The executable of the library has no tests.
    let last = "avtrace: 2 reports: 1 likely defect; 1 of the reports without, 1 of which checked nothing: no region \
                ran\n";
    assert!(shown.stdout.ends_with(last), "{}", shown.stdout);

    let quiet = [("avtrace run", "avtrace run --quiet")];
    let ended = setup.documented(CARGO, &quiet, "--features fixed --test transfers");
    assert_eq!(ended.code, Some(0), "{}", all(&ended));
    assert!(!ended.stderr.contains("avtrace: "), "{}", ended.stderr);
}

const NEXTEST: &str =
    "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=\"avtrace run --\" cargo nextest run";

#[test]
fn nextest_fails_the_test_that_shows_the_defect() {
    let setup = Setup::of("cargo");
    if !has(&setup, "cargo nextest --version", "run `cargo install cargo-nextest`") {
        return;
    }
    let (directory, runner) = setup.reports();
    let runner = [("avtrace run --", runner.as_str())];
    let ended = setup.documented(NEXTEST, &runner, "--no-fail-fast");
    assert_eq!(ended.code, Some(100), "{}", all(&ended));
    let lines = || ended.stderr.lines();
    assert!(lines().any(|line| line.contains("FAIL") && line.ends_with("transfer_arrives")));
    assert!(lines().any(|line| line.contains("PASS") && line.ends_with("nothing_is_left_to_do")));
    check_report(&all(&ended), "bank::transfer", "cargo/src/lib.rs");
    assert_eq!(count(&directory), 2, "a report for each test, and none for listings");

    let ended = setup.documented(NEXTEST, &[], "--features fixed transfer_arrives");
    assert_eq!(ended.code, Some(0), "{}", all(&ended));
}

#[test]
fn listings_of_tests_are_left_alone() {
    let setup = Setup::of("cargo");
    if !has(&setup, "cargo nextest --version", "run `cargo install cargo-nextest`") {
        return;
    }
    let (directory, runner) = setup.reports();
    let list = "cargo nextest list --message-format json";
    let name = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";
    let [alone, wrapped] = [setup.run(list, &[]), setup.run(list, &[(name, &runner)])];
    assert_eq!((alone.code, wrapped.code), (Some(0), Some(0)), "{}", wrapped.stderr);
    assert!(wrapped.stdout.contains("transfer_arrives"), "{}", wrapped.stdout);
    assert_eq!(alone.stdout, wrapped.stdout);
    assert!(!directory.exists(), "nothing was traced");
}

#[test]
fn an_assertion_fails_for_a_defect() {
    let setup = Setup::of("assertion");
    let ended = setup.run("cargo test", &[]);
    assert_eq!(ended.code, Some(101), "{}", all(&ended));
    assert!(ended.stdout.contains("not atomic:"), "{}", ended.stdout);
    check_report(&ended.stdout, "bank::transfer", "cargo/src/lib.rs");
    let ended = setup.run("cargo test --features fixed", &[]);
    assert_eq!(ended.code, Some(0), "{}", all(&ended));

    let ended = setup.run("AVTRACE=/nowhere/avtrace cargo test --features fixed", &[]);
    assert_eq!(ended.code, Some(101), "{}", all(&ended));
    assert!(ended.stdout.contains("name the executable of avtrace"), "{}", ended.stdout);
}

const CONFIGURE: &str = "cmake -S . -B build -DCMAKE_BUILD_TYPE=RelWithDebInfo \
                         -DCMAKE_TEST_LAUNCHER=\"avtrace;run;--\"";
const EMULATOR: &str = "-DCMAKE_CROSSCOMPILING_EMULATOR=\"avtrace;run;--\"";

#[test]
fn ctest_fails_for_a_defect_with_each_framework() {
    let setup = Setup::of("ctest");
    let frameworks = "test -e /usr/include/gtest/gtest.h && test -d /usr/include/catch2";
    if !has(&setup, "cmake --version && ninja --version", BY_SETUP)
        || !has(&setup, frameworks, "install libgtest-dev and catch2")
    {
        return;
    }
    let build = target_dir().join("examples/ctest");
    let build = [("build", build.to_str().expect("text"))];
    let (directory, runner) = setup.reports();
    let runner = runner.replace(' ', ";");
    let replaced = [("-B build", format!("-B {}", build[0].1)), ("avtrace;run;--", runner)];
    let replaced = replaced.each_ref().map(|(from, to)| (*from, to.as_str()));
    let configure = setup.documented(CONFIGURE, &replaced, "-G Ninja -DFIXED=OFF");
    assert_eq!(configure.code, Some(0), "{}", all(&configure));
    // The directory and the option have the same name.
    let folder = [(" build", build[0].1)].map(|(from, to)| (from, format!(" {to}")));
    let folder = folder.each_ref().map(|(from, to)| (*from, to.as_str()));
    let built = setup.documented("cmake --build build", &folder, "");
    assert_eq!(built.code, Some(0), "{}", all(&built));
    assert_eq!(count(&directory), 0, "listings during the build are not traced");
    let listed = setup.run(&format!("avtrace run --list-regions {}/bank_gtest", build[0].1), &[]);
    let (regions, others) =
        listed.stdout.split_once("and would not be:").unwrap_or_else(|| panic!("{}", all(&listed)));
    assert!(regions.contains("transfer") && !regions.contains("testing::"), "{}", listed.stdout);
    assert!(others.contains("it belongs to the framework that runs the tests"), "{others}");
    let test = "ctest --test-dir build --output-on-failure";
    let ended = setup.documented(test, &folder, "");
    assert_eq!(ended.code, Some(8), "{}", all(&ended));
    check_report(&ended.stdout, "transfer", "bank/bank.c");
    for (name, result) in [
        ("plain.transfer", "***Failed"),
        ("gtest.Bank.TransferArrives", "***Failed"),
        ("gtest.Bank.NothingIsLeftToDo", "Passed"),
        ("catch.transfer arrives", "***Failed"),
        ("catch.nothing is left to do", "Passed"),
    ] {
        let has_result = |line: &str| line.contains(name) && line.contains(result);
        assert!(ended.stdout.lines().any(has_result), "{name}: {}", ended.stdout);
    }
    assert_eq!(count(&directory), 5, "each test is traced");

    let configure = setup.documented(CONFIGURE, &replaced, "-G Ninja -DFIXED=ON");
    assert_eq!(configure.code, Some(0), "{}", all(&configure));
    assert_eq!(setup.documented("cmake --build build", &folder, "").code, Some(0));
    let ended = setup.documented(test, &folder, "");
    assert_eq!(ended.code, Some(0), "{}", all(&ended));
    assert_eq!(count(&directory), 10, "each test is traced");
}

#[test]
fn an_older_ctest_takes_the_wrapper_as_an_emulator() {
    let setup = Setup::of("ctest");
    if !has(&setup, "cmake --version && ninja --version", BY_SETUP) {
        return;
    }
    let build = setup.folder.path().join("build");
    let build = build.to_str().expect("text");
    let manual = fs::read_to_string(root().join("docs/testing.md")).expect("the manual");
    assert!(manual.contains(EMULATOR));
    let only_plain = "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON -DCMAKE_DISABLE_FIND_PACKAGE_Catch2=ON";
    let configure =
        format!("cmake -S . -B {build} -G Ninja -DCMAKE_C_FLAGS=-g {EMULATOR} {only_plain}");
    let ended = setup.run(&format!("{configure} && cmake --build {build}"), &[]);
    assert_eq!(ended.code, Some(0), "{}", all(&ended));
    let ended = setup.run(&format!("ctest --test-dir {build} --output-on-failure"), &[]);
    assert_eq!(ended.code, Some(8), "{}", all(&ended));
    check_report(&ended.stdout, "transfer", "bank/bank.c");
}

#[test]
fn meson_fails_for_a_defect() {
    let setup = Setup::of("meson");
    if !has(&setup, "meson --version && ninja --version", BY_SETUP) {
        return;
    }
    let build = setup.folder.path().join("build");
    let build = format!(" {}", build.display());
    let folder = [(" build", build.as_str())];
    let ended = setup.documented("meson setup build", &folder, "");
    assert_eq!(ended.code, Some(0), "{}", all(&ended));
    let test = "meson test -C build --print-errorlogs --wrap \"avtrace run --\"";
    let ended = setup.documented(test, &folder, "");
    assert_eq!(ended.code, Some(1), "{}", all(&ended));
    assert!(ended.stdout.contains("exit status 66"), "{}", ended.stdout);
    check_report(&ended.stdout, "transfer", "bank/bank.c");

    let ended = setup.run(&format!("meson configure{build} -Dfixed=true"), &[]);
    assert_eq!(ended.code, Some(0), "{}", all(&ended));
    let ended = setup.documented(test, &folder, "");
    assert_eq!(ended.code, Some(0), "{}", all(&ended));
}

#[test]
fn pytest_fails_for_a_defect() {
    let setup = Setup::of("pytest");
    if !has(&setup, "pytest --version", BY_SETUP) {
        return;
    }
    let bank = root().join("examples/bank");
    let [source, test] =
        ["bank.c", "bank_test.c"].map(|name| bank.join(name).display().to_string());
    let command = "AVTRACE_RUN=\"avtrace run --\" pytest";
    for (flags, expected) in [("", 1), ("-DFIXED", 0)] {
        let program = setup.folder.path().join("bank_test").display().to_string();
        let built =
            setup.run(&format!("cc -g -O1 {flags} {source} {test} -o {program} -pthread"), &[]);
        assert_eq!(built.code, Some(0), "{}", all(&built));
        let replaced = format!("BANK_TEST={program} AVTRACE_RUN=");
        let ended =
            setup.documented(command, &[("AVTRACE_RUN=", &replaced)], "-p no:cacheprovider");
        assert_eq!(ended.code, Some(expected), "{}", all(&ended));
        if expected != 0 {
            assert!(ended.stdout.contains("ended with status 66"), "{}", ended.stdout);
            check_report(&ended.stdout, "transfer", "bank/bank.c");
        }
    }
}

#[test]
fn automake_fails_for_a_defect_behind_a_wrapper_of_libtool() {
    let setup = copy_of("automake");
    if !has(&setup, "automake --version && libtoolize --version", BY_SETUP) {
        return;
    }
    let check = "make check LOG_COMPILER=\"avtrace run --\"";
    for (configure, expected) in
        [("autoreconf -i && ./configure", 2), ("./configure --enable-fixed && make clean", 0)]
    {
        let configured = setup.run(configure, &[]);
        assert_eq!(configured.code, Some(0), "{}", all(&configured));
        let ended = setup.documented(check, &[], "");
        assert_eq!(ended.code, Some(expected), "{}", all(&ended));
        let log = fs::read_to_string(setup.example.join("bank_test.log")).expect("a log");
        if expected == 0 {
            assert!(log.contains("no atomicity violation found"), "{log}");
        } else {
            check_report(&log, "transfer", "bank/bank.c");
        }
    }
}

/// Builds the extension module, by the command of `docs/testing.md`.
const MODULE: &str = "cc -g -O1 -shared -fPIC -pthread \\\n  -I $(python3 -c 'import sysconfig; \
                      print(sysconfig.get_path(\"include\"))') \\\n  -I ../bank bankmodule.c ../bank/bank.c \
                      -o bank.so";

#[test]
fn an_extension_module_of_python_is_looked_at_and_its_interpreter_is_not() {
    let setup = Setup::of("python");
    let header =
        "test -e $(python3 -c 'import sysconfig; print(sysconfig.get_path(\"include\"))')/Python.h";
    if !has(&setup, header, BY_SETUP) || !has(&setup, "python3 -m pytest --version", BY_SETUP) {
        return;
    }
    let module = setup.folder.path().join("bank.so").display().to_string();
    for (flags, expected) in [("", 66), ("-DFIXED", 0)] {
        let built = setup.documented(MODULE, &[("-o bank.so", &format!("-o {module}"))], flags);
        assert_eq!(built.code, Some(0), "{}", all(&built));
        let path = format!("PYTHONPATH={} avtrace", setup.folder.path().display());
        let run = setup.documented(
            "avtrace run -- python3 -m pytest",
            &[("avtrace", &path)],
            "-p no:cacheprovider",
        );
        assert_eq!(run.code, Some(expected), "{}", all(&run));
        assert!(run.stdout.contains("1 passed"), "{}", all(&run));
        let text = run.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("it is the interpreter of Python"), "{}", run.stderr);
        if expected == 66 {
            check_report(&run.stderr, "transfer", "bank/bank.c");
        } else {
            assert!(run.stderr.contains("no atomicity violation found"), "{}", run.stderr);
        }
    }
    // Named ones are found when the module is loaded.
    let named = format!("PYTHONPATH={} avtrace", setup.folder.path().display());
    let run =
        setup.run(&format!("{named} run --atomic 'ban*!transfer' -- python3 test_bank.py"), &[]);
    assert_eq!(run.code, Some(0), "{}", all(&run));
    assert!(!run.stderr.contains("matches no"), "{}", run.stderr);
}

/// Prepares a copy of an example for `avtrace init`, beside the bank.
fn copy_of(example: &str) -> Setup {
    let setup = Setup::of(example);
    for name in [example, "bank"] {
        let copied = setup.run(&format!("cp -r ../{name} {}", setup.folder.path().display()), &[]);
        assert_eq!(copied.code, Some(0), "{}", all(&copied));
    }
    Setup { example: setup.folder.path().join(example), ..setup }
}

/// Sets a runner up, and runs the command that `avtrace init` prints.
fn set_up(setup: &Setup, runner: &str) -> Ended {
    let ended = setup.run(&format!("avtrace init {runner}"), &[]);
    assert_eq!(ended.code, Some(0), "{}", all(&ended));
    let again = setup.run(&format!("avtrace init {runner}"), &[]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""), "{}", all(&again));
    let command = ended.stderr.lines().last().expect("a command").to_owned();
    setup.run(&command, &[])
}

#[test]
fn init_sets_cargo_up() {
    let setup = copy_of("cargo");
    let ended = set_up(&setup, "cargo");
    assert_eq!(ended.code, Some(101), "{}", all(&ended));
    check_report(&ended.stderr, "bank::transfer", "cargo/src/lib.rs");
    // Other settings stay, and a runner of the user's own does.
    let config = setup.example.join(".cargo/config.toml");
    fs::write(&config, "[build]\njobs = 2\n").expect("a file");
    assert_eq!(setup.run("avtrace init cargo", &[]).code, Some(0));
    let text = fs::read_to_string(&config).expect("a file");
    assert!(text.starts_with("[build]\njobs = 2\n") && text.contains("runner = "), "{text}");
    let own = "[target.x86_64-unknown-linux-gnu]\nrunner = \"own\"\n";
    fs::write(&config, own).expect("a file");
    let ended = setup.run("avtrace init cargo", &[]);
    assert_eq!(ended.code, Some(1), "{}", all(&ended));
    assert!(ended.stdout.contains("runner = \"avtrace run"), "{}", all(&ended));
    assert_eq!(fs::read_to_string(&config).expect("a file"), own);
}

#[test]
fn init_sets_nextest_up() {
    let setup = copy_of("cargo");
    if !has(&setup, "cargo nextest --version", "run `cargo install cargo-nextest`") {
        return;
    }
    let ended = set_up(&setup, "nextest");
    assert_eq!(ended.code, Some(100), "{}", all(&ended));
    check_report(&all(&ended), "bank::transfer", "cargo/src/lib.rs");
    let ended = setup.run("cargo nextest run", &[]);
    assert_eq!(ended.code, Some(0), "another profile is as before: {}", all(&ended));
}

#[test]
fn init_sets_ctest_up() {
    let setup = copy_of("ctest");
    if !has(&setup, "cmake --version && ninja --version", BY_SETUP) {
        return;
    }
    let only_plain =
        "set(CMAKE_DISABLE_FIND_PACKAGE_GTest ON)\nset(CMAKE_DISABLE_FIND_PACKAGE_Catch2 ON)\n";
    let lists = setup.example.join("CMakeLists.txt");
    let text = fs::read_to_string(&lists).expect("a file");
    fs::write(&lists, text.replace("find_package(GTest)", only_plain)).expect("a file");
    let ended = set_up(&setup, "ctest");
    assert_eq!(ended.code, Some(8), "{}", all(&ended));
    check_report(&ended.stdout, "transfer", "bank/bank.c");
}

#[test]
fn init_sets_meson_up() {
    let setup = copy_of("meson");
    if !has(&setup, "meson --version && ninja --version", BY_SETUP) {
        return;
    }
    let ended = set_up(&setup, "meson");
    assert_eq!(ended.code, Some(1), "{}", all(&ended));
    check_report(&ended.stdout, "transfer", "bank/bank.c");
}

#[test]
fn init_sets_pytest_and_github_up() {
    let setup = copy_of("bank");
    let ended = setup.run("avtrace init pytest && avtrace init github", &[]);
    assert_eq!(ended.code, Some(0), "{}", all(&ended));
    for (written, example) in [
        ("conftest.py", "pytest/conftest.py"),
        (".github/workflows/avtrace.yml", "github/avtrace.yml"),
    ] {
        let [written, example] =
            [setup.example.join(written), root().join("examples").join(example)]
                .map(|path| fs::read_to_string(path).expect("a file"));
        assert_eq!(written, example);
    }
}

#[test]
#[ignore = "long: run by `cargo xtask test --long`"]
fn a_fleet_divides_a_hunt() {
    let setup = Setup::of("fleet");
    if !has(&setup, "python3 -c 'import ray'", "run `cargo xtask test --long`") {
        return;
    }
    let program = c("rare", &["-g", "-O1"]).path.display().to_string();
    let results = setup.folder.path().join("fleet");
    let runs = format!("--runs 6 --seed 1 --capture inline --results {}", results.display());
    let command = "python3 fleet.py --workers 2 --runs 20 -- ./test";
    let ended = setup.documented(command, &[("--runs 20", &runs), ("./test", &program)], "lost");
    assert_eq!(ended.code, Some(66), "{}", all(&ended));
    assert!(ended.stdout.contains(" in `deposit`, by "), "{}", all(&ended));
    let shards = ["shard-1-of-2.avth", "shard-2-of-2.avth"].map(|name| results.join(name));
    let mut words: Vec<OsString> = vec!["merge".into(), "--format=json".into()];
    words.extend(shards.iter().map(Into::into));
    let merged = tracer::avtrace_with(words);
    let merged: serde_json::Value = serde_json::from_str(&merged.stdout).expect("a report");
    assert_eq!(merged["hunt"]["runs"], 12, "{:#}", merged["hunt"]);
    // A shard that cannot be hunted is no result.
    let replaced = [("--runs 20", runs.as_str()), ("./test", "/nowhere/test")];
    let ended = setup.documented(command, &replaced, "");
    assert_eq!(ended.code, Some(1), "{}", all(&ended));
    assert!(ended.stderr.contains("shard 1/2 failed with status 127"), "{}", all(&ended));
}

#[test]
fn reports_of_programs_side_by_side_are_shown_together() {
    let setup = Setup::of("cargo");
    let (directory, runner) = setup.reports();
    let [bank, fixed] = ["bank", "bank_fixed"].map(|name| c(name, &["-g", "-O2"]).path);
    let [bank, fixed] = [bank.display(), fixed.display()];
    let each = format!("{runner} {bank} & {runner} {bank} & {runner} --quiet {fixed}; wait");
    let each = each.replace("-- --quiet", "--quiet --");
    let ended = setup.run(&each, &[]);
    assert_eq!(ended.code, Some(0), "{}", all(&ended));
    assert_eq!(count(&directory), 3);
    let shown = setup.run(&format!("avtrace report {}", directory.display()), &[]);
    assert_eq!(shown.code, Some(66), "{}", all(&shown));
    assert_eq!(shown.stdout.matches(" in `transfer`, by `audit`").count(), 1, "{}", shown.stdout);
    assert!(shown.stdout.contains("(likely): in 2 of 3 reports: bank\n"), "{}", shown.stdout);
    assert!(!shown.stdout.contains("not serializable"), "{}", shown.stdout);

    let empty = setup.folder.path().join("empty");
    fs::create_dir(&empty).expect("a directory");
    let shown = setup.run(&format!("avtrace report {}", empty.display()), &[]);
    assert_eq!(shown.code, Some(3), "{}", all(&shown));
    assert!(shown.stderr.trim_end().ends_with("`avtrace run --report-dir`"), "{}", shown.stderr);
}

#[test]
fn a_listing_prints_what_the_program_prints() {
    let setup = Setup::of("cargo");
    let (directory, runner) = setup.reports();
    let test = setup.folder.path().join("gtest");
    install_contents("#!/bin/sh\n# Runs a program of gtest.\necho \"$@\"\n", &test);
    let ended = setup.run(&format!("{runner} {} --gtest_list_tests", test.display()), &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "--gtest_list_tests\n"));
    assert_eq!(ended.stderr, "");
    assert!(!directory.exists(), "nothing was traced");
    let ended = setup.run(&format!("{runner} /bin/echo --list"), &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "--list\n"));
    assert_eq!(count(&directory), 1, "an option of many programs");
    for option in ["--list-tests", "--gtest_list_tests"] {
        let ended = setup.run(&format!("{runner} /bin/echo {option}"), &[]);
        assert_eq!((ended.code, ended.stdout.trim_end()), (Some(0), option));
    }
    assert_eq!(count(&directory), 3, "an option of another program's own");
    let quiet = format!("avtrace run --quiet -- {}", "/bin/true");
    let ended = setup.run(&quiet, &[]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(0), 1), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("avtrace: nothing was checked: "), "{}", ended.stderr);
    let ended = setup.run(&format!("avtrace report {}", directory.display()), &[]);
    assert!(ended.stdout.contains("3 of which checked nothing: no region ran"), "{}", ended.stdout);
}

#[test]
fn the_recipe_for_github_has_options_that_exist() {
    let recipe = root().join("examples/github/avtrace.yml");
    let recipe = fs::read_to_string(recipe).expect("the recipe");
    let mut options = 0;
    for command in ["run", "merge"] {
        let help = tracer::avtrace_with([command, "--help"]).stdout;
        let marker = format!("avtrace {command} ");
        let line = recipe.lines().find_map(|line| line.split_once(&marker)).expect("a call").1;
        for option in line.split_whitespace().filter(|word| word.starts_with('-') && *word != "--")
        {
            assert!(help.contains(option), "`avtrace {command}` has no {option}");
            options += 1;
        }
    }
    assert_eq!(options, 5, "of both calls");
}
