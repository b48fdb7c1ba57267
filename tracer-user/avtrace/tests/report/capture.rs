//! Capture in the text report: the back end, the order, and places without probes.

use report::{
    Capture, CaptureBackend, CaptureOrder, NotSeen, SkippedProbes, TextOptions, text::render,
};

use crate::stories;

fn inline() -> Capture {
    Capture {
        backend: CaptureBackend::Inline,
        reason: "avtrace has no privileges for programs in the kernel".to_owned(),
        reason_kind: "no_privileges".to_owned(),
        order: CaptureOrder::TimeStampCounter,
        order_reason: None,
        lossless: true,
        waits: 0,
    }
}

fn summary(capture: Capture) -> String {
    let mut story = stories::clean();
    story.context.capture = Some(capture);
    let text = render(&story.report(), &TextOptions { all: true, ..TextOptions::default() });
    text.lines().last().expect("a summary").to_owned()
}

#[test]
fn the_last_line_names_inline_probes_and_their_order() {
    let plain = summary(inline());
    assert!(plain.contains("; 16 inline probes (order: time stamp counter); "), "{plain}");
    let (order, reason) = (CaptureOrder::SharedCounter, "the processor has no nonstop_tsc");
    let order_reason = Some(reason.to_owned());
    let shared = summary(Capture { order, order_reason, waits: 1200, ..inline() });
    let expected = "(order: a counter common to all threads, as the processor has no nonstop_tsc), \
                    1,200 waits for avtrace; ";
    assert!(shared.contains(expected), "{shared}");
}

#[test]
fn the_other_back_end_is_named_with_the_reason_where_it_was_tried() {
    let refused = Capture {
        backend: CaptureBackend::Kernel,
        order: CaptureOrder::RingBuffer,
        reason: "the program is started with `PR_SET_MDWE`".to_owned(),
        reason_kind: "refused".to_owned(),
        lossless: false,
        ..inline()
    };
    let preferred = Capture { reason_kind: "preferred".to_owned(), ..refused.clone() };
    let refused = summary(refused);
    let expected = "16 probes (2 single-stepped), as the program is started with `PR_SET_MDWE`; ";
    assert!(refused.contains(expected), "{refused}");
    let preferred = summary(preferred);
    assert!(preferred.contains("; 16 probes (2 single-stepped); "), "{preferred}");
}

#[test]
fn places_without_inline_probes_are_counted_by_reasons() {
    let skipped = |what: &str, reason: &str, count| SkippedProbes {
        what: what.to_owned(),
        reason: format!("it cannot be an inline probe: {reason}"),
        count,
        kind: Some("accesses".to_owned()),
        reason_kind: Some("no_patch".to_owned()),
    };
    let room = "there is no room for a jump";
    let mut story = stories::clean();
    story.context.not_seen = NotSeen {
        skipped_probes: vec![
            skipped("accesses of `put`", "control may come to any place of the function", 1),
            skipped("accesses of `get`", room, 2),
            skipped("region `get`", room, 1),
            skipped("accesses of `size`", room, 3),
            skipped("accesses of `drop`", room, 1),
        ],
        ..NotSeen::default()
    };
    let text = render(&story.report(), &TextOptions::default());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "warning: 8 inline probes were not placed: 7, as there is no room for a jump (accesses of `get`, \
                    region `get`, accesses of `size` and 1 more); 1, as control may come to any place of the function \
                    (accesses of `put`)";
    assert!(text.contains(expected), "{text}");
}
