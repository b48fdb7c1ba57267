//! Messages about decisions, on standard error: `-v`, and `RUST_LOG` for single parts. They are for bug reports and for
//! the curious; users find what they need to know in reports.

use std::{env, fmt, io};

use clap::ValueEnum;
use tracing::{Event, Subscriber};
use tracing_subscriber::{
    EnvFilter,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// Variable with a level for each part, such as `plan=debug,capture=trace`.
const VARIABLE: &str = "RUST_LOG";

/// Form of the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line of text for each message.
    #[default]
    Text,
    /// A JSON object for each message, in a line.
    Json,
}

/// Starts to print messages; `verbose` says how often `-v` was given. Without `-v`, `RUST_LOG` selects them.
pub fn start(verbose: u8, format: LogFormat) {
    let level = match verbose {
        0 => None,
        1 => Some("info"),
        2 => Some("debug"),
        _ => Some("trace"),
    };
    let variable = || env::var(VARIABLE).ok().filter(|levels| !levels.is_empty());
    let Some(levels) = level.map(str::to_owned).or_else(variable) else { return };
    let filter = EnvFilter::try_new(&levels).unwrap_or_else(|error| {
        eprintln!("avtrace: {VARIABLE} is ignored: {}", report::printable(&error.to_string()));
        EnvFilter::new("off")
    });
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(false);
    // Fails only where a subscriber exists already.
    let _ = match format {
        LogFormat::Text => builder.event_format(Line).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
    };
}

/// The form `avtrace: level: message field=value`.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        writeln!(writer, "avtrace: {level}: {}", report::printable(&text))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_message_is_one_line_whatever_its_fields_hold() {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .event_format(Line)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(function = "a\nb\u{1b}[2J", address = 0x10, "this is no region");
        });
        let bytes = written.0.lock().expect("no panic").clone();
        let text = String::from_utf8(bytes).expect("text");
        assert!(text.starts_with("avtrace: info: this is no region function="), "{text:?}");
        assert_eq!(text.matches(|c: char| c.is_control()).count(), 1, "{text:?}");
    }
}
