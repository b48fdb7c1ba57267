//! Defects in reports: what is shown of them by default and with options, what counts, and what would help.

use insta::assert_snapshot;
use report::text::render;
use report::{
    Class, Defect, Location, Reason, RegionRole, Report, SetAside, SetAsideBy, Settings,
    TextOptions, UnusedSuppression,
};
use report::{GapKind, Obstacle, Pattern};

use crate::fixtures::Story;
use crate::{json as documents, stories};

/// A report with this many defects of each class: likely, possible, by design.
fn report(likely: usize, possible: usize, by_design: usize) -> Report {
    let mut report = stories::many((likely + possible + by_design) as u32).report();
    for (index, defect) in report.defects.iter_mut().enumerate() {
        defect.class = match index {
            index if index < likely => Class::Likely,
            index if index < likely + possible => Class::Possible,
            _ => Class::ByDesign,
        };
        defect.pattern = Pattern::LostUpdate;
        (defect.runs, defect.cut_runs) = (120_412, 3);
        defect.reasons = vec![
            reason("pattern", "an update of another thread was overwritten"),
            reason("value-changed", "value changed"),
            reason("library", "library code"),
        ];
        let pattern = serde_json::json!("lost-update");
        defect.reasons[0].data.insert("pattern".to_owned(), pattern);
    }
    report
}

fn reason(kind: &str, text: &str) -> Reason {
    Reason { kind: kind.to_owned(), text: text.to_owned(), data: serde_json::Map::new() }
}

fn text(report: &Report) -> String {
    render(report, &TextOptions::default())
}

#[test]
fn each_class_has_its_form() {
    let mut report = report(1, 3, 8);
    report.defects[0].ways = 4;
    report.defects[0].outer_regions = vec!["serve".to_owned()];
    for defect in &mut report.defects[4..9] {
        defect.region = "event_loop".to_owned();
        defect.ways = 80;
    }
    assert_snapshot!(text(&report));
}

#[test]
fn many_defects_take_few_lines() {
    let text = text(&report(1, 60, 400));
    assert!(text.lines().count() <= 60, "{text}");
    let summary = text.lines().last().expect("a summary");
    assert!(
        summary.starts_with("avtrace: 1 likely defect, 60 possible, 400 by design (--all); "),
        "{summary}"
    );
    assert!(summary.split_whitespace().count() <= 20, "{summary}");
    assert_eq!(text.matches("\npossible d").count(), 10, "{text}");
    assert!(text.contains("\n    50 more, of `handler_"), "{text}");
}

#[test]
fn all_of_them_are_shown_when_asked_for() {
    let report = report(2, 3, 4);
    let shown = |all, max| {
        let text = render(&report, &TextOptions { all, max, ..TextOptions::default() });
        text.matches(", by another `").count()
    };
    assert_eq!(shown(false, None), 2);
    assert_eq!(shown(false, Some(1)), 1);
    assert_eq!(shown(true, None), 9);
    assert_eq!(shown(true, Some(4)), 4);
}

#[test]
fn one_possible_defect_is_shown_in_full_where_none_is_likely() {
    let text = text(&report(0, 3, 0));
    assert_eq!(text.matches(", by another `").count(), 1, "{text}");
    assert!(text.starts_with(
        "possible d1: lost update of `hits[0]` in `handler_0`, by another `handler_0` [AV1]"
    ));
    assert!(text.contains("\npossible d2: `handler_1` handlers.c:201 -> 202: lost"));
}

#[test]
fn classes_decide_what_counts() {
    let counts = |report: &Report| {
        [Class::Likely, Class::Possible, Class::ByDesign].map(|least| report.fails(least))
    };
    assert_eq!(counts(&report(1, 0, 0)), [true, true, true]);
    assert_eq!(counts(&report(0, 1, 0)), [false, true, true]);
    assert_eq!(counts(&report(0, 0, 1)), [false, false, true]);
    assert_eq!(counts(&report(0, 0, 0)), [false, false, false]);
    assert_eq!(counts(&stories::cycle_only().report()), [false, true, true]);
    // Violations of an algorithm without witnesses have no class.
    let mut unclassified = report(0, 0, 2);
    unclassified.defects.clear();
    assert_eq!(counts(&unclassified), [true, true, true]);
    let mut aside = report(1, 0, 0);
    aside.defects[0].set_aside =
        Some(SetAside { by: SetAsideBy::Baseline, reason: "it is in the baseline".to_owned() });
    assert_eq!(counts(&aside), [false, false, false]);
}

