//! From findings to a report.
