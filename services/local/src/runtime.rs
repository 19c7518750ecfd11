//! Runtimes from configuration: the only programs that a workload can start.

use serde::{Deserialize, Serialize};
use signalbox_domain::kind::{self, Catalog};
use signalbox_events::workload::Category;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the operator allows to be started, by name.
pub type Runtimes = BTreeMap<String, Runtime>;

/// One runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    /// The half of the list that it serves: `deployment` or `job`.
    pub category: Category,
    /// The program and its arguments. `{port}`, `{name}` and `{parameters.X}` are filled in, each within one argument.
    pub command: Vec<String>,
    /// Environment beside PATH, HOME and LANG; filled in likewise.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Working folder; else the workload's own.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// Path that answers 2xx once a deployment's process is ready.
    #[serde(default = "health")]
    pub health: String,
    /// Seconds that a process may take to become ready.
    #[serde(default = "start_seconds")]
    pub start_seconds: u64,
    /// Largest address space of a process in bytes.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Declared parameters.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
}

/// One declared parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The value where the user gives none; without it the parameter is required.
    #[serde(default)]
    pub default: Option<String>,
    /// The values allowed; empty allows any printable text without a leading dash.
    #[serde(default)]
    pub values: Vec<String>,
}

fn health() -> String {
    "/health".to_owned()
}

fn start_seconds() -> u64 {
    120
}

/// The runtimes as validation sees them.
pub fn catalog(runtimes: &Runtimes) -> Catalog {
    let parameter = |parameter: &Parameter| kind::Parameter { default: parameter.default.clone(), values: parameter.values.clone() };
    Catalog(
        runtimes
            .iter()
            .map(|(name, runtime)| {
                let parameters = runtime.parameters.iter().map(|(name, of)| (name.clone(), parameter(of))).collect();
                (name.clone(), kind::Runtime { category: runtime.category, parameters })
            })
            .collect(),
    )
}

impl Runtime {
    /// The command of one process. Each template argument stays one argument: values are never split.
    pub fn command(&self, name: &str, port: u16, given: &BTreeMap<String, String>) -> Option<(PathBuf, Vec<String>)> {
        let mut filled = self.command.iter().map(|argument| self.fill(argument, name, port, given));
        let program = filled.next()?;
        Some((program.into(), filled.collect()))
    }

    /// The environment of one process.
    pub fn environment(&self, name: &str, port: u16, given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        self.environment.iter().map(|(key, value)| (key.clone(), self.fill(value, name, port, given))).collect()
    }

    /// Fills a template in one pass, so that a value that looks like a placeholder stays what it is.
    fn fill(&self, template: &str, name: &str, port: u16, given: &BTreeMap<String, String>) -> String {
        let mut out = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            out.push_str(before);
            let Some((placeholder, behind)) = after.split_once('}') else {
                out.push('{');
                rest = after;
                continue;
            };
            let value = match placeholder {
                "port" => Some(port.to_string()),
                "name" => Some(name.to_owned()),
                other => other
                    .strip_prefix("parameters.")
                    .and_then(|key| given.get(key).cloned().or_else(|| self.parameters.get(key).and_then(|parameter| parameter.default.clone()))),
            };
            match value {
                Some(value) => out.push_str(&value),
                None => out.push_str(&format!("{{{placeholder}}}")),
            }
            rest = behind;
        }
        out.push_str(rest);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_once_and_never_split() {
        let parameter = |default: Option<&str>| Parameter { default: default.map(str::to_owned), values: vec![] };
        let runtime = Runtime {
            category: Category::Deployment,
            command: ["serve", "--port={port}", "{name}", "{parameters.model}", "{parameters.size}", "{unknown}", "{"].map(str::to_owned).to_vec(),
            environment: BTreeMap::from([("MODEL".to_owned(), "{parameters.model}".to_owned())]),
            folder: None,
            health: health(),
            start_seconds: 1,
            memory_bytes: None,
            parameters: BTreeMap::from([("model".to_owned(), parameter(None)), ("size".to_owned(), parameter(Some("7")))]),
        };
        let given = BTreeMap::from([("model".to_owned(), "a b; {port} $(x)".to_owned())]);
        let (program, arguments) = runtime.command("m-1", 81, &given).unwrap();
        assert_eq!(program, PathBuf::from("serve"));
        assert_eq!(arguments, ["--port=81", "m-1", "a b; {port} $(x)", "7", "{unknown}", "{"]);
        assert_eq!(runtime.environment("m-1", 81, &given)["MODEL"], "a b; {port} $(x)");
    }
}
