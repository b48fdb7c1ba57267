//! Memory that is freed and allocated again: the old block is forgotten, and the new one has a name.

use tests::tracer::captures_inline;
use tests::{Avtrace, Report, c, c_by, cpp, machine, require_bpf, runs, rust};

const LEVELS: [&str; 2] = ["-O0", "-O2"];

/// Runs a program that waits for a watchpoint on its block. Without watchpoints, probes see its accesses.
fn run_watched(run: Avtrace, how: &str) -> (Option<i32>, String, Report) {
    if captures_inline() {
        run_with(run.seeing_memory(), &[how, "unwatched"])
    } else {
        run_with(run, &[how])
    }
}

fn run_with(run: Avtrace, how: &[&str]) -> (Option<i32>, String, Report) {
    let (ended, report) = run.arguments(how).report();
    assert_eq!(report.counts.lost_events, 0, "{}", ended.stderr);
    (ended.code, ended.stdout, report)
}

#[test]
fn memory_that_is_given_out_again_is_other_memory() {
    require_bpf!();
    for level in LEVELS {
        for how in ["again", "mapped", "locks"] {
            let program = c("memory", &["-g", level]);
            // By what is watched, and by all that the program's own code touches.
            for avtrace in [Avtrace::on(&program), Avtrace::on(&program).seeing_memory()] {
                let (code, output, report) = run_watched(avtrace, how);
                assert!(report.violations.is_empty(), "{how}: {:#?}", report.violations);
                assert_eq!((code, &*output), (Some(0), "the same memory\n"), "{how}");
            }
        }
    }
}

#[test]
fn a_use_of_memory_that_another_thread_has_freed_is_reported() {
    for level in LEVELS {
        let program = c("freed", &["-g", level]);
        for (how, region, [freed, used]) in
            [("looked_up", "get", ["drop", "used"]), ("both", "release", ["released", "looked"])]
        {
            let (code, output, report) = run_with(Avtrace::on(&program).seeing_memory(), &[how]);
            assert_eq!((code, &*output), (Some(66), "done\n"), "{how}");
            let defect = &report.defects[0];
            let known = ["region", "class", "pattern"].map(|key| defect[key].as_str().unwrap());
            assert_eq!(known, [region, "likely", "use-after-free"], "{how}");
            let closing = report.violations.iter().filter_map(|violation| violation.edges.last());
            let closing = { closing }.find(|edge| edge.source_action == "free").unwrap();
            let lines = [&closing.source, &closing.sink].map(|place| place.as_ref().unwrap().line);
            assert_eq!(lines, [freed, used].map(|mark| Some(program.line(mark))), "{how}");
            let (code, output, report) =
                run_with(Avtrace::on(&program).seeing_memory(), &[how, "fixed"]);
            assert_eq!((code, &*output), (Some(0), "done\n"), "{how}: {:#?}", report.defects);
        }
        let (code, output, report) = run_with(Avtrace::on(&program).seeing_memory(), &["counted"]);
        assert_eq!((code, &*output), (Some(0), "done\n"), "{:#?}", report.defects);
    }
}

#[test]
fn an_atomic_update_whose_result_nobody_uses_is_seen() {
    let program = c("freed", &["-g", "-O2", "-DRESULT_UNUSED"]);
    let (code, output, report) =
        run_with(Avtrace::on(&program).inline().seeing_memory(), &["looked_up"]);
    assert_eq!((code, &*output), (Some(66), "done\n"));
    let defect = &report.defects[0];
    let known = ["region", "class", "pattern"].map(|key| defect[key].as_str().unwrap());
    assert_eq!(known, ["get", "likely", "use-after-free"]);
    let closing = report.violations.iter().filter_map(|violation| violation.edges.last());
    let closing = { closing }.find(|edge| edge.source_action == "free").unwrap();
    assert_eq!(closing.sink.as_ref().unwrap().line, Some(program.line("taken")));
}

/// The first access of `update` comes before any other thread has touched the variable.
#[test]
fn a_variable_on_a_stack_is_shared_once_a_new_thread_has_its_address() {
    for level in LEVELS {
        let program = cpp("escaped", &["-g", level]);
        for how in ["argument", "captured", "boxed"] {
            let run = Avtrace::on(&program).inline().seeing_memory();
            let (code, output, report) = run_with(run, &[how]);
            assert_eq!((code, &*output), (Some(66), "1\n"), "{how}");
            let defect = &report.defects[0];
            let known = ["region", "class", "pattern"].map(|key| defect[key].as_str().unwrap());
            assert_eq!(known, ["update", "likely", "lost-update"], "{how}");
        }
    }
}

