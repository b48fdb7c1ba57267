//! Places for code of probes in a process: gaps between its mappings, near its modules.

use symbolize::{MapName, Mapping};

/// Size of each mapping of the file of code, in bytes.
pub const AREA: u64 = 64 << 20;

/// Most mappings of the file of code.
pub const MAX_AREAS: u64 = 8;

/// Farthest distance of a trampoline from what it patches, in bytes: less than a jump can reach.
pub const REACH: u64 = (1 << 31) - (1 << 20);

/// Returns places for code, each near some of the executable mappings, and all of them near one.
pub fn places(maps: &[Mapping]) -> Vec<u64> {
    let is_code =
        |map: &&Mapping| map.permissions.execute && matches!(map.name, MapName::File { .. });
    let mut places: Vec<u64> = Vec::new();
    for map in maps.iter().filter(is_code) {
        let (start, end) = (map.start.0, map.end.0);
        let is_near =
            |place: &u64| start.abs_diff(*place) < REACH && end.abs_diff(*place + AREA) < REACH;
        if !places.iter().any(is_near) && places.len() < MAX_AREAS as usize {
            places.extend(gap_near(maps, &places, (start, end)));
        }
    }
    places
}

/// Returns the start of a gap between the mappings, and clear of other places, near a range of addresses: below it
/// where there is room, since heaps grow upwards.
fn gap_near(maps: &[Mapping], taken: &[u64], (start, end): (u64, u64)) -> Option<u64> {
    /// Lowest address that the kernel maps anything at, with room to spare.
    const LOWEST: u64 = 1 << 20;
    let is_free = |&place: &u64| {
        place >= LOWEST
            && maps.iter().all(|map| place + AREA <= map.start.0 || map.end.0 <= place)
            && taken.iter().all(|taken| taken.abs_diff(place) >= AREA)
    };
    let down =
        (1..REACH / AREA).filter_map(|steps| (start & !(AREA - 1)).checked_sub(steps * AREA));
    // The far end first.
    let up = (2..REACH / AREA - 1).rev().map(|steps| (end & !(AREA - 1)) + steps * AREA);
    let reaches =
        |place: &u64| end.abs_diff(*place) < REACH && start.abs_diff(place + AREA) < REACH;
    down.chain(up).filter(reaches).find(is_free)
}

#[cfg(test)]
mod tests {
    use symbolize::parse_maps;

    use super::*;

    fn maps(text: &str) -> Vec<Mapping> {
        parse_maps(text.as_bytes()).expect("maps")
    }

    #[test]
    fn places_are_near_all_code_and_clear_of_everything() {
        let maps = maps(
            "00400000-00500000 r-xp 00000000 08:01 1 /p\n00600000-00700000 rw-p 00000000 00:00 0 [heap]\n\
             7f0000000000-7f0000100000 r-xp 00000000 08:01 2 /l\n7f0000200000-7f0000300000 r-xp 00000000 08:01 3 /m\n\
             7fff00000000-7fff00100000 rw-p 00000000 00:00 0 [stack]\n",
        );
        let places = places(&maps);
        assert_eq!(places.len(), 2, "{places:x?}");
        assert!(places[0] > 0x700000 && places[0] + AREA - 0x400000 < 1 << 31, "{places:x?}");
        assert!(places[1] + AREA <= 0x7f0000000000, "{places:x?}");
    }
}
