//! Reports as people and programs get them: text snapshots, JSON against its schema, and files on disk.

mod assembling;
mod browser;
mod capture;
mod defects;
mod fixtures;
mod formats;
mod json;
mod limitations;
mod output;
mod parquet;
mod stories;
mod text;
mod topics;
