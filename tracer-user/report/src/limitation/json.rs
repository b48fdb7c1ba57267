//! Limitations in JSON: `notes` has their sentences, `limitations` their kinds, data and sentences.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Limitation;

/// Keys of limitations in a document.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Written<'report> {
    /// Sentences of the limitations.
    notes: Vec<String>,
    /// Limitations, in the order of `notes`.
    limitations: Vec<WrittenLimitation<'report>>,
}

/// Limitation with its sentence.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct WrittenLimitation<'report> {
    #[serde(flatten)]
    limitation: &'report Limitation,
    /// Sentence.
    message: String,
}

#[derive(Deserialize)]
struct Read {
    limitations: Vec<Limitation>,
}

pub(crate) fn serialize<S: Serializer>(
    limitations: &[Limitation],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let entry = |limitation| WrittenLimitation { limitation, message: limitation.to_string() };
    let written = Written {
        notes: limitations.iter().map(Limitation::to_string).collect(),
        limitations: limitations.iter().map(entry).collect(),
    };
    written.serialize(serializer)
}

pub(crate) fn deserialize<'input, D: Deserializer<'input>>(
    deserializer: D,
) -> Result<Vec<Limitation>, D::Error> {
    Read::deserialize(deserializer).map(|read| read.limitations)
}
