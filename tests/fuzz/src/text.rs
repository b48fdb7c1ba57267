//! Lines of `/proc/PID/maps`, and arguments of the command line: words, patterns, locks and watches.

use avtrace::cli::Cli;
use plan::{memory::watch_spec::WatchSpec, regions::patterns::Pattern, sync::lock_rule::LockRule};
use report::suppress::Glob;
use symbolize::parse_maps;

use crate::Target;

/// Mappings of a process.
pub const MAPS: Target = Target {
    name: "maps",
    run: maps,
    seeds: || {
        let lines: [&[u8]; 2] = [
            b"55d0c0a00000-55d0c0a01000 r-xp 00001000 fe:01 1234   /usr/bin/true (deleted)\n\
              7ffc1000-7ffc2000 rw-p 00000000 00:00 0 [stack]\n",
            b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n\
              1000-2000 rw-s 00000000 00:01 99 /memfd:a\\012b\\134c (deleted)\n",
        ];
        lines.map(<[u8]>::to_vec).into()
    },
    words: &[
        b"\\012",
        b"\\777",
        b"(deleted)",
        b"[heap]",
        b"[anon:",
        b"-",
        b":",
        b" ",
        b"r-xp",
        b"ffffffffffffffff",
        b"\n",
    ],
};

fn maps(input: &[u8]) {
    match parse_maps(input) {
        Ok(mappings) => {
            for mapping in mappings {
                assert!(mapping.start < mapping.end);
                assert!(mapping.contains(mapping.start) && !mapping.contains(mapping.end));
                let _ = mapping.path();
            }
        }
        Err(error) => drop(error.to_string()),
    }
}

/// Arguments of the command line.
pub const PATTERNS: Target = Target {
    name: "patterns",
    run: patterns,
    seeds: || {
        let texts = [
            "bank::*",
            "libz.so!inflate",
            "file:bank.c:70",
            "/^a(b|c)*$/",
            "acquire=my_lock,release=my_unlock,try=my_trylock,arg=2",
            "account+40:8",
            "account.balance[3].*",
            "0x7fff0000:8",
            "--atomic\nbank::*\n--buffer\n64\n--watch\naccount\n./prog\n-x",
            "attach\n--pid\n1,2\n--duration\n1h30m\n--name\nx",
            "record\n--keep\n10M\n-o\nt\np",
            "[a-z]*?[!x]",
        ];
        texts.map(|text| text.as_bytes().to_vec()).into()
    },
    words: &[
        b"*",
        b"?",
        b"[",
        b"]",
        b"[!",
        b"!",
        b"file:",
        b"::",
        b"acquire=",
        b"arg=",
        b"+",
        b":",
        b"0x",
        b".*",
        b"->",
        b"18446744073709551616",
        b"\n--",
        b"99999999999999999999h",
        b"\x1b[2J",
        b"{",
        b"(",
        b"\\",
        "é".as_bytes(),
    ],
};

fn patterns(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let words = text.lines().take(64).map(str::to_owned);
    if let Err(error) = Cli::parsed(std::iter::once("avtrace".to_owned()).chain(words)) {
        drop(error.to_string());
    }
    for error in [
        text.parse::<Pattern>().err().map(|error| error.to_string()),
        text.parse::<LockRule>().err().map(|error| error.to_string()),
        text.parse::<WatchSpec>().err().map(|error| error.to_string()),
    ] {
        drop(error);
    }
    for glob in [Glob::new(&text), Glob::of_symbol(&text)].into_iter().flatten() {
        let _ = (glob.matches_name("a::b<c>::d"), glob.matches_path("/a/b.c"), glob.to_string());
    }
    let exactly = Glob::new(&Glob::exactly(&text));
    assert!(exactly.is_ok_and(|glob| glob.matches_path(&text)), "{text:?}");
}
