//! Limitations in JSON: `notes` has the sentences, `limitations` the kinds, sentences and data. A document of an
//! older version has sentences alone; of a kind that is not known, the sentence is read.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::Limitation;

#[derive(Serialize)]
struct Written<'report> {
    notes: Vec<String>,
    limitations: Vec<Entry<'report>>,
}

#[derive(Serialize)]
struct Entry<'report> {
    #[serde(flatten)]
    limitation: &'report Limitation,
    message: String,
}

#[derive(Deserialize)]
struct Read {
    #[serde(default)]
    notes: Vec<String>,
    #[serde(default)]
    limitations: Option<Vec<Value>>,
}

pub(crate) fn serialize<S: Serializer>(
    limitations: &[Limitation],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let entry = |limitation| Entry { limitation, message: limitation.to_string() };
    let written = Written {
        notes: limitations.iter().map(Limitation::to_string).collect(),
        limitations: limitations.iter().map(entry).collect(),
    };
    written.serialize(serializer)
}

pub(crate) fn deserialize<'input, D: Deserializer<'input>>(
    deserializer: D,
) -> Result<Vec<Limitation>, D::Error> {
    let Read { notes, limitations } = Read::deserialize(deserializer)?;
    let known = |value: Value| {
        let message = value["message"].as_str().unwrap_or_default().to_owned();
        serde_json::from_value(value).unwrap_or(Limitation::Other { message })
    };
    Ok(match limitations {
        Some(limitations) => limitations.into_iter().map(known).collect(),
        None => notes.into_iter().map(|message| Limitation::Other { message }).collect(),
    })
}
