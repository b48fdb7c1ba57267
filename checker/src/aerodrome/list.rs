//! Clocks of the last event of each thread, in a place where events of several threads remain sources. One is stored
//! in place, as most variables have no more readers between two writes.

use super::cells::{Cell, Cells, EMPTY};

/// Clocks by row. Empty ones are left out, but that the first may have become one.
#[derive(Default)]
pub(super) struct List {
    row: u32,
    first: Cell,
    more: Option<Box<More>>,
}

/// Further clocks, apart: three words in every variable would be more than an allocation in few.
#[derive(Default)]
struct More(Vec<(u32, Cell)>);

impl List {
    /// Iterates over rows and clocks.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, Cell)> {
        let first = (self.first != EMPTY).then_some((self.row, self.first));
        let more = self.more.iter().flat_map(|more| more.0.iter().copied());
        first.into_iter().chain(more).map(|(row, cell)| (row as usize, cell))
    }

    /// Stores the clock of the thread in the row, in the place of its former one.
    #[inline]
    pub(super) fn put(&mut self, cells: &mut Cells, row: usize, clock: Cell) {
        let (row, clock) = (row as u32, cells.share(clock));
        if self.row == row && self.first != EMPTY {
            cells.release(std::mem::replace(&mut self.first, clock));
        } else if clock != EMPTY || self.more.is_some() {
            self.put_apart(cells, row, clock);
        }
    }

    fn put_apart(&mut self, cells: &mut Cells, row: u32, clock: Cell) {
        let mut more = self.more.iter_mut().flat_map(|more| more.0.iter_mut());
        if let Some((_, cell)) = more.find(|(of, _)| *of == row) {
            cells.release(std::mem::replace(cell, clock));
        } else if self.first == EMPTY {
            (self.row, self.first) = (row, clock);
        } else if clock != EMPTY {
            self.more.get_or_insert_default().0.push((row, clock));
        }
    }

    /// Forgets all clocks.
    #[inline]
    pub(super) fn clear(&mut self, cells: &mut Cells) {
        cells.release(std::mem::take(&mut self.first));
        if let Some(more) = &mut self.more {
            more.0.drain(..).for_each(|(_, cell)| cells.release(cell));
        }
    }

    /// Returns a list with the same clocks.
    pub(super) fn share(&self, cells: &mut Cells) -> Self {
        let mut list = Self::default();
        self.iter().for_each(|(row, cell)| list.put(cells, row, cell));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_one_clock() {
        let mut cells = Cells::default();
        cells.grow(3);
        let clocks = [0, 1, 2].map(|row| cells.begin(EMPTY, row));
        let mut list = List::default();
        for row in [1, 0, 2, 0, 1] {
            list.put(&mut cells, row, clocks[row]);
        }
        let both = cells.learn(clocks[0], clocks[1]);
        list.put(&mut cells, 0, both);
        let found: Vec<_> = list.iter().collect();
        assert_eq!(found, [(1, clocks[1]), (0, both), (2, clocks[2])]);
        let copy = list.share(&mut cells);
        list.clear(&mut cells);
        assert_eq!(list.iter().count(), 0);
        assert_eq!(copy.iter().collect::<Vec<_>>(), found);
        list.put(&mut cells, 2, EMPTY);
        assert_eq!(list.iter().count(), 0);
    }
}
