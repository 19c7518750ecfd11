//! The data folder: one process at a time, secrets only for its owner.

use crate::Error;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a killed holder may take to let go.
const DYING: Duration = Duration::from_secs(3);

/// A data folder that is ours while this lives.
pub struct Folder {
    path: PathBuf,
    secrets: Secrets,
    /// The kernel releases it when the process ends, however it ends.
    _lock: Flock<File>,
}

/// Secrets of one installation, made at its first start.
#[derive(Clone, Serialize, Deserialize)]
pub struct Secrets {
    /// Password of the NATS user that appends.
    pub nats: String,
    /// Password of the NATS user that only reads the log.
    pub nats_auditor: String,
    /// Password of the NATS system user that only asks for server settings.
    pub nats_gate: String,
    /// Encrypts JetStream's files.
    pub jetstream: String,
    /// Password of the PostgreSQL user.
    pub postgres: String,
    /// Wraps the keys of personal text, hex.
    pub master_key: String,
    /// Signs paging cursors, hex.
    pub cursor_key: String,
    /// Signs checkpoints of the log, hex.
    pub checkpoint_key: String,
}

impl Folder {
    /// Takes the folder, making it where it is missing. `random` gives 256 fresh bits a call.
    pub fn take(path: &Path, random: &mut dyn FnMut() -> [u8; 32]) -> Result<Self, Error> {
        fs::DirBuilder::new().recursive(true).mode(0o711).create(path).map_err(Error::io(format!("cannot make {}", path.display())))?;
        let path = path.canonicalize().map_err(Error::io(format!("cannot open {}", path.display())))?;
        let name = path.join("lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&name);
        let file = file.map_err(Error::io(format!("cannot open {}", name.display())))?;
        let lock = lock(file).map_err(|error| {
            if error != Errno::EWOULDBLOCK {
                return Error::Advice(format!("cannot lock {}: {error}", name.display()));
            }
            let holder = fs::read_to_string(path.join("pid")).unwrap_or_default();
            let holder = holder.trim();
            Error::Advice(format!(
                "{} is in use by another `signalbox dev` (process {}). Stop that one, or give this one a folder of its own with --data DIR.",
                path.display(),
                if holder.is_empty() { "unknown" } else { holder },
            ))
        })?;
        write_private(&path.join("pid"), std::process::id().to_string().as_bytes())?;
        let secrets = secrets(&path.join("secrets.json"), random)?;
        fs::create_dir_all(path.join("logs")).map_err(Error::io("cannot make the log folder"))?;
        Ok(Self { path, secrets, _lock: lock })
    }

    /// Where it is, canonical.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its secrets.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The file that a child process writes its output to.
    pub fn log(&self, name: &str) -> PathBuf {
        self.path.join("logs").join(format!("{name}.log"))
    }
}

/// A process that was killed holds its lock until the kernel has taken it apart, which comes after `kill` has returned: a start
/// that follows at once waits for it.
fn lock(mut file: File) -> Result<Flock<File>, Errno> {
    let end = Instant::now() + DYING;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((_, Errno::EWOULDBLOCK)) if Instant::now() >= end => return Err(Errno::EWOULDBLOCK),
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => file = back,
            Err((_, error)) => return Err(error),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn secrets(path: &Path, random: &mut dyn FnMut() -> [u8; 32]) -> Result<Secrets, Error> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
            Error::Advice(format!("{} cannot be read ({error}); restore it from a backup: the texts cannot be read without it", path.display()))
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut fresh = || hex::encode(random());
            let secrets = Secrets {
                nats: fresh(),
                nats_auditor: fresh(),
                nats_gate: fresh(),
                jetstream: fresh(),
                postgres: fresh(),
                master_key: fresh(),
                cursor_key: fresh(),
                checkpoint_key: fresh(),
            };
            let bytes = serde_json::to_vec_pretty(&secrets).map_err(|error| Error::Advice(error.to_string()))?;
            write_private(path, &bytes)?;
            Ok(secrets)
        }
        Err(error) => Err(Error::io(format!("cannot read {}", path.display()))(error)),
    }
}

/// Writes a file that only its owner may read, whole or not at all.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let fresh = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().map_err(Error::io(format!("cannot write {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_taken_by_one_and_keeps_its_secrets() {
        let path = std::env::temp_dir().join(format!("signalbox-folder-{}", std::process::id()));
        let mut count = 0;
        let mut random = || {
            count += 1;
            [count; 32]
        };
        let first = Folder::take(&path, &mut random).unwrap();
        let refusal = Folder::take(&path, &mut random).err().unwrap().to_string();
        assert!(refusal.contains("in use") && refusal.contains(&std::process::id().to_string()), "{refusal}");
        let mode = fs::metadata(path.join("secrets.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let key = first.secrets().master_key.clone();
        drop(first);
        assert_eq!(Folder::take(&path, &mut random).unwrap().secrets().master_key, key);
        fs::remove_dir_all(&path).unwrap();
    }
}
