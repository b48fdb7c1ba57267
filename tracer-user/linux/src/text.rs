//! Text: short files, such as settings and suppressions, and bytes of unknown encoding.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use crate::place::FilePlace;

const MOST: u64 = 16 << 20;

/// Reads a text that the user has named; it may come from a pipe.
///
/// # Errors
///
/// Errors of `open` and `read`, `FileTooLarge`, and `InvalidData` when it is no UTF-8.
pub fn read(path: &Path) -> io::Result<String> {
    read_all(File::open(path)?)
}

/// Reads a text from a default place, which the user has not named. Another user may have put anything in its place: so
/// it must be a regular file, and links are followed as [`FilePlace::find`] does it.
///
/// # Errors
///
/// As for [`read`], and those of [`FilePlace::find`] and [`FilePlace::open`].
pub fn read_found(path: &Path) -> io::Result<String> {
    read_all(FilePlace::find(path)?.open()?)
}

fn read_all(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// Text from bytes of unknown encoding: a byte that is not UTF-8 becomes `\xNN`, and bytes stay distinct.
///
/// ```
/// assert_eq!(linux::text::text_of_bytes(b"caf\xe9"), "caf\\xe9");
/// ```
#[must_use]
pub fn text_of_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for (length, is_read) in [(MOST, true), (MOST + 1, false), (1 << 40, false)] {
            file.as_file().set_len(length).expect("a length");
            for read in [read, read_found] {
                assert_eq!(read(file.path()).is_ok(), is_read, "{length}");
            }
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_stay_apart() {
        assert_eq!(text_of_bytes(b"\xff\xfeok"), "\\xff\\xfeok");
        assert_ne!(text_of_bytes(b"\xfe"), text_of_bytes(b"\xff"));
        assert_eq!(text_of_bytes("größe".as_bytes()), "größe");
    }
}
