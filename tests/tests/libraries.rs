//! Shared libraries that come with a program: they are like the program.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tests::programs::install;
use tests::tracer::avtrace_with;
use tests::{Avtrace, Report, c, require_bpf};

const LIBRARY: [&str; 3] = ["-shared", "-fPIC", "-Wl,-soname,libstock.so"];

/// A program in a new folder, and the library that it needs in this folder beside that.
struct Depot {
    _folder: tempfile::TempDir,
    program: PathBuf,
    library: PathBuf,
}

impl Depot {
    fn new(flags: &[&str], place: &str) -> Self {
        let library = c("stock", &[flags, &LIBRARY].concat());
        let needed = library.path.to_str().expect("text");
        let linked = ["-Wl,--no-as-needed", needed, "-Wl,-rpath,$ORIGIN:$ORIGIN/../private"];
        let program = c("depot", &[flags, &linked].concat());
        let folder = tests::folder();
        let at = |path: &str| folder.path().canonicalize().expect("a folder").join(path);
        fs::create_dir_all(at("bin")).expect("a folder");
        fs::create_dir_all(at("bin").join(place)).expect("a folder");
        install(&program.path, &at("bin/depot"), 0o755);
        let copy = at("bin").join(place).join("libstock.so");
        install(&library.path, &copy, 0o644);
        Self { program: at("bin/depot"), library: copy, _folder: folder }
    }

    #[track_caller]
    fn run(&self, argument: &str, options: &[&str]) -> (Option<i32>, Report) {
        let folder = self.library.parent().and_then(Path::to_str).expect("text");
        let run = Avtrace::on_path(&self.program).options(options).arguments([argument]);
        let (ended, report) = run.environment("LD_LIBRARY_PATH", folder).report();
        assert!(ended.stdout.starts_with("stock: "), "{ended:#?}");
        (ended.code, report)
    }
}

#[track_caller]
fn check_finds(report: &Report, region: &str) {
    let has = report.violations.iter().any(|one| one.cycle().first() == Some(&region));
    assert!(has, "{region} in {:#?}", report.violations);
}

#[test]
fn functions_of_own_libraries_are_regions_by_default() {
    require_bpf!();
    // Beside the program, below its folder, in `../lib`, and where the run path leads.
    for place in [".", "plugins/stock", "../lib", "../private"] {
        let (code, report) = Depot::new(&["-O2"], place).run("library", &[]);
        assert_eq!(code, Some(66), "{place}");
        check_finds(&report, "stock_move");
    }
}

#[test]
fn functions_of_a_library_that_it_calls_through_stubs_are_its_own() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let (code, report) = Depot::new(&[level], ".").run("stubs", &[]);
        assert_eq!(code, Some(66), "{level}");
        check_finds(&report, "stock_take");
    }
}

#[test]
fn what_takes_a_lock_in_a_library_takes_one_for_the_program() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let (code, report) = Depot::new(&[level], ".").run("program", &[]);
        assert_eq!(code, Some(66), "{level}");
        check_finds(&report, "deposit");
    }
}

#[test]
fn a_library_from_the_same_source_tree_is_the_programs_own() {
    require_bpf!();
    let (code, report) = Depot::new(&["-O2", "-g"], "../elsewhere").run("library", &[]);
    assert_eq!(code, Some(66));
    check_finds(&report, "stock_move");
}

#[test]
fn a_library_that_is_left_out_is_named_with_the_option_that_takes_it_in() {
    require_bpf!();
    let depot = Depot::new(&["-O2"], "../elsewhere");
    let (code, report) = depot.run("library", &[]);
    assert_eq!(code, Some(0), "{:#?}", report.violations);
    let notes = report.not_seen["notes"].to_string();
    assert!(notes.contains("--atomic 'libstock.so!*'"), "{notes}");
    let (code, report) = depot.run("library", &["--atomic", "libstock.so!*"]);
    assert_eq!(code, Some(66));
    check_finds(&report, "stock_move");
}

