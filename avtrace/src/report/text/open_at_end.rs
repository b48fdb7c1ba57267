//! Notes on regions in which the program died, after other threads had seen them in the middle.

use super::{
    hunt,
    paint::{Page, STRONG},
    remark,
};
use crate::report::{
    explain::{ending, object, place},
    model::{Action, OpenRegion, Report},
};

/// Writes a note for each region that was open at the end.
pub(super) fn write(page: &mut Page, report: &Report) {
    for open in &report.open_at_end {
        remark(page, STRONG, "note", &sentence(open, report));
        for (kind, text) in open.hunted.iter().flat_map(hunt::remarks) {
            remark(page, STRONG, kind, &text);
        }
    }
}

/// Describes a region that was open at the end.
fn sentence(open: &OpenRegion, report: &Report) -> String {
    let OpenRegion { region, thread, edge, ending: of_run, .. } = open;
    let did = match edge.sink_action {
        Action::Read => "read",
        _ => "wrote",
    };
    let other = edge.sink_transaction.thread;
    let what = object(&edge.object);
    let left = place(edge.source.as_ref(), &edge.source_label);
    let came = place(edge.sink.as_ref(), &edge.sink_label);
    let end = of_run.clone().or_else(|| ending(report));
    let end = end.unwrap_or_else(|| "the program ended".to_owned());
    format!(
        "region `{region}` of T{thread} was cut: T{other} {did} {what} at {came}, after {left} and before the region's \
         end; {end} with the region open"
    )
}
