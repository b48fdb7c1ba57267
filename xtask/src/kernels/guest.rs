//! The first process of a booted kernel: mounts what avtrace reads, runs the suite, and turns the machine off.

use std::{
    fs, io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::{
    mount::{MsFlags, mount},
    sys::reboot::{RebootMode, reboot},
};

use super::{
    results::{Line, Outcome},
    suite,
};

/// File systems that avtrace and the suite read: type and folder.
const FILE_SYSTEMS: [(&str, &str); 6] = [
    ("devtmpfs", "/dev"),
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("tmpfs", "/tmp"),
    ("securityfs", "/sys/kernel/security"),
    ("tracefs", "/sys/kernel/tracing"),
];
/// Time until the machine is off.
const POWER_LIMIT: Duration = Duration::from_secs(30);

/// Runs the checks that `only` selects, or all, and then turns the machine off in any case.
///
/// # Errors
/// When this is not the first process, or the machine cannot be turned off.
pub fn run(only: &[String]) -> Result<()> {
    anyhow::ensure!(
        std::process::id() == 1,
        "this task is for machines that `cargo xtask kernels` boots"
    );
    println!("\n{}", Line::Begin);
    if let Err(error) = mount_all() {
        let detail = format!("{error:#}");
        let (check, outcome) = (suite::RELEASE.to_owned(), Outcome::Fails);
        println!("\n{}", Line::Result { check, outcome, detail });
    } else {
        for check in suite::selected(only) {
            let start = Instant::now();
            let (outcome, detail) = match (check.run)() {
                Ok(found) => (found.outcome, found.detail),
                Err(error) => {
                    (Outcome::Fails, format!("{error:#} (after {:.1?})", start.elapsed()))
                }
            };
            // The kernel may have printed to the same line.
            println!("\n{}", Line::Result { check: check.name.to_owned(), outcome, detail });
        }
    }
    println!("\n{}", Line::End);
    reboot(RebootMode::RB_POWER_OFF).context("failed to turn the machine off")?;
    thread::sleep(POWER_LIMIT);
    Ok(())
}

fn mount_all() -> Result<()> {
    for (kind, folder) in FILE_SYSTEMS {
        // Folders below others that are mounted are the kernel's.
        if !Path::new(folder).is_dir() {
            fs::create_dir_all(folder).with_context(|| format!("failed to make {folder}"))?;
        }
        let nothing = None::<&str>;
        mount(Some(kind), folder, Some(kind), MsFlags::empty(), nothing)
            .map_err(io::Error::from)
            .with_context(|| format!("failed to mount {folder}"))?;
    }
    Ok(())
}