#[test]
fn memory_that_is_kept_is_named_by_who_allocated_it() {
    require_bpf!();
    for level in LEVELS {
        let program = c("memory", &["-g", level]);
        let (code, output, report) = run_watched(Avtrace::on(&program), "kept");
        assert_eq!((code, &*output), (Some(66), "the same memory\n"));
        let violation = report.only_violation();
        assert_eq!((violation.region.as_str(), violation.evidence.as_str()), ("fill", "data"));
        let line = program.line("take");
        let name = format!("the start of the block of 8192 allocated at memory.c:{line} by T1");
        let places: Vec<_> = violation.edges.iter().map(|edge| edge.name()).collect();
        assert_eq!(places, [&*name; 2]);
    }
}

#[test]
fn the_stack_of_a_thread_that_has_ended_is_other_memory_to_the_next() {
    require_bpf!();
    for level in LEVELS {
        let program = c("memory", &["-g", level]);
        let (_, output, report) = run_watched(Avtrace::on(&program), "stack");
        assert_eq!(output, "the same memory\n");
        // Order by the starts and ends of threads is seen, too.
        let data = report.violations.iter().filter(|violation| violation.evidence == "data");
        assert_eq!(data.count(), 0, "{:#?}", report.violations);
    }
}

#[test]
fn blocks_that_threads_pass_on_are_never_shared() {
    require_bpf!();
    let program = c("memory", &["-g", "-O2"]);
    for _ in 0..runs(5) {
        for avtrace in [Avtrace::on(&program), Avtrace::on(&program).seeing_memory()] {
            let (code, output, report) = run_watched(avtrace, "churn");
            assert_eq!((code, &*output), (Some(0), "done\n"), "{:#?}", report.violations);
            assert!(report.counts.dependencies > 20, "the blocks were watched");
        }
    }
}

/// Numbers of allocations and frees.
fn counts(how: &[&str]) -> [u64; 2] {
    let program = c("memory", &["-g", "-O2"]);
    let (code, _, report) = run_with(Avtrace::on(&program), how);
    assert_eq!(code, Some(0), "{how:?}");
    ["allocations", "frees"].map(|key| {
        let count = report.summary[key].as_u64();
        count.unwrap_or_else(|| panic!("{key}: {:#?}", report.summary))
    })
}

#[test]
fn each_call_is_seen() {
    require_bpf!();
    const MORE: u64 = 100;
    for (function, allocations, frees) in [
        ("malloc", 1, 1),
        ("calloc", 1, 1),
        ("aligned_alloc", 1, 1),
        ("posix_memalign", 1, 1),
        // The freed and the allocated block.
        ("realloc", 2, 2),
        ("reallocarray", 2, 2),
        // It fails, and the old block is there again.
        ("impossible", 2, 2),
        ("mmap", 1, 1),
        ("mremap", 2, 2),
    ] {
        let few = counts(&[function, "10"]);
        let many = counts(&[function, &(10 + MORE).to_string()]);
        let more = [0, 1].map(|which| many[which] - few[which]);
        assert_eq!(more, [allocations * MORE, frees * MORE], "{function}");
    }
}

#[test]
fn without_accesses_memory_is_not_looked_at() {
    require_bpf!();
    let program = c("bank_fixed", &["-g", "-O2"]);
    let (ended, report) = Avtrace::on(&program).report();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(report.summary.get("allocations").is_none(), "{:#?}", report.summary);
}

/// Threads share only the data of the allocator.
#[track_caller]
fn check_own_blocks(program: &tests::Program, region: &str) {
    for accesses in ["auto", "probe"] {
        let options = ["--accesses", accesses, "--atomic", region];
        let (code, output, report) =
            run_with(Avtrace::on(program).seeing_memory().options(options), &[]);
        assert_eq!((code, &*output), (Some(0), "done\n"), "{accesses}: {:#?}", report.violations);
        let regions = report.counts.transactions - report.counts.unary_transactions;
        assert_eq!(regions, 400, "{accesses}");
    }
}

#[test]
fn blocks_of_another_c_librarys_allocator() {
    require_bpf!();
    check_own_blocks(&c("own_blocks", &["-g", "-O2"]), "use_blocks");
    check_own_blocks(&c("own_blocks", &["-g", "-O2", "-static"]), "use_blocks");
    if machine::have("musl-gcc") {
        check_own_blocks(&c_by("musl-gcc", "own_blocks", &["-g", "-O2", "-static"]), "use_blocks");
    } else {
        machine::skip("musl-gcc is not installed");
    }
}

#[test]
fn objects_by_an_operator_new_of_ones_own() {
    require_bpf!();
    for level in LEVELS {
        check_own_blocks(&cpp("own_new", &["-g", level]), "use_objects");
    }
}

#[test]
fn blocks_of_a_rust_allocator_of_ones_own() {
    require_bpf!();
    check_own_blocks(&rust("own_allocator", false), "own_allocator::use_blocks");
}
