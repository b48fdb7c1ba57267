//! Cache of plans: the analysis of a program and its libraries takes most of a start, and is the same each time. An
//! entry is found by its key, which describes the files, the options and this executable (`plan::plan::stored`).

mod folder;

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::Read as _,
    path::Path,
    time::SystemTime,
};

use plan::plan::{Plan, Wanted};
use symbolize::{ElfImage, Symbolizer, bytes::Bytes};

pub(crate) use self::folder::Folder;

/// Start of an entry, with the version of the format as last character. The checksum, the length of the key, the key,
/// and the plan follow.
const MAGIC: [u8; 8] = *b"avtplan1";

/// Returns the plan of a process, from the cache if possible. A plan that is made anew is the same. Delays are added to
/// it, so that the runs of a hunt share a plan.
pub(crate) fn plan_of(
    symbolizer: &Symbolizer,
    pid: u32,
    wanted: Wanted<'_>,
    is_cached: bool,
) -> Plan {
    let mut plan = undelayed(symbolizer, pid, Wanted { delays: &[], ..wanted }, is_cached);
    plan.delay(symbolizer, pid, wanted);
    plan
}

fn undelayed(symbolizer: &Symbolizer, pid: u32, wanted: Wanted<'_>, is_cached: bool) -> Plan {
    let place = is_cached.then(|| Place::of(symbolizer, pid, wanted)).flatten();
    if let Some(place) = &place
        && let Some(bytes) = place.read()
    {
        match Plan::from_bytes(&bytes, symbolizer, pid, wanted) {
            Some(plan) => {
                tracing::debug!(pid, entry = place.name, "the plan is from the cache");
                return plan;
            }
            None => tracing::debug!(pid, entry = place.name, "an entry of the cache is damaged"),
        }
    }
    let plan = Plan::build(symbolizer, pid, wanted);
    if let Some(place) = &place
        && let Some(bytes) = plan.to_bytes(symbolizer)
        && let Err(error) = place.write(&bytes)
    {
        tracing::debug!(pid, entry = place.name, %error, "the cache cannot be written");
    }
    plan
}

/// Place of an entry.
struct Place {
    folder: Folder,
    /// Name, by a hash of the key. The entry has the key itself.
    name: String,
    key: String,
}

impl Place {
    fn of(symbolizer: &Symbolizer, pid: u32, wanted: Wanted<'_>) -> Option<Self> {
        let folder = match Folder::open() {
            Ok(folder) => folder,
            Err(error) => {
                tracing::debug!(%error, "there is no cache of plans");
                return None;
            }
        };
        let Some(key) = Plan::key(symbolizer, pid, wanted) else {
            tracing::debug!(pid, "a file has no identity, so that its plan is not in the cache");
            return None;
        };
        Some(Self::with_key(folder, format!("{}\n{key}", own_build()?)))
    }

    fn with_key(folder: Folder, key: String) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let name = format!("{:016x}", hasher.finish());
        Self { folder, name, key }
    }

    fn read(&self) -> Option<Vec<u8>> {
        let mut bytes = self.folder.read(&self.name)?;
        let start = parse(&bytes, &self.key)?;
        Some(bytes.split_off(start))
    }

    fn write(&self, plan: &[u8]) -> std::io::Result<()> {
        let key = self.key.as_bytes();
        let length = (key.len() as u64).to_le_bytes();
        let mut checksum = crc32fast::Hasher::new();
        [&length, key, plan].iter().for_each(|part| checksum.update(part));
        let checksum = checksum.finalize().to_le_bytes();
        self.folder.write(&self.name, &[&MAGIC, &checksum, &length, key, plan])
    }
}

/// Returns the offset of the plan in an entry. `None` where the entry is damaged, or has another key.
fn parse(entry: &[u8], key: &str) -> Option<usize> {
    let (checksum, rest) = entry.strip_prefix(&MAGIC)?.split_first_chunk()?;
    if crc32fast::hash(rest) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    (rest.get(..length)? == key.as_bytes()).then(|| entry.len() - rest.len() + length)
}

/// Returns a description of this executable that no other build shares. `None` where that is unknown.
fn own_build() -> Option<String> {
    /// Number of bytes in which the headers and the build ID are.
    const START: u64 = 1 << 16;
    let path = Path::new("/proc/self/exe");
    let mut start = Vec::new();
    File::open(path).ok()?.take(START).read_to_end(&mut start).ok()?;
    let image = ElfImage::from_bytes(path, Bytes::from(start)).ok()?;
    let metadata = fs::metadata(path).ok()?;
    let modified = metadata.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let version = env!("CARGO_PKG_VERSION");
    Some(format!("{version} {:?} {} {}", image.build_id(), metadata.len(), modified.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(caches: &Path, key: &str) -> Place {
        let owner = linux::user::own_ids().0;
        let folder = Folder::open_in(caches, owner, folder::LIMITS).expect("trusted");
        Place::with_key(folder, key.to_owned())
    }

    #[test]
    fn an_entry_has_its_key() {
        let caches = tempfile::tempdir().expect("a folder");
        let one = place(caches.path(), "one");
        one.write(b"plan").expect("written");
        assert_eq!(one.read().as_deref(), Some(&b"plan"[..]));
        // As if both keys had one hash.
        let other = Place { name: one.name.clone(), ..place(caches.path(), "other") };
        assert_eq!(other.read(), None);
    }

    #[test]
    fn a_damaged_entry_is_none() {
        let caches = tempfile::tempdir().expect("a folder");
        let place = place(caches.path(), "key");
        place.write(b"plan").expect("written");
        let path = place.folder.path().join(format!("{}.plan", place.name));
        let whole = fs::read(&path).expect("there");
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).expect("cut");
            assert_eq!(place.read(), None, "{length} bytes");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            fs::write(&path, damaged).expect("damaged");
            assert_eq!(place.read(), None, "byte {at}");
        }
        fs::write(&path, &whole).expect("whole again");
        assert!(place.read().is_some());
    }

    #[test]
    fn this_build_is_described() {
        let build = own_build().expect("described");
        assert!(build.starts_with(env!("CARGO_PKG_VERSION")), "{build}");
        assert_eq!(own_build(), Some(build));
    }
}
