//! The checker against its definitions: known answers as text traces, and properties against a brute-force oracle.

mod aerodrome;
mod commit_nodes;
mod cuts;
mod deadlocks;
mod defect_names;
mod defect_properties;
mod defect_rules;
mod defects;
mod deferred;
mod doublechecker;
mod followed;
mod gap_model;
mod gaps;
mod generate;
mod interleavings;
mod known;
mod open_at_end;
mod oracle;
mod predictions;
mod properties;
mod regiontrack;
mod segments;
mod small_traces;
mod so_far;
mod text;
mod velodrome;
