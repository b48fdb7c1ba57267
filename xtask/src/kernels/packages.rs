//! Kernels to boot: the newest of each series that apt offers, and files that are named.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::process;

/// A kernel that can be booted.
pub struct Kernel {
    /// Its name, for progress and errors.
    pub name: String,
    /// Image, as boot loaders take it.
    pub image: PathBuf,
}

/// Remedy where packages cannot be had.
const REMEDY: &str =
    "name kernels yourself: `cargo xtask kernels --kernel FILE`, a package or an image";

/// Returns the newest kernel of each series that apt offers, downloaded to `folder`.
///
/// # Errors
/// When apt offers no kernel, or cannot download one, for example without network.
pub fn offered(folder: &Path) -> Result<Vec<Kernel>> {
    let names = process::answer(Command::new("apt-cache").args(["pkgnames", "linux-image-"]));
    let packages = newest_of_each_series(&names.unwrap_or_default());
    if packages.is_empty() {
        bail!("apt offers no kernels (run `apt-get update` first, if it is there); {REMEDY}");
    }
    packages.iter().map(|package| downloaded(package, folder)).collect()
}

/// Packages of kernels, the newest of each series by its first two numbers, in ascending order.
fn newest_of_each_series(names: &str) -> Vec<String> {
    let mut newest: BTreeMap<Vec<u32>, (Vec<u32>, String)> = BTreeMap::new();
    for name in names.lines() {
        let Some(release) = name.strip_prefix("linux-image-") else { continue };
        let Some(release) = release.strip_suffix("-amd64") else { continue };
        // Other flavours have other words; packages that depend on others have two numbers.
        let flavours = ["cloud", "rt", "dbg", "unsigned"];
        let numbers: Vec<u32> = release
            .split(|character: char| !character.is_ascii_digit())
            .filter_map(|digits| digits.parse().ok())
            .collect();
        if numbers.len() < 3 || flavours.iter().any(|flavour| release.contains(flavour)) {
            continue;
        }
        let series = numbers[..2].to_vec();
        let found = (numbers, name.to_owned());
        let best = newest.entry(series).or_insert_with(|| found.clone());
        if *best < found {
            *best = found;
        }
    }
    newest.into_values().map(|(_, name)| name).collect()
}

/// Downloads a package, unless its kernel is there.
fn downloaded(package: &str, folder: &Path) -> Result<Kernel> {
    let kernel_folder = folder.join(package.trim_start_matches("linux-image-"));
    if let Some(image) = image_below(&kernel_folder) {
        return Ok(Kernel { name: package.to_owned(), image });
    }
    let downloads = folder.join("download");
    // An earlier run may have been interrupted here.
    let _ = fs::remove_dir_all(&downloads);
    fs::create_dir_all(&downloads)?;
    let mut download = Command::new("apt-get");
    download.current_dir(&downloads).args(["download", "-q", package]);
    process::run(&mut download)
        .map_err(|error| anyhow!("{error}: without network, or with old lists; {REMEDY}"))?;
    let file = fs::read_dir(&downloads)?.filter_map(Result::ok).map(|entry| entry.path()).next();
    let file = file.with_context(|| format!("apt-get has not stored {package}"))?;
    let image = unpack(&file, &kernel_folder)?;
    fs::remove_dir_all(&downloads)?;
    Ok(Kernel { name: package.to_owned(), image })
}

/// Returns the kernel that a file is or has: an image, or a package of Debian's.
///
/// # Errors
/// When the file is not there, or is a package without a kernel.
pub fn named(file: &Path, folder: &Path) -> Result<Kernel> {
    if !file.is_file() {
        bail!("{} is no file", file.display());
    }
    let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    let image = if file.extension().is_some_and(|extension| extension == "deb") {
        unpack(file, &folder.join(name.trim_end_matches(".deb")))?
    } else {
        file.to_owned()
    };
    Ok(Kernel { name, image })
}

/// Unpacks the kernel of a package.
fn unpack(package: &Path, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let mut contents = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()
        .context("failed to run dpkg-deb")?;
    let unpacked = Command::new("tar")
        .arg("-C")
        .arg(folder)
        // Some versions of tar apply a folder only to the members that are named after it.
        .args(["-x", "--wildcards", "--strip-components=2", "./boot/vmlinuz*"])
        .stdin(contents.stdout.take().context("no output of dpkg-deb")?)
        .status()
        .context("failed to run tar");
    let read = contents.wait()?;
    match image_below(folder) {
        Some(image) if unpacked?.success() && read.success() => Ok(image),
        _ => bail!("{} has no kernel", package.display()),
    }
}

/// The kernel in a folder.
fn image_below(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let mut images =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("vmlinuz"));
    images.next().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_of_a_package_is_unpacked_to_the_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let contents = folder.path().join("contents");
        for (file, text) in [
            (
                "DEBIAN/control",
                "Package: k\nVersion: 1\nArchitecture: all\nMaintainer: k\nDescription: k\n",
            ),
            ("boot/vmlinuz-1", "image"),
            ("boot/config-1", "other"),
        ] {
            let file = contents.join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(file, text).expect("a file");
        }
        let package = folder.path().join("k.deb");
        let built = Command::new("dpkg-deb").arg("--build").args([&contents, &package]).output();
        if !built.is_ok_and(|built| built.status.success()) {
            eprintln!("skipped: dpkg-deb is not installed");
            return;
        }
        let kernel = named(&package, folder.path()).expect("a kernel");
        assert_eq!(kernel.image, folder.path().join("k/vmlinuz-1"));
        assert_eq!(fs::read(&kernel.image).expect("the image"), b"image");
    }

    #[test]
    fn the_newest_package_of_each_series_is_taken() {
        let names = "linux-image-6.1.0-9-amd64\nlinux-image-6.1.0-56-amd64\nlinux-image-amd64\n\
                     linux-image-6.1.0-57-cloud-amd64\nlinux-image-6.1.0-57-amd64-unsigned\nlinux-image-6.12-amd64\n\
                     linux-image-6.12.117+deb12-amd64\nlinux-image-6.12.99+deb12-amd64\n\
                     linux-image-6.12.118+deb12-rt-amd64\nlinux-image-arm64\nother\n";
        let expected = ["linux-image-6.1.0-56-amd64", "linux-image-6.12.117+deb12-amd64"];
        assert_eq!(newest_of_each_series(names), expected);
        assert!(newest_of_each_series("").is_empty());
    }
}
