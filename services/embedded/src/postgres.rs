//! A real PostgreSQL on loopback, with a password, as another user where we are root.

use crate::folder::{Secrets, write_private};
use crate::process::{Process, Spec, free_port, lives, tail};
use crate::supervise::Supervised;
use crate::{Error, provision};
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The oldest PostgreSQL that the views work on.
const FLOOR: u32 = 15;
/// The user and database that we make.
pub const USER: &str = "signalbox";

/// A running server.
pub struct Server {
    supervised: Supervised,
    port: u16,
    password: String,
}

/// The folder of PostgreSQL's programs: on PATH where new enough, else through the cache.
pub async fn programs(cache: &Path, say: &(dyn Fn(&str) + Send + Sync)) -> Result<PathBuf, Error> {
    if let Some(found) = provision::find_server("postgres") {
        let line = provision::version_line(&found).await.unwrap_or_default();
        let new_enough = provision::version_of(&line).is_some_and(|version| version.first().is_some_and(|major| *major >= FLOOR));
        let folder = found.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
        match folder.filter(|folder| new_enough && folder.join("initdb").exists()) {
            Some(folder) if !geteuid().is_root() || reachable(&folder) => return Ok(folder),
            Some(_) | None => say(&format!("  {} is not used: older than 15, without initdb, or closed to other users", found.display())),
        }
    }
    let home = provision::package(cache, &provision::POSTGRES, say).await?;
    let folder = home.join(provision::POSTGRES.programs);
    if geteuid().is_root() && !reachable(&folder) {
        let cache = cache.display();
        return Err(Error::Advice(format!(
            "PostgreSQL refuses to run as root, and other users cannot enter {cache}; name another folder with --cache DIR"
        )));
    }
    Ok(folder)
}

/// The folder for PostgreSQL's files: within the data folder, or beside it where the user that it runs as could not
/// enter that.
pub fn data_folder(data: &Path) -> PathBuf {
    if geteuid().is_root() && !reachable(data) {
        let mut hasher = DefaultHasher::new();
        data.hash(&mut hasher);
        return PathBuf::from(format!("/var/lib/signalbox/postgres-{:016x}", hasher.finish()));
    }
    data.join("postgres")
}

/// Whether any user can enter a folder: every folder above it lets others pass.
fn reachable(path: &Path) -> bool {
    path.ancestors().all(|folder| fs::metadata(folder).is_ok_and(|data| !data.is_dir() || data.mode() & 0o001 != 0))
}

/// The user that PostgreSQL runs as; `None`: ours.
fn user() -> Result<Option<(u32, u32)>, Error> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let found = ["postgres", "nobody"].into_iter().find_map(|name| User::from_name(name).ok().flatten());
    let found =
        found.ok_or_else(|| Error::Advice("PostgreSQL refuses to run as root and there is neither a user `postgres` nor `nobody`".to_owned()))?;
    Ok(Some((found.uid.as_raw(), found.gid.as_raw())))
}

impl Server {
    /// Starts a server on `folder`, making a new cluster there where there is none, and waits until it answers.
    pub async fn start(programs: &Path, folder: &Path, log: &Path, secrets: &Secrets) -> Result<Self, Error> {
        Self::start_with(programs, folder, log, secrets, &[]).await
    }

