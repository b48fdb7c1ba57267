//! Reasons for the class of a defect, in words.

use checker::defect::Reason;

use super::quantity::{count, grouped};

/// Describes a reason as a part of a sentence.
#[must_use]
pub fn describe(reason: &Reason) -> String {
    match reason {
        Reason::ValueChanged => "the value was changed in between".to_owned(),
        Reason::ValueUnchanged => "the value in between was the same as before".to_owned(),
        Reason::LockReacquired { lock } => {
            format!("{lock} was released and taken again in between")
        }
        Reason::Cut { cut, runs } => {
            format!("others came in during {} of {}", grouped(*cut), count(*runs, "run"))
        }
        other => format!("{other:?}"),
    }
}
