//! Timelines in the JSON of trace events, for ui.perfetto.dev and chrome://tracing: a process for each finding, with a
//! track for each thread and each lock.
//!
//! A report has no times but the order of events. An event is a microsecond on the time axis, by its position in the
//! run. A region whose end is not in the report is drawn up to its last step there.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    explain::{object, place},
    format::{Entry, FormatError, Layout, ReportFormat},
    json,
    model::{Action, Class, Object, Step, Transaction},
    phrase,
    scene::{Finding, Scene, findings},
};

/// Trace events as a format.
#[derive(Clone, Copy, Debug)]
pub struct Trace;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    display_time_unit: &'static str,
    other_data: Map<String, Value>,
    trace_events: Vec<TraceEvent>,
}

#[derive(Debug, Default, Serialize)]
struct TraceEvent {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    /// `M` metadata, `X` slice, `s` and `f` start and end of an arrow.
    ph: &'static str,
    pid: u64,
    tid: u64,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// `e`: an arrow ends at the slice that encloses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    args: Map<String, Value>,
}

impl ReportFormat for Trace {
    fn render(&self, entries: &[Entry<'_>], _layout: &Layout) -> Result<Vec<u8>, FormatError> {
        let mut events = Vec::new();
        let mut pid = 0;
        for entry in entries {
            for finding in findings(entry.report) {
                let Some(scene) = finding.scene() else { continue };
                if scene.violation.steps.is_empty() {
                    continue;
                }
                pid += 1;
                Timeline { pid, scene: &scene, events: &mut events }.write(&finding, entry);
            }
        }
        let tool = entries.first().map(|entry| entry.report.tool.version.clone());
        let other_data = arguments([
            ("tool", json!(format!("avtrace {}", tool.unwrap_or_default()))),
            ("time", json!("positions of events in the run: one event is one microsecond")),
        ]);
        let document = Document { display_time_unit: "ns", other_data, trace_events: events };
        Ok(json::document(&document)?.into_bytes())
    }
}

fn arguments<const N: usize>(of: [(&str, Value); N]) -> Map<String, Value> {
    of.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Part of an event that a step takes: the next event may follow at once.
const STEP: f64 = 0.8;

/// Knowledge of a lock between two events of a thread.
struct Span<'r> {
    lock: &'r Object,
    thread: u32,
    from: u64,
    to: u64,
    known: Known,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It was held all the time.
    Held,
    /// It was released at the first event, and acquired again at the second one.
    Released,
    /// It was acquired at the first event, and released at the second one. What was between is not in the report.
    Acquired,
}

struct Timeline<'r, 'o> {
    pid: u64,
    scene: &'o Scene<'r>,
    events: &'o mut Vec<TraceEvent>,
}

impl<'r> Timeline<'r, '_> {
    fn write(&mut self, finding: &Finding<'r>, entry: &Entry<'_>) {
        let of = entry.name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
        let headline = finding.headline();
        self.metadata("process_name", 0, json!(format!("{}: {headline}{of}", finding.id())));
        let class = finding.defect.map_or(Class::Likely, |defect| defect.class);
        self.metadata("process_labels", 0, json!(phrase::class(class)));
        for (column, &thread) in self.scene.threads.iter().enumerate() {
            let who = self.scene.who(thread);
            let name = match self.scene.thread_name(thread) {
                Some(name) if name != who => format!("{who} ({name})"),
                _ => who,
            };
            self.track(column as u64 + 1, &name, column as u64 * 100);
        }
        for tx in self.scene.transactions() {
            self.transaction(tx);
        }
        let steps = &self.scene.violation.steps;
        for (at, step) in steps.iter().enumerate() {
            self.step(at + 1, step);
        }
        for link in self.scene.links() {
            let (source, sink) = (&steps[link.source - 1], &steps[link.sink - 1]);
            let name = if link.racy { "dependency (racy)" } else { "dependency" };
            for (ph, step, bp) in [("s", source, None), ("f", sink, Some("e"))] {
                self.events.push(TraceEvent {
                    name: name.to_owned(),
                    cat: Some("witness"),
                    ph,
                    pid: self.pid,
                    tid: self.tid(step.thread),
                    ts: step.event as f64 + STEP / 2.0,
                    id: Some(format!("{}.{}", self.pid, link.edge)),
                    bp,
                    ..TraceEvent::default()
                });
            }
        }
        self.locks(finding);
    }

    fn tid(&self, thread: u32) -> u64 {
        let column = self.scene.threads.iter().position(|&known| known == thread);
        column.unwrap_or(0) as u64 + 1
    }

    fn metadata(&mut self, kind: &str, tid: u64, value: Value) {
        let key = match kind {
            "process_labels" => "labels",
            "thread_sort_index" => "sort_index",
            _ => "name",
        };
        self.events.push(TraceEvent {
            name: kind.to_owned(),
            ph: "M",
            pid: self.pid,
            tid,
            args: arguments([(key, value)]),
            ..TraceEvent::default()
        });
    }

    fn track(&mut self, tid: u64, name: &str, order: u64) {
        self.metadata("thread_name", tid, json!(name));
        self.metadata("thread_sort_index", tid, json!(order));
    }

    fn slice(
        &mut self,
        name: String,
        cat: &'static str,
        tid: u64,
        from: u64,
        to: u64,
        args: Map<String, Value>,
    ) {
        self.events.push(TraceEvent {
            name,
            cat: Some(cat),
            ph: "X",
            pid: self.pid,
            tid,
            ts: from as f64,
            dur: Some((to - from) as f64 + STEP),
            args,
            ..TraceEvent::default()
        });
    }

