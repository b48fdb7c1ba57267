//! Texts of avtrace's own tables in values that are stored and read again. They live as long as the program, so a text
//! that is read is kept for good, once.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize as _, Deserializer, de::Error as _};

/// Text of a table. The name of the type keeps `serde` from borrowing it from the input.
pub type StaticText = &'static str;

/// Limit of the different texts that are read: the tables have a few hundred.
const MOST_TEXTS: usize = 4096;
/// Limit of one of them, in bytes.
const MOST_BYTES: usize = 256;

static KEPT: Mutex<Option<HashSet<StaticText>>> = Mutex::new(None);

/// Reads a text, and keeps it for the rest of the program.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<StaticText, D::Error> {
    let text = String::deserialize(from)?;
    keep(&text).ok_or_else(|| D::Error::custom("more texts than the tables have"))
}

/// Reads a text that may be absent.
pub(crate) fn deserialize_option<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<StaticText>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    let too_many = || D::Error::custom("more texts than the tables have");
    text.map(|text| keep(&text).ok_or_else(too_many)).transpose()
}

fn keep(text: &str) -> Option<StaticText> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    if let Some(text) = kept.get(text) {
        return Some(text);
    }
    if kept.len() >= MOST_TEXTS || text.len() > MOST_BYTES {
        return None;
    }
    let text: StaticText = Box::leak(text.to_owned().into_boxed_str());
    kept.insert(text);
    Some(text)
}