#[test]
fn what_the_user_sets_aside_is_counted() {
    let mut report = report(2, 4, 0);
    let decisions = [SetAsideBy::Suppression, SetAsideBy::Suppression, SetAsideBy::Ignore];
    for (defect, by) in report.defects[1..].iter_mut().zip(decisions) {
        defect.set_aside = Some(SetAside { by, reason: "a statistic".to_owned() });
    }
    report.settings = Some(Settings {
        config: Some("avtrace.toml".to_owned()),
        suppressions: vec!["avtrace.toml".to_owned()],
        baselines: Vec::new(),
        unused: vec![UnusedSuppression {
            source: "avtrace.toml:12".to_owned(),
            keys: "region = flush, file = log.c".to_owned(),
            reason: "it is only a log".to_owned(),
        }],
    });
    let validator = documents::validator();
    assert!(validator.is_valid(&documents::document(&report)));
    let all = render(&report, &TextOptions { all: true, ..TextOptions::default() });
    assert!(all.contains("\nsuppressed d2: "), "{all}");
    assert!(all.contains("(a statistic)"), "{all}");
    let text = text(&report);
    let from = text.find("possible d5").expect("the possible ones");
    assert_snapshot!(&text[from..]);
}

/// The help of the first defect of a story, in which it is changed first: help depends on what the checker finds,
/// which these stories have not.
fn help(story: &mut Story, change: impl FnOnce(&mut Defect)) -> String {
    let report = story.report();
    let mut defect = report.defects[0].clone();
    let violation = report.shown(&defect).expect("the violation").clone();
    change(&mut defect);
    report::help(&defect, &violation, None)
}

#[test]
fn defects_by_design_alone_are_a_good_result() {
    let text = text(&report(0, 0, 1));
    assert!(text.starts_with("no likely or possible defect: "), "{text}");
    assert!(text.contains("\nby design: 1 place, in `handler_0`: "), "{text}");
}

/// A stripped program's functions go by their addresses, in lines that have room for the pattern and its subject.
#[test]
fn places_without_lines_are_short() {
    let mut story = stories::lock_split();
    story.names.lines.clear();
    let name = |of: &str| if of == "transfer" { "nginx+0x4a3f0".to_owned() } else { of.to_owned() };
    for frame in story.names.places.iter_mut().flatten() {
        let function = frame.function.take().unwrap_or_default();
        let offset = frame.line.take().unwrap_or_default() - 41;
        frame.function = Some(format!("{}+{offset:#x}", name(&function)));
        (frame.file, frame.column, frame.module) = (None, None, Some("nginx".to_owned()));
    }
    for region in &mut story.names.regions {
        region.name = name(&region.name);
    }
    let mut report = story.report();
    report.defects[0].class = Class::Likely;
    let shown = text(&report);
    assert!(
        shown.contains("\n  --> nginx+0x4a3f0+0x4: T0 releases mutex `account.lock`\n"),
        "{shown}"
    );
    report.defects.push(Defect { class: Class::Possible, ..report.defects[0].clone() });
    report.defects[1].id = "d2".to_owned();
    let shown = text(&report);
    let line = "\npossible d2: `nginx+0x4a3f0` +0x4 -> +0x7: split section of mutex `account.lock`";
    assert!(shown.contains(line), "{shown}");
}

/// The region is the author of a step of which only the library of its language was seen.
#[test]
fn code_of_a_languages_library_is_its_callers() {
    let is_library = |file: &str| {
        let mut story = stories::racy_data();
        story.names.in_library = true;
        for frame in story.names.places.iter_mut().flatten() {
            frame.file = Some(file.to_owned());
        }
        let defect = story.report().defects.remove(0);
        defect.reasons.iter().any(|reason| reason.kind == "library")
    };
    assert!(is_library("/home/user/.cargo/registry/src/index/jar-1.0.0/src/lib.rs"));
    assert!(!is_library("/rustc/59807616/library/std/src/sync/poison/mutex.rs"));
}

