//! Regions that are functions: by default, by pattern, and however they are left; the lists of regions and probes.

use tests::tracer::{avtrace_with, captures_inline};
use tests::{Avtrace, Location, Program, c, cpp, require_bpf, runs, rust};

/// Levels of optimisation: with and without tail calls, inlining and frame pointers.
const LEVELS: [&str; 2] = ["-O0", "-O2"];

/// Runs the program with these options of avtrace and checks the findings.
#[track_caller]
fn check(program: &Program, options: &[&str], arguments: &[&str], cycle: Option<&[&str]>) {
    for _ in 0..runs(1) {
        let (ended, report) = Avtrace::on(program).options(options).arguments(arguments).report();
        assert_eq!(report.counts.lost_events, 0);
        let Some(cycle) = cycle else {
            assert_eq!(ended.code, Some(0), "{arguments:?}: {:#?}", report.violations);
            continue;
        };
        assert_eq!(ended.code, Some(66), "{arguments:?}: {}", ended.stderr);
        assert_eq!(report.only_violation().cycle(), cycle, "{arguments:?}");
    }
}

fn unmarked(level: &str) -> Program {
    c("unmarked", &["-g", level])
}

const BANK: &[&str] = &["transfer", "audit", "transfer"];

#[test]
fn functions_that_take_locks_are_regions_by_default() {
    require_bpf!();
    for level in LEVELS {
        let bank = unmarked(level);
        check(&bank, &[], &[], Some(BANK));
        check(&bank, &[], &["fixed"], None);
        let (_, report) = Avtrace::on(&bank).report();
        let violation = report.only_violation();
        let begin = violation.begin.as_ref().expect("a place");
        assert_eq!(begin.function.as_deref(), Some("transfer"));
        // The line before the brace, where the first instruction is.
        assert_eq!(begin.line, Some(bank.line("transfer_begin") - 1), "{begin:?}");
        let [split] = &violation.splits[..] else { panic!("one split: {violation:#?}") };
        let place = |mark| Some(bank.line(mark));
        assert_eq!(split.released.as_ref().and_then(|at| at.line), place("transfer_unlock"));
        assert_eq!(split.reacquired.as_ref().and_then(|at| at.line), place("transfer_relock"));
        assert_eq!(split.lock.name.as_deref(), Some("lock"));
        // Optimised, both are jumps: they leave no return address, and are in these functions all the same.
        let [there, back] = &violation.edges[..] else { panic!("two edges: {violation:#?}") };
        let at = |location: &Option<Location>| {
            let location = location.as_ref().expect("a place");
            (location.function.clone().unwrap_or_default(), location.line)
        };
        assert_eq!(at(&there.sink), ("take".to_owned(), place("take_lock")));
        assert_eq!(at(&back.source), ("audit".to_owned(), place("audit_unlock")));
    }
}

#[test]
fn patterns_say_which_functions_are_regions() {
    require_bpf!();
    for level in LEVELS {
        let bank = unmarked(level);
        let line = format!("file:unmarked.c:{}", bank.line("transfer_unlock"));
        let transfer_alone = Some(&["transfer", "", "", "transfer"][..]);
        check(&bank, &["--atomic", "transfer", "--atomic", "audit"], &[], Some(BANK));
        check(&bank, &["--atomic", "re:^(transfer|audit)$"], &[], Some(BANK));
        check(&bank, &["--atomic", "tr*fer", "--atomic=aud?t"], &[], Some(BANK));
        check(&bank, &["--atomic", "transfer"], &[], transfer_alone);
        check(&bank, &["--atomic", &line], &[], transfer_alone);
        check(&bank, &["--not-atomic", "audit"], &[], transfer_alone);
        check(&bank, &["--not-atomic", "transfer"], &[], None);
        // The last that matches decides.
        check(&bank, &["--not-atomic", "transfer", "--atomic", "transfer"], &[], transfer_alone);
        check(&bank, &["--atomic", "*", "--not-atomic", "*", "--atomic", "audit"], &[], None);
    }
}

