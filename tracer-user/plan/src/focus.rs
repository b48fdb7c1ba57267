//! Regions and functions that a run looks at, by the names that a first pass has written to a file.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

use serde::{Deserialize, Serialize};
use symbolize::{Module, Symbolizer};

/// Identifier of the form of the file.
pub const FIRST_PASS_SCHEMA: &str = "avtrace-first-pass/1";

/// Identity of a program's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFile {
    /// File name.
    pub name: String,
    /// Build ID in hexadecimal digits, if it has one.
    pub build_id: Option<String>,
}

/// Region that took part in cycles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspectRegion {
    /// Name, which all regions share that a report would show by it.
    pub name: String,
    /// File name of the program or library in which it was first seen to begin.
    pub module: Option<String>,
    /// Number of places of code that took part and are in the region, or in one region within it; 0 for a region
    /// further out, which only makes the transaction.
    pub locations: u64,
}

/// Function that took part in cycles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SuspectFunction {
    /// File name of the program or library.
    pub module: String,
    /// Demangled name without parameters; in a stripped file the name of its address.
    pub name: String,
}

impl ProgramFile {
    /// Returns the identity of a module's file.
    #[must_use]
    pub fn of(module: &Module) -> Self {
        let build_id = module.file().ok().and_then(|file| file.build_id());
        let hexadecimal = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { name: module.name(), build_id: build_id.map(hexadecimal) }
    }

    /// Returns whether two files are of one program, which may have been built anew meanwhile.
    fn is_same(&self, other: &Self) -> bool {
        self.name == other.name || self.build_id.is_some() && self.build_id == other.build_id
    }
}

/// Regions and functions that a run looks at, as a first pass has named them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Focus {
    file: String,
    program: Option<ProgramFile>,
    /// By name, with `true` for inner ones.
    regions: BTreeMap<String, bool>,
    /// By module.
    functions: BTreeMap<String, BTreeSet<String>>,
}

/// Reason for which a first pass cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FocusError {
    /// The file cannot be read.
    #[error("cannot read the first pass `{file}`: {error}; {}", remedy("PROGRAM"))]
    Unreadable {
        /// The file.
        file: String,
        /// Reason.
        error: io::Error,
    },
    /// The file is no first pass.
    #[error("`{file}` is no first pass: {error}; {}", remedy("PROGRAM"))]
    Form {
        /// The file.
        file: String,
        /// Error, with its position.
        error: serde_json::Error,
    },
    /// The file has another form.
    #[error(
        "`{file}` is of the form `{schema}`, and no first pass that this avtrace reads (`{FIRST_PASS_SCHEMA}`); {}",
        remedy("PROGRAM")
    )]
    Schema {
        /// The file.
        file: String,
        /// Its form.
        schema: String,
    },
    /// It was made of another program.
    #[error("the first pass `{file}` is of `{of}`, and not of `{program}`; {}", remedy(program))]
    OtherProgram {
        /// The file.
        file: String,
        /// File name of its program.
        of: String,
        /// File name of the program to be run.
        program: String,
    },
}

fn remedy(program: &str) -> String {
    format!("`avtrace run --first-pass -o FILE {program}` makes one")
}

impl Focus {
    /// Reads the file of a first pass.
    ///
    /// # Errors
    ///
    /// See [`FocusError`]; not for another program.
    pub fn read(path: &Path) -> Result<Self, FocusError> {
        let file = path.display().to_string();
        match std::fs::read(path) {
            Ok(bytes) => Self::parse(&bytes, file),
            Err(error) => Err(FocusError::Unreadable { file, error }),
        }
    }

