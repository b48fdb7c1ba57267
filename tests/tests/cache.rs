//! The cache of plans: reports do not depend on its contents, and no other user can write to it.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;
use tests::{
    Avtrace, Ended, Program, Report, c, cpp, machine, process::run, rust, tracer::avtrace,
};

/// Message of a run whose plan is from the cache.
const HIT: &str = "the plan is from the cache";
/// Message of a run that has found a damaged entry.
const DAMAGED: &str = "an entry of the cache is damaged";

/// Folder of the caches of a test.
struct Caches(TempDir);

impl Caches {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("avtrace")
    }

    /// Paths of the entries.
    fn entries(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.folder()).into_iter().flatten();
        files.map(|file| file.expect("listed").path()).collect()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // The order of modules in a listing follows from their addresses.
        let mut command = Command::new("setarch");
        command.arg("-R").arg(avtrace()).args(arguments).env("XDG_CACHE_HOME", self.0.path());
        for variable in ["SUDO_UID", "SUDO_GID"] {
            command.env_remove(variable);
        }
        command
    }

    /// Lists the probes of a program as JSON.
    fn list(&self, program: &Program, options: &[&str]) -> Ended {
        let path = program.path.to_str().expect("a path");
        let arguments = [&["-vv", "probes", "--format", "json"], options, &["--", path]].concat();
        let ended = run(&mut self.command(&arguments));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended
    }

    fn report(&self, program: &Program, options: &[&str]) -> (Ended, Report) {
        let caches = self.0.path().to_str().expect("a path");
        let tracer = Avtrace::on(program).inline().seeing_memory().options(["-vv"]);
        tracer.options(options).environment("XDG_CACHE_HOME", caches).report()
    }
}

fn programs() -> [Program; 3] {
    [c("bank", &["-g", "-O1"]), cpp("bank", &["-g", "-O1"]), rust("bank", false)]
}

/// Returns the parts of a report that are the same in each run.
fn findings(report: &Report) -> Value {
    let violations = report.violations.iter().map(|violation| {
        let objects: Vec<_> = violation.edges.iter().map(|edge| &edge.object.name).collect();
        serde_json::json!({ "cycle": violation.cycle(), "objects": objects })
    });
    let violations: Vec<Value> = violations.collect();
    assert!(!violations.is_empty(), "nothing is compared");
    serde_json::json!({ "violations": violations, "skipped": report.not_seen["skipped_probes"] })
}

#[test]
fn a_plan_is_the_same_from_the_cache_and_without() {
    for program in programs() {
        for back_end in ["kernel", "inline"] {
            let caches = Caches::new();
            let options = ["--capture", back_end];
            let without = caches.list(&program, &[&options[..], &["--no-cache"]].concat());
            assert!(caches.entries().is_empty(), "nothing is stored");
            let cold = caches.list(&program, &options);
            assert_eq!(caches.entries().len(), 1);
            let warm = caches.list(&program, &options);
            assert!(!cold.stderr.contains(HIT) && warm.stderr.contains(HIT), "{}", warm.stderr);
            assert!(without.stdout == cold.stdout, "{}: cold", program.path.display());
            assert!(without.stdout == warm.stdout, "{}: warm", program.path.display());
            let other = caches.list(&program, &[&options[..], &["--atomic", "main"]].concat());
            assert!(!other.stderr.contains(HIT), "options count");
        }
    }
}

#[test]
fn a_report_is_the_same_from_the_cache_and_without() {
    for program in programs() {
        let caches = Caches::new();
        let (_, without) = caches.report(&program, &["--no-cache"]);
        let (_, cold) = caches.report(&program, &[]);
        let (ended, warm) = caches.report(&program, &[]);
        assert!(ended.stderr.contains(HIT), "{}", ended.stderr);
        assert_eq!(findings(&without), findings(&cold), "{}", program.path.display());
        assert_eq!(findings(&without), findings(&warm), "{}", program.path.display());
    }
}

/// A program that was changed after it was linked has the build ID that it had.
#[test]
fn a_changed_program_is_analysed_anew() {
    let caches = Caches::new();
    let copy = caches.0.path().join("program");
    let bank = c("bank", &["-g", "-O1"]);
    fs::copy(&bank.path, &copy).expect("a copy");
    let program = Program { path: copy.clone(), ..bank };
    caches.list(&program, &[]);
    assert!(caches.list(&program, &[]).stderr.contains(HIT));
    let bytes = fs::read(&copy).expect("readable");
    fs::remove_file(&copy).expect("removed");
    fs::write(&copy, bytes).expect("written");
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).expect("executable");
    assert!(!caches.list(&program, &[]).stderr.contains(HIT));
}

