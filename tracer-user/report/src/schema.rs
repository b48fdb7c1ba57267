//! JSON schemas of documents, derived from the types of the documents. `docs/*.schema.json` has their text, which the
//! test `schemas` of the package `avtrace` compares and renews.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// Returns the schema of documents of the type `T`, as the text of a file with a line for each key.
///
/// A document with a key that `T` does not have is refused.
#[must_use]
pub fn text<T: JsonSchema>(id: &str, title: &str) -> String {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    tidy(&mut schema, Kind::Whole);
    schema["$id"] = json!(id);
    schema["title"] = json!(title);
    lay_out(&schema, 1) + "\n"
}

/// Part that a schema has in an object.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// The schema has all keys.
    Whole,
    /// The schema is an alternative, and the schema around it has more keys.
    Alternative,
}

/// Completes a schema of schemars: unknown keys are refused, and keys that may be absent are never null. Removes
/// the sizes of numbers, and the layout of doc comments.
fn tidy(schema: &mut Value, kind: Kind) {
    let Value::Object(schema) = schema else { return };
    let has_keys = schema.contains_key("properties");
    let has_alternatives = has_keys && schema.contains_key("oneOf");
    if has_alternatives {
        schema.insert("unevaluatedProperties".to_owned(), json!(false));
    } else if has_keys && kind == Kind::Whole {
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
    schema.remove("default");
    if schema.get("type").is_some_and(|of| *of != "string") && !may_be(schema, "string") {
        schema.remove("format");
    }
    if schema.contains_key("const") {
        schema.remove("type");
    }
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = plain(description);
    }
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required = |key: &String| {
        required.as_array().is_some_and(|keys| keys.iter().any(|required| required == key))
    };
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        let optional = properties.iter_mut().filter(|(key, _)| !is_required(key));
        optional.for_each(|(_, schema)| refuse_null(schema));
    }
    for part in ["properties", "$defs"] {
        let parts = schema.get_mut(part).and_then(Value::as_object_mut);
        parts.into_iter().flat_map(Map::values_mut).for_each(|part| tidy(part, Kind::Whole));
    }
    let kind = if has_alternatives { Kind::Alternative } else { Kind::Whole };
    for part in ["oneOf", "anyOf"] {
        let parts = schema.get_mut(part).and_then(Value::as_array_mut);
        parts.into_iter().flatten().for_each(|part| tidy(part, kind));
    }
    if let Some(items) = schema.get_mut("items") {
        tidy(items, Kind::Whole);
    }
}

/// Returns whether values of a type fit a schema, by its `type`.
fn may_be(schema: &Map<String, Value>, name: &str) -> bool {
    let types = schema.get("type").and_then(Value::as_array);
    types.is_some_and(|types| types.iter().any(|of| of == name))
}

/// Removes null from the types or the alternatives of a schema.
fn refuse_null(schema: &mut Value) {
    let Value::Object(schema) = schema else { return };
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [name] = &types[..] {
            let name = name.clone();
            schema.insert("type".to_owned(), name);
        }
    }
    if let Some(Value::Array(mut alternatives)) = schema.remove("anyOf") {
        alternatives.retain(|alternative| alternative["type"] != "null");
        if let [Value::Object(only)] = &alternatives[..] {
            schema.extend(only.clone());
        } else {
            schema.insert("anyOf".to_owned(), alternatives.into());
        }
    }
}

/// Returns a doc comment as one line, with the text of its links alone.
fn plain(doc: &str) -> String {
    let doc = doc.replace('\n', " ").replace("`None`", "null");
    let (mut text, mut rest) = (String::new(), &*doc);
    while let Some((before, link)) = rest.split_once("[`") {
        let (name, after) = link.split_once("`]").unwrap_or((link, ""));
        text += &format!("{before}`{name}`");
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    text + rest
}

/// Returns a schema as text: its properties and alternatives have a line each, and so have definitions.
fn lay_out(schema: &Value, indentation: usize) -> String {
    let mut rest = schema.clone();
    let parts = ["oneOf", "properties", "$defs"].map(|part| {
        let schema = rest.as_object_mut()?;
        schema.remove(part).map(|value| (part, value))
    });
    let mut text = rest.to_string();
    text.pop();
    let begin = format!("\n{:indentation$}", "");
    for (part, value) in parts.into_iter().flatten() {
        if !text.ends_with('{') {
            text.push(',');
        }
        let (open, lines, close): (_, Vec<String>, _) = match value {
            Value::Object(members) => {
                let lines = members.iter().map(|(name, value)| {
                    let is_definition = part == "$defs";
                    let value = if is_definition { lay_out(value, 2) } else { value.to_string() };
                    format!("{begin}{}: {value}", json!(name))
                });
                ('{', lines.collect(), '}')
            }
            value => {
                let lines = value.as_array().into_iter().flatten();
                ('[', lines.map(|value| format!("{begin}{value}")).collect(), ']')
            }
        };
        text += &format!("\"{part}\":{open}{}{close}", lines.join(","));
    }
    text + "}"
}
