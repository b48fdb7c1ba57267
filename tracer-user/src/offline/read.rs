//! Reading a trace from its beginning to its end, for whatever is to be done with it.

use checker::format::{Batch, Gap, Item, Names, ReadError, TraceReader};

use super::input::Input;
use super::progress::Progress;

/// What is done with a trace.
pub(super) trait Consumer {
    /// Why it cannot go on.
    type Error;

    /// What it does, in the passive: `checked`.
    const DONE: &'static str;

    fn events(&mut self, batch: &Batch<'_>) -> Result<(), Self::Error>;
    fn gap(&mut self, gap: Gap, names: &Names) -> Result<(), Self::Error>;
}

/// Why a trace was not read to its end.
#[derive(Debug)]
pub(super) enum Stopped<E> {
    /// It cannot be read any further.
    Read(ReadError),
    /// The consumer takes no more.
    Consumer(E),
}

/// Bytes that are read before the memory of a mapped trace is given back.
const RELEASE: u64 = 32 << 20;

/// Passes all of a trace on. A trace that was cut short ends before its time, and so does a damaged one when that is
/// to be put up with: then a sentence on it is returned.
pub(super) fn to_end<C: Consumer>(
    input: &Input,
    reader: &mut TraceReader<'_>,
    lenient: bool,
    progress: &mut Progress,
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
                // Lenient readers leave out lines by themselves: this is worse.
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
        progress.advance(position, reader.summary().events);
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
