//! The schemas against the types of reports and diagnoses: both have the same keys and the same values of enums.

use std::collections::BTreeSet;

use avtrace::doctor::{Auto, Check, CheckId, CheckStatus, Diagnosis, Verdict, Verdicts};
use checker::{Regions, Relation};
use report::{
    AccessStep, Acquisition, Action, Atomicity, Busiest, Capture, CaptureBackend, CaptureOrder,
    Class, Counts, DataSeen, Defect, DependingRead, Edge, Evidence, Gap, GapEnd, GapKind, HeldLock,
    Instance, LeftOut, Location, LostEvents, MemorySeen, Merged, MetAccess, Missing, NotSeen,
    Object, ObjectKind, Order, Origin, OthersHeld, Pattern, PotentialDeadlock, PredictedClass,
    Prediction, Process, Region, RegionRole, Report, Role, SetAside, SetAsideBy, Settings,
    SkippedProbes, SourceFrame, Split, Step, Summary, Thread, Tool, Transaction, TrapCause,
    TrapDeath, UndecodedReason, UnprobedCalls, UnserializablePattern, UnusedSuppression,
    Value as Observed, Violation, WatchedShare,
};
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor, value::Error};
use serde_json::Value;

use crate::json as documents;

type Names = BTreeSet<String>;

