//! Interpreters of languages, and the extension modules that they load. The threads of an interpreter take turns by one
//! lock, which orders them, and its functions are no regions. Its users test extension modules: machine code of C, C++,
//! Cython or Rust.

use symbolize::{Module, Symbolizer};

/// Interpreter of a language, by its file and a function in it.
#[derive(Debug)]
struct Interpreter {
    language: &'static str,
    /// Beginnings of the file names of its program and its library.
    files: [&'static str; 2],
    /// Function of the interpreter, exported by whichever of the two has its code.
    function: &'static str,
    /// Prefix of the function that an extension module exports; the name of the module follows.
    extension: &'static str,
}

const INTERPRETERS: [Interpreter; 3] = [
    Interpreter {
        language: "Python",
        files: ["python", "libpython"],
        function: "Py_BytesMain",
        extension: "PyInit_",
    },
    Interpreter {
        language: "Ruby",
        files: ["ruby", "libruby"],
        function: "ruby_run_node",
        extension: "Init_",
    },
    Interpreter {
        language: "Lua",
        files: ["lua", "liblua"],
        function: "luaL_newstate",
        extension: "luaopen_",
    },
];

/// Folder names of extension modules that come with an interpreter.
const OF_INTERPRETER: [&str; 1] = ["lib-dynload"];

/// Returns the language of which a module is the interpreter: by its file and its function, since a program with an
/// interpreter in it is a program.
pub(crate) fn language(module: &Module) -> Option<&'static str> {
    let name = module.name();
    let is_it = |of: &&Interpreter| {
        of.files.iter().any(|file| name.starts_with(file)) && exports(module, of.function)
    };
    INTERPRETERS.iter().find(is_it).map(|of| of.language)
}

/// Returns true if the program of a process is an interpreter, or starts one from a library.
pub(crate) fn is_program(symbolizer: &Symbolizer) -> bool {
    let name = symbolizer.executable().map(Module::name).unwrap_or_default();
    let is_named = INTERPRETERS.iter().any(|of| name.starts_with(of.files[0]));
    is_named && symbolizer.modules().any(|module| language(module).is_some())
}

/// Returns true for an extension module that does not come with its interpreter.
pub(crate) fn is_extension(module: &Module) -> bool {
    let name = module.name();
    let name = name.split('.').next().unwrap_or_default();
    let mut folders = module.path().components().filter_map(|part| part.as_os_str().to_str());
    !folders.any(|folder| OF_INTERPRETER.contains(&folder))
        && INTERPRETERS.iter().any(|of| exports(module, &format!("{}{name}", of.extension)))
}

fn exports(module: &Module, function: &str) -> bool {
    module.file().is_ok_and(|file| file.symbols_named(function).len() > 0)
}
