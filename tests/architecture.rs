//! The guards of the house rules.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every Rust file of ours, with its text.
fn sources() -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    walk(&path, found);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((path.clone(), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    for folder in ["events", "services", "projections", "tests"] {
        walk(&root().join(folder), &mut found);
    }
    found
}

/// Which crate of ours may use which. A new line here comes with its sentence in ARCHITECTURE.md.
const EDGES: [(&str, &[&str]); 13] = [
    ("events", &[]),
    ("domain", &["events"]),
    ("journal", &["domain", "events"]),
    ("projections", &["events"]),
    ("projector", &["journal", "projections", "events"]),
    ("embedded", &[]),
    ("local", &["domain", "embedded", "events", "journal", "projections"]),
    ("api", &["domain", "events", "journal", "projections", "worker"]),
    ("auditor", &["events", "journal"]),
    ("leases", &["domain", "events", "journal", "projections"]),
    ("worker", &["events"]),
    ("signalbox", &["api", "auditor", "domain", "embedded", "events", "journal", "leases", "local", "projections", "projector", "worker"]),
    ("tests", &["api", "auditor", "domain", "embedded", "events", "journal", "local", "projections", "projector", "signalbox", "worker"]),
];

#[test]
fn crates_use_only_what_they_may() {
    let output =
        Command::new(env!("CARGO")).args(["metadata", "--format-version", "1", "--no-deps", "--offline"]).current_dir(root()).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let short = |name: &str| name.strip_prefix("signalbox-").unwrap_or(name).to_owned();
    let ours: BTreeSet<String> = metadata["packages"].as_array().unwrap().iter().map(|package| short(package["name"].as_str().unwrap())).collect();
    assert_eq!(ours, EDGES.iter().map(|(name, _)| (*name).to_owned()).collect());
    for package in metadata["packages"].as_array().unwrap() {
        let name = short(package["name"].as_str().unwrap());
        let allowed: BTreeSet<String> = EDGES.iter().find(|(of, _)| *of == name).unwrap().1.iter().map(|name| (*name).to_owned()).collect();
        // Tests of a crate may start the embedded servers.
        let used = package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| short(dependency["name"].as_str().unwrap()));
        for used in used.filter(|used| ours.contains(used)) {
            assert!(allowed.contains(&used), "{name} uses {used}");
        }
    }
}

#[test]
fn files_are_short_and_introduce_themselves() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= 800, "{} has {lines} lines", path.display());
        assert!(text.starts_with("//!"), "{} does not say what it is", path.display());
    }
}

#[test]
fn no_drawer_for_everything() {
    for (path, _) in sources() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        for banned in ["common", "utils", "types", "helpers", "manager"] {
            assert_ne!(name, banned, "{}", path.display());
        }
    }
}

/// What each layer must not touch, asserted as absences.
#[test]
fn the_law_touches_nothing() {
    for (path, text) in sources() {
        let text_path = path.display().to_string();
        let production = text.split("#[cfg(test)]").next().unwrap_or_default();
        if text_path.contains("services/domain/src") || text_path.contains("events/src") {
            let production: String = production.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            for banned in ["tokio", "async ", "std::net", "std::fs", "Utc::now", "SystemTime"] {
                assert!(!production.contains(banned), "{text_path} holds {banned}");
            }
        }
        if !text_path.contains("projections/")
            && !text_path.contains("tests/")
            && !text_path.contains("projector/")
            && !text_path.contains("serve.rs")
        {
            for banned in ["SELECT ", "INSERT INTO", "UPDATE "] {
                assert!(!production.contains(banned), "{text_path} holds SQL");
            }
        }
        // Subjects of the log are spelled in one place.
        if !text_path.ends_with("events/src/subject.rs") && !text_path.contains("tests") && !text_path.contains("conformance") {
            assert!(!production.contains("\"evt."), "{text_path} spells a subject");
        }
    }
}

#[test]
fn unfinished_work_is_not_called_done() {
    for (path, text) in sources() {
        // Spelled in two parts, so that this test does not find itself.
        for banned in [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[", "ignore"), concat!("FIX", "ME"), concat!("#[", "allow(")]
        {
            let macro_of_facts = path.ends_with("events/src/facts.rs") && banned.ends_with("allow(");
            assert!(macro_of_facts || !text.contains(banned), "{} holds {banned}", path.display());
        }
    }
}

/// The API's document is frozen: a change of it is a change for its users. Written anew with `SIGNALBOX_WRITE_GOLDEN=1`.
#[test]
fn the_openapi_document_is_what_it_was() {
    let path = root().join("services/api/openapi.json");
    let today = signalbox_api::document().unwrap() + "\n";
    if std::env::var_os("SIGNALBOX_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &today).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), today, "run with SIGNALBOX_WRITE_GOLDEN=1 and look at the difference");
}

/// Every route is authenticated, or on the short list of those that are not; every one has a summary.
#[test]
fn every_route_is_documented() {
    let document: Value = serde_json::from_str(&signalbox_api::document().unwrap()).unwrap();
    let mut seen = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            seen += 1;
            assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{method} {path} has no summary");
            let open = signalbox_api::ROUTES_WITHOUT_KEY.contains(&path.as_str());
            assert_eq!(operation["security"].is_null(), open, "{method} {path}");
        }
    }
    assert!(seen >= 30, "{seen} routes");
}

#[test]
fn the_documented_states_of_a_task_are_the_table() {
    let file = root().join("docs/task-states.md");
    let head = "# States of a task\n\nMade from the transition table, `services/domain/src/task/table.rs`; a test compares the two.\n\n";
    let document = format!("{head}```mermaid\n{}```\n", signalbox_domain::task::table::diagram());
    if std::env::var_os("SIGNALBOX_WRITE_GOLDEN").is_some() {
        std::fs::write(&file, &document).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), document, "write it with SIGNALBOX_WRITE_GOLDEN=1");
}
