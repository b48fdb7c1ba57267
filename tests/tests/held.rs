//! Threads that stand still while avtrace attaches to what is new: they die meanwhile, or have names that are no text.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::signal::Signal;

use tests::programs::install;
use tests::{Avtrace, c, require_bpf, runs};

#[test]
fn a_program_ends_while_one_of_its_threads_is_held() {
    require_bpf!();
    let library = c("plugin", &["-g", "-O2", "-shared", "-fPIC"]);
    let program = c("ends_while_loading", &["-g", "-O2"]);
    for (how, status) in
        [("exit", Ok(7)), ("kill", Err(Signal::SIGKILL as i32)), ("/bin/true", Ok(0))]
    {
        for run in 0..runs(6) {
            let arguments = [library.path.as_os_str(), OsStr::new(how)];
            let ended = Avtrace::on(&program).arguments(arguments).run();
            let as_the_program = (status.ok(), status.err());
            let found = (ended.code, ended.signal);
            assert_eq!(found, as_the_program, "{how}, run {run}: {}", ended.stderr);
        }
    }
}

/// Another encoding's, and one of which the kernel keeps 15 bytes, the last of them half a letter.
const NAMES: [&[u8]; 2] = [b"caf\xe9", "vierzehn Zeichä".as_bytes()];

#[test]
fn a_thread_whose_name_is_no_text_loads_a_library() {
    require_bpf!();
    let library = c("plugin", &["-g", "-O2", "-shared", "-fPIC"]);
    let program = c("named", &["-g", "-O2"]);
    for name in NAMES {
        for _ in 0..runs(1) {
            let arguments = [OsStr::from_bytes(name), library.path.as_os_str()];
            let (ended, report) = Avtrace::on(&program).arguments(arguments).report();
            assert_eq!((ended.code, &*ended.stdout), (Some(5), "loaded\n"), "{}", ended.stderr);
            assert_eq!(report.not_seen["notes"].to_string(), "[]");
        }
    }
}

#[test]
fn a_program_whose_name_is_no_text_replaces_another() {
    require_bpf!();
    let folder = tests::folder();
    let program = c("named", &["-g", "-O2"]);
    for name in NAMES {
        let path = folder.path().join(OsStr::from_bytes(name));
        install(Path::new("/bin/true"), &path, 0o755);
        for _ in 0..runs(1) {
            let arguments = [OsStr::from_bytes(name), path.as_os_str(), OsStr::new("x")];
            let (ended, reports) = Avtrace::on(&program).arguments(arguments).reports();
            assert_eq!((ended.code, reports.len()), (Some(0), 2), "{}", ended.stderr);
            for report in &reports {
                assert_eq!(report.not_seen["notes"].to_string(), "[]");
            }
            let shown = &reports[1].subject.argv[0];
            assert!(name != NAMES[0] || shown.ends_with("caf\\xe9"), "{shown}");
        }
    }
}
