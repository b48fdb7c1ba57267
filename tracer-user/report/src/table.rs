//! Tables in Parquet files: columns are declared with the function that gets their values, rows are written in groups.
//! The tables are where their rows come from (`report::parquet`, `offline::events`); `docs/parquet.md` describes them.

use std::{io::Write, sync::Arc};

use parquet::{
    basic::Compression,
    data_type::{BoolType, ByteArray, ByteArrayType, Int64Type},
    errors::ParquetError,
    file::{metadata::KeyValue, properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};

/// Schema of all tables, in the metadata of each file under the key `avtrace.schema`. Columns may be added; those that
/// there are keep their names, types and meaning while it stays the same.
pub const SCHEMA: &str = "avtrace-parquet/1";

/// Rows of a group, which is in memory until it is written.
const GROUP_ROWS: usize = 1 << 16;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// A signed number of 64 bits.
    Number,
    /// A time in UTC, in microseconds since 1970.
    Time,
    /// True or false.
    Flag,
}

impl Kind {
    /// Type and annotation in the language of Parquet's schemas: before and after the column's name.
    const fn declaration(self) -> (&'static str, &'static str) {
        match self {
            Self::Text => ("binary", " (STRING)"),
            Self::Number => ("int64", ""),
            Self::Time => ("int64", " (TIMESTAMP(MICROS,true))"),
            Self::Flag => ("boolean", ""),
        }
    }

    /// Name of the type in SQL.
    #[must_use]
    pub const fn sql(self) -> &'static str {
        match self {
            Self::Text => "VARCHAR",
            Self::Number => "BIGINT",
            Self::Time => "TIMESTAMPTZ",
            Self::Flag => "BOOLEAN",
        }
    }
}

/// Value of a column in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'r> {
    /// None.
    Null,
    /// Borrowed text.
    Text(&'r str),
    /// Text that was made for the row.
    Made(String),
    /// Number, or time in microseconds.
    Number(i64),
    /// Flag.
    Flag(bool),
}

impl<'r> From<&'r str> for Value<'r> {
    fn from(text: &'r str) -> Self {
        Self::Text(text)
    }
}

impl<'r> From<&'r String> for Value<'r> {
    fn from(text: &'r String) -> Self {
        Self::Text(text)
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Made(text)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for Value<'_> {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u64> for Value<'_> {
    /// Numbers beyond 2^63 - 1 become that.
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<'r, T: Into<Value<'r>>> From<Option<T>> for Value<'r> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Function that gets the value of a column.
type Get<R> = fn(&R) -> Value<'_>;

/// Column of rows of type `R`.
#[derive(Debug)]
pub struct Column<R> {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Set if rows may have no value.
    pub is_optional: bool,
    get: Get<R>,
}

/// Table of rows of type `R`.
#[derive(Debug)]
pub struct Table<R> {
    /// Name.
    pub name: &'static str,
    /// Columns, in their order.
    pub columns: Vec<Column<R>>,
}

impl<R> Table<R> {
    /// Creates a table without columns.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, columns: Vec::new() }
    }

    /// Adds a column in which every row has a value.
    #[must_use]
    pub fn with(mut self, name: &'static str, kind: Kind, get: Get<R>) -> Self {
        self.columns.push(Column { name, kind, is_optional: false, get });
        self
    }

    /// Adds a column in which rows may have no value.
    #[must_use]
    pub fn with_optional(mut self, name: &'static str, kind: Kind, get: Get<R>) -> Self {
        self.columns.push(Column { name, kind, is_optional: true, get });
        self
    }

    fn message(&self) -> String {
        let columns: String = (self.columns.iter())
            .map(|Column { name, kind, is_optional, .. }| {
                let repetition = if *is_optional { "optional" } else { "required" };
                let (primitive, annotation) = kind.declaration();
                format!("  {repetition} {primitive} {name}{annotation};\n")
            })
            .collect();
        format!("message {} {{\n{columns}}}\n", self.name)
    }
}

/// Values of a column that are still to be written.
#[derive(Debug)]
enum Values {
    Texts(Vec<ByteArray>),
    Numbers(Vec<i64>),
    Flags(Vec<bool>),
}

impl Values {
    const fn new(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Texts(Vec::new()),
            Kind::Number | Kind::Time => Self::Numbers(Vec::new()),
            Kind::Flag => Self::Flags(Vec::new()),
        }
    }

    /// Adds a value. Returns its definition level: 0 for none; `None` for one of another type.
    fn push(&mut self, value: Value<'_>) -> Option<i16> {
        match (self, value) {
            (_, Value::Null) => return Some(0),
            (Self::Texts(texts), Value::Text(text)) => texts.push(text.into()),
            (Self::Texts(texts), Value::Made(text)) => texts.push(text.into_bytes().into()),
            (Self::Numbers(numbers), Value::Number(number)) => numbers.push(number),
            (Self::Flags(flags), Value::Flag(flag)) => flags.push(flag),
            _ => return None,
        }
        Some(1)
    }
}

/// Writes a table to a file, row by row.
#[derive(Debug)]
pub struct TableWriter<R, W: Write> {
    columns: Vec<Column<R>>,
    /// By column, with the definition levels.
    pending: Vec<(Values, Vec<i16>)>,
    rows: usize,
    file: SerializedFileWriter<W>,
}

