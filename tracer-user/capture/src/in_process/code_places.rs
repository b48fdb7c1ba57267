//! Places for memory of probes in a process, in gaps between its mappings: for code near its modules, for the rings far
//! from everything.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    ops::Range,
};

use symbolize::{MapName, Mapping};

/// Size of each mapping of the file of code, in bytes.
pub const AREA: u64 = 64 << 20;

/// Most mappings of the file of code.
pub const MAX_AREAS: u64 = 8;

/// Farthest distance of a trampoline from what it patches, in bytes: less than a jump can reach.
pub const REACH: u64 = (1 << 31) - (1 << 20);

/// Addresses among which the rings have their place: far from where the kernel maps libraries, so that code has room
/// near these, and from where programs are known to map memory at addresses that they choose: Go at 0xc000000000, and
/// collectors of garbage that map their heap several times at multiples of 4 TiB, up to 32 TiB.
const FOR_RINGS: Range<u64> = 0x2100_0000_0000..0x5000_0000_0000;

/// Distance of the rings from what is mapped already, and from what that may grow to, in bytes.
const CLEARANCE: u64 = 1 << 30;

/// Returns a place for the rings, of so many bytes, which is another one in each run: no program can happen to map what
/// it needs just there each time, at an address of its own choice.
pub fn place_of_rings(maps: &[Mapping], length: u64) -> u64 {
    let random = RandomState::new();
    let number = |attempt: u32| {
        let mut hasher = random.build_hasher();
        hasher.write_u32(attempt);
        hasher.finish()
    };
    place_among(maps, length, number)
}

fn place_among(maps: &[Mapping], length: u64, number: impl Fn(u32) -> u64) -> u64 {
    /// Alignment of large pages.
    const ALIGNMENT: u64 = 2 << 20;
    const ATTEMPTS: u32 = 64;
    let places = (FOR_RINGS.end - FOR_RINGS.start - length) / ALIGNMENT;
    let place = |attempt| FOR_RINGS.start + number(attempt) % places * ALIGNMENT;
    let is_free = |&place: &u64| {
        let (start, end) = (place - CLEARANCE, place + length + CLEARANCE);
        maps.iter().all(|map| end <= map.start.0 || map.end.0 <= start)
    };
    // Without a free one the kernel finds a place.
    (0..ATTEMPTS).map(place).find(is_free).unwrap_or_else(|| place(0))
}

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
            places.extend(gap_near(maps, &places, start..end));
        }
    }
    places
}

/// Returns the start of a gap between the mappings, and clear of other places, near a range of addresses: below it
/// where there is room, since heaps grow upwards.
fn gap_near(maps: &[Mapping], taken: &[u64], near: Range<u64>) -> Option<u64> {
    let Range { start, end } = near;
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
    fn rings_are_elsewhere_in_each_run_and_clear_of_everything() {
        const LENGTH: u64 = 3 << 30;
        // All but every fourth TiB is in use.
        let used = |tib: u64| format!("{:x}-{:x} rw-p 0 00:00 0\n", tib << 40, (tib + 3) << 40);
        let maps = maps(&(0..125).step_by(4).map(used).collect::<String>());
        let mut places: Vec<u64> = (0..100)
            .map(|run| {
                let number = |attempt: u32| {
                    (run * 1000 + u64::from(attempt) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                };
                place_among(&maps, LENGTH, number)
            })
            .collect();
        for place in &places {
            let (start, end) = (place - CLEARANCE, place + LENGTH + CLEARANCE);
            assert!(maps.iter().all(|map| end <= map.start.0 || map.end.0 <= start), "{place:x}");
            assert!(FOR_RINGS.contains(place) && place + LENGTH <= FOR_RINGS.end, "{place:x}");
            assert_eq!(place % 4096, 0);
        }
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 95, "{}", places.len());
        assert_ne!(place_of_rings(&maps, LENGTH), place_of_rings(&maps, LENGTH));
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
