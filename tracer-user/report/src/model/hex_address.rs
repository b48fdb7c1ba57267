//! Addresses as `0x…` strings: JSON numbers lose bits in many readers.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
pub fn serialize<S: Serializer>(address: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    match address {
        Some(address) => to.collect_str(&format_args!("{address:#x}")),
        None => to.serialize_none(),
    }
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    text.strip_prefix("0x")
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .map(Some)
        .ok_or_else(|| D::Error::custom(format_args!("`{text}` is not an address of the form 0x…")))
}
