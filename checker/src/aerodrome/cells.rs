//! Clocks of the optimised version: sets of rows, of the active transactions that each clock knows. Threads and places
//! share clocks, so that an event is remembered without a copy.

/// A clock; `EMPTY` or one with a count of its users.
pub(super) type Cell = u32;

/// The clock that knows no active transaction, and is never changed.
pub(super) const EMPTY: Cell = 0;

/// Number of rows in a word.
const BITS: usize = u64::BITS as usize;

/// Length up to which a list of clocks is not searched for those that are no longer used.
const UNSWEPT: usize = 64;

pub(super) struct Cells {
    /// Number of words of a clock.
    width: usize,
    words: Vec<u64>,
    /// Number of threads and places that have each clock.
    users: Vec<u32>,
    free: Vec<Cell>,
    /// Clocks that may know the active transaction of each row: all that do are among them.
    known_by: Vec<Vec<Cell>>,
}

impl Default for Cells {
    fn default() -> Self {
        Self { width: 1, words: vec![0], users: vec![1], free: Vec::new(), known_by: Vec::new() }
    }
}

impl Cells {
    /// Makes room for the row.
    pub(super) fn grow(&mut self, row: usize) {
        if row >= self.known_by.len() {
            self.known_by.resize_with(row + 1, Vec::new);
        }
        let width = row / BITS + 1;
        if width > self.width {
            let wider = self.words.chunks(self.width).flat_map(|words| {
                words.iter().copied().chain(std::iter::repeat_n(0, width - words.len()))
            });
            self.words = wider.collect();
            self.width = width;
        }
    }

    #[inline]
    fn words(&self, cell: Cell) -> &[u64] {
        let start = cell as usize * self.width;
        &self.words[start..start + self.width]
    }

    /// Returns whether the clock knows the active transaction of the row.
    #[inline]
    pub(super) fn knows(&self, cell: Cell, row: usize) -> bool {
        self.words[cell as usize * self.width + row / BITS] >> (row % BITS) & 1 != 0
    }

    /// Returns whether the clock knows no active transaction.
    #[inline]
    pub(super) fn is_empty(&self, cell: Cell) -> bool {
        self.words(cell).iter().all(|&word| word == 0)
    }

    /// Adds a user of the clock; returns the clock to use.
    #[inline]
    pub(super) fn share(&mut self, cell: Cell) -> Cell {
        if self.is_empty(cell) {
            return EMPTY;
        }
        self.users[cell as usize] += 1;
        cell
    }

    /// Removes a user of the clock.
    #[inline]
    pub(super) fn release(&mut self, cell: Cell) {
        if cell == EMPTY {
            return;
        }
        let users = &mut self.users[cell as usize];
        *users -= 1;
        if *users == 0 {
            let start = cell as usize * self.width;
            self.words[start..start + self.width].fill(0);
            self.free.push(cell);
        }
    }

    /// Returns a clock with the same knowledge and no other user; `cell` loses one.
    fn own(&mut self, cell: Cell) -> Cell {
        if cell != EMPTY && self.users[cell as usize] == 1 {
            return cell;
        }
        let own = self.free.pop().unwrap_or_else(|| {
            self.words.resize(self.words.len() + self.width, 0);
            self.users.push(0);
            (self.users.len() - 1) as Cell
        });
        self.users[own as usize] = 1;
        for index in 0..self.width {
            self.add(own, index, self.words[cell as usize * self.width + index]);
        }
        self.release(cell);
        own
    }

    /// Adds knowledge to one word of a clock.
    #[inline]
    fn add(&mut self, cell: Cell, index: usize, knowledge: u64) {
        let word = &mut self.words[cell as usize * self.width + index];
        let mut new = knowledge & !*word;
        *word |= knowledge;
        while new != 0 {
            self.note(cell, index * BITS + new.trailing_zeros() as usize);
            new &= new - 1;
        }
    }

