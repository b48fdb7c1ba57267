//! Results of a hunt in a file: an SQLite database, to which each run is added in a transaction of its own when it is
//! over. So whatever ends the hunt, the runs before are there, it can go on, and other tools can ask for more
//! (`docs/usage.md#hunting-rare-bugs`). Parquet files are whole or not at all, which does not suit a night's work.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rusqlite::{OpenFlags, OptionalExtension as _, params};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use symbolize::open_regular;

use super::{
    database::Database,
    run::{Finding, FoundGap, RunResult, Verdict},
    schedule::{Shard, Treatment},
};
use linux::{place::FilePlace, rights::Rights, user};
use report::{CaptureBackend, Class, Report};

/// Key of the first run's report in the results.
pub(super) const FIRST_REPORT: &str = "first_report";
/// Key of the reason for the end.
pub(super) const END: &str = "end";
/// Key of the time of the hunt so far, in nanoseconds.
pub(super) const WALL: &str = "wall_ns";

/// Version of the tables.
const VERSION: i32 = 2;
/// `application_id` of the database: `avth`.
const APPLICATION: i32 = 0x6176_7468;

/// Tables, with a view for people.
const TABLES: &str = "
CREATE TABLE hunt (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
CREATE TABLE input (
    bytes BLOB NOT NULL
) STRICT;
CREATE TABLE runs (
    number INTEGER PRIMARY KEY,
    treatment TEXT NOT NULL,
    plan TEXT NOT NULL,
    verdict TEXT NOT NULL,
    failed INTEGER NOT NULL,
    elapsed_ns INTEGER NOT NULL,
    delayed_ns INTEGER NOT NULL,
    lost_events INTEGER NOT NULL,
    output TEXT NOT NULL,
    gaps TEXT NOT NULL,
    not_serializable INTEGER NOT NULL
) STRICT;
CREATE TABLE findings (
    run INTEGER NOT NULL REFERENCES runs (number),
    fingerprint TEXT NOT NULL,
    class TEXT NOT NULL,
    occurrences INTEGER NOT NULL,
    executions INTEGER NOT NULL,
    cut INTEGER NOT NULL,
    ways INTEGER NOT NULL,
    PRIMARY KEY (run, fingerprint)
) STRICT;
CREATE TABLE defects (
    fingerprint TEXT PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (number),
    class TEXT NOT NULL,
    headline TEXT NOT NULL,
    report TEXT NOT NULL
) STRICT;
CREATE TABLE gaps (
    id TEXT PRIMARY KEY,
    gap TEXT NOT NULL
) STRICT;
CREATE TABLE replays (
    run INTEGER NOT NULL REFERENCES runs (number),
    repetition INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    fingerprints TEXT NOT NULL,
    PRIMARY KEY (run, repetition)
) STRICT;
CREATE VIEW defect_rates AS
    SELECT d.fingerprint, d.class, d.headline, d.run AS first_run,
        sum(r.failed) AS failing_runs, sum(1 - r.failed) AS passing_runs,
        (SELECT sum(failed) FROM runs) AS all_failing, (SELECT sum(1 - failed) FROM runs) AS all_passing
    FROM defects d JOIN findings f USING (fingerprint) JOIN runs r ON r.number = f.run
    GROUP BY d.fingerprint;
";

/// Hunt that results are of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub avtrace: String,
    pub seed: u64,
    pub shard: Shard,
    pub options: Vec<String>,
    pub command: Vec<String>,
    pub directory: PathBuf,
    /// Shell command that decides whether a run failed.
    pub fail_if: Option<String>,
    /// Hash of the program's file: addresses in plans are of this build.
    pub build: Option<String>,
    /// Length of the standard input of each run, in bytes; `None` if there is none.
    pub input: Option<u64>,
}

/// Defect, with the number of runs that showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    pub class: Class,
    /// Number of runs that showed it.
    pub runs: u64,
    pub fingerprint: String,
    /// The run that shows it best.
    pub shown: u64,
}

