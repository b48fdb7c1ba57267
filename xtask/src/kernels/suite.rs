//! Checks that run in a booted kernel.

use std::{
    fs,
    io::Write as _,
    path::Path,
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{sys::stat::Mode, unistd::mkfifo};
use serde_json::Value;

use super::{
    left_behind,
    results::{Found, Outcome},
    running::{Ended, Running, User, program},
};

/// Exit status of avtrace when it has found a violation.
const FINDINGS: i32 = 66;
/// Name of the check that the right kernel runs.
pub const RELEASE: &str = "release";

/// A check.
pub struct Check {
    /// Its name, the same in the table.
    pub name: &'static str,
    /// Its work.
    pub run: fn() -> Result<Found>,
}

/// All checks, in the order in which they run. One of the last looks at what those before it have left; the last scope
/// of Yama cannot be taken back, and keeps the memory of all processes closed.
pub const CHECKS: &[Check] = &[
    Check { name: RELEASE, run: release },
    Check { name: "`avtrace doctor`", run: doctor },
    Check { name: "uprobe_multi", run: uprobe_multi },
    Check { name: "`--capture kernel`", run: || bank("kernel", User::Root) },
    Check { name: "`--capture inline`, root", run: || bank("inline", User::Root) },
    Check { name: "`--capture inline`, any user", run: || bank("inline", User::Ordinary) },
    Check { name: "`--watch`, kernel", run: || watch("kernel") },
    Check { name: "`--watch`, inline", run: || watch("inline") },
    Check { name: "`record` and `check`", run: record },
    Check { name: "`attach` and detach", run: attach },
    Check { name: "more than a thousand probes", run: many_probes },
    Check { name: "levels of perf events", run: perf_levels },
    Check { name: "nothing left behind", run: left_behind::check },
    Check { name: "scopes of Yama", run: yama_scopes },
];

/// Checks with one of these words in their names, all of them without words; the first one always, since the table
/// needs it.
pub fn selected(only: &[String]) -> impl Iterator<Item = &'static Check> {
    CHECKS.iter().filter(move |check| {
        let is_named = only.iter().any(|word| check.name.contains(&**word));
        only.is_empty() || is_named || check.name == RELEASE
    })
}

fn release() -> Result<Found> {
    Found::works(fs::read_to_string("/proc/sys/kernel/osrelease")?.trim())
}

fn avtrace(arguments: &[&str], user: User) -> Result<Ended> {
    Running::start(&program("avtrace"), arguments, user)?.wait()
}

/// The document of `avtrace doctor`, which runs once: it takes a minute in an emulated machine.
fn doctor_document() -> Result<Value> {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let document = match DOCUMENT.get() {
        Some(document) => document,
        None => {
            let ended = avtrace(&["doctor", "--format", "json"], User::Root)?;
            DOCUMENT.get_or_init(|| ended.stdout)
        }
    };
    serde_json::from_str(document).with_context(|| format!("no document: {document}"))
}

fn doctor() -> Result<Found> {
    let document = doctor_document()?;
    let works = |backend: &str| document["capture"][backend]["works"] == true;
    let checks = document["checks"].as_array().context("no checks")?;
    let named = |status: &str| {
        let of_status = checks.iter().filter(|check| check["status"] == status);
        let described = of_status.map(|check| {
            format!(
                "{} ({})",
                check["id"].as_str().unwrap_or_default(),
                check["found"].as_str().unwrap_or_default()
            )
        });
        described.collect::<Vec<_>>().join(", ")
    };
    ensure!(
        works("kernel") && works("inline"),
        "{}; fails: {}",
        document["capture"],
        named("fails")
    );
    let ids = checks.iter().filter(|check| check["status"] == "limited");
    let ids: Vec<_> = ids.filter_map(|check| check["id"].as_str()).collect();
    Found::works(if ids.is_empty() {
        String::new()
    } else {
        format!("limited: {}", ids.join(", "))
    })
}

fn uprobe_multi() -> Result<Found> {
    let document = doctor_document()?;
    let checks = document["checks"].as_array().context("no checks")?;
    let check =
        checks.iter().find(|check| check["id"] == "uprobe_multi").context("no such check")?;
    match check["status"].as_str() {
        Some("works") => Found::works(""),
        Some("limited") => Ok(Found { outcome: Outcome::Absent, detail: String::new() }),
        _ => bail!("{check}"),
    }
}

/// Traces the program that has a defect, and the one without.
fn bank(capture: &str, user: User) -> Result<Found> {
    await_own_code(capture)?;
    let start = Instant::now();
    let report = format!("/tmp/bank-{capture}-{user:?}.json");
    let options = ["--capture", capture, "--format", "json", "-o", &report];
    for (name, expected) in [("bank", FINDINGS), ("bank_fixed", 0)] {
        let program = program(name);
        let ended = avtrace(&[&options[..], &[&*program]].concat(), user)?;
        ensure!(ended.code == Some(expected), "{name}: {ended}");
        let document: Value = serde_json::from_str(&fs::read_to_string(&report)?)?;
        let found = document["capture"]["backend"].as_str();
        ensure!(found == Some(capture), "{name} was traced by {found:?}");
    }
    Found::works(seconds(start.elapsed()))
}

