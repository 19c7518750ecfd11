//! `signalbox workload ..`

use super::{Connection, output, segment};
use crate::Error;
use crate::client::Client;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// What the table of workloads shows.
const COLUMNS: [(&str, &str); 9] = [
    ("id", "id"),
    ("name", "display_name"),
    ("kind", "kind"),
    ("state", "state"),
    ("reason", "reason"),
    ("ready", "replicas.ready"),
    ("desired", "replicas.desired"),
    ("model", "route_name"),
    ("created", "created_at"),
];
const STATED: [(&str, &str); 3] = [("id", "id"), ("position", "position"), ("stated", "stated")];

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Deploy a model, or start a job.
    Deploy {
        /// The name that people see.
        name: String,
        #[command(flatten)]
        spec: Spec,
        /// A label, `key=value`; repeatable.
        #[arg(long, value_parser = pair)]
        label: Vec<(String, String)>,
        /// The same key deploys once, for ever.
        #[arg(long)]
        idempotency_key: Option<String>,
        /// Wait until it runs, or has ended.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Replace what is wanted by a new revision.
    Update {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        spec: Spec,
    },
    /// Return to a recorded revision.
    Rollback {
        #[command(flatten)]
        which: Which,
        /// The revision.
        #[arg(long)]
        to: u32,
    },
    /// List workloads, the newest first.
    List {
        /// `mine`, `account` or `all`.
        #[arg(long, default_value = "mine")]
        scope: String,
        /// `job` or `deployment`.
        #[arg(long)]
        category: Option<String>,
        /// Kinds, comma-separated.
        #[arg(long)]
        kind: Option<String>,
        /// States, comma-separated.
        #[arg(long)]
        state: Option<String>,
        /// Rows of the page.
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Where the page begins.
        #[arg(long)]
        cursor: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show one workload.
    Get(Which),
    /// Show the last lines of one that ended badly.
    Logs(Which),
    /// Change the count of replicas.
    Scale {
        #[command(flatten)]
        which: Which,
        /// Replicas wanted.
        #[arg(long)]
        replicas: u32,
    },
    /// Stop a deployment that stays.
    Suspend(Which),
    /// Let a suspended deployment run again.
    Resume(Which),
    /// Ask for its end.
    Delete(Which),
}

/// One workload.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// Its id, or its name where that is the only one.
    workload: String,
    #[command(flatten)]
    connection: Connection,
}

/// What is wanted.
#[derive(Debug, Args)]
pub(super) struct Spec {
    /// `local-inference`, `local-job` or `endpoint`.
    #[arg(long, default_value = "local-inference")]
    kind: String,
    /// A configured runtime, for local kinds.
    #[arg(long)]
    runtime: Option<String>,
    /// A parameter of the runtime, `key=value`; repeatable.
    #[arg(long, value_parser = pair)]
    parameter: Vec<(String, String)>,
    /// Processes wanted.
    #[arg(long)]
    replicas: Option<u32>,
    /// The base URL of an endpoint, up to and including `/v1`.
    #[arg(long = "endpoint-url")]
    endpoint_url: Option<String>,
    /// The model's name at an endpoint.
    #[arg(long)]
    model: Option<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl Spec {
    fn json(self) -> Value {
        let mut spec = Map::new();
        spec.insert("kind".to_owned(), self.kind.into());
        let optional: [(&str, Option<Value>); 4] = [
            ("runtime", self.runtime.map(Into::into)),
            ("replicas", self.replicas.map(Into::into)),
            ("url", self.endpoint_url.map(Into::into)),
            ("model", self.model.map(Into::into)),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                spec.insert(name.to_owned(), value);
            }
        }
        if !self.parameter.is_empty() {
            spec.insert("parameters".to_owned(), object(self.parameter));
        }
        Value::Object(spec)
    }
}

fn object(pairs: Vec<(String, String)>) -> Value {
    Value::Object(pairs.into_iter().map(|(key, value)| (key, value.into())).collect())
}