    /// The same with further settings.
    pub async fn start_with(programs: &Path, folder: &Path, log: &Path, secrets: &Secrets, more: &[(&str, &str)]) -> Result<Self, Error> {
        let user = user()?;
        if !folder.join("ready").exists() {
            initialise(programs, folder, log, secrets, user).await?;
        }
        wait_for_predecessor(folder).await?;
        let port = free_port()?;
        let settings = [
            ("port", port.to_string()),
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("unix_socket_directories", String::new()),
            ("max_connections", "100".to_owned()),
            ("shared_buffers", "128MB".to_owned()),
            ("timezone", "UTC".to_owned()),
            ("log_timezone", "UTC".to_owned()),
            // Values of statements are people's text; they stay out of PostgreSQL's log.
            ("log_parameter_max_length_on_error", "0".to_owned()),
            ("log_min_error_statement", "panic".to_owned()),
        ];
        let mut arguments: Vec<OsString> = vec!["-D".into(), folder.into()];
        let settings = settings.iter().map(|(name, value)| (*name, value.as_str())).chain(more.iter().copied());
        for (name, value) in settings {
            arguments.extend(["-c".into(), format!("{name}={value}").into()]);
        }
        let spec = Spec {
            program: programs.join("postgres"),
            arguments,
            environment: BTreeMap::new(),
            folder: folder.to_owned(),
            log: log.to_owned(),
            user,
            // A fast shutdown: sessions end, files are whole.
            death: Signal::SIGINT,
            memory: None,
        };
        let supervised = Supervised::start("postgres", spec, Signal::SIGINT, Duration::from_secs(20)).await?;
        let server = Self { supervised, port, password: secrets.postgres.clone() };
        server.ready(folder, log).await?;
        Ok(server)
    }

    /// PostgreSQL writes its state into the last line of its pid file.
    async fn ready(&self, folder: &Path, log: &Path) -> Result<(), Error> {
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            let status = fs::read_to_string(folder.join("postmaster.pid")).unwrap_or_default();
            let own = status.lines().next().is_some_and(|id| id == self.supervised.id().to_string());
            if own && status.lines().last().is_some_and(|line| line.trim() == "ready") {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let lines = tail(log, 5).join("\n  ");
        Err(Error::Advice(format!("PostgreSQL did not start; the end of {}:\n  {lines}", log.display())))
    }

    /// Its address with user and password.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The address of one of its databases.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// The postmaster's process id.
    pub fn id(&self) -> u32 {
        self.supervised.id()
    }

    /// Ends it and waits for the end.
    pub async fn stop(self) {
        self.supervised.stop().await;
    }
}

/// Makes a database cluster. Half-made ones are thrown away: `ready` is written last.
async fn initialise(programs: &Path, folder: &Path, log: &Path, secrets: &Secrets, user: Option<(u32, u32)>) -> Result<(), Error> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(Error::io(format!("cannot make {}", folder.display())))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(Error::io("cannot close the database folder"))?;
    if let Some((owner, group)) = user {
        chown(folder, Some(owner), Some(group)).map_err(Error::io("cannot hand over the database folder"))?;
    }
    let password = folder.with_extension("password");
    write_private(&password, secrets.postgres.as_bytes())?;
    if let Some((owner, group)) = user {
        chown(&password, Some(owner), Some(group)).map_err(Error::io("cannot hand over the password file"))?;
    }
    let options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions", "--no-sync"];
    let mut arguments: Vec<OsString> = vec!["-D".into(), folder.into(), format!("--username={USER}").into()];
    arguments.push(format!("--pwfile={}", password.display()).into());
    arguments.extend(options.map(Into::into));
    let spec = Spec {
        program: programs.join("initdb"),
        arguments,
        environment: BTreeMap::new(),
        folder: folder.to_owned(),
        log: log.to_owned(),
        user,
        death: Signal::SIGKILL,
        memory: None,
    };
    let status = Process::start(&spec).await?.wait().await.map_err(Error::io("cannot run initdb"))?;
    let _ = fs::remove_file(&password);
    if !status.success() {
        let lines = tail(log, 8).join("\n  ");
        return Err(Error::Advice(format!("PostgreSQL's initdb failed; the end of {}:\n  {lines}", log.display())));
    }
    fs::write(folder.join("ready"), b"").map_err(Error::io("cannot finish the database folder"))
}

/// After a kill of ours the old server needs a moment to go.
async fn wait_for_predecessor(folder: &Path) -> Result<(), Error> {
    let holder = || fs::read_to_string(folder.join("postmaster.pid")).ok()?.lines().next()?.trim().parse::<i32>().ok();
    for _ in 0..400 {
        match holder() {
            Some(id) if lives(id, "postgres") => tokio::time::sleep(Duration::from_millis(50)).await,
            Some(_) | None => return Ok(()),
        }
    }
    Err(Error::Advice(format!("a PostgreSQL still runs on {}; end it first", folder.display())))
}
