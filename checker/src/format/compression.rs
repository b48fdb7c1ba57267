//! Compressed input: detected by its first bytes, decompressed on the fly. The contents are not interpreted
//! here.

use super::error::Reason;
use super::input::Input;

/// Compression of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Uncompressed.
    None,
    /// The gzip format.
    Gzip,
    /// The Zstandard format.
    Zstd,
}

/// Number of bytes at the start of an input that identify its compression.
pub(super) const MAGIC: usize = 4;

/// Detects the compression of an input that starts with these bytes.
pub(super) fn detect(start: &[u8]) -> Compression {
    match start {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        // A frame, or one to be skipped.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        _ => Compression::None,
    }
}

#[cfg(feature = "compression")]
pub(super) fn decompress(compression: Compression, input: Input<'_>) -> Result<Input<'_>, Reason> {
    Ok(match compression {
        Compression::None => input,
        Compression::Gzip => Input::stream(flate2::bufread::MultiGzDecoder::new(input)),
        Compression::Zstd => Input::stream(zstd::Frames::new(input)),
    })
}

#[cfg(not(feature = "compression"))]
pub(super) fn decompress(compression: Compression, input: Input<'_>) -> Result<Input<'_>, Reason> {
    match compression {
        Compression::None => Ok(input),
        Compression::Gzip => Err(Reason::Compressed("gzip")),
        Compression::Zstd => Err(Reason::Compressed("Zstandard")),
    }
}

#[cfg(feature = "compression")]
mod zstd {
    //! The frames of a Zstandard file, one after the other.

    use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
    use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
    use std::io::{self, BufRead, Read};

    pub(super) struct Frames<R> {
        source: R,
        decoder: FrameDecoder,
        /// Set while a frame has been started and not ended.
        inside: bool,
    }

    impl<R: BufRead> Frames<R> {
        pub(super) fn new(source: R) -> Self {
            Self { source, decoder: FrameDecoder::new(), inside: false }
        }

        /// Starts the next frame; returns whether there is one.
        fn enter(&mut self) -> io::Result<bool> {
            while !self.source.fill_buf()?.is_empty() {
                match self.decoder.reset(&mut self.source) {
                    Ok(()) => {
                        self.inside = true;
                        return Ok(true);
                    }
                    Err(FrameDecoderError::ReadFrameHeaderError(
                        ReadFrameHeaderError::SkipFrame { length, .. },
                    )) => {
                        let mut skipped = (&mut self.source).take(length.into());
                        if io::copy(&mut skipped, &mut io::sink())? < u64::from(length) {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                    }
                    Err(error) => return Err(failure(error)),
                }
            }
            Ok(false)
        }

        /// Ends the frame, whose checksum has to be right if it has one.
        fn leave(&mut self) -> io::Result<()> {
            self.inside = false;
            let expected = self.decoder.get_checksum_from_data();
            if expected.is_some() && expected != self.decoder.get_calculated_checksum() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the checksum of a Zstandard frame is wrong",
                ));
            }
            Ok(())
        }
    }

    impl<R: BufRead> Read for Frames<R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            loop {
                if !self.inside && !self.enter()? {
                    return Ok(0);
                }
                while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                    let blocks = BlockDecodingStrategy::UptoBlocks(1);
                    self.decoder.decode_blocks(&mut self.source, blocks).map_err(failure)?;
                }
                let count = self.decoder.read(buffer)?;
                if count > 0 || buffer.is_empty() {
                    return Ok(count);
                }
                self.leave()?;
            }
        }
    }

    /// Maps an error: the end of the input inside a frame is distinguished from a damaged frame.
    fn failure(error: FrameDecoderError) -> io::Error {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(error) = source {
            if let Some(error) = error.downcast_ref::<io::Error>()
                && error.kind() == io::ErrorKind::UnexpectedEof
            {
                return io::ErrorKind::UnexpectedEof.into();
            }
            source = error.source();
        }
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}
