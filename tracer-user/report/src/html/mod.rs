//! A page for browsers: one file with everything in it, which needs no network. The page draws a finding when it is
//! opened, from data in `view`'s shape; `page.js` has the drawing, `page.css` the look.
//!
//! Nothing of the program becomes markup: the data is JSON in which no tag can end, and the script makes text nodes
//! only.

mod view;

use super::{
    format::{Entry, FormatError, Layout, ReportFormat},
    json,
};

/// HTML as a format.
#[derive(Clone, Copy, Debug)]
pub struct Html;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

impl ReportFormat for Html {
    fn render(&self, entries: &[Entry<'_>], layout: &Layout) -> Result<Vec<u8>, FormatError> {
        let page = view::page(entries, layout);
        let title = escaped(&page.title);
        let data = in_script(json::compact_document(&page)?.trim_end());
        let mut out = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + data.len());
        let mut rest = PAGE;
        // Each mark once, in order: inserted text is not searched for marks.
        for (mark, text) in [
            ("{{title}}", title.as_str()),
            ("{{style}}", STYLE),
            ("{{data}}", &data),
            ("{{script}}", SCRIPT),
        ] {
            if let Some((before, after)) = rest.split_once(mark) {
                out.push_str(before);
                out.push_str(text);
                rest = after;
            }
        }
        out.push_str(rest);
        Ok(out.into_bytes())
    }
}

/// Text in which no character is markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Returns JSON that neither ends the element around it nor begins a comment: it escapes such characters in strings.
fn in_script(json: &str) -> String {
    json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}
