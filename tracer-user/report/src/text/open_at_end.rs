//! Notes on regions in which the program died, after other threads had seen them in the middle.

use super::{
    hunt,
    paint::{Page, STRONG},
    remark,
};
use crate::{explain::open_at_end, model::Report};

/// Writes a note for each region that was open at the end.
pub(super) fn write(page: &mut Page, report: &Report) {
    for open in &report.open_at_end {
        remark(page, STRONG, "note", &open_at_end(open, report));
        for (kind, text) in open.hunted.iter().flat_map(hunt::remarks) {
            remark(page, STRONG, kind, &text);
        }
    }
}
