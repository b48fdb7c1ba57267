//! Choices by options and permission.

use std::ffi::OsString;

use super::*;
use capture::{in_process::ProgramRefusal, windows::CaptureBudget};
use plan::{memory::options::Accesses, plan::own_code::OwnCode, regions::patterns::Rules};

fn options(capture: CaptureBackend) -> RunOptions {
    RunOptions {
        capture,
        capture_reason: CaptureReason::Requested,
        when_full: None,
        command: vec![OsString::from("prog")],
        watch: Vec::new(),
        rules: Rules::new(),
        locks: Vec::new(),
        accesses: Accesses { level: Level::Auto, overhead: 100, depth: None, also: Vec::new() },
        own_code: OwnCode::Auto,
        is_cached: false,
        serialize: false,
        checker: None,
        record: None,
        buffer_bytes: 1 << 20,
        as_root: false,
        debug_bpf: false,
        perf_probes: false,
        follow_forks: false,
        perturbation: None,
        gaps: false,
        first_pass: false,
        focus: None,
        budget: None,
    }
}

/// Chooses where options or permissions leave one back end.
fn choice(options: &RunOptions, may_load: bool) -> Result<(bool, &'static str), ChoiceError> {
    let choice = choose(options, may_load)?;
    assert!(!choice.has_alternative, "{choice:?}");
    Ok((choice.is_inline, choice.reason.kind()))
}

#[test]
fn what_is_named_is_taken() {
    for may_load in [false, true] {
        let taken = |capture| choice(&options(capture), may_load);
        assert_eq!(taken(CaptureBackend::Inline), Ok((true, "requested")));
        assert_eq!(taken(CaptureBackend::Kernel), Ok((false, "requested")));
    }
}

#[test]
fn without_privileges_probes_are_in_the_program() {
    assert_eq!(choice(&options(CaptureBackend::Auto), false), Ok((true, "no_privileges")));
}

#[test]
fn with_privileges_probes_are_in_the_program_and_the_kernel_may_do_instead() {
    let auto = options(CaptureBackend::Auto);
    let choice = choose(&auto, true).unwrap();
    assert_eq!((choice.is_inline, choice.has_alternative), (true, true));
    assert_eq!(choice.apply(&auto).capture_reason, CaptureReason::Preferred);
    assert_eq!(without_needs(true), choice);
}

#[test]
fn options_of_one_back_end_decide() {
    let follow = |capture| RunOptions { perf_probes: true, ..options(capture) };
    assert_eq!(choice(&follow(CaptureBackend::Auto), true), Ok((false, "option")));
    let option = "--perf-probes";
    assert_eq!(
        choice(&follow(CaptureBackend::Auto), false),
        Err(ChoiceError::Unprivileged { option })
    );
    assert_eq!(
        choice(&follow(CaptureBackend::Inline), true),
        Err(ChoiceError::KernelOnly { option })
    );
    let wait = |capture| RunOptions { when_full: Some(WhenFull::Wait), ..options(capture) };
    assert_eq!(choice(&wait(CaptureBackend::Auto), true), Ok((true, "option")));
    assert_eq!(choice(&wait(CaptureBackend::Inline), true), Ok((true, "requested")));
    for (asked, other) in [
        (wait(CaptureBackend::Kernel), "`--capture kernel`"),
        (RunOptions { perf_probes: true, ..wait(CaptureBackend::Auto) }, "`--perf-probes`"),
    ] {
        let (option, other) = ("--lossless", other.to_owned());
        assert_eq!(choice(&asked, true), Err(ChoiceError::InlineOnly { option, other }));
    }
}

#[test]
fn a_process_that_refuses_probes_in_it_gets_those_of_the_kernel() {
    let auto = options(CaptureBackend::Auto);
    let refusal = || InProcessError::from(ProgramRefusal::DeniesWriteExecute);
    let inline = choose(&auto, true).unwrap();
    let other = inline.without_inline(&refusal()).unwrap();
    assert_eq!((other.is_inline, other.has_alternative), (false, false));
    assert_eq!(other.reason.kind(), "refused");
    assert!(other.reason.to_string().contains("PR_SET_MDWE"), "{}", other.reason);
    assert_eq!(inline.without_inline(&InProcessError::NoMemory), None, "no fault of the program");
    let refused = AttachError::Refused { pid: 7, error: refusal() };
    assert_eq!(inline.without_attaching(&refused), Some(other));
    let held = AttachError::Untraceable { pid: 7, reason: "process 8 traces it".to_owned() };
    let other = inline.without_attaching(&held).unwrap();
    assert!(other.reason.to_string().contains("process 8 traces it"), "{}", other.reason);
    assert_eq!(inline.without_attaching(&AttachError::Ended { pid: 7 }), None);
    let named = choose(&options(CaptureBackend::Inline), true).unwrap();
    assert_eq!(named.without_inline(&refusal()), None, "it was asked for");
    let alone = choose(&auto, false).unwrap();
    assert_eq!(alone.without_inline(&refusal()), None, "the kernel is not permitted");
}

#[test]
fn a_budget_that_is_asked_for_needs_probes_in_the_process() {
    let with = |is_asked, capture| {
        let budget = Some(CaptureBudget { percent: 10, is_asked, period: None });
        choose(&RunOptions { budget, ..options(capture) }, true).map(|choice| choice.is_inline)
    };
    let error =
        ChoiceError::InlineOnly { option: "--budget", other: "`--capture kernel`".to_owned() };
    assert_eq!(with(true, CaptureBackend::Kernel), Err(error));
    assert_eq!(with(false, CaptureBackend::Kernel), Ok(false), "the default is for the others");
    assert_eq!(with(true, CaptureBackend::Auto), Ok(true));
}