    /// A region, from its begin to the last of its steps that the report has.
    fn transaction(&mut self, tx: &Transaction) {
        let Some(region) = &tx.region else { return };
        let violation = self.scene.violation;
        let of_thread = |step: &&Step| step.thread == tx.thread && step.event >= tx.begin_event;
        let next = (self.scene.transactions().iter())
            .filter(|other| other.thread == tx.thread && other.begin_event > tx.begin_event)
            .map(|other| other.begin_event)
            .min();
        let steps: Vec<&Step> = (violation.steps.iter())
            .filter(of_thread)
            .filter(|step| next.is_none_or(|next| step.event < next))
            .collect();
        let end = steps.iter().map(|step| step.event).max().unwrap_or(tx.begin_event);
        let is_whole = steps.iter().any(|step| {
            step.event == end && step.action == Action::End && step.region.as_ref() == Some(region)
        });
        let args = arguments([
            ("transaction", json!(tx.ordinal)),
            ("violated", json!(*tx == violation.transaction)),
            ("end", json!(if is_whole { "seen" } else { "not in the report" })),
        ]);
        // Below it the steps: the slice is half a step longer, so that it encloses the last one.
        let tid = self.tid(tx.thread);
        self.slice(region.clone(), "region", tid, tx.begin_event, end, args);
        if let Some(slice) = self.events.last_mut() {
            slice.dur = slice.dur.map(|dur| dur + STEP / 10.0);
        }
    }

    fn step(&mut self, number: usize, step: &Step) {
        let mut args = arguments([
            ("step", json!(number)),
            ("event", json!(step.event)),
            ("place", json!(place(step.location.as_ref(), &step.label))),
        ]);
        if let Some(source) = &step.source_text {
            args.insert("source".to_owned(), json!(source));
        }
        if let Some(at) = &step.location {
            args.insert("file".to_owned(), json!(at.file));
        }
        if let Some(of) = &step.object {
            args.insert("object".to_owned(), json!(object(of)));
        }
        let name = format!("{number}: {}", self.scene.action(step));
        let tid = self.tid(step.thread);
        self.slice(name, "step", tid, step.event, step.event, args);
    }

    /// The locks, a track for each lock of a thread.
    fn locks(&mut self, finding: &Finding<'r>) {
        let mut tracks: Vec<(u32, &Object)> = Vec::new();
        for Span { lock, thread, from, to, known } in self.spans(finding) {
            let track = tracks.iter().position(|track| *track == (thread, lock));
            let at = track.unwrap_or(tracks.len()) as u64;
            let tid = 1_000 + at;
            if track.is_none() {
                tracks.push((thread, lock));
                let name = format!("{} {}", self.scene.who(thread), object(lock));
                let column = self.tid(thread) - 1;
                self.track(tid, &name, column * 100 + at + 1);
            }
            let name = match known {
                Known::Held => "held throughout",
                Known::Released => "released, then acquired again",
                Known::Acquired => "acquired, then released",
            };
            let args = arguments([("lock", json!(object(lock)))]);
            self.slice(name.to_owned(), "lock", tid, from, to, args);
            if let Some(slice) = self.events.last_mut().filter(|_| known == Known::Released) {
                // Between the two steps on the lock, which may be ends of other slices of the track.
                slice.ts += STEP;
                slice.dur = Some((to as f64 - slice.ts).max(0.0));
            }
        }
    }

    /// Spans of locks that are known, by threads and in the order of time.
    fn spans(&self, finding: &Finding<'r>) -> Vec<Span<'r>> {
        let violation = self.scene.violation;
        let thread = violation.transaction.thread;
        let mut spans: Vec<Span<'r>> = (violation.splits.iter())
            .map(|split| Span {
                lock: &split.lock,
                thread,
                from: split.released_event,
                to: split.reacquired_event,
                known: Known::Released,
            })
            .collect();
        for gap in finding.defect.iter().map(|defect| &defect.gap) {
            spans.extend(gap.held.iter().map(|lock| Span {
                lock,
                thread,
                from: gap.left_at.event,
                to: gap.returned_at.event,
                known: Known::Held,
            }));
        }
        for (at, step) in violation.steps.iter().enumerate() {
            let is_acquired = matches!(step.action, Action::Acquire | Action::AcquireShared);
            let Some(lock) = step.object.as_ref().filter(|_| is_acquired) else { continue };
            let same =
                |next: &&Step| next.thread == step.thread && next.object.as_ref() == Some(lock);
            let next = violation.steps[at + 1..].iter().find(same);
            let is_released =
                |next: &&Step| matches!(next.action, Action::Release | Action::ReleaseShared);
            let covers = |to: u64| {
                let is_in = |span: &Span<'_>| {
                    span.thread == step.thread
                        && span.lock == lock
                        && span.from < to
                        && step.event < span.to
                };
                spans.iter().any(is_in)
            };
            // Slices of a track are within one another or apart.
            if let Some(next) = next.filter(is_released).filter(|next| !covers(next.event)) {
                spans.push(Span {
                    lock,
                    thread: step.thread,
                    from: step.event,
                    to: next.event,
                    known: Known::Acquired,
                });
            }
        }
        spans.sort_by_key(|span| (span.thread, span.from));
        spans
    }
}
