//! Source frames from resolved addresses, and the frame among them that is the user's own code.

use std::path::Path;

use checker::defect::Origin;
use symbolize::{Frame, Module, Name, Resolution, is_system_file, is_system_module, is_wrapper};

use plan::origin::{Author, Origins};
use report::SourceFrame;

/// Cuts a name before the first member whose name is reserved for the implementation, such as `__data` of a
/// `pthread_mutex_t` or `_M_mutex` of a `std::mutex`: the user knows the lock, not what is in it.
pub(crate) fn without_internals(name: &str) -> String {
    let reserved = |member: &&str| {
        member.starts_with("__")
            || (member.starts_with('_')
                && member[1..].starts_with(|c: char| c.is_ascii_uppercase()))
    };
    let mut members = name.split('.');
    let first = members.next().unwrap_or_default();
    let known = members.take_while(|member| !reserved(member));
    std::iter::once(first).chain(known).collect::<Vec<_>>().join(".")
}

/// Returns the frames of an address, with the module that they are in.
pub(crate) fn source_frames(resolution: &Resolution) -> Vec<SourceFrame> {
    let module = resolution.module.file_name().unwrap_or(resolution.module.as_os_str());
    let module = module.to_string_lossy().into_owned();
    let of_system = is_system_module(&module);
    let module = Some(module);
    if resolution.frames.iter().all(|frame| frame.file.is_none()) {
        // `function+0x1c`: without lines the offset is what distinguishes places in one function.
        let function = match &resolution.function {
            Some((name, offset)) => format!("{name}+{offset:#x}"),
            None => format!("{}", resolution.address),
        };
        return vec![SourceFrame {
            function: Some(function),
            module,
            is_wrapper: of_system,
            ..SourceFrame::default()
        }];
    }
    let frame = |frame: &Frame| SourceFrame {
        function: frame.function.as_ref().map(ToString::to_string),
        file: frame.file.as_ref().map(|file| file.to_string_lossy().into_owned()),
        line: frame.line,
        column: frame.column,
        module: module.clone(),
        is_wrapper: of_system || is_wrapper(frame),
        declared: frame.declared,
    };
    resolution.frames.iter().map(frame).collect()
}

/// Returns the frames of the place where a region begins, at the line of its name if it is a function: the line table
/// has the end of a prototype at a function's entry.
pub(crate) fn begin_frames(resolution: &Resolution) -> Vec<SourceFrame> {
    let mut frames = source_frames(resolution);
    if let (Some((_, 0)), [.., frame], [.., shown]) =
        (&resolution.function, &*resolution.frames, &mut *frames)
    {
        show_declaration(shown, frame);
    }
    frames
}

/// Shows the line of a function's name instead of the line of its code.
pub(super) fn show_declaration(shown: &mut SourceFrame, frame: &Frame) {
    if let Some(line) = frame.declared.filter(|_| frame.line != frame.declared) {
        (shown.line, shown.column) = (Some(line), None);
    }
}

/// Takes what is nearest to the user's code for it where no frame is of the user's own files: a program that was
/// installed from a registry is made of crates, and those of a standard library were called by somebody.
pub(crate) fn mark_own(frames: &mut [SourceFrame]) {
    if !frames.iter().all(|frame| frame.is_wrapper) {
        return;
    }
    let is_system = |frame: &SourceFrame| {
        frame.file.as_ref().is_some_and(|file| is_system_file(file.as_ref()))
            || frame.module.as_ref().is_some_and(|module| is_system_module(module))
    };
    let own = frames.iter().position(|frame| !is_system(frame));
    if let Some(own) = frames.get_mut(own.unwrap_or(frames.len().saturating_sub(1))) {
        own.is_wrapper = false;
    }
}

/// Returns the frames of the call that leads to a place, of all that may; of several those of the line that they are
/// on, if it is one line of one function.
pub(crate) fn on_one_line(calls: &[Vec<SourceFrame>]) -> Option<Vec<SourceFrame>> {
    let line = |frames: &Vec<SourceFrame>| {
        let own = frames.iter().position(|frame| !frame.is_wrapper && frame.line.is_some())?;
        let mut frames = frames[own..].to_vec();
        frames[0].column = None;
        Some(frames)
    };
    let mut lines = calls.iter().map(line).collect::<Option<Vec<_>>>()?;
    lines.dedup();
    match (calls, &*lines) {
        ([only], [_]) => Some(only.clone()),
        (_, [_]) => lines.pop(),
        _ => None,
    }
}

/// Returns the function that all calls are in which may lead to a place, without a line.
pub(crate) fn in_one_function(calls: &[Vec<SourceFrame>]) -> Option<Vec<SourceFrame>> {
    let function = |frames: &Vec<SourceFrame>| {
        // The lines of functions that are in line differ; the function around them is one.
        let own = frames.iter().rfind(|frame| !frame.is_wrapper && frame.file.is_some())?;
        Some(SourceFrame { line: None, column: None, ..own.clone() })
    };
    let mut functions = calls.iter().map(function).collect::<Option<Vec<_>>>()?;
    functions.dedup();
    if functions.len() == 1 { Some(functions) } else { None }
}

