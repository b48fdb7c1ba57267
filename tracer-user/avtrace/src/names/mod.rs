//! Names for findings: symbols, source lines and variables, shared by live runs and recorded traces.

pub(crate) mod classes;
pub(crate) mod containers;
pub(crate) mod dependence;
mod frames;
pub mod live;

use checker::{
    event::{LocationId, RegionId, ThreadId},
    finding,
};

pub(crate) use self::frames::{
    author_of, begin_frames, in_one_function, mark_own, on_one_line, origin_of, source_frames,
    without_internals,
};
use report::{Names, Object, ObjectKind, RegionName, SourceFrame, ThreadName};

/// Names where nothing was seen.
#[derive(Debug)]
pub struct NoNames;

impl Names for NoNames {
    fn region(&mut self, _region: RegionId) -> RegionName {
        RegionName::default()
    }

    fn frames(&mut self, _location: LocationId) -> Vec<SourceFrame> {
        Vec::new()
    }

    fn object(&mut self, _object: finding::Object) -> Object {
        Object::unnamed(ObjectKind::Sync)
    }

    fn thread(&mut self, _thread: ThreadId) -> ThreadName {
        ThreadName::default()
    }

    fn source_line(&mut self, _file: &str, _line: u32) -> Option<String> {
        None
    }
}