/// Returns the origins of the regions with defects, by their names, in a run and in a check of its recording.
fn origins(program: &tests::Program, argument: &str) -> [Vec<(String, String)>; 2] {
    let folder = tests::folder();
    let at = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (trace, online, offline) = (at("t.avt"), at("online.json"), at("offline.json"));
    let recording = ["--record", &trace, "--format", "json", "-o", &online];
    let regions = ["--atomic", "deposit", "--atomic", "stock_move"];
    let run = Avtrace::on(program).options(recording).options(regions);
    let ended = run.arguments([argument]).run();
    assert!(ended.stdout.starts_with("stock: "), "{ended:#?}");
    let checked = avtrace_with(["check", &trace, "--format", "json", "-o", &offline]);
    assert!(checked.code.is_some_and(|code| code == 0 || code == 66), "{}", checked.stderr);
    [online, offline].map(|file| {
        let text = fs::read_to_string(file).expect("a report");
        let report: Value = serde_json::from_str(&text).expect("JSON");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let defects = report["defects"].as_array().expect("defects").iter();
        defects.map(|defect| (text(&defect["region"]), text(&defect["origin"]))).collect()
    })
}

#[test]
fn vendored_code_is_a_librarys() {
    require_bpf!();
    let program = c("depot", &["-g", "-O0", "-DVENDORED"]);
    for (argument, region, origin) in
        [("library", "stock_move", "library"), ("program", "deposit", "own")]
    {
        let expected = (region.to_owned(), origin.to_owned());
        for found in origins(&program, argument) {
            assert!(found.contains(&expected), "{expected:?} in {found:?}");
        }
    }
}

/// A program with a crate of a registry, by the layout that cargo gives it.
fn program_with_crate(folder: &Path) -> PathBuf {
    let sources = tests::root().join("tests/programs/rust");
    let of_crate = folder.join(".cargo/registry/src/index-1949cf8c6b5b557f/jar-1.0.0/src");
    let of_program = folder.join("shop/src");
    for (from, to) in
        [("crate_jar.rs", of_crate.join("lib.rs")), ("crate_user.rs", of_program.join("main.rs"))]
    {
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::copy(sources.join(from), to).expect("a copy");
    }
    let (library, program) = (folder.join("libjar.rlib"), folder.join("shop/shop"));
    let build = |arguments: &[&OsStr], source: PathBuf, output: &Path| {
        let mut rustc = Command::new("rustc");
        rustc.args(["-g", "--edition", "2024"]).args(arguments).arg(source).arg("-o").arg(output);
        let ended = tests::process::run(&mut rustc);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    };
    let crate_type = ["--crate-type", "rlib", "--crate-name", "jar"];
    build(&crate_type.map(OsStr::new), of_crate.join("lib.rs"), &library);
    let mut jar = OsString::from("jar=");
    jar.push(&library);
    let options: [&OsStr; 4] =
        ["--crate-name".as_ref(), "shop".as_ref(), "--extern".as_ref(), &jar];
    build(&options, of_program.join("main.rs"), &program);
    program
}

/// The program's own bug comes before the crate's, in the report and among the regions that are listed.
#[test]
fn a_crates_code_is_a_librarys_and_comes_after_the_programs_own() {
    require_bpf!();
    let folder = tests::folder();
    let path = program_with_crate(folder.path());
    let file = folder.path().join("report.json");
    let run = Avtrace::on_path(&path).seeing_memory().options(["--format", "json", "-o"]);
    let ended = run.options([&file]).run();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let report: Value = serde_json::from_slice(&fs::read(file).expect("a report")).expect("JSON");
    let defects: Vec<[&str; 3]> = (report["defects"].as_array().expect("defects").iter())
        .map(|defect| ["region", "origin", "class"].map(|key| defect[key].as_str().expect("text")))
        .collect();
    assert_eq!(defects[0], ["shop::pay_in", "own", "likely"], "{defects:?}");
    assert!(defects.contains(&["jar::add_coin", "library", "possible"]), "{defects:?}");

    let listed = avtrace_with(["--list-regions".as_ref(), path.as_os_str()]).stdout;
    let at = |text: &str| listed.find(text).unwrap_or_else(|| panic!("no {text} in {listed}"));
    let libraries = at("\nof crates and libraries, which rank below the program's own:\n");
    assert!(at("  shop::pay_in ") < libraries && libraries < at("  jar::add_coin "), "{listed}");
    let options: [&OsStr; 3] = ["--list-regions".as_ref(), "--format".as_ref(), "json".as_ref()];
    let json = avtrace_with(options.into_iter().chain([path.as_os_str()])).stdout;
    let listed: Value = serde_json::from_str(&json).expect("JSON");
    let listed = listed["regions"].as_array().expect("regions").iter();
    let origins: Vec<&str> = listed.map(|one| one["origin"].as_str().expect("an origin")).collect();
    assert!(origins.is_sorted_by_key(|origin| *origin == "library"), "{origins:?}");
}
