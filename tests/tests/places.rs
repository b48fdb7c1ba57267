//! Places of probes, forbidden and required: a program computes the same with them, and its accesses are recorded.

use serde_json::Value;
use tests::tracer::avtrace_with;
use tests::{Avtrace, Program, c, require_bpf, runs};

/// Runs that each program gets, unless the environment says otherwise.
const RUNS: usize = 1;

/// All that `avtrace probes` lists for a program, as JSON.
fn listed(program: &Program, options: &[&str]) -> Value {
    let mut arguments = vec!["probes", "--capture", "kernel", "--format", "json"];
    arguments.extend(options);
    arguments.extend(["--", program.path.to_str().expect("a path")]);
    let ended = avtrace_with(arguments);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).expect("JSON")
}

/// The places of the probes in a listing, as `function+0x12 (module)`, whose purpose contains these words.
fn places<'listing>(listing: &'listing Value, purpose: &str) -> Vec<&'listing str> {
    let probes = listing["probes"].as_array().expect("probes");
    probes
        .iter()
        .filter(|probe| probe["what"].as_str().is_some_and(|what| what.contains(purpose)))
        .map(|probe| probe["place"].as_str().expect("a place"))
        .collect()
}

/// From Linux 6.18 on, a probed nop of five bytes becomes a call, which writes below the stack pointer and leads
/// nowhere in a child process.
#[test]
fn what_is_below_the_stack_pointer_stays_what_it_is() {
    require_bpf!();
    let program = c("red_zone", &["-g", "-O2"]);
    let leaves = ["nopl_indexed", "nopw_based", "nop_prefixed", "jmp_to_next", "lea_of_itself"];
    for _ in 0..runs(RUNS) {
        for options in [
            &[][..],
            &["--accesses", "probe", "--probe", "*"],
            &["--atomic", "nop*", "--atomic", "patchable", "--atomic", "locked"],
        ] {
            let (ended, report) = Avtrace::on(&program).seeing_memory().options(options).report();
            assert_eq!((ended.code, &*ended.stdout), (Some(0), "done\n"), "{options:?}");
            assert_eq!(report.counts.lost_events, 0);
        }
    }
    // The accesses are still seen, from other places.
    let listing = listed(&program, &["--probe", "*"]);
    for leaf in leaves {
        let places = places(&listing, &format!("accesses of `{leaf}`"));
        assert!(places.len() >= 3, "{leaf}: {places:?}");
        let nop = format!("{leaf}+0x11 ");
        assert!(!places.iter().any(|place| place.starts_with(&nop)), "{leaf}: {places:?}");
    }
}

/// A function that can be patched begins with such a nop: it is a region from the next instruction on.
#[test]
fn a_function_that_begins_with_a_long_nop_is_a_region() {
    require_bpf!();
    let program = c("red_zone", &["-g", "-O2"]);
    let options = ["--atomic", "patchable"];
    let listing = listed(&program, &options);
    let begins = places(&listing, "begin of region `patchable`");
    assert!(matches!(begins[..], [place] if place.starts_with("patchable+0x5 ")), "{begins:?}");
    let (ended, report) = Avtrace::on(&program).options(options).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "done\n"));
    assert_eq!(report.counts.transactions - report.counts.unary_transactions, 600);
}

/// `fork` copies the jump in the place of a probed nop of five bytes, and not the target of the jump.
#[test]
fn a_child_executes_a_long_nop() {
    require_bpf!();
    let program = c("red_zone", &["-g", "-O2"]);
    for options in [
        &["--atomic", "patchable"][..],
        &["--accesses", "probe", "--probe", "*"],
        &["--follow-forks", "--atomic", "patchable"],
    ] {
        let ended = Avtrace::on(&program).seeing_memory().options(options).run();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "done\n"), "{}", ended.stderr);
    }
}

/// From where to where the restartable sequences of a program go, by their descriptors.
fn sequences(program: &Program) -> Vec<(u64, u64)> {
    use object::{Object as _, ObjectSection as _};
    let bytes = std::fs::read(&program.path).expect("the program");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let section = file.section_by_name("__rseq_cs").expect("descriptors").data().expect("its data");
    let word = |descriptor: &[u8], at: usize| {
        u64::from_le_bytes(descriptor[at..at + 8].try_into().expect("eight bytes"))
    };
    let range =
        |descriptor: &[u8]| (word(descriptor, 8), word(descriptor, 8) + word(descriptor, 16));
    section.chunks_exact(32).map(range).collect()
}