#[test]
fn functions_that_take_locks_of_the_users_own_are_regions_by_default() {
    require_bpf!();
    for level in LEVELS {
        let bank = c("latched", &["-g", level]);
        let lock = ["--lock", "acquire=latch_take,release=latch_give"];
        check(&bank, &lock, &[], Some(BANK));
        check(&bank, &lock, &["fixed"], None);
        let (_, report) = Avtrace::on(&bank).options(lock).report();
        let [split] = &report.only_violation().splits[..] else { panic!("one split: {report:#?}") };
        let place = |mark| Some(bank.line(mark));
        assert_eq!(split.released.as_ref().and_then(|at| at.line), place("transfer_give"));
        assert_eq!(split.reacquired.as_ref().and_then(|at| at.line), place("transfer_retake"));
        // The functions of the lock are regions unless an option declares the lock.
        let list = |options: &[&str]| {
            let path = bank.path.to_str().expect("text");
            avtrace_with(options.iter().copied().chain(["--list-regions", path])).stdout
        };
        let (unaided, told) = (list(&[]), list(&lock));
        let (regions, _) = unaided.split_once("would not be").unwrap_or((&unaided, ""));
        assert!(regions.contains("latch_take"), "{unaided}");
        let of_lock = |line: &str| {
            line.contains("latch_take ")
                && line.ends_with("a function of a lock of the program's own")
        };
        assert!(told.lines().any(of_lock), "{told}");
    }
}

#[test]
fn what_threads_of_rust_start_with_is_told_with_and_without_debug_information() {
    require_bpf!();
    for release in [true, false] {
        let full = rust("starts", release);
        for program in [&full, &full.without_debug_information()] {
            let listed = avtrace_with(["--list-regions", program.path.to_str().expect("text")]);
            let (regions, followed) =
                listed.stdout.split_once("watched as well").expect("both kinds of functions");
            let has = |text: &str, name: &str, why: &str| {
                text.lines().any(|line| line.contains(name) && line.contains(why))
            };
            for name in ["starts::transfer", "starts::audit"] {
                assert!(has(regions, name, "it takes a lock"), "{release}: {}", listed.stdout);
            }
            let followed = followed.split_whitespace().collect::<Vec<_>>().join(" ");
            let of_start = followed
                .split_once("starts::patrol ")
                .is_some_and(|(_, after)| after.contains("a thread starts with it"));
            assert!(of_start, "{release}: {}", listed.stdout);
            let cycle = ["starts::transfer", "starts::audit", "starts::transfer"];
            for _ in 0..runs(1) {
                let (ended, report) = Avtrace::on(program).report();
                assert_eq!(ended.code, Some(66), "{release}: {}", ended.stderr);
                assert_eq!(report.only_violation().cycle(), cycle);
            }
        }
    }
}

#[test]
fn a_file_says_which_functions_are_regions() {
    require_bpf!();
    let folder = tests::folder();
    let spec = folder.path().join("avtrace.toml");
    // Inline probes have no watchpoints.
    let (watch, evidence) =
        if captures_inline() { ("", "sync") } else { ("watch = ['balance']\n", "data") };
    let contents = format!("atomic = ['transfer', 'audit']\n{watch}");
    std::fs::write(&spec, contents).expect("the file");
    let spec = spec.to_str().expect("text");
    let bank = unmarked("-O2");
    let (ended, report) = Avtrace::on(&bank).options(["--spec", spec]).report();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    assert_eq!(report.violations[0].cycle(), BANK);
    assert_eq!(report.violations[0].evidence, evidence, "`balance` was watched");
    check(&bank, &["--spec", spec, "--not-atomic", "transfer"], &[], None);
}

#[test]
fn a_function_of_a_library_can_be_a_region() {
    require_bpf!();
    for level in LEVELS {
        let program = c("library", &["-g", level]);
        let options = ["--atomic", "libc.so.6!lfind"];
        check(&program, &options, &[], Some(&["lfind", "", "", "lfind"]));
        check(&program, &options, &["fixed"], None);
    }
}

