//! Tests of the rules for language, and of the list.

use super::*;

fn counts(path: &str, text: &str) -> Counts {
    find(&Source { path: Path::new(path), text }).counts()
}

fn found(files: &[(&str, Counts)]) -> BTreeMap<PathBuf, Places> {
    let lines = |count: usize| (1..=count).collect();
    let places = |[openers, words, wide]: Counts| Places {
        openers: lines(openers),
        words: lines(words),
        wide: lines(wide),
    };
    files.iter().map(|&(path, counts)| (PathBuf::from(path), places(counts))).collect()
}

fn list(files: &[(&str, Counts)]) -> List {
    files.iter().map(|&(path, counts)| (PathBuf::from(path), counts)).collect()
}

#[test]
fn openers_count_once_for_each_item() {
    for opener in OPENERS {
        let text = format!(
            "//! {opener} it is.\n\n/// {opener} it is.\n/// {opener} it is.\nfn f() {{}}\n"
        );
        assert_eq!(counts("a.rs", &text), [2, 0, 0], "{opener}");
    }
}

#[test]
fn nouns_verbs_and_plain_comments_are_no_openers() {
    let text =
        "//! Whatever one asks.\n\n/// Onesided.\n// What now?\n/// Ascending.\n//// When.\n";
    assert_eq!(counts("a.rs", text), [0; 3]);
}

#[test]
fn words_count_wherever_they_stand_in_comments() {
    let text =
        "//! It tells, and is told.\nfn f() {} // tell\n    // Letting go of a lock lets it go.\n";
    assert_eq!(counts("a.rs", text), [0, 4, 0]);
    assert_eq!(counts("a.rs", "/// A teller lets a fare go.\nlet told = 1;\n"), [0; 3]);
    assert_eq!(counts("a.md", "Told.\n```\ntold\n```\n"), [0, 1, 0]);
}

#[test]
fn wide_lines_of_prose_are_found() {
    let wide = "ä".repeat(COLUMNS - 3);
    assert_eq!(counts("a.rs", &format!("// {wide}\n// {wide}b\n")), [0, 0, 1]);
    assert_eq!(counts("a.md", &format!("{wide}abc\n{wide}abcd\n| {wide}abcd |\n")), [0, 0, 1]);
}

#[test]
fn other_files_are_left_alone() {
    assert_eq!(counts("tests/programs/bank.c", "/// What is told.\n"), [0; 3]);
    assert_eq!(counts("tracer-user/avtrace/tests/data/a.rs", "/// What is told.\n"), [0; 3]);
    assert_eq!(counts("tests/programs/rust/bank.rs", "/// What is told.\n"), [1, 1, 0]);
}

#[test]
fn a_file_with_its_entry_passes() {
    let found = found(&[("a.rs", [1, 2, 3]), ("b.rs", [0; 3])]);
    assert!(compare(&found, &list(&[("a.rs", [1, 2, 3])])).is_empty());
}

#[test]
fn more_places_than_allowed_are_found() {
    let problems = compare(&found(&[("a.rs", [2, 1, 0])]), &list(&[("a.rs", [1, 1, 0])]));
    assert_eq!(problems.len(), 1);
    let shown = problems[0].to_string();
    assert!(shown.starts_with("a.rs:2: documentation opens"), "{shown}");
    assert!(shown.ends_with("2 times, 1 allowed, in lines 1, 2"), "{shown}");
    assert_eq!(compare(&found(&[("new.rs", [1, 1, 1])]), &List::new()).len(), 3);
}

#[test]
fn entries_that_are_too_high_are_found() {
    for (found, list) in [
        (found(&[("a.rs", [1, 0, 0])]), list(&[("a.rs", [2, 0, 0])])),
        (found(&[("a.rs", [0; 3])]), list(&[("a.rs", [0, 1, 0])])),
        (found(&[]), list(&[("gone.rs", [1, 0, 0])])),
    ] {
        let problems = compare(&found, &list);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].what.contains("--update"), "{}", problems[0]);
    }
}

#[test]
fn an_update_lowers_and_never_raises() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(LIST);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text = || fs::read_to_string(&path).unwrap();

    // The first list takes what there is.
    update(&found(&[("a.rs", [3, 1, 0]), ("b.rs", [0; 3])]), root.path(), false).unwrap();
    assert_eq!(text(), format!("{HEAD}a.rs 3 1 0\n"));
    update(&found(&[("a.rs", [2, 1, 0])]), root.path(), false).unwrap();
    assert_eq!(text(), format!("{HEAD}a.rs 2 1 0\n"));

    for higher in [[("a.rs", [3, 1, 0])].as_slice(), &[("a.rs", [2, 1, 0]), ("b.rs", [0, 1, 0])]] {
        let error = update(&found(higher), root.path(), false).unwrap_err().to_string();
        assert!(error.contains(higher.last().unwrap().0), "{error}");
        assert_eq!(text(), format!("{HEAD}a.rs 2 1 0\n"));
    }
    update(&found(&[("a.rs", [3, 1, 0])]), root.path(), true).unwrap();
    assert_eq!(text(), format!("{HEAD}a.rs 3 1 0\n"));
}

#[test]
fn files_that_are_gone_leave_their_entries_to_new_ones() {
    let old = list(&[("a.rs", [2, 1, 0]), ("b.rs", [1, 0, 0])]);
    let moved = list(&[("b.rs", [1, 0, 0]), ("c.rs", [1, 1, 0]), ("d.rs", [1, 0, 0])]);
    assert!(raised(&old, &moved).is_empty());
    let more = list(&[("b.rs", [1, 0, 0]), ("c.rs", [1, 1, 0]), ("d.rs", [2, 0, 0])]);
    assert_eq!(raised(&old, &more), ["d.rs"]);
}

#[test]
fn a_list_is_sorted_and_complete() {
    assert_eq!(
        parse("# head\na 1 2 3\nb 0 0 1\n").unwrap(),
        list(&[("a", [1, 2, 3]), ("b", [0, 0, 1])])
    );
    for bad in ["a 1 2\n", "a 1 2 x\n", "b 1 1 1\na 1 1 1\n", "a 1 1 1\na 1 1 1\n", "\n"] {
        assert!(parse(bad).is_err(), "{bad:?}");
    }
}
