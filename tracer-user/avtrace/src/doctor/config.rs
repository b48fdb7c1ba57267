//! Configuration of the running kernel: the options that capture needs.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    path::PathBuf,
};

use flate2::read::GzDecoder;

use super::model::{Check, CheckId, CheckStatus};
use report::CaptureBackend::{self, Inline, Kernel};

/// Limit of the bytes that are read of a configuration. Configurations of distributions have about 300,000.
const MOST: u64 = 8 << 20;

/// Options with the back ends that need them.
const NEEDED: [(&str, &[CaptureBackend]); 7] = [
    ("CONFIG_BPF_SYSCALL", &[Kernel]),
    ("CONFIG_UPROBES", &[Kernel]),
    ("CONFIG_BPF_EVENTS", &[Kernel]),
    ("CONFIG_PERF_EVENTS", &[Kernel]),
    ("CONFIG_TRACEPOINTS", &[Kernel]),
    ("CONFIG_DEBUG_INFO_BTF", &[Kernel]),
    ("CONFIG_MEMFD_CREATE", &[Inline]),
];

/// Option with which no tracer changes code.
const DENIES_WRITING: &str = "CONFIG_PROC_MEM_NO_FORCE";

/// Values of the options that are set.
#[derive(Debug, Default, PartialEq, Eq)]
struct Config(HashMap<String, String>);

impl Config {
    /// Reads the lines of a configuration. Only lines of the form `CONFIG_NAME=VALUE` count.
    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| line.starts_with("CONFIG_"));
        let pairs = lines.filter_map(|line| line.trim_end().split_once('='));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Returns whether an option is built in, or a module.
    fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| matches!(value.as_str(), "y" | "m"))
    }

    /// Returns the options that are in the way, in words.
    fn defects(&self) -> Vec<String> {
        let missing = NEEDED.iter().filter(|(name, _)| !self.has(name));
        let words = |backend: &CaptureBackend| match backend {
            Kernel => "kernel",
            Inline => "inline",
        };
        let missing = missing.map(|(name, backends)| {
            let backends: Vec<_> = backends.iter().map(words).collect();
            format!("{name} is missing (for `--capture {}`)", backends.join("`, `"))
        });
        let denies = self.has(DENIES_WRITING).then(|| {
            format!("{DENIES_WRITING} is set, which keeps inline probes out (unless `proc_mem.force_override` says otherwise)")
        });
        missing.chain(denies).collect()
    }
}

/// Checks the configuration of the kernel with this release.
pub(super) fn check(release: &str) -> Check {
    let places = [
        "/proc/config.gz".to_owned(),
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/config"),
    ];
    let found = places.iter().find_map(|place| Some((place, read(&PathBuf::from(place)).ok()?)));
    let both = [Kernel, Inline];
    let Some((place, text)) = found else {
        let found = format!("it is not to be had: {} cannot be read", places.join(", "));
        return Check::new(CheckId::Config, CheckStatus::Untested, found).used_by(&both);
    };
    judge(place, &Config::parse(&text)).used_by(&both)
}

fn judge(place: &str, config: &Config) -> Check {
    let defects = config.defects();
    if defects.is_empty() {
        let found = format!("{place} has all that is needed");
        return Check::new(CheckId::Config, CheckStatus::Works, found);
    }
    Check::new(CheckId::Config, CheckStatus::Fails, format!("{place}: {}", defects.join("; ")))
}

/// Reads a configuration, which is compressed where its name says so.
fn read(path: &PathBuf) -> io::Result<String> {
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        GzDecoder::new(file).take(MOST).read_to_end(&mut bytes)?;
    } else {
        file.take(MOST).read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    const GOOD: &str = "#\n# Linux/x86 6.18.44 Kernel Configuration\n#\nCONFIG_BPF_SYSCALL=y\nCONFIG_UPROBES=y\n\
        CONFIG_BPF_EVENTS=y\nCONFIG_PERF_EVENTS=y\nCONFIG_TRACEPOINTS=y\nCONFIG_DEBUG_INFO_BTF=y\nCONFIG_MEMFD_CREATE=y\n\
        # CONFIG_PROC_MEM_NO_FORCE is not set\nCONFIG_DEFAULT_HOSTNAME=\"(none)=y\"\n";

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(Config::parse(GOOD).defects(), Vec::<String>::new());
        let without = GOOD.replace("CONFIG_DEBUG_INFO_BTF=y", "# CONFIG_DEBUG_INFO_BTF is not set");
        let defects = Config::parse(&without).defects();
        assert_eq!(defects, ["CONFIG_DEBUG_INFO_BTF is missing (for `--capture kernel`)"]);
        let denying = format!("{GOOD}CONFIG_PROC_MEM_NO_FORCE=y\n");
        assert!(Config::parse(&denying).defects()[0].contains("keeps inline probes out"));
        let check = judge("/boot/config-6.1", &Config::parse(&without));
        assert_eq!(check.status, CheckStatus::Fails);
        assert!(check.found.starts_with("/boot/config-6.1: CONFIG_DEBUG_INFO_BTF"), "{check:?}");
    }

    #[test]
    fn any_text_is_read() {
        for text in ["", "=", "CONFIG_", "CONFIG_BPF_SYSCALL", "CONFIG_UPROBES=n\r\n", "\u{0}=y"] {
            assert_eq!(Config::parse(text).defects().len(), NEEDED.len(), "{text:?}");
        }
        let config = Config::parse("CONFIG_UPROBES=m\r\nCONFIG_BPF_SYSCALL=yes\n");
        assert!(config.has("CONFIG_UPROBES") && !config.has("CONFIG_BPF_SYSCALL"));
    }

    #[test]
    fn configurations_are_read_compressed_or_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let (plain, packed) = (folder.path().join("config-6.1"), folder.path().join("config.gz"));
        std::fs::write(&plain, GOOD).expect("a file");
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(GOOD.as_bytes()).expect("memory");
        std::fs::write(&packed, encoder.finish().expect("memory")).expect("a file");
        assert_eq!((read(&plain).unwrap(), read(&packed).unwrap()), (GOOD.into(), GOOD.into()));
        std::fs::write(&packed, "no gzip").expect("a file");
        assert!(read(&packed).is_err() && read(&folder.path().join("none")).is_err());
    }
}