#[test]
fn a_function_that_was_left_is_no_region_any_more() {
    require_bpf!();
    let options = ["--atomic", "step", "--atomic", "other"];
    let cycle = Some(&["step", "other", "step"][..]);
    for level in LEVELS {
        let program = c("leaving", &["-g", level]);
        for how in ["return", "jump", "exit", "recurse"] {
            check(&program, &options, &[how], None);
            check(&program, &options, &[how, "stay"], cycle);
        }
        // Without optimisation it is an ordinary call, and part of the region.
        check(&program, &options, &["tail"], if level == "-O0" { cycle } else { None });
        check(&program, &options, &["tail", "stay"], cycle);
    }
}

#[test]
fn an_exception_ends_the_regions_that_it_leaves() {
    require_bpf!();
    let options = ["--atomic", "step", "--atomic", "other"];
    for level in LEVELS {
        let program = cpp("throwing", &["-g", level]);
        check(&program, &options, &[], None);
        check(&program, &options, &["stay"], Some(&["step", "other", "step"]));
        let options = ["--atomic", "step", "--atomic", "throw_once"];
        let (ended, report) = Avtrace::on(&program).options(options).arguments(["many"]).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "caught 10000\n"), "{}", ended.stderr);
        assert_eq!(report.counts.lost_events, 0);
        assert_eq!(report.counts.transactions - report.counts.unary_transactions, 10_000);
    }
}

#[test]
fn a_panic_ends_the_regions_that_it_leaves() {
    require_bpf!();
    let options = ["--atomic", "step", "--atomic", "other"];
    for release in [false, true] {
        let program = rust("panicking", release);
        for (arguments, code) in [(&[][..], 0), (&["stay"], 66), (&["many"], 0)] {
            let native = tests::tracer::native(&program.path, arguments, None);
            let (ended, report) =
                Avtrace::on(&program).options(options).arguments(arguments).report();
            assert_eq!((ended.code, &ended.stdout), (Some(code), &native.stdout), "{report:#?}");
            assert_eq!(report.counts.lost_events, 0);
            let regions = report.counts.transactions - report.counts.unary_transactions;
            assert_eq!(regions, if arguments == ["many"] { 10_000 } else { 2 });
        }
    }
}

#[test]
fn a_part_that_was_split_off_belongs_to_its_region() {
    require_bpf!();
    let options = ["--atomic", "transfer", "--atomic", "audit"];
    for level in LEVELS {
        let program = c("cold", &["-g", level]);
        check(&program, &options, &[], Some(BANK));
        check(&program, &options, &["fixed"], None);
    }
    let symbols = std::fs::read(&c("cold", &["-g", "-O2"]).path).expect("the program");
    let split = symbols.windows(14).any(|bytes| bytes == b"transfer.cold\0");
    assert!(split, "the compiler has split it, or this tests nothing");
}

/// The names of the functions that would be regions, of those that would only be followed, and of those that would be
/// neither.
fn listed(program: &Program) -> [Vec<String>; 3] {
    let ended =
        avtrace_with(["--list-regions", "--format", "json", program.path.to_str().expect("text")]);
    let document: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let names = |key: &str, is_wanted: &dyn Fn(&serde_json::Value) -> bool| {
        let all = document[key].as_array().unwrap_or_else(|| panic!("a list: {document:#}"));
        let all = all.iter().filter(|one| is_wanted(one));
        let mut names: Vec<String> =
            all.map(|one| one["name"].as_str().expect("a name").to_owned()).collect();
        names.sort();
        names
    };
    [
        names("regions", &|one| one["role"] == "function"),
        names("regions", &|one| one["role"] != "function"),
        names("not_watched", &|_| true),
    ]
}

