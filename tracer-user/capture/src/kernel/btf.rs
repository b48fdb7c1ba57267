//! Layout of the running kernel's structures that the BPF programs read: a lookup in its BTF type information.
//! The rest of BTF is not read.
//!
//! Format: the kernel's `Documentation/bpf/btf.rst` and `include/uapi/linux/btf.h`.

use std::collections::HashMap;

use abi::KernelLayout;

/// Path of the kernel's own type information.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Reason for which a layout could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The file cannot be read: the kernel was built without `CONFIG_DEBUG_INFO_BTF`, or the caller may not.
    #[error(
        "cannot read the kernel's type information, {VMLINUX}: {0}: a kernel with CONFIG_DEBUG_INFO_BTF is needed, and \
         sysfs mounted on /sys"
    )]
    Read(#[from] std::io::Error),
    /// The data does not follow the format.
    #[error("malformed kernel type information at byte {0}")]
    Malformed(usize),
    /// The kernel has no such field.
    #[error("this kernel has no field `{0}`")]
    NoField(String),
}

/// Reads the layout of the running kernel.
///
/// # Errors
///
/// When the type information is missing, malformed, or without a field that is needed.
pub fn kernel_layout() -> Result<KernelLayout, BtfError> {
    layout(&std::fs::read(VMLINUX)?)
}

fn layout(data: &[u8]) -> Result<KernelLayout, BtfError> {
    const NAMES: [&str; 7] = [
        "task_struct",
        "thread_struct",
        "signal_struct",
        "pid",
        "upid",
        "mm_struct",
        "uprobe_task",
    ];
    let btf = Btf::parse(data, &NAMES)?;
    let bytes = |structure: &str, field: &str| btf.offset(structure, field);
    Ok(KernelLayout {
        task_tgid: bytes("task_struct", "tgid")?,
        task_thread_pid: bytes("task_struct", "thread_pid")?,
        task_fsbase: bytes("task_struct", "thread")? + bytes("thread_struct", "fsbase")?,
        pid_level: bytes("pid", "level")?,
        pid_numbers: bytes("pid", "numbers")?,
        upid_size: btf.size("upid")?,
        upid_nr: bytes("upid", "nr")?,
        task_signal: bytes("task_struct", "signal")?,
        signal_live: bytes("signal_struct", "live")?,
        task_exit_code: bytes("task_struct", "exit_code")?,
        task_mm: bytes("task_struct", "mm")?,
        mm_start_stack: bytes("mm_struct", "start_stack")?,
        task_utask: bytes("task_struct", "utask")?,
        utask_vaddr: bytes("uprobe_task", "vaddr")?,
        utask_xol_vaddr: bytes("uprobe_task", "xol_vaddr")?,
        unused: 0,
    })
}

const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_ENUM64: u32 = 19;

/// The bytes of one type: its common part starts at the offset.
struct Btf<'data> {
    data: &'data [u8],
    strings: usize,
    /// Byte offset of each type, by its id; id 0 is `void`.
    types: Vec<usize>,
    wanted: HashMap<&'data str, usize>,
}

impl<'data> Btf<'data> {
    fn parse(data: &'data [u8], names: &[&str]) -> Result<Self, BtfError> {
        const MAGIC: u32 = 0x00_01_eb_9f;
        let header = Btf { data, strings: 0, types: vec![0], wanted: HashMap::new() };
        // magic (2 bytes), version 1, flags: together one number.
        if header.u32(0)? != MAGIC {
            return Err(BtfError::Malformed(0));
        }
        let start = header.u32(4)? as usize;
        let types = start.saturating_add(header.u32(8)? as usize);
        let types_end = types.saturating_add(header.u32(12)? as usize);
        let mut btf = Btf { strings: start.saturating_add(header.u32(16)? as usize), ..header };
        let mut at = types;
        while at < types_end {
            btf.types.push(at);
            let (kind, count) = btf.info(at)?;
            if kind == KIND_STRUCT {
                let name = btf.name(at)?;
                if names.contains(&name) {
                    btf.wanted.entry(name).or_insert(at);
                }
            }
            at += 12
                + match kind {
                    KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
                    KIND_ARRAY => 12,
                    KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => 12 * count,
                    KIND_ENUM | KIND_FUNC_PROTO => 8 * count,
                    _ => 0,
                };
        }
        Ok(btf)
    }

