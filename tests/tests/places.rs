//! Where probes must not be: a program computes the same with them, wherever its code would not bear one.

use serde_json::Value;
use tests::tracer::avtrace_with;
use tests::{Avtrace, Program, c, require_bpf, runs};

/// Runs that each program gets, unless the environment says otherwise.
const RUNS: usize = 3;

/// All that `avtrace probes` lists for a program, as JSON.
fn listed(program: &Program, options: &[&str]) -> Value {
    let mut arguments = vec!["probes", "--format", "json"];
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

/// From Linux 6.18 on, a probed nop of five bytes becomes a call, which writes below the stack pointer.
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

/// Nothing is below the stack pointer when a function begins, so that one may begin with such a nop.
#[test]
fn a_function_that_begins_with_a_long_nop_is_a_region() {
    require_bpf!();
    let program = c("red_zone", &["-g", "-O2"]);
    let options = ["--atomic", "patchable"];
    let listing = listed(&program, &options);
    let begins = places(&listing, "begin of region `patchable`");
    assert!(matches!(begins[..], [place] if place.starts_with("patchable+0x0 ")), "{begins:?}");
    let (ended, report) = Avtrace::on(&program).options(options).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "done\n"));
    assert_eq!(report.counts.transactions - report.counts.unary_transactions, 600);
}
