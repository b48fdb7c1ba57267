//! Names for findings in a recorded trace: those in the trace, and source lines from the files that it
//! names. Names are recorded by `checker`'s readers, or where the trace was recorded.

use std::{collections::BTreeMap, path::Path};

use checker::defect::{Dependence, Origin, RegionRole, Steps, SubjectInfo};
use checker::event::{EventNumber, LocationId, RegionId, ThreadId};
use checker::finding::{self, Findings};
use checker::format::{self, Frame, LocationKind, ObservedValue};
use checker::gap::Gap;

use rustc_hash::FxHashMap;
use symbolize::{is_system_file, library_folder};

use super::{code::Code, recording, recording::RecordedRun, sources::Sources};
use crate::names::{
    author_of,
    classes::{KnownClasses, Touches, class_of, shown_name},
    origin_of, without_internals,
};
use plan::origin::Origins;
use report::{
    CodePlace, Limitation, Names, Object, ObjectKind, RegionName, SourceFrame, ThreadName, Value,
};

/// Name of the region of a `begin` without a name.
const UNNAMED: &str = "(unnamed)";

/// Names of a trace.
#[derive(Debug)]
pub struct TraceNames {
    names: format::Names,
    values: BTreeMap<EventNumber, ObservedValue>,
    begins: Vec<Option<LocationId>>,
    /// By region.
    roles: Vec<RegionRole>,
    classes: KnownClasses,
    /// Code that accessed the variables of findings.
    touches: Touches,
    code: Code,
    dependences: FxHashMap<Steps, Dependence>,
    /// Frames of places within a region.
    frames_in: FxHashMap<(RegionId, LocationId), Vec<SourceFrame>>,
    sources: Sources,
}

impl TraceNames {
    /// Creates them from the names of a trace that was read to its end, the stored values, and the location
    /// of each region's begin.
    #[must_use]
    pub fn new(
        names: format::Names,
        values: BTreeMap<EventNumber, ObservedValue>,
        begins: Vec<Option<LocationId>>,
    ) -> Self {
        Self {
            roles: recording::read_roles(&names),
            dependences: recording::read_dependences(&names),
            classes: recording::read_classes(&names),
            sources: Sources::new(&names),
            touches: Touches::default(),
            names,
            values,
            begins,
            code: Code::default(),
            frames_in: FxHashMap::default(),
        }
    }

    /// Returns the exit status of the program that was recorded, and the signal that ended it.
    #[must_use]
    pub fn ending(&self) -> (Option<i32>, Option<i32>) {
        self.names.process().map_or((None, None), |process| (process.exit_code, process.signal))
    }

    /// Returns the recorded facts about the run itself.
    pub(super) fn run(&self) -> RecordedRun {
        recording::read_run(&self.names)
    }

    /// Returns the limitation of a report whose source lines are missing.
    pub(super) fn missing_sources(&self) -> Option<Limitation> {
        self.sources.limitation()
    }

    fn named(&mut self, object: Option<format::Object>, unknown: ObjectKind) -> Object {
        let Some(format::Object { kind, name, address, size, .. }) = object else {
            return Object::unnamed(unknown);
        };
        let name = name.or_else(|| {
            let name = self.code.variable(&self.names, address?, size.unwrap_or(1))?;
            Some(if unknown == ObjectKind::Variable { name } else { without_internals(&name) })
        });
        Object { name, address, ..Object::unnamed(kind) }
    }

    fn classified(
        &mut self,
        recorded: Option<format::Object>,
        unknown: ObjectKind,
        object: finding::Object,
    ) -> Object {
        let named = self.named(recorded, unknown);
        named.classified(|| self.classes.synchronisation(object).cloned())
    }
}

impl TraceNames {
    /// Returns the location at which a region begins.
    fn location_of_begin(&self, region: RegionId) -> Option<format::Location> {
        let known = self.names.region(region)?;
        self.names.location(known.location.or_else(|| *self.begins.get(region.index())?)?)
    }

    /// Returns the role of regions without one in the trace. In traces of other tools, somebody has named the regions.
    fn role(&self) -> RegionRole {
        if recording::is_live(&self.names) { RegionRole::default() } else { RegionRole::Named }
    }
}

impl Names for TraceNames {
    fn region(&mut self, region: RegionId) -> RegionName {
        let Some(known) = self.names.region(region) else { return RegionName::default() };
        if known.name.is_empty() {
            // All regions without a name are one, and each begins at a different location.
            let role = self.role();
            return RegionName { name: UNNAMED.to_owned(), role, ..RegionName::default() };
        }
        let location = known.location.or_else(|| *self.begins.get(region.index())?);
        let frames = location.map_or_else(Vec::new, |location| self.frames(location));
        let origin = location.map_or_else(Origin::default, |location| self.origin(location));
        let recorded = self.roles.get(region.index()).copied();
        let role = recorded.unwrap_or_else(|| self.role());
        RegionName { name: known.name, frames, role, origin }
    }

    fn frames(&mut self, location: LocationId) -> Vec<SourceFrame> {
        let frames: Vec<_> = self.names.frames(location).map(source_frame).collect();
        if !frames.is_empty() {
            return frames;
        }
        if let Some(label) = self.names.label(location) {
            return vec![SourceFrame::from_label(&label)];
        }
        let begins = self.begins.contains(&Some(location));
        let recorded = self.names.location(location);
        recorded.map_or_else(Vec::new, |location| self.code.frames(&self.names, &location, begins))
    }

