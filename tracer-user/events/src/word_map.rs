//! Maps with an entry for each aligned word of eight bytes. Ranges come from the traced program, and may be of any
//! length, up to the end of all addresses.

use std::ops::Range;

use rustc_hash::FxHashMap;

/// Knowledge of words, by their addresses, multiples of 8.
pub type WordMap<T> = FxHashMap<u64, T>;

/// Removes the words that have bytes in a range.
pub fn remove_words<T>(words: &mut WordMap<T>, range: &Range<u64>) {
    let Some(last) = range.end.checked_sub(1).filter(|_| !range.is_empty()) else { return };
    let numbers = range.start / 8..=last / 8;
    if numbers.end() - numbers.start() >= words.len() as u64 {
        words.retain(|&word, _| !numbers.contains(&(word / 8)));
        return;
    }
    for number in numbers {
        words.remove(&(number * 8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: u64 = !7;

    fn left(words: &[u64], range: Range<u64>) -> Vec<u64> {
        let mut map: WordMap<()> = words.iter().map(|&word| (word, ())).collect();
        remove_words(&mut map, &range);
        let mut left: Vec<u64> = map.into_keys().collect();
        left.sort_unstable();
        left
    }

    #[test]
    fn words_with_bytes_in_a_range_are_removed() {
        let words = [0x1000, 0x1008, 0x1010, 0x1018];
        assert_eq!(left(&words, 0x1008..0x1010), [0x1000, 0x1010, 0x1018]);
        assert_eq!(left(&words, 0x100f..0x1011), [0x1000, 0x1018]);
        assert_eq!(left(&words, 0x1008..0x1008), words, "an empty range");
        assert_eq!(left(&words, 0..u64::MAX), [0; 0]);
    }

    #[test]
    fn the_last_words_of_all_are_removed() {
        let words = [0, 8, TOP - 8, TOP];
        assert_eq!(left(&words, TOP..u64::MAX), [0, 8, TOP - 8]);
        assert_eq!(left(&words, TOP - 1..u64::MAX), [0, 8]);
        assert_eq!(left(&words, 1..u64::MAX), [0; 0]);
        assert_eq!(left(&words, 0..9), [TOP - 8, TOP]);
    }
}
