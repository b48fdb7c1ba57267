//! Text that the kernel gives as bytes.

/// Text from bytes of unknown encoding: what is not UTF-8 becomes `\xNN`, so that different bytes stay different.
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
    use super::text_of_bytes;

    #[test]
    fn bytes_that_are_not_utf8_stay_apart() {
        assert_eq!(text_of_bytes(b"\xff\xfeok"), "\\xff\\xfeok");
        assert_ne!(text_of_bytes(b"\xfe"), text_of_bytes(b"\xff"));
        assert_eq!(text_of_bytes("größe".as_bytes()), "größe");
    }
}
