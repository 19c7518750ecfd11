//! Python environments that outlive a test run, so that packages are installed once.

use std::path::PathBuf;
use std::process::Stdio;
use tokio::process::Command;
use tokio::sync::Mutex;

/// One installation at a time: two tests may want the same.
static INSTALLING: Mutex<()> = Mutex::const_new(());

/// A folder in the cache.
pub fn cache(name: &str) -> PathBuf {
    signalbox_embedded::provision::default_cache().join(name)
}

/// Runs a program that must succeed, and answers with what it printed.
pub async fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().await.unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{errors}");
    out.into_owned()
}

/// The interpreter of an environment with these packages.
pub async fn with_packages(name: &str, packages: &[&str]) -> PathBuf {
    let _alone = INSTALLING.lock().await;
    let home = cache(name);
    let python = home.join("bin/python3");
    let wanted = packages.join("\n");
    if std::fs::read_to_string(home.join("ready")).ok().as_ref() != Some(&wanted) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home)).await;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages)).await;
        std::fs::write(home.join("ready"), &wanted).unwrap();
    }
    python
}
