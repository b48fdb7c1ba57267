//! Conversion: both ways without loss of anything that a checker sees, to files and through pipes.

use crate::support::{Folder, gzip, trace, zstd};

#[test]
fn text_survives_the_way_there_and_back() {
    let folder = Folder::new();
    let every_operation = "T1|begin|1\nT1|begin(a b)|f.c:2\nT1|acq(m)|3\nT1|racq(rw)|4\nT1|r(x)|5\n\
        T1|w(x)|6\nT1|u(x)|7\nT1|rrel(rw)|8\nT1|rel(m)|9\nT1|reset(m)|10\nT1|end(a b)|11\nT1|end|12\n\
        T1|fork(T2)|13\nT2|signal(c)|14\nT2|wait(c)|15\nT2|arrive(b)|16\nT2|depart(b)|17\nT2|alloc(y)|18\n\
        T2|free(y)|19\nT2|exit|20\nT1|join(T2)|21\n";
    folder.write("all.std", every_operation);
    assert_eq!(folder.run(&["check", "all.std"]).code, Some(0));
    let there = folder.run(&["convert", "all.std", "all.avt"]);
    assert_eq!((there.code, &*there.stdout, &*there.stderr), (Some(0), "", ""));
    assert!(folder.read("all.avt").starts_with(b"\x89AVT"));
    let back = folder.run(&["convert", "all.avt", "-"]);
    assert_eq!((back.code, &*back.stdout), (Some(0), every_operation));
}

#[test]
fn both_formats_have_the_same_report() {
    let folder = Folder::new();
    folder.binary_bank();
    let reports = folder.run(&["check", "--format", "json", "bank.std", "bank.avt"]).reports();
    let [mut text, binary]: [_; 2] = reports.try_into().expect("two reports");
    text["subject"]["path"] = "bank.avt".into();
    assert_eq!(text, binary);
}

#[test]
fn the_format_is_chosen_by_name_or_option() {
    let folder = Folder::new();
    let bank = trace("bank.std");
    for (arguments, name, binary) in [
        (&["convert", "-", "a.avt"][..], "a.avt", true),
        (&["convert", "-", "b"], "b", false),
        (&["convert", "-", "--to", "avt", "c.std"], "c.std", true),
        (&["convert", "-", "--to", "text", "-o", "d.avt"], "d.avt", false),
    ] {
        let ended = folder.run_with(arguments, &bank);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{arguments:?}");
        assert_eq!(folder.read(name).starts_with(b"\x89AVT"), binary, "{arguments:?}");
    }
}

#[test]
fn compressed_traces_are_read() {
    let folder = Folder::new();
    let text = trace("bank.std");
    let binary = folder.binary_bank();
    let expected = folder.run_with(&["convert", "-", "-"], &text).stdout;
    for bytes in [&text, &binary] {
        for compressed in [gzip(bytes), zstd(bytes)] {
            folder.write("trace", &compressed);
            let ended = folder.run(&["convert", "trace", "-"]);
            assert_eq!((ended.code, &*ended.stdout), (Some(0), &*expected), "{}", ended.stderr);
            assert_eq!(folder.run(&["check", "trace"]).code, Some(66));
            assert_eq!(folder.run_with(&["check", "-"], &compressed).code, Some(66));
        }
    }
}

#[test]
fn a_failed_conversion_leaves_what_was_there() {
    let folder = Folder::new();
    folder.write("bad.std", "T1|w(x)|1\nT1|no(x)|2\n");
    folder.write("out.std", "old");
    folder.run(&["convert", "bad.std", "out.std"]).check_error(3, &["bad.std:2: ", "no"]);
    assert_eq!(folder.read("out.std"), b"old");
    assert_eq!(folder.names(), ["bad.std", "out.std"]);
    let lenient = folder.run(&["convert", "--lenient", "bad.std", "out.std"]);
    assert_eq!(lenient.code, Some(0), "{lenient:?}");
    assert_eq!(folder.read("out.std"), b"T1|w(x)|1\n#avtrace gap\n");
    // A trace can take its own place.
    assert_eq!(folder.run(&["convert", "--to", "avt", "out.std", "out.std"]).code, Some(0));
    assert!(folder.read("out.std").starts_with(b"\x89AVT"));
    assert_eq!(folder.run(&["convert", "out.std"]).code, Some(2));
    let ended = folder.run(&["convert", "out.std", "no/such/place"]);
    ended.check_error(1, &["no/such/place"]);
}
