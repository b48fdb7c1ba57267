//! `avtrace explain`: explains a pattern, a class or a reason.

use super::Failure;
use crate::cli::ExplainArgs;
use linux::output::{Destination, write_output};
use report::{explanation, find_topic, topics};

pub(super) fn run(arguments: &ExplainArgs) -> Result<u8, Failure> {
    let name = arguments.topic.join(" ");
    let text = if name.is_empty() {
        topics()
    } else {
        let found = find_topic(&name).ok_or_else(|| {
            let text = topics();
            // The list goes to standard error as well: it is what helps.
            let _ = write_output(&Destination::Stderr, text.as_bytes());
            Failure::usage(format!("`{name}` is no topic: name one of those listed above"))
        })?;
        explanation(found)
    };
    write_output(&Destination::Stdout, text.as_bytes()).map_err(Failure::internal)?;
    Ok(0)
}