    fn frames_in(&mut self, region: RegionId, location: LocationId) -> Vec<SourceFrame> {
        let key = (region, location);
        if let Some(frames) = self.frames_in.get(&key) {
            return frames.clone();
        }
        let mut frames = self.frames(location);
        if frames.iter().all(is_of_library)
            && let Some(begin) = self.location_of_begin(region)
            && let Some(place) = self.names.location(location)
            && let Some(call) = self.code.call_of_library(&self.names, [&begin, &place])
        {
            frames.iter_mut().for_each(|frame| frame.is_wrapper = true);
            frames.extend(call);
        }
        self.frames_in.insert(key, frames.clone());
        frames
    }

    fn origin(&mut self, location: LocationId) -> Origin {
        if let Some(first) = self.names.frames(location).next() {
            return if first.is_library { Origin::Library } else { Origin::Own };
        }
        // The recording was cut short, or is another tool's.
        let origins = Origins::default();
        origin_of(&self.frames(location), |frame| author_of(&origins, None, frame))
    }

    fn object(&mut self, object: finding::Object) -> Object {
        match object {
            finding::Object::Variable(id) => {
                let mut object = self.named(self.names.variable(id), ObjectKind::Variable);
                if let Some(storage) = self.classes.storage(id) {
                    let touched = self.classes.touched(&self.touches.places(id));
                    object.name = shown_name(object.name, storage, touched.as_ref());
                }
                object
            }
            finding::Object::Lock(id) => {
                self.classified(self.names.lock(id), ObjectKind::Lock, object)
            }
            finding::Object::Sync(id) => {
                self.classified(self.names.sync(id), ObjectKind::Sync, object)
            }
            finding::Object::Thread(id) => {
                let name = self.thread(id).name;
                Object { name, ..Object::unnamed(ObjectKind::Thread) }
            }
            _ => Object::unnamed(ObjectKind::Sync),
        }
    }

    fn learn(&mut self, findings: &Findings) {
        self.touches = Touches::of(findings);
    }

    fn learn_gaps(&mut self, gaps: &[Gap]) {
        self.touches.add_gaps(gaps);
    }

    fn begin(&self, region: RegionId) -> Option<CodePlace> {
        let location = self.location_of_begin(region)?;
        let at = location.stack.first().filter(|_| location.kind != LocationKind::Call)?;
        let module = self.names.module(at.module?)?.path.clone();
        Some(CodePlace { module, address: at.address })
    }

    fn after(&mut self, location: LocationId, is_release: bool) -> Option<CodePlace> {
        let location = self.names.location(location)?;
        self.code.after(&self.names, &location, is_release)
    }

    fn subject(&mut self, object: finding::Object) -> SubjectInfo {
        let class = match object {
            finding::Object::Variable(id) => self.classes.storage(id).map(|storage| {
                class_of(storage, self.classes.touched(&self.touches.places(id)).as_ref())
            }),
            finding::Object::Thread(_) => Some("a thread".to_owned()),
            _ => self.classes.synchronisation(object).cloned(),
        };
        let name = class.unwrap_or_else(|| {
            let Object { kind, name, .. } = self.object(object);
            name.unwrap_or_else(|| format!("a {kind}"))
        });
        let kind = self.object(object).kind;
        let container = match object {
            finding::Object::Variable(variable) => self.classes.container(variable),
            _ => None,
        };
        SubjectInfo { container, ..SubjectInfo::of(object, kind, name) }
    }

    fn thread(&mut self, thread: ThreadId) -> ThreadName {
        let format::Thread { name, tid } = self.names.thread(thread).unwrap_or_default();
        ThreadName { name, tid }
    }

    fn source_line(&mut self, file: &str, line: u32) -> Option<String> {
        self.sources.line(file, line)
    }

    fn changed_value(&mut self, event: EventNumber) -> Option<bool> {
        let value = self.values.get(&event)?;
        value.before.map(|before| value.written && before != value.after)
    }

    fn value(&mut self, event: EventNumber) -> Option<Value> {
        let &ObservedValue { before, after, length, written, .. } = self.values.get(&event)?;
        Some(Value::observed(before, after, length, written))
    }

    fn dependence(&mut self, steps: Steps) -> Dependence {
        if let Some(&known) = self.dependences.get(&steps) {
            return known;
        }
        let begin = steps.region.map(|region| self.location_of_begin(region));
        let steps = [steps.earlier, steps.later].map(|location| self.names.location(location));
        match (begin, steps) {
            // The code of a region is not known where its begin is not.
            (Some(None), _) | (_, [None, _] | [_, None]) => Dependence::default(),
            (begin, [Some(earlier), Some(later)]) => {
                let (begin, steps) = (begin.flatten(), [&earlier, &later]);
                self.code.dependence(&self.names, begin.as_ref(), steps).unwrap_or_default()
            }
        }
    }

    fn sees_data(&self) -> bool {
        recording::read_sees_data(&self.names).unwrap_or(self.names.variable_count() > 0)
    }

    fn regions(&mut self) -> Vec<RegionId> {
        (0..self.names.region_count() as u32).map(RegionId).collect()
    }

    fn threads(&mut self) -> Vec<ThreadId> {
        (0..self.names.thread_count() as u32).map(ThreadId).collect()
    }
}

/// Returns whether a frame is in a source file of a library.
fn is_of_library(frame: &SourceFrame) -> bool {
    let file = frame.file.as_ref().map(Path::new);
    file.is_some_and(|file| is_system_file(file) || library_folder(file).is_some())
}

fn source_frame(frame: Frame<'_>) -> SourceFrame {
    SourceFrame {
        function: frame.function.map(str::to_owned),
        file: frame.file.map(str::to_owned),
        line: frame.line,
        column: frame.column,
        module: frame.module.map(str::to_owned),
        is_wrapper: frame.is_wrapper,
        declared: frame.declared,
    }
}