/// Returns the origin of the code at a place: that of its innermost frame which is not of a language's library.
pub(crate) fn origin_of(frames: &[SourceFrame], author: impl Fn(&SourceFrame) -> Author) -> Origin {
    let mut authors = frames.iter().map(author);
    match authors.find(|&author| author != Author::Language) {
        Some(Author::Own) => Origin::Own,
        None if frames.is_empty() => Origin::default(),
        _ => Origin::Library,
    }
}

/// Returns the author of a frame's code in a module of a process.
pub(crate) fn author_of(origins: &Origins, module: Option<&Module>, frame: &SourceFrame) -> Author {
    let name = |text: &String| Name { short: text.clone(), full: text.clone() };
    let function = frame.function.as_ref().map(name);
    origins.author(module, frame.file.as_deref().map(Path::new), function.as_ref())
}

#[cfg(test)]
mod tests {
    use super::{Author, Origin};
    use super::{in_one_function, mark_own, on_one_line, origin_of, without_internals};
    use report::SourceFrame;

    const CORE: &str = "/rustc/59807616/library/core/src/sync/atomic.rs";
    const CRATE: &str = "/home/user/.cargo/registry/src/index/fd-find-10.2.0/src/walk.rs";

    /// Returns the file that is shown of frames in these files, of which those with `false` are the user's own.
    fn shown<'file>(files: &[(&'file str, bool)]) -> &'file str {
        let mut frames: Vec<SourceFrame> = files
            .iter()
            .map(|(file, is_wrapper)| SourceFrame {
                file: Some((*file).to_owned()),
                is_wrapper: *is_wrapper,
                ..SourceFrame::default()
            })
            .collect();
        mark_own(&mut frames);
        files[frames.iter().position(|frame| !frame.is_wrapper).expect("one is shown")].0
    }

    #[test]
    fn what_is_nearest_to_the_users_code_is_shown() {
        assert_eq!(shown(&[(CORE, true), (CRATE, true), ("bank.rs", false)]), "bank.rs");
        assert_eq!(shown(&[(CORE, true), (CRATE, true), (CORE, true)]), CRATE);
        let thread = "/rustc/59807616/library/std/src/thread/mod.rs";
        assert_eq!(shown(&[(CORE, true), (thread, true)]), thread);
        mark_own(&mut []);
    }

    #[test]
    fn calls_on_several_lines_leave_the_place_open() {
        let call = |line, column| {
            let library = SourceFrame { is_wrapper: true, ..SourceFrame::from_label("map.rs:9") };
            vec![library, SourceFrame::from_label(&format!("bank.rs:{line}:{column}"))]
        };
        assert_eq!(on_one_line(&[call(7, 3)]), Some(call(7, 3)));
        let line = on_one_line(&[call(7, 3), call(7, 9)]).expect("it is one line");
        assert_eq!(line, [SourceFrame::from_label("bank.rs:7")], "in front of both or behind");
        assert_eq!(on_one_line(&[call(7, 3), call(8, 3)]), None);
        let function = in_one_function(&[call(7, 3), call(8, 3)]).expect("it is one file");
        assert_eq!((function.len(), function[0].line), (1, None));
        assert_eq!(on_one_line(&[]), None);
        assert_eq!(on_one_line(&[call(7, 3)[..1].to_vec()]), None, "nobody's line");
    }

    #[test]
    fn the_caller_of_a_languages_library_is_the_author() {
        let origin = |authors: &[Author]| {
            let names = ["0", "1", "2"].iter().take(authors.len());
            let frames: Vec<SourceFrame> =
                names.map(|name| SourceFrame::from_label(name)).collect();
            origin_of(&frames, |frame| {
                let index = frame.function.as_deref().and_then(|name| name.parse().ok());
                authors[index.unwrap_or(0)]
            })
        };
        assert_eq!(origin(&[Author::Language, Author::Own]), Origin::Own);
        assert_eq!(origin(&[Author::Language, Author::Library, Author::Own]), Origin::Library);
        assert_eq!(origin(&[Author::Language]), Origin::Library);
        assert_eq!(origin(&[]), Origin::Own, "not known");
    }

    #[test]
    fn locks_are_named_by_what_the_user_declared() {
        assert_eq!(without_internals("account.lock.__data"), "account.lock");
        assert_eq!(without_internals("bank._M_mutex.__data.__lock"), "bank");
        assert_eq!(without_internals("locks[3].__data"), "locks[3]");
        assert_eq!(without_internals("_private.lock_+0x8"), "_private.lock_+0x8");
    }
}