/// Defect as the run that shows it best has it.
#[derive(Clone, Debug)]
pub struct FoundDefect {
    pub run: u64,
    /// Report on that run, reduced to this defect.
    pub report: Report,
}

/// A run that repeated another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The run that was repeated.
    pub run: u64,
    /// Fingerprints of the likely and possible defects that it showed.
    pub fingerprints: Vec<String>,
}

/// Reason for which results cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    #[error("the results in `{path}` cannot be used: {error}; name another file with --results")]
    Database { path: String, error: rusqlite::Error },
    #[error("`{0}` has no results of a hunt; name a file that `avtrace hunt` wrote")]
    Foreign(String),
    #[error(
        "the results in `{path}` are of version {version}, and this avtrace reads version {VERSION}: use the avtrace that wrote them"
    )]
    Version { path: String, version: i32 },
    #[error("the results in `{path}` are damaged: {error}; begin anew without --resume")]
    Damaged { path: String, error: serde_json::Error },
    #[error("another hunt writes to `{0}`: wait for its end, or name another file with --results")]
    Busy(String),
    #[error("cannot read results from `{path}`: {error}")]
    Read { path: String, error: io::Error },
    #[error("cannot write results to `{path}`: {error}; name another file with --results")]
    File { path: String, error: io::Error },
}

#[derive(Debug)]
pub struct Results {
    // Before the lock: whoever closes a descriptor of the file drops SQLite's locks of it.
    database: Database,
    path: PathBuf,
    /// Keeps other hunts from writing to the file. SQLite's own locks are of another kind, and let readers in.
    lock: Option<fs::File>,
}

