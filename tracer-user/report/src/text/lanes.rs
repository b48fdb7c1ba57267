//! The drawing beside the steps of a witness: one lane for each thread, time going down, and an arrow for each
//! dependency. Only characters and columns are decided here.

/// Threads beyond this number get no lanes: the labels in the text must do.
const MAX_LANES: usize = 8;

/// A dependency between two steps, by their positions in the list of steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrow {
    pub(super) source: usize,
    pub(super) sink: usize,
    pub(super) racy: bool,
}

/// A drawn character, and the lane whose colour it takes.
pub(super) type Cell = (char, usize);

/// The geometry of one witness.
#[derive(Debug)]
pub(super) struct Lanes {
    lane: Vec<usize>,
    marker: Vec<char>,
    /// First and last step of each lane, the arrows that leave it included.
    span: Vec<(usize, usize)>,
    arrows: Vec<Arrow>,
    /// Columns from one lane to the next.
    pitch: usize,
}

impl Lanes {
    /// Lays out lanes for steps given as (lane, marker), with labels above them. `None` when there are too many lanes
    /// for the columns.
    pub(super) fn new(
        steps: &[(usize, char)],
        arrows: Vec<Arrow>,
        label_width: usize,
        columns: usize,
    ) -> Option<Self> {
        let count = steps.iter().map(|&(lane, _)| lane + 1).max()?;
        let pitch = (label_width + 2).max(if count <= 3 { 6 } else { 4 });
        if count > MAX_LANES || count * pitch > columns {
            return None;
        }
        let mut span = vec![(usize::MAX, 0); count];
        for (at, &(lane, _)) in steps.iter().enumerate() {
            span[lane] = (span[lane].0.min(at), span[lane].1.max(at));
        }
        for arrow in &arrows {
            let lane = steps[arrow.source].0;
            span[lane].1 = span[lane].1.max(arrow.sink);
        }
        let (lane, marker) = steps.iter().copied().unzip();
        Some(Self { lane, marker, span, arrows, pitch })
    }

    pub(super) fn width(&self) -> usize {
        self.span.len() * self.pitch
    }

    /// The columns from one lane to the next.
    pub(super) const fn pitch(&self) -> usize {
        self.pitch
    }

    fn blank(&self) -> Vec<Cell> {
        vec![(' ', 0); self.width()]
    }

    /// The row of a step: its marker, the lanes that pass by, the arrows that end here.
    pub(super) fn step(&self, at: usize) -> Vec<Cell> {
        let mut row = self.blank();
        for (lane, &(first, last)) in self.span.iter().enumerate() {
            if first < at && at < last {
                row[lane * self.pitch] = ('|', lane);
            }
        }
        let sink = self.lane[at];
        row[sink * self.pitch] = (self.marker[at], sink);
        for arrow in self.arrows.iter().filter(|arrow| arrow.sink == at) {
            let source = self.lane[arrow.source];
            if source == sink {
                continue;
            }
            let from = source * self.pitch;
            let to = sink * self.pitch;
            if self.span[source].1 == at {
                row[from] = ('\'', source);
            }
            for cell in &mut row[from.min(to) + 1..from.max(to)] {
                if cell.0 == ' ' {
                    *cell = (if arrow.racy { '~' } else { '-' }, source);
                }
            }
            let head = if from < to { (to - 1, '>') } else { (to + 1, '<') };
            row[head.0] = (head.1, source);
        }
        row
    }

    /// A row between a step and the next: the lanes that pass by, drawn with `line`.
    pub(super) fn after(&self, at: usize, line: char) -> Vec<Cell> {
        let mut row = self.blank();
        for (lane, &(first, last)) in self.span.iter().enumerate() {
            if first <= at && at < last {
                row[lane * self.pitch] = (line, lane);
            }
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(row: &[Cell]) -> String {
        row.iter().map(|&(c, _)| c).collect::<String>().trim_end().to_owned()
    }

    fn rows(lanes: &Lanes, steps: usize) -> Vec<String> {
        (0..steps).map(|at| drawn(&lanes.step(at))).collect()
    }

    #[test]
    fn arrows_run_from_lane_to_lane() {
        let steps = [(0, '+'), (0, 'o'), (1, 'o'), (1, 'o'), (0, 'o')];
        let arrows = vec![
            Arrow { source: 1, sink: 2, racy: false },
            Arrow { source: 3, sink: 4, racy: true },
        ];
        let lanes = Lanes::new(&steps, arrows, 2, 40).unwrap();
        assert_eq!(rows(&lanes, 5), ["+", "o", "|---->o", "|     o", "o<~~~~'"]);
        assert_eq!(drawn(&lanes.after(0, '|')), "|");
        assert_eq!(drawn(&lanes.after(2, ':')), ":     :");
        assert_eq!(drawn(&lanes.after(4, '|')), "");
    }

    #[test]
    fn arrows_pass_behind_lanes_that_are_alive() {
        let steps = [(0, 'o'), (1, 'o'), (2, 'o'), (1, 'o')];
        let lanes =
            Lanes::new(&steps, vec![Arrow { source: 0, sink: 2, racy: false }], 2, 40).unwrap();
        assert_eq!(rows(&lanes, 4), ["o", "|     o", "'-----|---->o", "      o"]);
    }

    #[test]
    fn wide_labels_widen_and_many_threads_give_up() {
        let steps: Vec<(usize, char)> = (0..8).map(|lane| (lane, 'o')).collect();
        assert_eq!(Lanes::new(&steps, Vec::new(), 2, 40).unwrap().width(), 32);
        assert!(Lanes::new(&steps, Vec::new(), 4, 40).is_none());
        let steps: Vec<(usize, char)> = (0..9).map(|lane| (lane, 'o')).collect();
        assert!(Lanes::new(&steps, Vec::new(), 1, 100).is_none());
        assert!(Lanes::new(&[], Vec::new(), 1, 100).is_none());
    }
}
