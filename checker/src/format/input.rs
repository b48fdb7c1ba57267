//! Input bytes, either in memory as a whole or arriving through a reader. They are not interpreted here.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of bytes requested from a reader at once.
const CHUNK: usize = 256 * 1024;

/// A window that moves over the input.
pub(super) enum Input<'a> {
    /// All of it in memory.
    Bytes(&'a [u8]),
    /// Bytes that have been read and not been consumed.
    Stream(Stream<'a>),
}

pub(super) struct Stream<'a> {
    reader: Box<dyn Read + Send + 'a>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
}

impl<'a> Input<'a> {
    pub(super) fn stream(reader: impl Read + Send + 'a) -> Self {
        let reader = Box::new(reader);
        Self::Stream(Stream { reader, buffer: Vec::new(), start: 0, end: 0, ended: false })
    }

    /// Returns the next bytes: at least `least`, and fewer only at the end of the input. Memory grows with
    /// `least`, which the caller must limit.
    pub(super) fn window(&mut self, least: usize) -> io::Result<&[u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Stream(stream) => stream.window(least),
        }
    }

    /// Returns the bytes available without reading any more.
    pub(super) fn at_hand(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Stream(stream) => &stream.buffer[stream.start..stream.end],
        }
    }

    /// Consumes `count` bytes of the window.
    pub(super) fn skip(&mut self, count: usize) {
        match self {
            Self::Bytes(bytes) => *bytes = bytes.get(count..).unwrap_or_default(),
            Self::Stream(stream) => stream.start = stream.end.min(stream.start + count),
        }
    }
}

impl Stream<'_> {
    fn window(&mut self, least: usize) -> io::Result<&[u8]> {
        while self.end - self.start < least && !self.ended {
            self.fill(least)?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn fill(&mut self, least: usize) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let size = least.next_multiple_of(CHUNK).max(CHUNK);
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        } else if self.buffer.len() > size && self.end < CHUNK {
            self.buffer.truncate(size);
            self.buffer.shrink_to_fit();
        }
        match self.reader.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.ended = true,
            // No reader may claim more than it was given room for.
            Ok(count) => self.end = self.buffer.len().min(self.end + count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.window(1)?.read(buffer)?;
        self.skip(count);
        Ok(count)
    }
}

impl BufRead for Input<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.window(1)
    }

    fn consume(&mut self, count: usize) {
        self.skip(count);
    }
}

/// A reader that counts the bytes read through it.
pub(super) struct Counted<R> {
    reader: R,
    count: Arc<AtomicU64>,
}

impl<R> Counted<R> {
    pub(super) fn new(reader: R) -> (Self, Arc<AtomicU64>) {
        let count = Arc::new(AtomicU64::new(0));
        (Self { reader, count: Arc::clone(&count) }, count)
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that gives one byte at a time.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(1);
            self.0.read(&mut buffer[..count])
        }
    }

    #[test]
    fn windows_are_as_wide_as_asked_for() {
        let text: Vec<u8> = (0..=255).collect();
        for mut input in [Input::Bytes(&text), Input::stream(Trickle(&text))] {
            assert!(input.window(10).unwrap().len() >= 10);
            input.skip(10);
            assert_eq!(input.window(200).unwrap()[..200], text[10..210]);
            input.skip(200);
            assert_eq!(input.window(1000).unwrap(), &text[210..]);
            input.skip(1000);
            assert_eq!(input.window(1).unwrap(), b"");
        }
    }

    #[test]
    fn memory_is_given_back_after_a_wide_window() {
        let zeros = vec![0; 5 * CHUNK];
        let (counted, count) = Counted::new(&zeros[..]);
        let Input::Stream(mut stream) = Input::stream(counted) else { unreachable!() };
        assert!(stream.window(3 * CHUNK).unwrap().len() >= 3 * CHUNK);
        stream.start += 3 * CHUNK;
        assert!(!stream.window(1).unwrap().is_empty());
        assert_eq!(stream.buffer.len(), CHUNK);
        assert_eq!(count.load(Ordering::Relaxed), 4 * CHUNK as u64);
    }
}
