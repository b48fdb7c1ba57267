//! The HTML report in a browser without a window, where Chromium is installed.

use std::process::Command;

use report::{Entry, Html, Report};
use tempfile::TempDir;

use crate::formats::{document, layout, of_each_class, render};
use crate::stories;

/// Returns the page as Chromium has it after its script ran; `None` where there is no Chromium.
fn opened(page: &str, fragment: &str) -> Option<String> {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("report.html");
    std::fs::write(&path, page).expect("a file");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}{fragment}", path.display()))
        .output();
    let Ok(output) = output else {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "a test would be skipped under CI: Chromium is not installed"
        );
        eprintln!("skipped: Chromium is not installed (Debian's package is `chromium`)");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("a page"))
}

fn count(page: &str, part: &str) -> usize {
    page.matches(part).count()
}

#[test]
#[ignore = "starts a browser; `cargo xtask test --long` runs it"]
fn the_page_lists_findings_and_draws_the_first() {
    let Some(page) = opened(&render(&Html, &of_each_class()), "") else { return };
    assert_eq!(count(&page, "<details class=\"finding\""), 4);
    assert_eq!(count(&page, "<div class=\"body\">"), 1, "others are drawn when they are opened");
    assert_eq!(count(&page, "<svg "), 2, "the interleaving and the cycle");
    assert!(page.contains("3 of 4"), "one is set aside");
    assert!(page.contains("<figcaption>"), "source lines");
    assert!(!page.contains("[object "), "{page}");
}

#[test]
#[ignore = "starts a browser; `cargo xtask test --long` runs it"]
fn each_finding_can_be_linked_to() {
    let report = stories::three_threads().report();
    let Some(page) = opened(&render(&Html, &report), "#d1-s2") else { return };
    let steps = report.shown(&report.defects[0]).expect("it is shown").steps.len();
    for step in 1..=steps {
        assert_eq!(count(&page, &format!("id=\"d1-s{step}\"")), 1);
    }
    assert_eq!(count(&page, "class=\"lifeline\""), 3, "a column for each thread");
}

#[test]
#[ignore = "starts a browser; `cargo xtask test --long` runs it"]
fn names_with_markup_are_text() {
    let mut story = stories::racy_data();
    let hostile = "</script><img src=x onerror=\"document.title='owned'\"><b>";
    story.names.regions[0].name = hostile.to_owned();
    story.names.threads[0].name = Some(hostile.to_owned());
    story.names.objects.values_mut().for_each(|object| object.name = Some(hostile.to_owned()));
    story.names.lines.values_mut().for_each(|line| *line = hostile.to_owned());
    story.names.places.iter_mut().flatten().for_each(|frame| frame.file = Some(hostile.to_owned()));
    let Some(page) = opened(&render(&Html, &story.report()), "#d1") else { return };
    assert_eq!(count(&page, "<img"), 0);
    assert!(!page.contains("<title>owned"), "{page}");
    assert!(page.contains("&lt;/script&gt;&lt;img src=x"), "it is shown as it is");
    assert_eq!(count(&page, "<div class=\"body\">"), 1, "the page works");
}

#[test]
#[ignore = "starts a browser; `cargo xtask test --long` runs it"]
fn a_thousand_findings_and_several_reports_are_listed() {
    let (many, clean) = (stories::many(1_000).report(), stories::clean().report());
    let named =
        |report: &'static str, of| Entry { name: Some(report.to_owned()), ..Entry::new(of) };
    let entries: [Entry<'_>; 2] = [named("many", &many), named("clean", &clean)];
    let page = document(&Html, &entries, &layout());
    let Some(page) = opened(&page, "") else { return };
    assert_eq!(count(&page, "<details class=\"finding\""), 1_000);
    assert_eq!(count(&page, "<div class=\"body\">"), 0, "none is drawn");
    assert!(page.contains("no atomicity violation found"));
    assert!(page.contains("2 reports"));
}

/// A report is what it says without any script as well.
#[test]
fn the_page_is_one_file_without_network() {
    let page = render(&Html, &stories::lock_split().report());
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        let is_namespace = |at: usize| page[at..].starts_with("http://www.w3.org/2000/svg");
        let found = page.match_indices(outside).find(|(at, _)| !is_namespace(*at));
        assert_eq!(found, None, "the page refers to something outside");
    }
    assert!(page.contains("default-src 'none'"));
}

/// The page of a report that was read back is the same.
#[test]
fn a_report_that_was_read_back_gives_the_same_page() {
    let report = of_each_class();
    let text = report::json::render(&report).expect("JSON");
    let again: Report = report::json::read(text.as_bytes()).expect("a report");
    assert_eq!(render(&Html, &report), render(&Html, &again));
}
