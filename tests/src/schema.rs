//! JSON documents against the schemas in `docs/`.

use std::fs;

use serde_json::Value;

use crate::root;

/// Returns the validator of a schema, by its path from the repository's root.
///
/// # Panics
/// When the file is no JSON Schema.
#[must_use]
pub fn validator(path: &str) -> jsonschema::Validator {
    let path = root().join(path);
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let schema: Value = serde_json::from_str(&text).expect("the schema is JSON");
    assert!(jsonschema::meta::is_valid(&schema), "the schema is one of its draft");
    jsonschema::validator_for(&schema).expect("the schema is a JSON Schema")
}

/// Checks that a document follows a schema.
///
/// # Panics
/// With all errors when it does not.
pub fn assert_follows(document: &Value, validator: &jsonschema::Validator) {
    let errors: Vec<String> = (validator.iter_errors(document))
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{}\n{document:#}", errors.join("\n"));
}
