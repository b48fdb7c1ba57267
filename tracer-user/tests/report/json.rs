//! The JSON document against its schema and its contract.
