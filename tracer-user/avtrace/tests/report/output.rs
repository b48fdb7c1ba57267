//! Reports on disk: whole or not at all, in files, pipes and devices.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use linux::output::{Destination, write_output};
use tempfile::TempDir;

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    write_output(&Destination::File(path.to_owned()), bytes).map_err(|error| error.to_string())
}

fn names_in(dir: &Path) -> Vec<String> {
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    fs::read_dir(dir).unwrap().map(name).collect()
}

#[test]
fn a_new_file_appears_whole_and_alone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("report.json");
    write(&path, b"one\n").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one\n");
    assert_eq!(names_in(dir.path()), ["report.json"]);
    // With the mode of any file that the process creates, not that of a secret.
    let plain = dir.path().join("plain");
    File::create(&plain).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode(), fs::metadata(&plain).unwrap().mode());
}

#[test]
fn a_file_is_replaced_and_its_permissions_stay() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("report.json");
    fs::write(&path, "a long old report").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let before = fs::metadata(&path).unwrap();
    let mut reader = File::open(&path).unwrap();
    write(&path, b"new").unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(after.mode() & 0o777, 0o640);
    assert_ne!(after.ino(), before.ino(), "replaced, not written over");
    let mut old = String::new();
    reader.read_to_string(&mut old).unwrap();
    assert_eq!(old, "a long old report", "who reads the old file reads all of it");
    assert_eq!(names_in(dir.path()), ["report.json"]);
}

#[test]
fn links_are_followed_and_stay_links() {
    let dir = TempDir::new().unwrap();
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    symlink("target", &link).unwrap();
    write(&link, b"made through a dangling link").unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"made through a dangling link");
    write(&link, b"again").unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"again");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let circle = dir.path().join("circle");
    symlink("circle", &circle).unwrap();
    assert!(write(&circle, b"x").is_err());
}

#[test]
fn devices_and_pipes_are_written_to() {
    write(Path::new("/dev/null"), b"x").unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    let dir = TempDir::new().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
    write(&pipe, b"through a pipe").unwrap();
    assert_eq!(reader.wait_with_output().unwrap().stdout, b"through a pipe");
    assert_eq!(names_in(dir.path()), ["pipe"]);
}

#[test]
fn an_open_descriptor_is_appended_to() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("log");
    fs::write(&path, "before\n").unwrap();
    let file = File::options().append(true).open(&path).unwrap();
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    write(Path::new(&own), b"report\n").unwrap();
    write(Path::new(&own.replace("/proc/self/fd", "/dev/fd")), b"again\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "before\nreport\nagain\n");
}

#[test]
fn failures_name_the_file_and_leave_nothing() {
    let dir = TempDir::new().unwrap();
    let missing = dir.path().join("no/such/dir/report.json");
    let error = write(&missing, b"x").unwrap_err();
    assert!(error.contains("no/such/dir/report.json"), "{error}");
    assert!(error.contains("No such file or directory"), "{error}");
    assert!(write(dir.path(), b"x").unwrap_err().contains("Is a directory"));
    assert_eq!(names_in(dir.path()), Vec::<String>::new());
    let error = write(Path::new("/dev/full"), b"x").unwrap_err();
    assert!(error.contains("No space left on device"), "{error}");
}
