//! LeakSanitizer, which AddressSanitizer brings along: at the program's end it traces all threads by ptrace, and ends
//! the program with an error where another tracer is there already.

use symbolize::ElfFile;

/// Function of its runtime library (`sanitizer/lsan_interface.h`), dynamic or linked statically.
const FUNCTION: &str = "__lsan_do_leak_check";

/// Variables in which its options are, AddressSanitizer's first.
const VARIABLES: [&str; 2] = ["ASAN_OPTIONS", "LSAN_OPTIONS"];

/// Returns whether a file has its runtime library, or is that.
pub(super) fn is_in(file: &ElfFile) -> bool {
    file.symbols().iter().any(|symbol| symbol.name == FUNCTION)
}

/// Returns whether an environment turns the search for leaks off. `environment` is `/proc/PID/environ`.
pub(super) fn is_off(environment: &[u8]) -> bool {
    let value = |variable: &str| {
        let mut entries = environment.split(|&byte| byte == 0);
        entries.find_map(|entry| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"="))
    };
    // LeakSanitizer's own variable is read second.
    let last = VARIABLES.iter().filter_map(|variable| detects_leaks(value(variable)?)).next_back();
    last == Some(false)
}

/// Returns the option's last value among options.
fn detects_leaks(options: &[u8]) -> Option<bool> {
    // The separators of `sanitizer_flag_parser.cpp`.
    let words = options.split(|byte| b" ,:\n\t\r".contains(byte));
    let value = words.filter_map(|word| word.strip_prefix(b"detect_leaks=")).next_back()?;
    let value = value.trim_ascii().strip_prefix(b"\"").unwrap_or(value);
    Some(!(value.starts_with(b"0") || value.starts_with(b"no") || value.starts_with(b"false")))
}

#[cfg(test)]
mod tests {
    use super::is_off;

    #[test]
    fn the_option_that_is_read_last_decides() {
        for (environment, expected) in [
            (&b""[..], false),
            (b"HOME=/root\0ASAN_OPTIONS=verbosity=1\0", false),
            (b"ASAN_OPTIONS=verbosity=1:detect_leaks=0\0", true),
            (b"HOME=/root\0ASAN_OPTIONS=detect_leaks=false,verbosity=1\0", true),
            (b"ASAN_OPTIONS=detect_leaks=0:detect_leaks=1\0", false),
            (b"ASAN_OPTIONS=detect_leaks=0\0LSAN_OPTIONS=detect_leaks=1\0", false),
            (b"LSAN_OPTIONS=detect_leaks=no\0ASAN_OPTIONS=a=b\0", true),
            (b"MY_ASAN_OPTIONS=detect_leaks=0\0", false),
        ] {
            assert_eq!(is_off(environment), expected, "{}", environment.escape_ascii());
        }
    }
}