/// Watches the program's variable, whose value at each access the report then has.
fn watch(capture: &str) -> Result<Found> {
    await_own_code(capture)?;
    let report = format!("/tmp/watch-{capture}.json");
    let options =
        ["--capture", capture, "--watch", "account.balance", "--format", "json", "-o", &report];
    let program = program("bank");
    let ended = avtrace(&[&options[..], &[&*program]].concat(), User::Root)?;
    let report = fs::read_to_string(&report)?;
    let document: Value = serde_json::from_str(&report)?;
    ensure!(
        ended.code == Some(FINDINGS),
        "{ended}, counts {}, not seen {}",
        document["counts"],
        document["not_seen"]
    );
    ensure!(report.contains("\"value\"") && report.contains("account.balance"), "no hit: {report}");
    Found::works("")
}

fn record() -> Result<Found> {
    let (bank, trace) = (program("bank"), "/tmp/bank.avt");
    let ended = avtrace(&["record", "-o", trace, &bank], User::Root)?;
    ensure!(ended.code == Some(0), "record: {ended}");
    let ended = avtrace(&["check", trace], User::Root)?;
    ensure!(ended.code == Some(FINDINGS), "check: {ended}");
    Found::works("")
}

/// Attaches to a running program until a defect is found, detaches, and looks at the program.
fn attach() -> Result<Found> {
    let fifo = "/tmp/commands";
    mkfifo(fifo, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let mut service = Running::start(&program("service"), &[fifo], User::Root)?;
    service.await_stdout("ready")?;
    let mut commands = fs::File::options().read(true).write(true).open(fifo)?;
    let pid = service.pid().to_string();
    let mut avtrace = Running::start(
        &program("avtrace"),
        &["attach", "--capture", "kernel", "--pid", &pid],
        User::Root,
    )?;
    avtrace.await_stderr("attached to process")?;
    commands.write_all(b"t")?;
    service.await_stdout("t done")?;
    let start = Instant::now();
    avtrace.interrupt()?;
    let ended = avtrace.wait()?;
    let detached = start.elapsed();
    ensure!(ended.code == Some(FINDINGS), "{ended}");
    left_behind::await_own_code(service.pid())?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    ensure!(status.contains("TracerPid:\t0\n"), "still traced: {status}");
    commands.write_all(b"q")?;
    let ended = service.wait()?;
    ensure!(ended.code == Some(7), "the program: {ended}");
    Found::works(format!("detached in {}", seconds(detached)))
}

/// Traces a program of many functions that are all probed.
fn many_probes() -> Result<Found> {
    let start = Instant::now();
    let (many, ended_at) = (program("many"), "/tmp/many.ended");
    let options = ["--capture", "kernel", "--atomic", "step_*", "--", &*many, ended_at];
    let ended = avtrace(&options, User::Root)?;
    let whole = start.elapsed();
    ensure!(ended.code == Some(0), "{ended}");
    let since = fs::metadata(Path::new(ended_at))?.modified()?.elapsed()?;
    Found::works(format!("{}, of them {} after the program's end", seconds(whole), seconds(since)))
}

/// Watches a variable as an ordinary user, at the most and the least permissive levels.
fn perf_levels() -> Result<Found> {
    let path = "/proc/sys/kernel/perf_event_paranoid";
    let before = fs::read_to_string(path)?;
    let program = program("bank");
    for level in ["-1", "4"] {
        fs::write(path, level)?;
        let options = ["--capture", "inline", "--watch", "account.balance", &program];
        let ended = avtrace(&options, User::Ordinary)?;
        ensure!(ended.code == Some(FINDINGS), "at {level}: {ended}");
    }
    fs::write(path, &before)?;
    Found::works("")
}

/// Traces a program at each scope. The last one stays: it ends with the machine.
fn yama_scopes() -> Result<Found> {
    let path = Path::new("/proc/sys/kernel/yama/ptrace_scope");
    if !path.exists() {
        return Ok(Found { outcome: Outcome::Absent, detail: String::new() });
    }
    let program = program("bank");
    for (scope, user, expected) in [
        ("0", User::Ordinary, Ok(())),
        ("1", User::Ordinary, Ok(())),
        ("2", User::Ordinary, Err("`sudo sysctl kernel.yama.ptrace_scope=1`")),
        ("2", User::Root, Ok(())),
        ("3", User::Ordinary, Err("until the next boot")),
        ("3", User::Root, Err("until the next boot")),
    ] {
        fs::write(path, scope)?;
        let ended = avtrace(&["--capture", "inline", &program], user)?;
        match expected {
            Ok(()) => ensure!(ended.code == Some(FINDINGS), "at {scope} as {user:?}: {ended}"),
            Err(reason) => {
                let said = ended.to_string();
                ensure!(
                    ended.code == Some(1) && said.contains(reason),
                    "at {scope} as {user:?}: {said}"
                );
            }
        }
    }
    Found::works("")
}

/// With inline probes, waits until the probes of earlier checks are gone from shared files: places that still have a
/// probe cannot get another one.
fn await_own_code(capture: &str) -> Result<()> {
    if capture == "inline" { left_behind::await_none().map(drop) } else { Ok(()) }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