    fn u32(&self, at: usize) -> Result<u32, BtfError> {
        let bytes = self.data.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| u32::from_le_bytes(*bytes)).ok_or(BtfError::Malformed(at))
    }

    fn name(&self, at: usize) -> Result<&'data str, BtfError> {
        let start = self.strings.saturating_add(self.u32(at)? as usize);
        let rest = self.data.get(start..).ok_or(BtfError::Malformed(start))?;
        let length = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
        Ok(str::from_utf8(&rest[..length]).unwrap_or_default())
    }

    /// Kind and number of elements.
    fn info(&self, at: usize) -> Result<(u32, usize), BtfError> {
        let info = self.u32(at + 4)?;
        Ok(((info >> 24) & 0x1f, (info & 0xffff) as usize))
    }

    fn size(&self, structure: &str) -> Result<u32, BtfError> {
        let at = self.wanted.get(structure);
        self.u32(at.ok_or_else(|| BtfError::NoField(structure.to_owned()))? + 8)
    }

    /// Byte offset of a field of a structure, also inside its unnamed members.
    fn offset(&self, structure: &str, field: &str) -> Result<u32, BtfError> {
        let missing = || BtfError::NoField(format!("{structure}.{field}"));
        let &at = self.wanted.get(structure).ok_or_else(missing)?;
        self.member(at, field, 8)?.ok_or_else(missing)
    }

    fn member(&self, at: usize, field: &str, depth: u32) -> Result<Option<u32>, BtfError> {
        let (kind, count) = self.info(at)?;
        if depth == 0 || !matches!(kind, KIND_STRUCT | KIND_UNION) {
            return Ok(None);
        }
        // With the kind flag the upper 8 bits are the size of a bit field.
        let bit_fields = self.u32(at + 4)? >> 31 != 0;
        for member in (0..count).map(|index| at + 12 + 12 * index) {
            let mut bits = self.u32(member + 8)?;
            if bit_fields {
                bits &= 0x00ff_ffff;
            }
            let name = self.name(member)?;
            if name == field {
                return Ok(Some(bits / 8));
            }
            if name.is_empty()
                && let Some(&inner) = self.types.get(self.u32(member + 4)? as usize)
                && let Some(offset) = self.member(inner, field, depth - 1)?
            {
                return Ok(Some(bits / 8 + offset));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_has_all_fields() {
        if !std::path::Path::new(VMLINUX).exists() {
            println!("skipped: this kernel has no {VMLINUX}");
            return;
        }
        let layout = kernel_layout().unwrap();
        // `nr` is the first field of `struct upid` in every kernel so far.
        assert_eq!((layout.upid_nr, layout.upid_size), (0, 16));
        assert!(layout.task_fsbase > layout.task_tgid);
    }

    #[test]
    fn malformed_data_is_an_error() {
        assert!(matches!(layout(b""), Err(BtfError::Malformed(0))));
        assert!(matches!(layout(&[0; 64]), Err(BtfError::Malformed(0))));
        let mut header = vec![0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0];
        header.resize(32, 0);
        assert!(matches!(layout(&header), Err(BtfError::Malformed(_))));
    }

    #[test]
    fn fields_in_unnamed_members_are_found() {
        let mut strings = vec![0];
        let mut name = |text: &str| {
            let at = strings.len() as u32;
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            at
        };
        let (outer, field) = (name("pid"), name("level"));
        let types: Vec<u32> = vec![
            outer,
            KIND_STRUCT << 24 | 1,
            24,
            0,
            2,
            64, // struct pid { struct {…} at byte 8 }
            0,
            KIND_STRUCT << 24 | 1,
            16,
            field,
            0,
            32, // struct { level at byte 4 }
        ];
        let mut data: Vec<u8> = vec![0x9f, 0xeb, 1, 0];
        for number in [24, 0, types.len() as u32 * 4, types.len() as u32 * 4, strings.len() as u32]
        {
            data.extend(number.to_le_bytes());
        }
        data.extend(types.iter().flat_map(|number| number.to_le_bytes()));
        data.extend(strings);
        let btf = Btf::parse(&data, &["pid"]).unwrap();
        assert_eq!(btf.offset("pid", "level").unwrap(), 12);
        assert!(matches!(btf.offset("pid", "nothing"), Err(BtfError::NoField(_))));
    }
}
