//! Reads a trace from its beginning to its end, for a consumer.

use std::convert::Infallible;

use checker::format::{Batch, Gap, Item, Names, ReadError, TraceReader};

use super::input::{Input, InputError};
use crate::progress::ReadBar;

/// A consumer of a trace.
pub(super) trait Consumer {
    /// Error that stops the consumer.
    type Error;

    /// Participle of its activity, for messages: `checked`.
    const DONE: &'static str;

    fn events(&mut self, batch: &Batch<'_>) -> Result<(), Self::Error>;
    fn gap(&mut self, gap: Gap, names: &Names) -> Result<(), Self::Error>;
}

/// Reasons why a trace was not read to its end.
#[derive(Debug)]
pub(super) enum Stopped<E> {
    /// The trace cannot be read any further.
    Read(ReadError),
    /// The consumer failed.
    Consumer(E),
}

/// Number of bytes read before the memory of a mapped trace is released.
const RELEASE: u64 = 32 << 20;

/// Passes all of a trace to `consumer`. A truncated trace ends early, and so does a damaged one if damage
/// is tolerated: then a sentence about it is returned.
pub(super) fn to_end<C: Consumer>(
    input: &Input,
    reader: &mut TraceReader<'_>,
    lenient: bool,
    bar: &mut ReadBar,
    consumer: &mut C,
) -> Result<Option<String>, Stopped<C::Error>> {
    let mut released = 0;
    loop {
        match reader.next_item() {
            Ok(Some(Item::Events(batch))) => consumer.events(&batch),
            Ok(Some(Item::Gap(gap))) => consumer.gap(gap, reader.names()),
            Ok(None) => break,
            Err(error) => {
                let (done, events) = (C::DONE, reader.summary().events);
                // Lenient readers skip lines by themselves: this is worse.
                if !lenient || events == 0 {
                    return Err(Stopped::Read(error));
                }
                return Ok(Some(format!(
                    "{error}; what is before that was {done} ({events} events)"
                )));
            }
        }
        .map_err(Stopped::Consumer)?;
        let position = reader.position();
        bar.advance(position, reader.summary().events);
        if position - released >= RELEASE {
            released = position;
            input.release(position);
        }
    }
    let summary = reader.summary();
    Ok(summary.truncated.map(|at| {
        let (shown, done, events) = (input.shown(), C::DONE, summary.events);
        format!(
            "{shown}: cut short: the last whole block ends at byte {at}; what is up to there was {done} ({events} \
             events)"
        )
    }))
}

/// Reads a trace for its names only.
pub(super) fn names(
    input: &Input,
    mut reader: TraceReader<'_>,
    lenient: bool,
    bar: &mut ReadBar,
) -> Result<Names, InputError> {
    to_end(input, &mut reader, lenient, bar, &mut Nothing).map_err(|stopped| match stopped {
        Stopped::Read(error) => InputError::from(error),
        Stopped::Consumer(never) => match never {},
    })?;
    Ok(reader.into_names())
}

/// Consumer for traces of which only the names are needed, which the reader has.
pub(super) struct Nothing;

impl Consumer for Nothing {
    type Error = Infallible;

    const DONE: &'static str = "read";

    fn events(&mut self, _batch: &Batch<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    fn gap(&mut self, _gap: Gap, _names: &Names) -> Result<(), Self::Error> {
        Ok(())
    }
}
