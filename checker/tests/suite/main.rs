//! The checker against its definitions: known answers as text traces, and properties against a brute-force oracle.

mod aerodrome;
mod generate;
mod known;
mod late;
mod oracle;
mod properties;
mod regiontrack;
mod text;
mod velodrome;