/// Help and evidence about a field need no place of its instance, and no long generic arguments.
#[test]
fn long_names_are_shown_in_short() {
    let mut story = stories::racy_data();
    let place = "(8 bytes into the block of 56 allocated at bank.c:3 by T0)";
    for object in story.names.objects.values_mut() {
        object.name =
            Some(format!("Shared<std::vector<account, std::allocator<account>>>.len {place}"));
    }
    let text = text(&story.report());
    let joined = text.split_whitespace().filter(|&word| word != "|").collect::<Vec<_>>().join(" ");
    assert!(joined.contains("reads `Shared<..>.len` = "), "there is one instance: {text}");
    assert!(joined.contains("writes `Shared<..>.len`: "), "{text}");
    assert!(joined.contains("= fix: protect `Shared<..>.len` by one lock: "), "{text}");
}

#[test]
fn no_help_holds_a_lock_over_what_others_wait_for() {
    let mut story = stories::lock_split();
    let report = story.report();
    let defect = &report.defects[0];
    let violation = report.shown(defect).expect("the violation");
    for obstacle in [Obstacle::Wait, Obstacle::Notification, Obstacle::LockOrder] {
        let help = report::help(defect, violation, Some(obstacle));
        assert!(!help.contains("hold mutex") && !help.contains("hold the lock"), "{help}");
        assert!(
            help.starts_with(
                "if what bank.c:48 does relies on what bank.c:45 saw, look at it again"
            ),
            "{help}"
        );
    }
}

#[test]
fn help_follows_from_the_gap() {
    let split = |change: fn(&mut Defect)| help(&mut stories::lock_split(), change);
    assert_eq!(
        split(|_| {}),
        "hold mutex `account.lock` over that part of `transfer`: do not release it at bank.c:45 only to take it again \
         at bank.c:48"
    );
    let racy = |change: fn(&mut Defect)| help(&mut stories::racy_data(), change);
    assert_eq!(
        racy(|_| {}),
        "protect `account.balance` by one lock: hold it from bank.c:31 to bank.c:33 in `deposit`, and take the same \
         one wherever else it is used"
    );
    assert_eq!(
        racy(|defect| {
            for (end, callee, line) in
                [(&mut defect.gap.left_at, "get", 12), (&mut defect.gap.returned_at, "set", 14)]
            {
                end.chain.push(callee.to_owned());
                end.called_at = Some(Location {
                    file: "/home/user/bank/src/bank.c".to_owned(),
                    line: Some(line),
                    column: None,
                    function: Some("deposit".to_owned()),
                });
            }
        }),
        "protect `account.balance` by one lock: hold it in `deposit`, around its calls of `get` (bank.c:12) and `set` \
         (bank.c:14), and take the same one wherever else it is used"
    );
    for help in [
        split(|defect| defect.role = RegionRole::ThreadBody),
        racy(|defect| defect.role = RegionRole::ThreadBody),
        split(|defect| defect.gap.kind = GapKind::Iterations),
    ] {
        assert!(!help.contains("the whole"), "{help}");
        assert!(help.contains("if ") || help.contains("unless "), "{help}");
    }
    let held = help(&mut stories::racy_data(), |defect| {
        let mutex = stories::lock_split().report().defects.remove(0).objects.remove(0);
        defect.gap.held.push(mutex);
    });
    assert!(
        held.starts_with("mutex `account.lock` is held from bank.c:31 to bank.c:33 in `deposit`, "),
        "{held}"
    );
    // Both ends in one call of the region: the function that they have in common comes first.
    let in_callee = racy(|defect| {
        for (end, calls) in [
            (&mut defect.gap.left_at, &["handle", "get"][..]),
            (&mut defect.gap.returned_at, &["handle"][..]),
        ] {
            end.chain.extend(calls.iter().map(|&call| call.to_owned()));
        }
    });
    assert!(
        in_callee.contains(
            "hold it in `handle`, from its call of `get` to bank.c:33, or in `deposit` around its call of `handle`, and"
        ),
        "{in_callee}"
    );
    assert!(split(|_| {}).len() < 200);
}