#[test]
fn to_wait_in_a_seldom_executed_part_is_not_to_wait() {
    for level in LEVELS {
        let [regions, followed, others] = listed(&c("seldom", &["-g", level]));
        assert_eq!(regions, ["checked", "contending", "flushed", "napping", "waking"], "{level}");
        assert_eq!(followed, ["main", "woken"], "{level}");
        assert_eq!(others, [""; 0], "{level}");
    }
    for release in [false, true] {
        let [regions, followed, mut others] = listed(&rust("cold_waits", release));
        // The main function calls them, and its closures do: both are seldom meant to be atomic.
        others.extend(followed);
        others.retain(|name| !name.starts_with("cold_waits::main"));
        others.sort();
        let of = |names: &[&str]| {
            names.iter().map(|name| format!("cold_waits::{name}")).collect::<Vec<_>>()
        };
        assert_eq!(regions, of(&["asserting", "exiting", "lazily"]), "{release}");
        assert_eq!(others, of(&["parking", "waiting"]), "{release}");
    }
}

#[test]
fn what_would_be_watched_is_listed_with_the_reasons() {
    for level in LEVELS {
        let bank = unmarked(level);
        let path = bank.path.to_str().expect("text");
        let ended = avtrace_with(["--list-regions", path]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let (regions, others) =
            ended.stdout.split_once("watched as well").expect("both kinds of functions");
        let line = |text: &str, name: &str, why: &str| {
            text.lines().any(|line| line.trim().starts_with(name) && line.contains(why))
        };
        for name in ["transfer ", "audit "] {
            assert!(line(regions, name, "pthread_mutex_lock"), "{}", ended.stdout);
        }
        for (name, why) in [
            ("run_transfer ", "thread"),
            ("run_audit ", "thread"),
            ("main ", "main function"),
            ("settle ", "it waits: it calls"),
            ("close_up ", "it waits: it calls"),
        ] {
            assert!(line(others, name, why), "{name} in {}", ended.stdout);
        }
        // Optimised it is a jump to the function that takes the lock.
        assert!(level == "-O2" || line(others, "take ", "its callers"), "{}", ended.stdout);
        assert!(!ended.stdout.contains("balance:"), "it does not run");
        let json = avtrace_with(["--list-regions", "--format", "json", path]);
        let document: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
        let of = |key: &str, name: &str| {
            let all = document[key].as_array().expect("a list");
            all.iter().find(|one| one["name"] == name).expect("the function").clone()
        };
        assert_eq!(
            of("regions", "transfer")["why"],
            "it takes a lock: it calls pthread_mutex_lock"
        );
        let main = of("regions", "main");
        assert_eq!(main["role"], "thread-body");
        assert!(
            main["why"]
                .as_str()
                .is_some_and(|why| why.ends_with("it is the program's main function"))
        );
    }
}

#[test]
fn a_stripped_program_is_told_to_be_one() {
    require_bpf!();
    let bank = unmarked("-O2").stripped();
    let told = "was stripped: its functions go by their addresses";
    let lockless = c("identity", &["-g"]);
    let listed = avtrace_with(["--list-regions", lockless.path.to_str().expect("text")]);
    assert!(listed.stdout.contains("itself takes a lock"), "{}", listed.stdout);
    let notes = |program: &Program, options: &[&str]| {
        let run = Avtrace::on(program).options(options).arguments(["fixed"]);
        let (ended, report) = run.report();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        report.not_seen["notes"].to_string()
    };
    assert!(notes(&bank, &[]).contains(told));
    assert!(!notes(&bank, &["--atomic", "libc.so.6!qsort"]).contains(told), "a region was named");
    assert!(!notes(&unmarked("-O2"), &["--not-atomic", "*"]).contains(told), "it has symbols");
}

#[test]
fn long_reasons_are_broken_into_lines() {
    let program = rust("starts", false);
    let ended = avtrace_with(["--list-regions", program.path.to_str().expect("text")]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let long =
        ended.stdout.lines().find(|line| line.chars().count() > 100 && line.contains(": it "));
    assert_eq!(long, None, "{}", ended.stdout);
    assert!(ended.stdout.contains("lock_contended"), "{}", ended.stdout);
}

#[test]
fn probes_are_listed_with_their_costs() {
    let bank = unmarked("-O2");
    let path = bank.path.to_str().expect("text");
    let text = avtrace_with(["probes", "--capture", "kernel", path]);
    assert_eq!(text.code, Some(0), "{}", text.stderr);
    for part in [
        "begin of region `transfer`",
        "end of region `transfer`",
        "emulated",
        "pthread_mutex_lock in",
    ] {
        assert!(text.stdout.contains(part), "{part} in {}", text.stdout);
    }
    let json = avtrace_with(["probes", "--capture", "kernel", "--format", "json", path]);
    let document: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    let probes = document["probes"].as_array().expect("probes");
    let of_cost = |cost: &str| probes.iter().filter(|probe| probe["cost"] == cost).count() as u64;
    assert_eq!(document["emulated"], of_cost("emulated"));
    assert_eq!(document["single_stepped"], of_cost("single-stepped"));
    assert_eq!(of_cost("emulated") + of_cost("single-stepped"), probes.len() as u64);
    let summary = text.stdout.lines().last().expect("a summary");
    assert!(summary.starts_with(&format!("{} probes:", probes.len())), "{summary}");
}

#[test]
fn what_matches_nothing_is_an_error_with_near_names() {
    require_bpf!();
    let bank = unmarked("-O2");
    let path = bank.path.to_str().expect("text");
    for (option, pattern, hint) in [
        ("--atomic", "trasnfer", "`transfer`"),
        ("--not-atomic", "trasnfer", "`transfer`"),
        ("--atomic", "re:^nothing$", "no function"),
        ("--atomic", "pthread_mutex_lock", "libc.so.6!pthread_mutex_lock"),
        ("--atomic", "libc.so!pthread_mutex_lok", "`pthread_mutex_lock`"),
        ("--atomic", "file:unmarked.c:9999", "in no function"),
        ("--atomic", "file:none.c:1", "no lines of `none.c`"),
        ("--atomic", "re:(", "regular expression"),
    ] {
        let ended = avtrace_with([option, pattern, path]);
        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{pattern}: {}", ended.stderr);
        assert!(ended.stderr.contains(hint), "{pattern}: {}", ended.stderr);
    }
}

#[test]
fn a_line_names_a_function_that_was_inlined() {
    require_bpf!();
    for level in LEVELS {
        let bank = c("inlined", &["-g", level]);
        let named = |line: u32| format!("file:inlined.c:{line}");
        // In the function, and where it is declared.
        let transfer = named(bank.line("transfer_unlock"));
        let audit = named(bank.line("audit_lock") - 2);
        let options = ["--atomic", &transfer, "--atomic", &audit];
        check(&bank, &options, &[], Some(BANK));
        check(&bank, &options, &["fixed"], None);
        let alone = ["--atomic", "audit", "--atomic", "transfer", "--not-atomic", &audit];
        check(&bank, &alone, &[], Some(&["transfer", "", "", "transfer"]));
        let neither = ["--atomic", "transfer", "--atomic", "look", "--not-atomic", &transfer];
        check(&bank, &neither, &[], None);
    }
}

#[test]
fn a_function_that_was_inlined_is_a_region_where_its_code_is() {
    require_bpf!();
    let options = ["--atomic", "transfer", "--atomic", "audit"];
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        for format in ["-gdwarf-4", "-gdwarf-5"] {
            let bank = c("inlined", &[format, level]);
            for _ in 0..runs(1) {
                let (ended, report) = Avtrace::on(&bank).options(options).report();
                let skipped = &report.not_seen["skipped_probes"];
                assert!(skipped.as_array().is_some_and(Vec::is_empty), "{level}: {skipped:#}");
                assert_eq!(ended.code, Some(66), "{level}: {}", ended.stderr);
                let violation = report.only_violation();
                assert_eq!(violation.cycle(), BANK, "{level}");
                let [split] = &violation.splits[..] else { panic!("one split: {violation:#?}") };
                let place = |mark| Some(bank.line(mark));
                assert_eq!(
                    split.released.as_ref().and_then(|at| at.line),
                    place("transfer_unlock")
                );
                assert_eq!(
                    split.reacquired.as_ref().and_then(|at| at.line),
                    place("transfer_relock")
                );
            }
            check(&bank, &options, &["fixed"], None);
        }
    }
}
