//! Encoding and decoding of definitions, which describe ids before they are used. Blocks and events are
//! elsewhere.

use super::fields::{Compact, Fields, Put, put_number};
use super::layout::{NONE, definition};
use crate::event::LocationId;
use crate::format::names::{
    CodeAddress, Frame, IdSpace, Location, LocationKind, Lost, Module, ModuleId, Names, Object,
    ObjectExtra, ObjectKind, Process, Property, Region, Segment, SourceExcerpt, Space, StoredFrame,
    Thread,
};

/// Bits of an object's definition for the fields that are present.
const ADDRESS: u8 = 1;
const SIZE: u8 = 2;
const LOCATION: u8 = 4;

/// Bits of a process's definition for the fields that are present.
const PID: u8 = 1;
const EXIT_CODE: u8 = 2;
const SIGNAL: u8 = 4;

/// Bits of a frame.
const INLINED: u8 = 1;
const WRAPPER: u8 = 2;
const LIBRARY: u8 = 4;

/// Adds a definition to a buffer: its kind, the length of its fields, and the fields, all of them compact.
fn put(kind: u16, out: &mut Vec<u8>, fields: impl FnOnce(&mut Compact<'_>)) {
    let start = out.len();
    fields(&mut Compact(out));
    let end = out.len();
    put_number(kind.into(), out);
    put_number((end - start) as u64, out);
    // The length is known now, and stands before the fields.
    let added = out.len() - end;
    out[start..].rotate_right(added);
}

pub(super) fn put_string(text: &str, out: &mut Vec<u8>) {
    put(definition::STRING, out, |out| out.counted(text.as_bytes()));
}

pub(super) fn put_thread(id: u32, thread: &Thread, out: &mut Vec<u8>) {
    put(definition::THREAD, out, |out| {
        out.u32(id);
        out.u32(thread.tid.unwrap_or(NONE));
        out.counted(thread.name.as_deref().unwrap_or_default().as_bytes());
    });
}

pub(super) fn put_region(id: u32, region: &Region, out: &mut Vec<u8>) {
    put(definition::REGION, out, |out| {
        out.u32(id);
        out.u32(region.location.map_or(NONE, |location| location.0));
        out.counted(region.name.as_bytes());
    });
}

pub(super) fn put_object(space: Space, id: u32, object: &Object, out: &mut Vec<u8>) {
    let kind = match space {
        Space::Variable => definition::VARIABLE,
        Space::Lock => definition::LOCK,
        Space::Sync => definition::SYNC,
    };
    put(kind, out, |out| {
        let flag = |flag: u8, is: bool| if is { flag } else { 0 };
        out.u32(id);
        out.u8(object.kind.code(space));
        out.u8(flag(ADDRESS, object.address.is_some())
            | flag(SIZE, object.size.is_some())
            | flag(LOCATION, object.location.is_some()));
        out.u16(0);
        out.counted(object.name.as_deref().unwrap_or_default().as_bytes());
        if let Some(address) = object.address {
            out.u64(address);
        }
        if let Some(size) = object.size {
            out.u64(size);
        }
        if let Some(location) = object.location {
            out.u32(location.0);
        }
    });
}

pub(super) fn put_module(module: &Module, out: &mut Vec<u8>) {
    put(definition::MODULE, out, |out| {
        out.u64(module.load_bias);
        out.counted(module.path.as_bytes());
        out.counted(&module.build_id);
    });
}

pub(super) fn put_location(id: u32, location: &Location, out: &mut Vec<u8>) {
    put(definition::LOCATION, out, |out| {
        out.u32(id);
        out.u8(location.kind.code());
        out.u8(0);
        out.u16(0);
        out.counted(location.label.as_deref().unwrap_or_default().as_bytes());
        out.u32(location.stack.len() as u32);
        for at in &location.stack {
            out.u32(at.module.map_or(NONE, |module| module.0));
            out.u32(0);
            out.u64(at.address);
        }
    });
}

/// `string` gives the ids of the frames' strings.
pub(super) fn put_frames(
    id: u32,
    frames: &[Frame<'_>],
    mut string: impl FnMut(&str) -> u32,
    out: &mut Vec<u8>,
) {
    put(definition::FRAMES, out, |out| {
        out.u32(id);
        out.u32(frames.len() as u32);
        for frame in frames {
            for text in [frame.function, frame.file, frame.module] {
                out.u32(text.map_or(NONE, &mut string));
            }
            out.u32(frame.line.unwrap_or(0));
            out.u32(frame.column.unwrap_or(0));
            let flag = |flag: u8, is: bool| if is { flag } else { 0 };
            out.u8(flag(INLINED, frame.is_inlined)
                | flag(WRAPPER, frame.is_wrapper)
                | flag(LIBRARY, frame.is_library));
            out.u8(0);
            let within = frame.line.zip(frame.declared);
            let within = within.and_then(|(line, declared)| line.checked_sub(declared));
            let within = within.and_then(|lines| u16::try_from(lines).ok()?.checked_add(1));
            out.u16(within.unwrap_or(0));
        }
    });
}

pub(super) fn put_process(process: &Process, out: &mut Vec<u8>) {
    put(definition::PROCESS, out, |out| {
        let flag = |flag: u8, is: bool| if is { flag } else { 0 };
        out.u8(flag(PID, process.pid.is_some())
            | flag(EXIT_CODE, process.exit_code.is_some())
            | flag(SIGNAL, process.signal.is_some()));
        out.u8(0);
        out.u16(0);
        out.u32(process.pid.unwrap_or(0));
        out.u32(process.exit_code.unwrap_or(0).cast_unsigned());
        out.u32(process.signal.unwrap_or(0).cast_unsigned());
        out.u32(process.argv.len() as u32);
        for argument in &process.argv {
            out.counted(argument.as_bytes());
        }
    });
}

pub(super) fn put_lost(lost: &Lost, out: &mut Vec<u8>) {
    put(definition::LOST, out, |out| {
        out.u64(lost.count);
        out.counted(lost.class.as_bytes());
    });
}

pub(super) fn put_property(property: &Property, out: &mut Vec<u8>) {
    put(definition::PROPERTY, out, |out| {
        out.counted(property.key.as_bytes());
        out.counted(property.value.as_bytes());
    });
}

pub(super) fn put_segment(segment: Segment, out: &mut Vec<u8>) {
    put(definition::SEGMENT, out, |out| {
        out.u64(segment.recording);
        out.u64(segment.first_event);
        out.u32(segment.number);
    });
}

pub(super) fn put_origin(space: IdSpace, id: u32, origin: u32, out: &mut Vec<u8>) {
    put(definition::ORIGIN, out, |out| {
        out.u32(id);
        out.u32(origin);
        out.u8(space.code());
    });
}

pub(super) fn put_excerpt(excerpt: &SourceExcerpt, out: &mut Vec<u8>) {
    put(definition::SOURCE, out, |out| {
        out.counted(excerpt.file.as_bytes());
        out.u32(excerpt.first_line);
        out.u32(excerpt.lines.len() as u32);
        for line in &excerpt.lines {
            out.counted(line.as_bytes());
        }
    });
}

/// Removes the first definition from a payload and adds it to the names.
///
/// # Errors
/// The reason why it is invalid.
pub(super) fn take(payload: &mut Fields<'_>, names: &mut Names) -> Result<(), &'static str> {
    const CUT: &str = "a definition that goes past its block";
    let (kind, fields) = payload.definition().ok_or(CUT)?;
    let defined = match kind {
        definition::STRING => string(fields, names),
        definition::THREAD => thread(fields, names),
        definition::REGION => region(fields, names),
        definition::VARIABLE => object(Space::Variable, fields, names),
        definition::LOCK => object(Space::Lock, fields, names),
        definition::SYNC => object(Space::Sync, fields, names),
        definition::MODULE => module(fields, names),
        definition::LOCATION => location(fields, names),
        definition::FRAMES => frames(fields, names),
        definition::PROCESS => process(fields, names),
        definition::LOST => lost(fields, names),
        definition::PROPERTY => property(fields, names),
        definition::SEGMENT => segment(fields, names),
        definition::ORIGIN => origin(fields, names),
        definition::SOURCE => excerpt(fields, names),
        // A kind of a later minor version.
        _ => Some(true),
    };
    match defined {
        Some(true) => Ok(()),
        Some(false) => Err("a definition out of turn, or of something that is not defined"),
        None => Err("a definition with a field that is cut or not UTF-8"),
    }
}

// Each of these returns `None` if a field cannot be read, and `false` if the definition is invalid.

fn string(mut fields: Fields<'_>, names: &mut Names) -> Option<bool> {
    Some(names.define_string(fields.text()?))
}

fn thread(mut fields: Fields<'_>, names: &mut Names) -> Option<bool> {
    let (id, tid, name) = (fields.u32()?, fields.u32()?, fields.text()?);
    Some(names.define_thread(id, name, Some(tid).filter(|&tid| tid != NONE)))
}

fn region(mut fields: Fields<'_>, names: &mut Names) -> Option<bool> {
    let (id, location, name) = (fields.u32()?, fields.u32()?, fields.text()?);
    let location = Some(LocationId(location)).filter(|location| location.0 != NONE);
    Some(names.define_region(id, name, location))
}

fn object(space: Space, mut fields: Fields<'_>, names: &mut Names) -> Option<bool> {
    let (id, kind, flags) = (fields.u32()?, fields.u8()?, fields.u8()?);
    fields.u16()?;
    let name = fields.text()?;
    let mut object = Object::new(ObjectKind::from_code(kind).unwrap_or(ObjectKind::unknown(space)));
    if flags & ADDRESS != 0 {
        object.address = Some(fields.u64()?);
    }
    if flags & SIZE != 0 {
        object.size = Some(fields.u64()?);
    }
    if flags & LOCATION != 0 {
        object.location = Some(LocationId(fields.u32()?));
    }
    Some(names.define_object(space, id, name, ObjectExtra::from_object(&object, space)))
}

fn module(mut fields: Fields<'_>, names: &mut Names) -> Option<bool> {
    let (load_bias, path) = (fields.u64()?, fields.text()?.to_owned());
    let build_id = fields.counted()?.to_vec();
    names.define_module(Module { path, build_id, load_bias });
    Some(true)
}

fn location(mut fields: Fields<'_>, names: &mut Names) -> Option<bool> {
    let (id, kind) = (fields.u32()?, fields.u8()?);
    let _reserved = (fields.u8()?, fields.u16()?);
    let label = fields.text()?;
    let count = fields.u32()?;
    // Each takes three bytes at the least.
    let mut stack = Vec::with_capacity((count as usize).min(fields.left() / 3));
    for _ in 0..count {
        let (module, _, address) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let module = Some(ModuleId(module)).filter(|module| module.0 != NONE);
        stack.push(CodeAddress { module, address });
    }
    let kind = LocationKind::from_code(kind).unwrap_or_default();
    Some(names.define_location(id, label, kind, stack))
}

fn frames(mut fields: Fields<'_>, names: &mut Names) -> Option<bool> {
    let (id, count) = (fields.u32()?, fields.u32()?);
    // Each takes eight bytes at the least.
    let mut frames = Vec::with_capacity((count as usize).min(fields.left() / 8));
    for _ in 0..count {
        let (function, file, module) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (line, column, flags) = (fields.u32()?, fields.u32()?, fields.u8()?);
        fields.u8()?;
        let within = fields.u16()?;
        let declared = if within > 0 { line.saturating_sub(u32::from(within) - 1) } else { 0 };
        frames.push(StoredFrame {
            function,
            file,
            module,
            line,
            column,
            is_inlined: flags & INLINED != 0,
            is_wrapper: flags & WRAPPER != 0,
            is_library: flags & LIBRARY != 0,
            declared,
        });
    }
    Some(names.define_frames(id, frames))
}

fn process(mut fields: Fields<'_>, names: &mut Names) -> Option<bool> {
    let flags = fields.u8()?;
    let _reserved = (fields.u8()?, fields.u16()?);
    let (pid, exit_code, signal) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let count = fields.u32()?;
    let mut argv = Vec::new();
    for _ in 0..count {
        argv.push(fields.text()?.to_owned());
    }
    names.define_process(Process {
        pid: (flags & PID != 0).then_some(pid),
        argv,
        exit_code: (flags & EXIT_CODE != 0).then_some(exit_code.cast_signed()),
        signal: (flags & SIGNAL != 0).then_some(signal.cast_signed()),
    });
    Some(true)
}

fn lost(mut fields: Fields<'_>, names: &mut Names) -> Option<bool> {
    let (count, class) = (fields.u64()?, fields.text()?.to_owned());
    names.define_lost(Lost { class, count });
    Some(true)
}

fn property(mut fields: Fields<'_>, names: &mut Names) -> Option<bool> {
    let (key, value) = (fields.text()?.to_owned(), fields.text()?.to_owned());
    names.define_property(Property { key, value });
    Some(true)
}

fn segment(mut fields: Fields<'_>, names: &mut Names) -> Option<bool> {
    let (recording, first_event, number) = (fields.u64()?, fields.u64()?, fields.u32()?);
    names.define_segment(Segment { recording, number, first_event });
    Some(true)
}

fn origin(mut fields: Fields<'_>, names: &mut Names) -> Option<bool> {
    let (id, origin, space) = (fields.u32()?, fields.u32()?, fields.u8()?);
    // A space of a later minor version says nothing here.
    Some(IdSpace::from_code(space).is_none_or(|space| names.define_origin(space, id, origin)))
}

fn excerpt(mut fields: Fields<'_>, names: &mut Names) -> Option<bool> {
    let (file, first_line, count) = (fields.text()?.to_owned(), fields.u32()?, fields.u32()?);
    let mut lines = Vec::new();
    for _ in 0..count {
        lines.push(fields.text()?.to_owned());
    }
    names.define_excerpt(SourceExcerpt { file, first_line, lines });
    Some(true)
}