/// A restartable sequence is restarted when its thread is interrupted, which the kernel would not notice while a copy
/// of one of its instructions is executed elsewhere: counts would go missing.
#[test]
fn restartable_sequences_are_left_alone() {
    require_bpf!();
    // Position-independent or not: the descriptors are relocated or complete.
    for flags in [&["-g", "-O2"][..], &["-g", "-O2", "-no-pie"]] {
        let program = c("percpu", flags);
        let library = c("percpu", &["-g", "-O2", "-DLIBRARY", "-shared", "-fPIC"]);
        let library = library.path.to_str().expect("a path");
        let name = library.rsplit('/').next().expect("a name");
        let of_library = format!("{name}!*");
        let probe = ["--accesses", "probe", "--probe", "*"];
        let late = ["--accesses", "probe", "--probe", "*", "--probe", &of_library];
        for _ in 0..runs(1) {
            for (options, arguments) in [
                (&[][..], &["40000"][..]),
                (&probe, &["5000"]),
                (&late, &["5000", library]),
                (&["--atomic", "count_up"], &["5000"]),
            ] {
                let run = Avtrace::on(&program).seeing_memory().options(options);
                let (ended, _) = run.arguments(arguments).report();
                assert_eq!(&*ended.stdout, "0 missing\n", "{options:?} {arguments:?}");
            }
        }
    }
}

#[test]
fn what_is_in_restartable_sequences_is_counted() {
    require_bpf!();
    let program = c("percpu", &["-g", "-O2", "-no-pie"]);
    let options = ["--probe", "*", "--atomic", "count_up", "--atomic", "count_or_fail"];
    let listing = listed(&program, &options);
    let sequences = sequences(&program);
    assert_eq!(sequences.len(), 2);
    let path = program.path.to_str().expect("a path");
    let own = listing["probes"].as_array().expect("probes").iter();
    let own: Vec<u64> = own
        .filter(|probe| probe["module"] == path)
        .filter_map(|probe| probe["address"].as_str()?.strip_prefix("0x"))
        .map(|address| u64::from_str_radix(address, 16).expect("an address"))
        .collect();
    assert!(own.len() > 10, "{own:x?}");
    for (start, end) in sequences {
        let inside: Vec<&u64> = own.iter().filter(|at| (start..end).contains(at)).collect();
        assert!(inside.is_empty(), "{inside:x?} between {start:x} and {end:x}");
    }
    assert_eq!(places(&listing, "begin of region `count_up`").len(), 1, "it is left elsewhere");
    assert!(places(&listing, "region `count_or_fail`").is_empty());

    let (_, report) =
        Avtrace::on(&program).seeing_memory().options(options).arguments(["1000"]).report();
    let left_out = report.memory.expect("memory")["left_out"].clone();
    let reasons = left_out.as_array().expect("reasons").iter();
    let reason = |reason: &&Value| {
        reason["reason"].as_str().is_some_and(|reason| reason.contains("restartable sequence"))
    };
    let count = reasons.filter(reason).filter_map(|reason| reason["count"].as_u64()).sum::<u64>();
    assert!(count >= 8, "{left_out:#}");
    let skipped = format!("{:?}", report.not_seen);
    assert!(skipped.contains("region `count_or_fail`") && skipped.contains("rseq"), "{skipped}");
}

/// An exchange is executed out of line when it is probed, and is atomic there too.
#[test]
fn an_exchange_that_is_probed_stays_atomic() {
    require_bpf!();
    let program = c("tokens", &["-g", "-O2"]);
    let exchanges = ["exchange_at", "exchange_first", "publish"];
    let listing = listed(&program, &["--probe", "*"]);
    for function in exchanges {
        let places = places(&listing, &format!("accesses of `{function}`"));
        assert_eq!(places.len(), 1, "{function}: {places:?}");
    }
    for _ in 0..runs(RUNS) {
        for options in [&[][..], &["--accesses", "probe", "--probe", "*"]] {
            let (ended, report) = Avtrace::on(&program).seeing_memory().options(options).report();
            assert_eq!(&*ended.stdout, "0 wrong, published one\n", "{options:?}");
            let left_out = &report.memory.expect("memory")["left_out"];
            assert_eq!(left_out.as_array().map(Vec::len), Some(0), "{left_out:#}");
        }
    }
}

#[test]
fn a_store_that_stands_alone_is_seen() {
    require_bpf!();
    let program = c("published", &["-g", "-O2"]);
    let options = ["--accesses", "probe", "--probe", "*"];
    let (ended, report) = Avtrace::on(&program).seeing_memory().options(options).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "3\n"), "{report:#?}");
    let violation = &report.violations[0];
    assert_eq!((&*violation.region, &*violation.evidence), ("update", "data"));
    let last = violation.edges.last().expect("an edge");
    let line = |place: &Option<tests::Location>| place.as_ref().and_then(|place| place.line);
    let expected = (Some(program.line("publish")), Some(program.line("update")));
    assert_eq!((line(&last.source), line(&last.sink)), expected, "{last:#?}");
}

/// The stack of each step shows which of the two calls of the helper led to it, though the code does not say where the
/// helper calls by its pointer.
#[test]
fn a_helper_that_is_called_at_two_places_makes_no_loop() {
    let program = c("under_lock", &["-g", "-O0"]);
    let (ended, report) = Avtrace::on(&program).inline().seeing_memory().report();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "torn\n"), "{}", ended.stderr);
    let [defect] = &report.defects[..] else { panic!("{:#?}", report.defects) };
    assert_eq!((&defect["region"], &defect["class"]), (&"publish".into(), &"likely".into()));
    let lines = ["left", "returned"].map(|end| defect["gap"][end]["line"].as_u64());
    assert_eq!(lines, ["width", "height"].map(|mark| Some(program.line(mark).into())));
}