    #[inline]
    fn note(&mut self, cell: Cell, row: usize) {
        let list = &mut self.known_by[row];
        if list.len() == list.capacity() && list.len() > UNSWEPT {
            let (words, width) = (&self.words, self.width);
            let knows =
                |cell: Cell| words[cell as usize * width + row / BITS] >> (row % BITS) & 1 != 0;
            list.retain(|&cell| knows(cell));
            list.sort_unstable();
            list.dedup();
            list.reserve(list.len().max(UNSWEPT));
        }
        list.push(cell);
    }

    /// Returns the thread's clock with the knowledge of `from` added.
    #[inline]
    pub(super) fn learn(&mut self, cell: Cell, from: Cell) -> Cell {
        let new = self.words(from).iter().zip(self.words(cell)).any(|(from, own)| from & !own != 0);
        if !new {
            return cell;
        }
        let own = self.own(cell);
        for index in 0..self.width {
            self.add(own, index, self.words[from as usize * self.width + index]);
        }
        own
    }

    /// Returns the thread's clock with the transaction that begins now in its row.
    pub(super) fn begin(&mut self, cell: Cell, row: usize) -> Cell {
        let own = self.own(cell);
        self.add(own, row / BITS, 1 << (row % BITS));
        own
    }

    /// Ends the transaction of the row, whose clock is `cell`: all clocks that know it learn the contents of `cell`.
    /// Afterwards no clock knows the transaction, since it is no longer active.
    pub(super) fn end(&mut self, cell: Cell, row: usize) {
        let mut list = std::mem::take(&mut self.known_by[row]);
        for &known in &list {
            if !self.knows(known, row) {
                continue;
            }
            for index in 0..self.width {
                let mut knowledge = self.words[cell as usize * self.width + index];
                if index == row / BITS {
                    knowledge &= !(1 << (row % BITS));
                    self.words[known as usize * self.width + index] &= !(1 << (row % BITS));
                }
                self.add(known, index, knowledge);
            }
        }
        list.clear();
        self.known_by[row] = list;
    }

    /// Returns the number of clocks in use, and the number of entries in the lists of clocks that may know a
    /// transaction.
    #[cfg(test)]
    fn sizes(&self) -> [usize; 2] {
        let listed = self.known_by.iter().map(Vec::len).sum();
        [self.users.len() - self.free.len() - 1, listed]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_clocks_learn_at_the_end_of_a_transaction_they_know() {
        let mut cells = Cells::default();
        cells.grow(2);
        let [first, second] = [0, 1].map(|row| cells.begin(EMPTY, row));
        let place = cells.share(first);
        let first = cells.learn(first, second);
        assert!(cells.knows(first, 1) && !cells.knows(place, 1));
        let third = cells.learn(EMPTY, place);
        cells.end(first, 0);
        for cell in [first, place, third] {
            assert!(cells.knows(cell, 1) && !cells.knows(cell, 0));
        }
        cells.end(second, 1);
        assert!([first, second, third, place].iter().all(|&cell| cells.is_empty(cell)));
        assert_eq!(cells.share(first), EMPTY);
    }

    #[test]
    fn rows_beyond_a_word_widen_all_clocks() {
        let mut cells = Cells::default();
        cells.grow(0);
        let first = cells.begin(EMPTY, 0);
        cells.grow(130);
        let last = cells.begin(EMPTY, 130);
        let both = cells.learn(last, first);
        assert!(cells.knows(both, 0) && cells.knows(both, 130) && !cells.knows(both, 64));
        assert!(!cells.knows(first, 130));
    }

    /// A transaction that stays active while clocks that know it come and go.
    #[test]
    fn lists_do_not_grow_with_the_trace() {
        let mut cells = Cells::default();
        cells.grow(1);
        let old = cells.begin(EMPTY, 0);
        let mut place = EMPTY;
        for _ in 0..10_000 {
            let other = cells.begin(EMPTY, 1);
            let other = cells.learn(other, old);
            cells.release(std::mem::replace(&mut place, EMPTY));
            place = cells.share(other);
            cells.end(other, 1);
            cells.release(other);
        }
        let [used, listed] = cells.sizes();
        assert!(used <= 3 && listed <= 4 * UNSWEPT, "{used} clocks, {listed} entries");
    }
}