    /// Reads the first pass in a file of this name.
    ///
    /// # Errors
    ///
    /// See [`FocusError`]; not for another program.
    pub fn parse(bytes: &[u8], file: String) -> Result<Self, FocusError> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        #[derive(Deserialize)]
        struct FirstPass {
            program: Option<ProgramFile>,
            regions: Vec<SuspectRegion>,
            functions: Vec<SuspectFunction>,
        }
        let parsed = serde_json::from_slice(bytes).and_then(|Head { schema }| {
            let is_known = schema == FIRST_PASS_SCHEMA;
            is_known.then(|| serde_json::from_slice(bytes)).transpose().map(|file| (schema, file))
        });
        let FirstPass { program, regions, functions: named } = match parsed {
            Ok((_, Some(first))) => first,
            Ok((schema, None)) => return Err(FocusError::Schema { file, schema }),
            Err(error) => return Err(FocusError::Form { file, error }),
        };
        let regions = regions.into_iter().map(|region| (region.name, region.locations > 0));
        let regions = regions.collect();
        let mut functions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for SuspectFunction { module, name } in named {
            functions.entry(module).or_default().insert(name);
        }
        Ok(Self { file, program, regions, functions })
    }

    /// Checks that the program is the one of the first pass.
    ///
    /// # Errors
    ///
    /// For another one.
    pub fn check(&self, symbolizer: &Symbolizer) -> Result<(), FocusError> {
        let (Some(of), Some(program)) = (&self.program, symbolizer.executable()) else {
            return Ok(());
        };
        let program = ProgramFile::of(program);
        if of.is_same(&program) {
            return Ok(());
        }
        let (file, of) = (self.file.clone(), of.name.clone());
        Err(FocusError::OtherProgram { file, of, program: program.name })
    }

    /// Returns the name of the file.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Iterates over the names of the regions.
    pub fn regions(&self) -> impl Iterator<Item = &str> {
        self.regions.keys().map(String::as_str)
    }

    /// Returns whether a region is in the focus.
    #[must_use]
    pub fn has_region(&self, name: &str) -> bool {
        self.regions.contains_key(name)
    }

    /// Returns whether a region is among them whose accesses are looked at with those of the functions that it calls.
    #[must_use]
    pub fn has_inner(&self, name: &str) -> bool {
        self.regions.get(name) == Some(&true)
    }

    /// Returns whether a function of a module is in the focus.
    #[must_use]
    pub fn has_function(&self, module: &str, name: &str) -> bool {
        self.functions.get(module).is_some_and(|functions| functions.contains(name))
    }

    /// Returns whether functions of a module are.
    #[must_use]
    pub fn is_about(&self, module: &str) -> bool {
        self.functions.contains_key(module)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Focus, String> {
        Focus::parse(text.as_bytes(), "first.json".to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_names_regions_and_functions() {
        let file = serde_json::json!({
            "schema": FIRST_PASS_SCHEMA,
            "program": null,
            "regions": [
                { "name": "pay", "module": null, "locations": 2 },
                { "name": "serve", "module": null, "locations": 0 },
            ],
            "functions": [{ "module": "shop", "name": "take" }],
        });
        let focus = read(&file.to_string()).expect("a first pass");
        assert!(focus.has_region("pay") && focus.has_inner("pay"));
        assert!(focus.has_region("serve") && !focus.has_inner("serve"));
        assert!(!focus.has_region("take"));
        assert!(focus.is_about("shop") && !focus.is_about("libshop.so"));
        assert!(focus.has_function("shop", "take") && !focus.has_function("shop", "pay"));
    }

    #[test]
    fn errors_say_what_to_do() {
        let remedy = "`avtrace run --first-pass -o FILE PROGRAM` makes one";
        for (text, reason) in [
            ("", "`first.json` is no first pass: EOF"),
            ("{\"schema\": 1}", "`first.json` is no first pass: invalid type"),
            (
                "{\"schema\": \"avtrace-first-pass/1\"}",
                "`first.json` is no first pass: missing field",
            ),
            (
                "{\"schema\": \"avtrace-report/1\"}",
                "`first.json` is of the form `avtrace-report/1`",
            ),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.starts_with(reason) && error.ends_with(remedy), "{error}");
        }
    }

    #[test]
    fn a_program_is_the_same_under_its_name_or_with_its_build_id() {
        let file = |name: &str, id: Option<&str>| ProgramFile {
            name: name.to_owned(),
            build_id: id.map(str::to_owned),
        };
        let shop = file("shop", Some("01ab"));
        assert!(shop.is_same(&file("shop", Some("77"))), "built anew");
        assert!(shop.is_same(&file("shop.old", Some("01ab"))), "renamed");
        assert!(!shop.is_same(&file("bank", Some("77"))));
        assert!(!file("shop", None).is_same(&file("bank", None)));
    }
}
