//! The SQLite database of results: opened and used with no more rights than those who may put links beside it.

use std::{io, path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags, config::DbConfig};

use linux::rights::Rights;

/// Longest wait for a lock on the file: a hunt waits for readers, and readers wait for the hunt.
const PATIENCE: Duration = Duration::from_secs(600);

/// Database in a file. SQLite opens files beside it by their names, whose links lead anywhere: so all is done with the
/// rights of the one who may put links there.
#[derive(Debug)]
pub(super) struct Database {
    connection: Connection,
    rights: Rights,
}

impl Database {
    /// Opens the file at a path without links.
    pub(super) fn open(path: &Path, flags: OpenFlags, rights: &Rights) -> rusqlite::Result<Self> {
        let rights = rights.clone();
        let connection = within(&rights, || {
            let connection = Connection::open_with_flags(path, flags)?;
            // The schema in the file is not trusted (https://sqlite.org/security.html).
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
            connection.busy_timeout(PATIENCE)?;
            connection.pragma_update(None, "cell_size_check", true)?;
            Ok(connection)
        })?;
        Ok(Self { connection, rights })
    }

    pub(super) fn with_mut<T>(
        &mut self,
        what: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        within(&self.rights, || what(&mut self.connection))
    }

    pub(super) fn with<T>(
        &self,
        what: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        within(&self.rights, || what(&self.connection))
    }

    /// Returns whether the file has plain tables and the views of results only. A file from another user could have a
    /// view in the place of a table, and a query of it might never end.
    pub(super) fn has_plain_tables(&self) -> rusqlite::Result<bool> {
        let query = "SELECT count(*) FROM sqlite_schema WHERE (type = 'table' AND lower(sql) LIKE 'create table%')
             OR (type = 'index' AND sql IS NULL) OR (type = 'view' AND name = 'defect_rates')";
        self.with(|database| {
            let count = |query: &str| database.query_row(query, [], |row| row.get::<_, i64>(0));
            Ok(count(query)? == count("SELECT count(*) FROM sqlite_schema")?)
        })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Closing the database may remove files, which needs the rights.
        let memory = Connection::open_in_memory();
        let _ = memory.map(|memory| {
            let connection = std::mem::replace(&mut self.connection, memory);
            within(&self.rights, || connection.close().map_err(|(_, error)| error))
        });
    }
}

/// Calls `what` with rights. An error of taking them becomes a database error.
fn within<T>(rights: &Rights, what: impl FnOnce() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let denied = |error: io::Error| {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_PERM);
        rusqlite::Error::SqliteFailure(code, Some(error.to_string()))
    };
    rights.with(|| Ok(what())).unwrap_or_else(|error| Err(denied(error)))
}
