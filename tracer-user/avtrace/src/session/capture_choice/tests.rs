//! Choices by options and permission, with either preference.

use std::{ffi::OsString, io};

use super::*;
use capture::in_process::ProgramRefusal;
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
    }
}

/// Chooses with both preferences; both must agree.
fn choice(options: &RunOptions, may_load: bool) -> Result<(bool, &'static str), ChoiceError> {
    let [one, other] = [false, true].map(|prefers_inline| {
        let choice = choose_preferring(prefers_inline, options, may_load)?;
        assert!(!choice.has_alternative, "{choice:?}");
        Ok((choice.is_inline, choice.reason.kind()))
    });
    assert_eq!(one, other);
    one
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
fn with_privileges_the_preference_decides_and_the_other_may_do_instead() {
    let auto = options(CaptureBackend::Auto);
    for prefers_inline in [false, true] {
        let choice = choose_preferring(prefers_inline, &auto, true).unwrap();
        assert_eq!((choice.is_inline, choice.has_alternative), (prefers_inline, true));
        assert_eq!(choice.apply(&auto).capture_reason, CaptureReason::Preferred);
    }
}

#[test]
fn programs_that_are_started_get_probes_in_them_and_others_are_left_as_they_are() {
    let auto = options(CaptureBackend::Auto);
    for (purpose, is_inline) in [(Purpose::Start, true), (Purpose::Attach, false)] {
        assert_eq!(choose(purpose, &auto, true).unwrap().is_inline, is_inline);
        assert_eq!(without_needs(purpose, true).is_inline, is_inline);
        assert!(choose(purpose, &auto, false).unwrap().is_inline);
    }
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
fn a_back_end_that_fails_before_the_start_is_replaced_by_the_other() {
    let auto = options(CaptureBackend::Auto);
    let refusal = || InProcessError::from(ProgramRefusal::DeniesWriteExecute);
    let inline = choose_preferring(true, &auto, true).unwrap();
    let other = inline.without_inline(&refusal()).unwrap();
    assert_eq!((other.is_inline, other.has_alternative), (false, false));
    assert_eq!(other.reason.kind(), "refused");
    assert!(other.reason.to_string().contains("PR_SET_MDWE"), "{}", other.reason);
    assert_eq!(inline.without_inline(&InProcessError::NoMemory), None, "no fault of the program");
    let kernel = choose_preferring(false, &auto, true).unwrap();
    let other = kernel.without_kernel(&KernelError::NotPermitted).unwrap();
    assert_eq!((other.is_inline, other.reason.kind()), (true, "no_kernel"));
    let error = io::Error::from_raw_os_error(libc::ENOMEM);
    let attach = KernelError::Attach { what: "a place".to_owned(), error };
    assert_eq!(kernel.without_kernel(&attach), None);
    for choice in
        [inline.without_kernel(&KernelError::NotPermitted), kernel.without_inline(&refusal())]
    {
        assert_eq!(choice, None, "it was not that one");
    }
    let named = choose_preferring(true, &options(CaptureBackend::Inline), true).unwrap();
    assert_eq!(named.without_inline(&refusal()), None, "it was asked for");
}