/// Holds no value, and takes down the names by which a type is read: its fields or its variants.
struct NameReader<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for NameReader<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("only names are wanted"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = variants;
        Err(Error::custom("only names are wanted"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom("neither a structure nor an enum"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

fn names<T: DeserializeOwned>() -> Names {
    let mut names: &[&str] = &[];
    assert!(T::deserialize(NameReader(&mut names)).is_err());
    assert_ne!(names, &[] as &[&str], "{}", std::any::type_name::<T>());
    names.iter().map(|&name| name.to_owned()).collect()
}

/// The keys of the object, or the values of the enum, that the schema has at `pointer`.
fn described(schema: &Value, pointer: &str) -> Names {
    let place = schema.pointer(pointer).unwrap_or_else(|| panic!("nothing at {pointer}"));
    if let Some(keys) = place.get("properties").and_then(Value::as_object) {
        return keys.keys().cloned().collect();
    }
    let values = place["enum"].as_array().unwrap_or_else(|| panic!("no names at {pointer}"));
    values.iter().map(|value| value.as_str().expect("a name").to_owned()).collect()
}

#[test]
fn the_schema_has_the_names_of_the_types() {
    let schema = documents::schema();
    let keys = serde_json::to_value(NotSeen::default()).expect("it can be written");
    let not_seen: Names = keys.as_object().expect("an object").keys().cloned().collect();
    for (pointer, names) in [
        ("", names::<Report>()),
        ("/properties/tool", names::<Tool>()),
        ("/properties/relation", names::<Relation>()),
        ("/properties/nesting", names::<Regions>()),
        ("/properties/counts", names::<Counts>()),
        ("/properties/instances/items", names::<Instance>()),
        ("/properties/threads/items", names::<Thread>()),
        ("/properties/regions/items", names::<Region>()),
        ("/properties/not_seen", not_seen),
        ("/properties/not_seen/properties/lost_events/items", names::<LostEvents>()),
        ("/properties/not_seen/properties/skipped_probes/items", names::<SkippedProbes>()),
        ("/properties/not_seen/properties/unresolved_symbols/items", names::<Missing>()),
        ("/properties/not_seen/properties/unfollowed_processes/items", names::<Process>()),
        ("/properties/not_seen/properties/undecoded_reasons/items", names::<UndecodedReason>()),
        ("/properties/not_seen/properties/unprobed_calls", names::<UnprobedCalls>()),
        ("/properties/summary", names::<Summary>()),
        ("/properties/summary/properties/busiest", names::<Busiest>()),
        ("/properties/capture", names::<Capture>()),
        ("/properties/capture/properties/backend", names::<CaptureBackend>()),
        ("/properties/capture/properties/order", names::<CaptureOrder>()),
        ("/properties/memory", names::<MemorySeen>()),
        ("/properties/memory/properties/left_out/items", names::<LeftOut>()),
        ("/properties/memory/properties/watched/items", names::<WatchedShare>()),
        ("/properties/trap", names::<TrapDeath>()),
        ("/properties/trap/properties/cause", names::<TrapCause>()),
        ("/$defs/transaction", names::<Transaction>()),
        ("/$defs/location", names::<Location>()),
        ("/$defs/object", names::<Object>()),
        ("/$defs/object/properties/kind", names::<ObjectKind>()),
        ("/$defs/action", names::<Action>()),
        ("/$defs/order", names::<Order>()),
        ("/$defs/edge", names::<Edge>()),
        ("/$defs/frame", names::<SourceFrame>()),
        ("/$defs/step", names::<Step>()),
        ("/$defs/step/properties/roles/items", names::<Role>()),
        ("/$defs/step/properties/value/anyOf/0", names::<Observed>()),
        ("/$defs/split", names::<Split>()),
        ("/$defs/defect", names::<Defect>()),
        ("/$defs/defect/properties/class", names::<Class>()),
        ("/$defs/defect/properties/role", names::<RegionRole>()),
        ("/$defs/defect/properties/origin", names::<Origin>()),
        ("/$defs/defect/properties/pattern", names::<Pattern>()),
        ("/$defs/defect/properties/evidence", names::<Evidence>()),
        ("/$defs/defect/properties/set_aside/anyOf/0", names::<SetAside>()),
        ("/$defs/defect/properties/set_aside/anyOf/0/properties/by", names::<SetAsideBy>()),
        ("/properties/deadlocks/items", names::<PotentialDeadlock>()),
        ("/$defs/acquisition", names::<Acquisition>()),
        ("/$defs/held_lock", names::<HeldLock>()),
        ("/properties/predictions/items", names::<Prediction>()),
        ("/properties/predictions/items/properties/class", names::<PredictedClass>()),
        ("/properties/predictions/items/properties/depends_on/items", names::<DependingRead>()),
        ("/properties/atomicity", names::<Atomicity>()),
        ("/properties/atomicity/properties/patterns/items", names::<UnserializablePattern>()),
        (
            "/properties/atomicity/properties/patterns/items/properties/accesses/items",
            names::<MetAccess>(),
        ),
        ("/$defs/access_step", names::<AccessStep>()),
        ("/properties/settings", names::<Settings>()),
        ("/properties/settings/properties/unused/items", names::<UnusedSuppression>()),
        ("/$defs/merged", names::<Merged>()),
        ("/$defs/gap", names::<Gap>()),
        ("/$defs/gap/properties/kind", names::<GapKind>()),
        ("/$defs/gap_end", names::<GapEnd>()),
        ("/$defs/others_held", names::<OthersHeld>()),
        ("/$defs/violation", names::<Violation>()),
        ("/$defs/violation/properties/evidence", names::<Evidence>()),
        ("/$defs/violation/properties/data_seen/anyOf/0", names::<DataSeen>()),
    ] {
        assert_eq!(described(&schema, pointer), names, "at `{pointer}`");
    }
}

#[test]
fn the_schema_of_a_diagnosis_has_the_names_of_the_types() {
    let schema = include_str!("../../../../docs/doctor.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    assert!(jsonschema::meta::is_valid(&schema), "the schema is one of its draft");
    for (pointer, names) in [
        ("", names::<Diagnosis>()),
        ("/properties/tool", names::<Tool>()),
        ("/properties/capture", names::<Verdicts>()),
        ("/properties/capture/properties/auto", names::<Auto>()),
        ("/$defs/backend", names::<CaptureBackend>()),
        ("/$defs/verdict", names::<Verdict>()),
        ("/$defs/check", names::<Check>()),
        ("/$defs/check/properties/id", names::<CheckId>()),
        ("/$defs/check/properties/status", names::<CheckStatus>()),
    ] {
        assert_eq!(described(&schema, pointer), names, "at `{pointer}`");
    }
}