#[test]
fn damaged_and_forged_entries_change_nothing() {
    let caches = Caches::new();
    let program = c("bank", &["-g", "-O1"]);
    let without = caches.list(&program, &["--no-cache"]);
    caches.list(&program, &[]);
    let [entry] = &caches.entries()[..] else { panic!("{:?}", caches.entries()) };
    let whole = fs::read(entry).expect("readable");
    let checked = |damage: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        fs::write(entry, bytes).expect("written");
        let ended = caches.list(&program, &[]);
        assert!(ended.stdout == without.stdout && !ended.stderr.contains(HIT), "{}", ended.stderr);
        ended.stderr.contains(DAMAGED)
    };
    checked(&|bytes| bytes.truncate(bytes.len() / 2));
    checked(&Vec::clear);
    checked(&|bytes| bytes[100] ^= 1);
    // With a checksum that is right.
    let with_checksum = |bytes: &mut Vec<u8>| {
        let checksum = crc32(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    };
    let is_seen = checked(&|bytes| {
        let at = bytes.len() - 64;
        bytes[at..].fill(0xff);
        with_checksum(bytes);
    });
    assert!(is_seen, "the end of the plan is nonsense");
    let is_seen = checked(&|bytes| {
        bytes.truncate(bytes.len() - 64);
        with_checksum(bytes);
    });
    assert!(is_seen, "the plan has no end");
}

/// CRC-32, as in gzip.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

#[test]
fn folders_of_others_are_not_used() {
    let program = c("bank", &["-g", "-O1"]);
    let check = |caches: &Caches, reason: &str| {
        let ended = caches.list(&program, &[]);
        assert!(ended.stderr.contains("there is no cache of plans"), "{reason}: {}", ended.stderr);
        let described = run(&mut caches.command(&["cache"]));
        assert_eq!(described.code, Some(1), "{reason}");
        assert!(described.stderr.contains("there is no cache: "), "{}", described.stderr);
    };
    let caches = Caches::new();
    caches.list(&program, &[]);
    fs::set_permissions(caches.folder(), Permissions::from_mode(0o777)).expect("its own");
    check(&caches, "others may write");
    fs::set_permissions(caches.folder(), Permissions::from_mode(0o700)).expect("its own");
    assert!(caches.list(&program, &[]).stderr.contains(HIT));
    let linked = Caches::new();
    symlink(caches.folder(), linked.folder()).expect("a link");
    check(&linked, "a link");
    if machine::is_root() {
        std::os::unix::fs::chown(caches.folder(), Some(65534), None).expect("root may");
        check(&caches, "another user's");
    } else {
        machine::skip("not root");
    }
}

/// The environment comes from the user who called sudo, who may own the folder that it names.
#[test]
fn under_sudo_the_cache_is_that_of_root() {
    if !machine::is_root() {
        machine::skip("not root");
        return;
    }
    let caches = Caches::new();
    let mut command = caches.command(&["cache"]);
    let described = run(command.env("SUDO_UID", "65534").env("SUDO_GID", "65534"));
    let place = caches.0.path().to_str().expect("a path");
    assert!(!described.stdout.contains(place), "{}", described.stdout);
    assert!(!caches.folder().exists());
}

#[test]
fn programs_that_start_at_the_same_time_share_the_cache() {
    let caches = Caches::new();
    let program = c("bank", &["-g", "-O1"]);
    let without = caches.list(&program, &["--no-cache"]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(caches.list(&program, &[]).stdout == without.stdout));
        }
    });
    assert_eq!(caches.entries().len(), 1, "{:?}", caches.entries());
    assert!(caches.list(&program, &[]).stderr.contains(HIT));
}

#[test]
fn the_cache_is_described_and_cleared() {
    let caches = Caches::new();
    caches.list(&c("bank", &["-g", "-O1"]), &[]);
    let folder = caches.folder();
    let text = |arguments: &[&str]| {
        let ended = run(&mut caches.command(arguments));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.stdout
    };
    let start = |what: &str| format!("{}: {what}", path(&folder));
    let described = text(&["cache"]);
    assert!(described.starts_with(&start("1 entry, ")), "{described}");
    let cleared = text(&["cache", "clear"]);
    assert!(cleared.starts_with(&start("removed 1 entry, ")), "{cleared}");
    assert_eq!(text(&["cache"]), start("0 entries, 0 KiB\n"));
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path")
}
