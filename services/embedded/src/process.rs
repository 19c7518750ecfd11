//! Child processes: in a group of their own, ended with us however we end, their output in a file.

use crate::Error;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;
use tokio::process::{Child, Command};

/// What to start.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment beside PATH, HOME and LANG.
    pub environment: BTreeMap<String, String>,
    /// Its working folder.
    pub folder: PathBuf,
    /// The file that takes its output, appended to.
    pub log: PathBuf,
    /// The user and group to run as; `None`: ours.
    pub user: Option<(u32, u32)>,
    /// The signal that it gets when we die.
    pub death: Signal,
    /// Largest address space in bytes; `None`: no limit.
    pub memory: Option<u64>,
}

/// A running child with its group.
pub struct Process {
    child: Child,
    group: Pid,
}

impl Process {
    /// Starts `spec`.
    pub async fn start(spec: &Spec) -> Result<Self, Error> {
        let log = OpenOptions::new().create(true).append(true).open(&spec.log).map_err(Error::io(format!("cannot open {}", spec.log.display())))?;
        let errors = log.try_clone().map_err(Error::io("cannot share the log"))?;
        let mut command = Command::new(&spec.program);
        command.args(&spec.arguments).current_dir(&spec.folder).stdin(Stdio::null()).stdout(log).stderr(errors).env_clear();
        for name in ["PATH", "HOME", "LANG", "LD_LIBRARY_PATH"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(&spec.environment).process_group(0).kill_on_drop(true);
        if let Some((user, group)) = spec.user {
            command.uid(user).gid(group);
        }
        #[cfg(target_os = "linux")]
        {
            let (death, parent, memory) = (spec.death, nix::unistd::getpid(), spec.memory);
            // SAFETY: between fork and exec only async-signal-safe system calls are made, and nothing is allocated.
            unsafe {
                command.pre_exec(move || {
                    nix::sys::prctl::set_pdeathsig(death)?;
                    if let Some(bytes) = memory {
                        nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_AS, bytes, bytes)?;
                    }
                    // We may have died before the signal was asked for.
                    if nix::unistd::getppid() == parent { Ok(()) } else { Err(nix::errno::Errno::ESRCH.into()) }
                });
            }
        }
        let child = spawn(command).await.map_err(Error::io(format!("cannot start {}", spec.program.display())))?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).ok_or_else(|| Error::Advice("the child ended at once".to_owned()))?;
        Ok(Self { child, group: Pid::from_raw(id) })
    }

    /// Its process id, which is also its group's.
    pub fn id(&self) -> u32 {
        self.group.as_raw().unsigned_abs()
    }

    /// Waits for its end.
    pub async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Its end, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks the group to end with `signal`, and kills it when it has not ended after `grace`.
    pub async fn stop(mut self, signal: Signal, grace: Duration) {
        let _ = killpg(self.group, signal);
        if tokio::time::timeout(grace, self.child.wait()).await.is_err() {
            let _ = killpg(self.group, Signal::SIGKILL);
            let _ = self.child.wait().await;
        }
        // What the child itself had started and left behind.
        let _ = killpg(self.group, Signal::SIGKILL);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // After its end was seen the id may belong to another process.
        if self.child.id().is_some() {
            let _ = killpg(self.group, Signal::SIGKILL);
        }
    }
}

/// Spawns on a thread that lives as long as the process: the death signal is tied to the *thread* that forked.
async fn spawn(mut command: Command) -> std::io::Result<Child> {
    type Job = Box<dyn FnOnce() + Send>;
    static THREAD: OnceLock<Sender<Job>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::spawn(move || queue.into_iter().for_each(|job| job()));
        jobs
    });
    let gone = || std::io::Error::other("the spawning thread has ended");
    let runtime = tokio::runtime::Handle::current();
    let (answer, spawned) = tokio::sync::oneshot::channel();
    let job = Box::new(move || {
        let _guard = runtime.enter();
        let _ = answer.send(command.spawn());
    });
    thread.send(job).map_err(|_| gone())?;
    spawned.await.map_err(|_| gone())?
}

/// The last `lines` lines of a file, at most 64 KiB of it. Bytes that are not UTF-8 are replaced.
pub fn tail(path: &Path, lines: usize) -> Vec<String> {
    const MOST: u64 = 64 * 1024;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(MOST)))?;
        let mut bytes = Vec::new();
        file.take(MOST).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| (*line).to_owned()).collect()
}

/// A port that is free on loopback right now. Another process may take it before it is used.
pub fn free_port() -> Result<u16, Error> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).map_err(Error::io("no free port"))?;
    Ok(listener.local_addr().map_err(Error::io("no free port"))?.port())
}

/// Whether a process of this id exists whose command line names `mark`.
pub(crate) fn lives(id: i32, mark: &str) -> bool {
    let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(script: &str, log: &Path) -> Spec {
        Spec {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: BTreeMap::from([("GREETING".to_owned(), "hello".to_owned())]),
            folder: std::env::temp_dir(),
            log: log.to_owned(),
            user: None,
            death: Signal::SIGKILL,
            memory: None,
        }
    }

    #[tokio::test]
    async fn a_child_writes_its_log_and_ends_with_its_code() {
        let log = std::env::temp_dir().join(format!("signalbox-process-{}-a.log", std::process::id()));
        let mut process = Process::start(&spec("echo $GREETING $SECRET_OF_OURS; echo x >&2; exit 3", &log)).await.unwrap();
        assert_eq!(process.wait().await.unwrap().code(), Some(3));
        assert_eq!(tail(&log, 80), ["hello", "x"]);
        assert_eq!(tail(&log, 1), ["x"]);
        std::fs::remove_file(log).unwrap();
    }

    #[tokio::test]
    async fn stopping_ends_the_whole_group() {
        let log = std::env::temp_dir().join(format!("signalbox-process-{}-b.log", std::process::id()));
        let process = Process::start(&spec("sleep 1000 & echo $!; trap '' TERM; wait; sleep 1000", &log)).await.unwrap();
        let grandchild = loop {
            if let Some(id) = tail(&log, 1).first().and_then(|line| line.parse::<i32>().ok()) {
                break id;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        process.stop(Signal::SIGTERM, Duration::from_millis(100)).await;
        assert!(!lives(grandchild, "sleep"));
        std::fs::remove_file(log).unwrap();
    }
}
