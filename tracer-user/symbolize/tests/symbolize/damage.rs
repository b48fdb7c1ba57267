//! Damaged files: every look-up must end with an answer, a miss or an error.

use std::path::Path;

use symbolize::{ElfFile, LinkAddr, ProcessAddr, Symbolizer};

use crate::support::Workspace;

/// A small pseudo-random number generator with a fixed sequence.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Makes every kind of query of a file. Returns the number of queries with an answer.
fn ask_everything(path: &Path, addresses: &[u64]) -> usize {
    let Ok(symbolizer) = Symbolizer::for_executable(path) else { return 0 };
    let file = symbolizer.executable().expect("it was opened").file().expect("it was opened");
    let mut answers = file.symbols().iter().filter(|symbol| symbol.end() > symbol.address).count();
    for &address in addresses {
        let (link, address) = (LinkAddr(address), ProcessAddr(address));
        answers += usize::from(file.symbol_at(link).is_some());
        answers += usize::from(file.function_containing(link).is_some());
        answers += usize::from(file.uses_frame_pointer_at(link));
        answers +=
            usize::from(symbolizer.resolve(address).is_ok_and(|found| !found.frames.is_empty()));
        answers += usize::from(symbolizer.describe(address, 8).is_ok());
    }
    for name in [
        "account.balance",
        "matrix[1][2]",
        "deposit::calls",
        "nothing",
        "shop::stock.items[1].price",
    ] {
        answers += usize::from(symbolizer.lookup_variable(name).is_ok());
    }
    answers + symbolizer.near_names("acount", 3).len()
}

/// Addresses of code and data in a sound file, and some of neither.
fn addresses(file: &ElfFile) -> Vec<u64> {
    let symbols = file.symbols().iter().filter(|symbol| symbol.size > 0);
    let inside = symbols.map(|symbol| symbol.address.0 + symbol.size / 2);
    inside.chain([0, 1, 0x1000, u64::MAX, u64::MAX - 1, 1 << 63]).collect()
}

fn damage(source: &str, options: &[&str], rounds: u64) {
    let workspace = Workspace::new();
    let program = workspace.compile(source, "program", options);
    let sound = std::fs::read(&program).expect("read");
    let addresses = addresses(&ElfFile::open(&program).expect("opens"));
    let answers = ask_everything(&program, &addresses);
    assert!(answers > 50, "{answers}");

    let sections = workspace.output("readelf", &["-SW", "program"]);
    // Where the bytes are that are parsed: headers, unwind information, symbols, debug information.
    let parsed: Vec<(usize, usize)> = sections
        .lines()
        .filter(|line| {
            [".debug", ".eh_frame", "tab", "sym", "note", "version"]
                .iter()
                .any(|part| line.contains(part))
        })
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(']').nth(1)?.split_whitespace().collect();
            let number = |text: &str| usize::from_str_radix(text, 16).ok();
            Some((number(fields.get(3)?)?, number(fields.get(4)?)?))
        })
        .filter(|&(_, size)| size > 0)
        .chain([(0, 0x400)])
        .collect();
    assert!(parsed.len() > 8, "{sections}");

    let mut numbers = Numbers(rounds);
    let damaged = workspace.join("damaged");
    for round in 0..rounds {
        let mut bytes = sound.clone();
        if round % 16 == 0 {
            bytes.truncate(numbers.below(bytes.len()));
        } else {
            // All damage in one section goes deeper into its parser than a little in each.
            let (start, size) = parsed[numbers.below(parsed.len())];
            for _ in 0..=numbers.below(8) {
                let at = start + numbers.below(size);
                if let Some(byte) = bytes.get_mut(at) {
                    let extremes = [0, 0xff, 0x7f, 0x80, 1, numbers.next() as u8];
                    *byte = extremes[numbers.below(extremes.len())];
                }
            }
        }
        // A new file each time: the one before may still be mapped.
        std::fs::remove_file(&damaged).ok();
        std::fs::write(&damaged, &bytes).expect("write");
        let answers = ask_everything(&damaged, &addresses);
        assert!(answers < 1_000_000, "round {round}: {answers}");
    }
}

#[test]
fn damaged_c_programs_are_survived() {
    damage("bank.c", &["-O1", "-g", "-gdwarf-5"], 400);
    damage("bank.c", &["-O1", "-g", "-gdwarf-4", "-fdebug-types-section", "-no-pie"], 200);
}

#[test]
fn damaged_compressed_sections_are_survived() {
    damage("bank.c", &["-O1", "-g", "-gz=zlib"], 200);
}

#[test]
fn damaged_cpp_programs_are_survived() {
    damage("shop.cpp", &["-O1", "-g", "-pthread"], 150);
}
