//! Query of one mapping of a process, without a list of all.

use std::{fs::File, io, os::fd::AsRawFd as _};

/// Mapping of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// Lowest address.
    pub start: u64,
    /// Address after it.
    pub end: u64,
    /// It is the stack of the first thread.
    pub is_first_stack: bool,
}

/// `struct procmap_query` of `<linux/fs.h>`, from Linux 6.11 on.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const FIRST_STACK: &[u8] = b"[stack]\0";

/// Returns the mapping around an address in the process of a thread; `None` if the address is not mapped.
///
/// # Errors
///
/// When the process has gone, or the kernel knows no such query (`ENOTTY`).
pub fn mapping_around(thread: u32, address: u64) -> io::Result<Option<AddressRange>> {
    /// `PROCMAP_QUERY`: `_IOWR('f', 17, struct procmap_query)`.
    const PROCMAP_QUERY: libc::Ioctl = {
        let size = size_of::<Query>() as libc::Ioctl;
        3 << 30 | size << 16 | (b'f' as libc::Ioctl) << 8 | 17
    };
    let maps = File::open(format!("/proc/{thread}/maps"))?;
    // As long as a path can be: a name that does not fit is an error.
    let mut name = vec![0u8; libc::PATH_MAX as usize];
    let mut query = Query {
        size: size_of::<Query>() as u64,
        address,
        name_size: name.len() as u32,
        name: name.as_mut_ptr() as u64,
        ..Query::default()
    };
    // SAFETY: the kernel reads and writes the structure, whose size is in it, and writes the name within its size.
    if unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) } < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(None),
            _ => Err(error),
        };
    }
    let is_first_stack = query.name_size > 0 && name.starts_with(FIRST_STACK);
    Ok(Some(AddressRange { start: query.start, end: query.end, is_first_stack }))
}

const _: () = assert!(size_of::<Query>() == 104);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_of_a_thread_is_found() {
        let on_stack = 0u64;
        let address = (&raw const on_stack) as u64;
        match mapping_around(std::process::id(), address) {
            Ok(found) => {
                let found = found.expect("a mapping");
                assert!((found.start..found.end).contains(&address) && !found.is_first_stack);
                assert_eq!(mapping_around(std::process::id(), 8).ok(), Some(None));
            }
            // An older kernel.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOTTY)),
        }
    }
}