impl Results {
    /// Creates a file for a hunt that begins. Results of runs that it has are kept beside it, in a file with `.old` at
    /// its end, and a number if there is one already.
    ///
    /// # Errors
    ///
    /// When it has something else than results, another hunt writes to it, or it cannot be made.
    pub fn create(path: &Path, header: &Header) -> Result<Self, ResultsError> {
        let failed = |error| ResultsError::File { path: path.display().to_string(), error };
        let (place, rights) =
            FilePlace::find(path).and_then(|place| place.shared()).map_err(failed)?;
        match rights.with(|| fs::symlink_metadata(&place)) {
            Ok(of) if of.len() > 0 => {
                // Only files of hunts are moved, and only if no running hunt uses them.
                let earlier = Self::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
                let has_runs = earlier.last_run()? > 0;
                drop(earlier);
                let moved = rights.with(|| match has_runs {
                    true => fs::rename(&place, free_name(&place)),
                    false => fs::remove_file(&place),
                });
                moved.map_err(failed)?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let database = Database::open(&place, flags, &rights);
        let mut results = Self {
            database: database.map_err(|error| database_error(path, error))?,
            path: path.to_owned(),
            lock: Some(lock(path, &place, &rights)?),
        };
        let made = results.database.with_mut(|database| {
            let transaction = database.transaction()?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            transaction.execute_batch(TABLES)?;
            transaction.commit()
        });
        made.map_err(|error| database_error(path, error))?;
        results.set("header", header)?;
        Ok(results)
    }

    /// Opens a file to continue its hunt.
    ///
    /// # Errors
    ///
    /// When it has no results, or another hunt writes to it.
    pub fn resume(path: &Path) -> Result<Self, ResultsError> {
        Self::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
    }

    /// Opens a file to be read. The hunt may go on.
    ///
    /// # Errors
    ///
    /// When it has no results.
    pub fn read(path: &Path) -> Result<Self, ResultsError> {
        Self::open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
    }

    fn open(path: &Path, flags: OpenFlags) -> Result<Self, ResultsError> {
        let name = || path.display().to_string();
        let unreadable = |error| ResultsError::Read { path: name(), error };
        let found = FilePlace::find(path).and_then(|place| place.shared());
        let (place, rights) = found.map_err(unreadable)?;
        let metadata = rights.with(|| fs::symlink_metadata(&place)).map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(ResultsError::Foreign(name()));
        }
        let wrong = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => ResultsError::Foreign(name()),
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
                ResultsError::Busy(name())
            }
            _ => ResultsError::Database { path: name(), error },
        };
        let database = Database::open(&place, flags, &rights).map_err(wrong)?;
        let pragma = |pragma: &str| -> Result<i32, ResultsError> {
            let value = database
                .with(|database| database.pragma_query_value(None, pragma, |row| row.get(0)));
            value.map_err(wrong)
        };
        if pragma("application_id")? != APPLICATION {
            return Err(ResultsError::Foreign(name()));
        }
        let version = pragma("user_version")?;
        if version != VERSION {
            return Err(ResultsError::Version { path: name(), version });
        }
        if !database.has_plain_tables().map_err(wrong)? {
            return Err(ResultsError::Foreign(name()));
        }
        let writes = flags.contains(OpenFlags::SQLITE_OPEN_READ_WRITE);
        let lock = writes.then(|| lock(path, &place, &rights)).transpose()?;
        Ok(Self { database, path: path.to_owned(), lock })
    }

    /// Returns whether a user other than root, this process's and the one who called sudo owns the file of a hunt that
    /// goes on.
    #[must_use]
    pub fn is_of_another_user(&self) -> bool {
        let owner = self.lock.as_ref().and_then(|lock| lock.metadata().ok()).map(|of| of.uid());
        let caller = user::sudo_user().map(|user| user.ids().0);
        owner.is_none_or(|owner| ![Some(0), Some(user::own_ids().0), caller].contains(&Some(owner)))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a run that is over.
    pub fn add(&mut self, result: &RunResult) -> Result<(), ResultsError> {
        let path = self.path.clone();
        let json = |error| ResultsError::Damaged { path: path.display().to_string(), error };
        let treatment = to_json(&result.treatment).map_err(json)?;
        let verdict = to_json(&result.verdict).map_err(json)?;
        // The table of gaps has the maxima of all runs.
        let delayed = result.learnt.gaps.iter().filter(|gap| gap.delays > 0);
        let gaps = to_json(&delayed.collect::<Vec<_>>()).map_err(json)?;
        let first = result.report.as_ref().map(to_json).transpose().map_err(json)?;
        let mut reports = Vec::new();
        for (finding, report) in &result.findings {
            reports.push((finding, to_json(report).map_err(json)?));
        }
        let mut found = Vec::new();
        for gap in &result.gaps {
            found.push((&gap.id, to_json(gap).map_err(json)?));
        }
        let added = self.database.with_mut(|database| {
            let transaction = database.transaction()?;
            transaction.execute(
                "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                params![
                    result.number as i64,
                    treatment,
                    result.plan,
                    verdict,
                    i64::from(result.verdict.is_failure()),
                    result.elapsed_ns as i64,
                    result.delayed_ns as i64,
                    result.lost_events as i64,
                    result.output,
                    gaps,
                    i64::from(result.is_not_serializable),
                ],
            )?;
            if let Some(first) = first {
                transaction.execute(
                    "INSERT OR IGNORE INTO hunt VALUES (?1, ?2)",
                    params![FIRST_REPORT, first],
                )?;
            }
            for (finding, report) in reports {
                let Finding { fingerprint, class, headline, occurrences, executions, cut, ways } =
                    finding;
                let class = class_name(*class);
                transaction.execute(
                    "INSERT INTO findings VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    params![
                        result.number as i64,
                        fingerprint,
                        class,
                        *occurrences as i64,
                        *executions as i64,
                        *cut as i64,
                        *ways as i64
                    ],
                )?;
                // The first run that shows it at its likeliest; names of classes happen not to be in that order.
                transaction.execute(
                    "INSERT INTO defects VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (fingerprint) DO UPDATE SET run = excluded.run, class = excluded.class,
                         headline = excluded.headline, report = excluded.report
                     WHERE instr('likely possible by-design', excluded.class)
                         < instr('likely possible by-design', defects.class)",
                    params![fingerprint, result.number as i64, class, headline, report],
                )?;
            }
            for (id, gap) in found {
                transaction.execute(
                    "INSERT INTO gaps VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET gap = excluded.gap",
                    params![id, gap],
                )?;
            }
            transaction.commit()
        });
        added.map_err(|error| self.error(error))
    }

    /// Has a defect shown by a run that shows it again.
    pub fn show(
        &mut self,
        fingerprint: &str,
        run: u64,
        report: &Report,
    ) -> Result<(), ResultsError> {
        let report = to_json(report).map_err(|error| self.damaged(error))?;
        let shown = self.database.with(|database| {
            database.execute(
                "UPDATE defects SET run = ?2, report = ?3 WHERE fingerprint = ?1 AND run != ?2",
                params![fingerprint, run as i64, report],
            )
        });
        shown.map(drop).map_err(|error| self.error(error))
    }

    /// Adds a run that repeated another one.
    pub fn add_replay(&mut self, replay: &Replay, verdict: &Verdict) -> Result<(), ResultsError> {
        let [verdict, fingerprints] =
            [to_json(verdict), to_json(&replay.fingerprints)].map(|json| json.unwrap_or_default());
        let added = self.database.with(|database| {
            database.execute(
                "INSERT INTO replays SELECT ?1, count(*) + 1, ?2, ?3 FROM replays WHERE run = ?1",
                params![replay.run as i64, verdict, fingerprints],
            )
        });
        added.map(drop).map_err(|error| self.error(error))
    }

    /// Sets a value of the whole hunt.
    pub fn set(&self, key: &str, value: &impl Serialize) -> Result<(), ResultsError> {
        let value = to_json(value).map_err(|error| self.damaged(error))?;
        let added = self.database.with(|database| {
            database.execute(
                "INSERT INTO hunt VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                params![key, value],
            )
        });
        added.map(drop).map_err(|error| self.error(error))
    }

    /// Returns a value of the whole hunt.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, ResultsError> {
        let text: Option<String> = self
            .database
            .with(|database| {
                let query = "SELECT value FROM hunt WHERE key = ?1";
                database.query_row(query, [key], |row| row.get(0)).optional()
            })
            .map_err(|error| self.error(error))?;
        text.map(|text| self.parse(&text)).transpose()
    }

    /// Returns the hunt.
    pub fn header(&self) -> Result<Header, ResultsError> {
        let foreign = || ResultsError::Foreign(self.path.display().to_string());
        self.get("header")?.ok_or_else(foreign)
    }

    /// Returns the back end that captured the events of the first run; `None` before it.
    pub fn backend(&self) -> Result<Option<CaptureBackend>, ResultsError> {
        let first: Option<Report> = self.get(FIRST_REPORT)?;
        Ok(first.and_then(|report| report.capture).map(|capture| capture.backend))
    }

    /// Returns the runs in their order, without the reports on their findings.
    pub fn runs(&self) -> Result<Vec<RunResult>, ResultsError> {
        let rows = self.rows(
            "SELECT number, treatment, plan, verdict, elapsed_ns, delayed_ns, output, gaps, not_serializable, lost_events
             FROM runs ORDER BY number",
            |row| {
                let texts: [String; 5] =
                    [row.get(1)?, row.get(2)?, row.get(3)?, row.get(6)?, row.get(7)?];
                let numbers: [i64; 5] =
                    [row.get(0)?, row.get(4)?, row.get(5)?, row.get(8)?, row.get(9)?];
                Ok((texts, numbers.map(|number| number as u64)))
            },
        )?;
        let mut runs = Vec::new();
        for (
            [treatment, plan, verdict, output, gaps],
            [number, elapsed_ns, delayed_ns, cycle, lost_events],
        ) in rows
        {
            let verdict: Verdict = self.parse(&verdict)?;
            let mut result = RunResult {
                number,
                treatment: self.parse::<Treatment>(&treatment)?,
                plan,
                elapsed_ns,
                delayed_ns,
                lost_events,
                output,
                is_not_serializable: cycle != 0,
                ..RunResult::of(verdict)
            };
            result.learnt.gaps = self.parse(&gaps)?;
            runs.push(result);
        }
        Ok(runs)
    }

    /// Returns the number of the last run; 0 without runs.
    pub fn last_run(&self) -> Result<u64, ResultsError> {
        let last =
            self.rows("SELECT coalesce(max(number), 0) FROM runs", |row| row.get::<_, i64>(0))?;
        Ok(last.first().map_or(0, |&last| last as u64))
    }

    /// Returns the longest time of a run that ended by itself, in nanoseconds; `None` without such runs.
    pub fn longest_elapsed(&self) -> Result<Option<u64>, ResultsError> {
        let ended = self.rows("SELECT verdict, elapsed_ns FROM runs", |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
        })?;
        let mut longest = None;
        for (verdict, elapsed) in ended {
            if self.parse::<Verdict>(&verdict)? != Verdict::TimedOut {
                longest = longest.max(Some(elapsed as u64));
            }
        }
        Ok(longest)
    }

    /// Returns the defects with the number of runs that showed each.
    pub fn rates(&self) -> Result<Vec<Rate>, ResultsError> {
        let rows = self.rows(
            "SELECT d.class, d.fingerprint, d.run, count(*)
             FROM defects d JOIN findings f USING (fingerprint) GROUP BY d.fingerprint ORDER BY d.run, d.rowid",
            |row| {
                let numbers: [i64; 2] = [row.get(2)?, row.get(3)?];
                Ok((row.get::<_, String>(0)?, row.get(1)?, numbers.map(|number| number as u64)))
            },
        )?;
        rows.into_iter()
            .map(|(class, fingerprint, [shown, runs])| {
                let class = self.parse(&format!("\"{class}\""))?;
                Ok(Rate { class, runs, fingerprint, shown })
            })
            .collect()
    }

    /// Keeps the standard input of the runs.
    pub fn set_input(&self, bytes: &[u8]) -> Result<(), ResultsError> {
        let added = self
            .database
            .with(|database| database.execute("INSERT INTO input VALUES (?1)", [bytes]));
        added.map(drop).map_err(|error| self.error(error))
    }

    /// Returns the standard input of the runs, if it was kept.
    pub fn input(&self) -> Result<Option<Vec<u8>>, ResultsError> {
        let kept = self.rows("SELECT bytes FROM input", |row| row.get(0))?;
        Ok(kept.into_iter().next())
    }

    /// Returns the treatment of a run, and its plan; `None` if there is no such run.
    pub fn plan(&self, run: u64) -> Result<Option<(Treatment, String)>, ResultsError> {
        let row = self
            .database
            .with(|database| {
                let query = "SELECT treatment, plan FROM runs WHERE number = ?1";
                let of = |row: &rusqlite::Row<'_>| {
                    Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
                };
                database.query_row(query, [run as i64], of).optional()
            })
            .map_err(|error| self.error(error))?;
        row.map(|(treatment, plan)| Ok((self.parse(&treatment)?, plan))).transpose()
    }

    /// Returns what `read` reads, all of it as of one moment while a hunt writes.
    ///
    /// # Errors
    ///
    /// When `read` fails, or the file cannot be read.
    pub fn at_once<T>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, ResultsError>,
    ) -> Result<T, ResultsError> {
        let begin = |command| self.database.with(|database| database.execute_batch(command));
        begin("BEGIN").map_err(|error| self.error(error))?;
        let result = read(self);
        // Nothing was written.
        let _ = begin("ROLLBACK");
        result
    }

    /// Returns the findings of all runs, by the runs' numbers.
    pub fn findings(&self) -> Result<Vec<(u64, Finding)>, ResultsError> {
        let rows = self.rows(
            "SELECT f.run, f.fingerprint, f.class, d.headline, f.occurrences, f.executions, f.cut, f.ways
             FROM findings f JOIN defects d USING (fingerprint) ORDER BY f.run, f.rowid",
            |row| {
                let texts: [String; 3] = [row.get(1)?, row.get(2)?, row.get(3)?];
                let numbers: [i64; 5] =
                    [row.get(0)?, row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?];
                Ok((texts, numbers.map(|number| number as u64)))
            },
        )?;
        let mut findings = Vec::new();
        for ([fingerprint, class, headline], [run, occurrences, executions, cut, ways]) in rows {
            let class = self.parse(&format!("\"{class}\""))?;
            let finding =
                Finding { fingerprint, class, headline, occurrences, executions, cut, ways };
            findings.push((run, finding));
        }
        Ok(findings)
    }

    /// Returns the defects, each as the run that shows it best has it.
    pub fn defects(&self) -> Result<Vec<FoundDefect>, ResultsError> {
        let rows = self.rows("SELECT run, report FROM defects ORDER BY run, rowid", |row| {
            Ok((row.get::<_, i64>(0)? as u64, row.get::<_, String>(1)?))
        })?;
        rows.into_iter()
            .map(|(run, report)| Ok(FoundDefect { run, report: self.parse(&report)? }))
            .collect()
    }

    /// Returns the gaps.
    pub fn gaps(&self) -> Result<Vec<FoundGap>, ResultsError> {
        let rows = self.rows("SELECT gap FROM gaps ORDER BY id", |row| row.get::<_, String>(0))?;
        rows.iter().map(|gap| self.parse(gap)).collect()
    }

    /// Returns the runs that repeated others.
    pub fn replays(&self) -> Result<Vec<Replay>, ResultsError> {
        let rows = self.rows("SELECT run, fingerprints FROM replays ORDER BY rowid", |row| {
            Ok((row.get::<_, i64>(0)? as u64, row.get::<_, String>(1)?))
        })?;
        rows.into_iter()
            .map(|(run, found)| Ok(Replay { run, fingerprints: self.parse(&found)? }))
            .collect()
    }

    fn rows<T>(
        &self,
        query: &str,
        of: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, ResultsError> {
        let rows = self.database.with(|database| {
            let mut statement = database.prepare(query)?;
            statement.query_map([], of)?.collect::<rusqlite::Result<Vec<T>>>()
        });
        rows.map_err(|error| self.error(error))
    }

    fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T, ResultsError> {
        serde_json::from_str(text).map_err(|error| self.damaged(error))
    }

    fn damaged(&self, error: serde_json::Error) -> ResultsError {
        ResultsError::Damaged { path: self.path.display().to_string(), error }
    }

    fn error(&self, error: rusqlite::Error) -> ResultsError {
        database_error(&self.path, error)
    }
}

/// Returns a name for older results that is free.
fn free_name(path: &Path) -> PathBuf {
    let name = |end: String| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let mut free = name(".old".to_owned());
    let mut number = 2;
    while free.exists() {
        free = name(format!(".old.{number}"));
        number += 1;
    }
    free
}

/// Acquires the lock that a hunt holds while it writes to a file.
fn lock(path: &Path, place: &Path, rights: &Rights) -> Result<fs::File, ResultsError> {
    let name = || path.display().to_string();
    let failed = |error| ResultsError::File { path: name(), error };
    let file = rights.with(|| open_regular(place)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(ResultsError::Busy(name())),
        Err(fs::TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn database_error(path: &Path, error: rusqlite::Error) -> ResultsError {
    ResultsError::Database { path: path.display().to_string(), error }
}

fn to_json(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value)
}

/// Name of a class in the tables, the same as in JSON reports.
const fn class_name(class: Class) -> &'static str {
    match class {
        Class::Likely => "likely",
        Class::Possible => "possible",
        Class::ByDesign => "by-design",
    }
}
