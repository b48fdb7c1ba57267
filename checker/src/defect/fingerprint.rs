//! Fingerprints: FNV-1a of 64 bits (Fowler, Noll and Vo) over UTF-8 text, each piece preceded by its length in bytes
//! as a little-endian number of 8 bytes. Written down here, as a fingerprint must outlive versions of libraries.

/// Offset basis of FNV-1a.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// Prime of FNV-1a.
const PRIME: u64 = 0x0100_0000_01b3;

/// Returns the fingerprint of a list of texts.
///
/// ```
/// use checker::defect::fingerprint;
/// assert_ne!(fingerprint::of(["ab", "c"]), fingerprint::of(["a", "bc"]));
/// ```
#[must_use]
pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> u64 {
    let mut hash = BASIS;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    };
    for text in texts {
        add(&(text.len() as u64).to_le_bytes());
        add(text.as_bytes());
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithm_does_not_change() {
        assert_eq!(of([]), BASIS);
        // Computed by an independent implementation.
        assert_eq!(of(["deposit", "x"]), 0xf160_9f82_c416_eaaf);
        assert_ne!(of(["ab", "c"]), of(["a", "bc"]));
    }
}
