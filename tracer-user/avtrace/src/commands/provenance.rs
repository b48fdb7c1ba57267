//! Time, machine and trace context of a run, for its reports.

use std::{
    env, fs,
    time::{SystemTime, UNIX_EPOCH},
};

use chrono::{DateTime, SecondsFormat};

use report::Report;

/// Variable with the trace context of a program, as W3C and OpenTelemetry have it.
pub(super) const TRACEPARENT: &str = "TRACEPARENT";

/// Time, machine and trace context of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Provenance {
    time: Option<String>,
    host: Option<String>,
    traceparent: Option<String>,
}

impl Provenance {
    /// Returns those of a run that ends now; the machine only if it is to be named.
    pub(super) fn now(names_host: bool) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let milliseconds = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        let time = DateTime::from_timestamp_millis(milliseconds);
        Self {
            time: time.map(|time| time.to_rfc3339_opts(SecondsFormat::Millis, true)),
            host: names_host.then(host).flatten(),
            traceparent: None,
        }
    }

    /// Adds the trace context of the programs that avtrace starts, which inherit its environment.
    pub(super) fn with_own_trace_context(self) -> Self {
        Self { traceparent: env::var(TRACEPARENT).ok().filter(|text| is_valid(text)), ..self }
    }

    /// Puts them into a report.
    pub(super) fn put_into(&self, report: &mut Report) {
        let Self { time, host, traceparent } = self.clone();
        (report.time, report.host, report.traceparent) = (time, host, traceparent);
    }
}

/// Returns the name of the machine, or of the container.
fn host() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns whether text is a trace context: version, trace, span and flags in hexadecimal digits.
fn is_valid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &str, digits: usize| {
        part.len() == digits
            && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let is_set = |part: &str| part.bytes().any(|byte| byte != b'0');
    match parts.as_slice() {
        [version, trace, span, flags, more @ ..] => {
            is_hex(version, 2)
                && *version != "ff"
                && (*version != "00" || more.is_empty())
                && is_hex(trace, 32)
                && is_set(trace)
                && is_hex(span, 16)
                && is_set(span)
                && is_hex(flags, 2)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_contexts_are_those_of_w3c() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert!(is_valid(&format!("00-{trace}-00f067aa0ba902b7-01")));
        assert!(is_valid(&format!("01-{trace}-00f067aa0ba902b7-01-more")));
        for text in [
            "",
            "00",
            &format!("00-{trace}-00f067aa0ba902b7"),
            &format!("00-{trace}-00f067aa0ba902b7-01-more"),
            &format!("ff-{trace}-00f067aa0ba902b7-01"),
            &format!("00-{trace}-0000000000000000-01"),
            &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            &format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
        ] {
            assert!(!is_valid(text), "{text}");
        }
    }

    #[test]
    fn times_are_in_utc_to_the_millisecond() {
        let Provenance { time, host, .. } = Provenance::now(false);
        let time = time.expect("a time");
        assert!(DateTime::parse_from_rfc3339(&time).is_ok() && time.ends_with('Z'), "{time}");
        assert_eq!((time.len(), host), ("2026-11-23T08:15:30.125Z".len(), None));
    }
}