impl<R, W: Write + Send> TableWriter<R, W> {
    /// Begins a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(table: Table<R>, out: W) -> Result<Self, ParquetError> {
        let schema = Arc::new(parse_message_type(&table.message())?);
        let version = env!("CARGO_PKG_VERSION");
        let metadata = [
            ("avtrace.schema", SCHEMA),
            ("avtrace.table", table.name),
            ("avtrace.version", version),
        ];
        let metadata = metadata.map(|(key, value)| KeyValue::new(key.to_owned(), value.to_owned()));
        let properties = WriterProperties::builder()
            .set_created_by(format!("avtrace {version}"))
            .set_compression(Compression::GZIP(Default::default()))
            .set_key_value_metadata(Some(metadata.to_vec()))
            .build();
        let file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
        let columns = table.columns;
        let pending = columns.iter().map(|column| (Values::new(column.kind), Vec::new())).collect();
        Ok(Self { columns, pending, rows: 0, file })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// When the rows before cannot be written, or the row has no value where it must.
    pub fn push(&mut self, row: &R) -> Result<(), ParquetError> {
        for (column, (values, levels)) in self.columns.iter().zip(&mut self.pending) {
            match values.push((column.get)(row)) {
                Some(level) if level == 1 || column.is_optional => levels.push(level),
                _ => {
                    let name = column.name;
                    return Err(ParquetError::General(format!("no value for column `{name}`")));
                }
            }
        }
        self.rows += 1;
        if self.rows == GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for (column, (values, levels)) in self.columns.iter().zip(&mut self.pending) {
            let Some(mut writer) = group.next_column()? else { break };
            let defined = column.is_optional.then_some(levels.as_slice());
            match values {
                Values::Texts(texts) => {
                    writer.typed::<ByteArrayType>().write_batch(texts, defined, None)?;
                    texts.clear();
                }
                Values::Numbers(numbers) => {
                    writer.typed::<Int64Type>().write_batch(numbers, defined, None)?;
                    numbers.clear();
                }
                Values::Flags(flags) => {
                    writer.typed::<BoolType>().write_batch(flags, defined, None)?;
                    flags.clear();
                }
            }
            writer.close()?;
            levels.clear();
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }

    /// Ends the file, and returns its destination.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<W, ParquetError> {
        if self.rows > 0 {
            self.write_group()?;
        }
        self.file.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use parquet::{
        file::{
            reader::{FileReader as _, SerializedFileReader},
            serialized_reader::ReadOptionsBuilder,
        },
        record::Field,
    };

    use super::*;

    struct Row(i64);

    fn table() -> Table<Row> {
        Table::new("rows")
            .with("number", Kind::Number, |row: &Row| row.0.into())
            .with_optional("half", Kind::Text, |row| {
                (row.0 % 2 == 0).then(|| (row.0 / 2).to_string()).into()
            })
            .with("small", Kind::Flag, |row| (row.0 < 10).into())
            .with_optional("time", Kind::Time, |row| (row.0 > 0).then_some(row.0).into())
    }

    #[test]
    fn rows_are_read_back_over_all_groups() {
        let mut writer = TableWriter::new(table(), Vec::new()).expect("a file");
        let rows = GROUP_ROWS as i64 + 3;
        (0..rows).for_each(|number| writer.push(&Row(number)).expect("a row"));
        let bytes = bytes::Bytes::from(writer.finish().expect("a file"));
        let options = ReadOptionsBuilder::new().build();
        let reader = SerializedFileReader::new_with_options(bytes, options).expect("Parquet");
        let metadata = reader.metadata();
        assert_eq!((metadata.num_row_groups(), metadata.file_metadata().num_rows()), (2, rows));
        let keys = metadata.file_metadata().key_value_metadata().expect("keys");
        let schema = keys.iter().find(|key| key.key == "avtrace.schema").expect("a schema");
        assert_eq!(schema.value.as_deref(), Some(SCHEMA));
        let mut expected = 0;
        for row in reader.get_row_iter(None).expect("rows") {
            let row = row.expect("a row");
            let fields: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
            let half = match expected % 2 {
                0 => Field::Str((expected / 2).to_string()),
                _ => Field::Null,
            };
            let time = if expected > 0 { Field::TimestampMicros(expected) } else { Field::Null };
            let wanted = [Field::Long(expected), half, Field::Bool(expected < 10), time];
            assert_eq!(fields, wanted.iter().collect::<Vec<_>>());
            expected += 1;
        }
        assert_eq!(expected, rows);
    }

    #[test]
    fn a_table_without_rows_is_a_file() {
        let writer = TableWriter::new(table(), Vec::new()).expect("a file");
        let bytes = bytes::Bytes::from(writer.finish().expect("a file"));
        let reader = SerializedFileReader::new(bytes).expect("Parquet");
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
    }

    #[test]
    fn a_row_without_a_value_that_it_must_have_is_refused() {
        let table = Table::new("rows").with("number", Kind::Number, |_: &Row| Value::Null);
        let mut writer = TableWriter::new(table, Vec::new()).expect("a file");
        let error = writer.push(&Row(0)).expect_err("a value is missing");
        assert!(error.to_string().contains("`number`"), "{error}");
    }
}