/// The path of a workload that is named by its id or its display name.
pub(super) async fn path_of(client: &Client, text: &str) -> Result<String, Error> {
    if uuid::Uuid::try_parse(text).is_ok() {
        return Ok(format!("/v1/workloads/{}", segment(text)));
    }
    let page = client.get("/v1/workloads?limit=200").await?;
    let named: Vec<&str> =
        output::items(&page).filter(|row| row["display_name"] == text || row["route_name"] == text).filter_map(|row| row["id"].as_str()).collect();
    match named.as_slice() {
        [id] => Ok(format!("/v1/workloads/{id}")),
        [] => Err(format!("no workload of yours is named {text}").into()),
        several => Err(format!("{} workloads are named {text}; name one by its id: {}", several.len(), several.join(", ")).into()),
    }
}

pub(super) async fn run(verb: Verb) -> Result<(), Error> {
    match verb {
        Verb::Deploy { name, spec, label, idempotency_key, wait, connection } => {
            let client = connection.client()?;
            let body = json!({"name": name, "spec": spec.json(), "labels": object(label)});
            let done = client.send_once(Method::POST, "/v1/workloads", Some(body), idempotency_key.as_deref()).await?;
            if wait {
                return waited(&client, &done, &connection).await;
            }
            output::one(connection.output, &done, &STATED);
            Ok(())
        }
        Verb::Update { which, spec } => command(&which, Method::PUT, "", Some(json!({"spec": spec.json()}))).await,
        Verb::Rollback { which, to } => command(&which, Method::POST, "/rollback", Some(json!({"to": to}))).await,
        Verb::Scale { which, replicas } => command(&which, Method::POST, "/scale", Some(json!({"replicas": replicas}))).await,
        Verb::Suspend(which) => command(&which, Method::POST, "/suspend", None).await,
        Verb::Resume(which) => command(&which, Method::POST, "/resume", None).await,
        Verb::Delete(which) => command(&which, Method::DELETE, "", None).await,
        Verb::List { scope, category, kind, state, limit, cursor, connection } => {
            let mut path = format!("/v1/workloads?scope={}&limit={limit}", segment(&scope));
            for (name, value) in [("category", category), ("kind", kind), ("state", state), ("cursor", cursor)] {
                if let Some(value) = value {
                    path.push_str(&format!("&{name}={}", segment(&value)));
                }
            }
            let page = connection.client()?.get(&path).await?;
            output::rows(connection.output, &page, output::items(&page), &COLUMNS);
            output::more(connection.output, &page);
            Ok(())
        }
        Verb::Get(which) => {
            let client = which.connection.client()?;
            let row = client.get(&path_of(&client, &which.workload).await?).await?;
            output::one(which.connection.output, &row, &COLUMNS);
            Ok(())
        }
        Verb::Logs(which) => {
            let client = which.connection.client()?;
            let logs = client.get(&format!("{}/logs", path_of(&client, &which.workload).await?)).await?;
            match which.connection.output {
                output::Format::Json => output::one(output::Format::Json, &logs, &[]),
                output::Format::Table => print_lines(&logs["lines"]),
            }
            Ok(())
        }
    }
}

#[expect(clippy::print_stdout, reason = "this is what the command is for")]
fn print_lines(lines: &Value) {
    for line in lines.as_array().into_iter().flatten() {
        println!("{}", line.as_str().unwrap_or_default());
    }
}

async fn command(which: &Which, method: Method, verb: &str, body: Option<Value>) -> Result<(), Error> {
    let client = which.connection.client()?;
    let path = path_of(&client, &which.workload).await?;
    let done = client.send(method, &format!("{path}{verb}"), body).await?;
    output::one(which.connection.output, &done, &STATED);
    Ok(())
}

/// Waits until a workload runs or has ended.
async fn waited(client: &Client, done: &Value, connection: &Connection) -> Result<(), Error> {
    let (id, position) = (done["id"].as_str().unwrap_or_default(), done["position"].as_str().unwrap_or_default());
    let until = Instant::now() + Duration::from_secs(300);
    let mut last = String::new();
    loop {
        let row = client.get(&format!("/v1/workloads/{id}?after={position}")).await?;
        let state = row["state"].as_str().unwrap_or_default().to_owned();
        if state != last {
            eprintln!("{state} ({})", row["reason"].as_str().unwrap_or_default());
            last.clone_from(&state);
        }
        match state.as_str() {
            "running" | "succeeded" => {
                output::one(connection.output, &row, &COLUMNS);
                return Ok(());
            }
            "failed" => {
                print_lines(&row["detail"]["log_tail"]);
                return Err("the workload has failed".into());
            }
            _ if Instant::now() > until => return Err(format!("still {state} after 300 s").into()),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
