//! Predictions with names: those that are the same for a reader become one, with a fingerprint.

use super::Prediction;
use crate::defect::{Describe, Names, PlaceKey, fingerprint};
use crate::finding::Object;
use std::collections::BTreeMap;

/// Prediction, by the text of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedPrediction {
    /// Hash of the region's name, the text of both lines of the gap and the name of the variable. It stays the same in
    /// another run, after a rebuild and when lines have moved.
    pub fingerprint: u64,
    /// The one to show: that with the fewest reads on which it depends.
    pub prediction: Prediction,
    /// Number of predictions with other remote accesses, this one included.
    pub ways: u64,
}

/// Region, lines of the gap, and variable.
type Key = (String, [PlaceKey; 2], String);

/// Puts names on predictions, those with the fewest dependencies first.
pub fn named(predictions: &[Prediction], names: &mut dyn Describe) -> Vec<NamedPrediction> {
    let mut names = Names::new(names);
    let ends = predictions.iter().flat_map(|found| [found.left.location, found.returned.location]);
    names.number_places(ends);
    let mut merged: BTreeMap<Key, NamedPrediction> = BTreeMap::new();
    for found in predictions {
        // Between two waits, notifications are what the thread waits for.
        if names.subject(Object::Variable(found.left.variable)).is_set_of_waiters {
            continue;
        }
        let region = names.region(found.region).name.clone();
        let ends = [found.left, found.returned].map(|step| names.place_key(step.location));
        let subject = names.subject(Object::Variable(found.left.variable)).name.clone();
        let key = (region, ends, subject);
        let fingerprint = of(&key);
        let known = merged.entry(key).or_insert_with(|| {
            let prediction = found.clone();
            NamedPrediction { fingerprint, prediction, ways: 0 }
        });
        known.ways += 1;
        if found.dependencies < known.prediction.dependencies {
            known.prediction = found.clone();
        }
    }
    let mut all: Vec<NamedPrediction> = merged.into_values().collect();
    all.sort_by_key(|found| (found.prediction.dependencies, found.prediction.left.event));
    all
}

fn of((region, ends, subject): &Key) -> u64 {
    let mut texts = vec!["prediction".to_owned(), region.clone()];
    for PlaceKey { function, text, ordinal } in ends {
        texts.extend([function.clone(), text.clone(), ordinal.to_string()]);
    }
    texts.push(subject.clone());
    fingerprint::of(texts.iter().map(String::as_str))
}
