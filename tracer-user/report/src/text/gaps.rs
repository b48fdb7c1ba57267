//! The list of gaps of regions.

use super::{
    TextOptions,
    paint::{FRAME, PLAIN, Page, STRONG},
};
use crate::{
    explain::place,
    model::{GapData, RegionGap, RegionGapKind, Report},
    quantity::count,
};

/// Number of gaps that are shown, unless all are.
const SHOWN: usize = 20;

/// Writes the gaps, the most promising first.
pub(super) fn write(page: &mut Page, report: &Report, options: &TextOptions) {
    let Some(gaps) = &report.gaps else { return };
    if gaps.is_empty() {
        page.put(STRONG, "gaps")
            .put(PLAIN, ": none in which another thread could come between")
            .end();
        return;
    }
    let number = count(gaps.len() as u64, "gap");
    page.put(STRONG, &number)
        .put(PLAIN, " of regions in which another thread could come between:")
        .end();
    let shown = if options.all { gaps.len() } else { options.max.unwrap_or(SHOWN) };
    for gap in gaps.iter().take(shown) {
        let left = options.relative(&place(gap.left.as_ref(), &gap.left_label)).to_owned();
        let returned = place(gap.returned.as_ref(), &gap.returned_label);
        page.put(FRAME, &format!("{:>6.2} ", gap.promise))
            .put(STRONG, &gap.region.name)
            .put(PLAIN, &format!(": {left} -> {}", options.relative(&returned)))
            .end();
        page.wrapped(7, &facts(gap), |page, _| {
            page.put(PLAIN, "       ");
        });
    }
    if let Some(more) = gaps.len().checked_sub(shown).filter(|&more| more > 0) {
        let more = count(more as u64, "gap");
        page.put(PLAIN, &format!("       and {more} more (--all)")).end();
    }
    page.end();
}

fn facts(gap: &RegionGap) -> String {
    let RegionGap { subject, crossed, cut, other_threads, .. } = gap;
    let step = match gap.kind {
        RegionGapKind::Lock => format!("releases {subject} and acquires it again"),
        RegionGapKind::Section => format!("between the sections of {subject}"),
        RegionGapKind::Access => format!("accesses {subject} without a lock"),
    };
    let data = match gap.data {
        GapData::Unseen => "",
        GapData::Different => ", other data after it",
        GapData::Same => ", the same data after it",
        GapData::Checked => ", writes after it what was read before",
    };
    let threads = count(*other_threads, "other thread");
    let remotes = gap.remote_regions.join(", ");
    let by = if remotes.is_empty() { String::new() } else { format!(": {remotes}") };
    format!("{step}{data}; crossed {crossed}, cut {cut}; {threads}{by}")
}
