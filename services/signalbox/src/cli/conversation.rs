//! `signalbox conversation ..`

use super::{Connection, output, segment};
use crate::client::Client;
use crate::{Error, clock};
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};
use std::io::Write;

const COLUMNS: [(&str, &str); 5] = [("id", "id"), ("title", "title"), ("model", "model"), ("turns", "turn_count"), ("updated", "updated_at")];
const STATED: [(&str, &str); 2] = [("id", "id"), ("position", "position")];

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Start a conversation with a deployment.
    Start {
        /// The deployment: its id, its name, or its name in requests.
        workload: String,
        /// A title; else the first message makes one.
        #[arg(long)]
        title: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Say something; the answer streams.
    Say {
        /// The conversation.
        conversation: String,
        /// What to say.
        text: String,
        /// Your own key for the turn: the same key with the same text is the same turn.
        #[arg(long)]
        client_turn_id: Option<String>,
        /// Most tokens of the answer.
        #[arg(long)]
        max_tokens: Option<u64>,
        #[command(flatten)]
        connection: Connection,
    },
    /// List your conversations, the one touched last first.
    List {
        /// Rows of the page.
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Where the page begins.
        #[arg(long)]
        cursor: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show a conversation with its turns.
    Show {
        /// The conversation.
        conversation: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Give it another title.
    Rename {
        /// The conversation.
        conversation: String,
        /// The new title.
        title: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// End a turn that runs.
    Cancel {
        /// The conversation.
        conversation: String,
        /// The turn, as `show -o json` names it; else the one that runs.
        turn: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Delete a conversation.
    Delete {
        /// The conversation.
        conversation: String,
        #[command(flatten)]
        connection: Connection,
    },
}

pub(super) async fn run(verb: Verb) -> Result<(), Error> {
    match verb {
        Verb::Start { workload, title, connection } => {
            let client = connection.client()?;
            let mut body = deployment(&client, &workload).await?;
            if let Some(title) = title {
                body["title"] = title.into();
            }
            let done = client.send(Method::POST, "/v1/conversations", Some(body)).await?;
            output::one(connection.output, &done, &STATED);
        }
        Verb::Say { conversation, text, client_turn_id, max_tokens, connection } => {
            let key = client_turn_id.unwrap_or_else(|| format!("cli-{}", clock::id()));
            let mut body = json!({"client_turn_id": key, "content": text, "stream": true});
            if let Some(most) = max_tokens {
                body["max_tokens"] = most.into();
            }
            say(&connection, &conversation, body).await?;
        }
        Verb::List { limit, cursor, connection } => {
            let cursor = cursor.map(|cursor| format!("&cursor={}", segment(&cursor))).unwrap_or_default();
            let page = connection.client()?.get(&format!("/v1/conversations?limit={limit}{cursor}")).await?;
            output::rows(connection.output, &page, output::items(&page), &COLUMNS);
            output::more(connection.output, &page);
        }
        Verb::Show { conversation, connection } => {
            let shown = connection.client()?.get(&format!("/v1/conversations/{}", segment(&conversation))).await?;
            show(&connection, &shown);
        }
        Verb::Rename { conversation, title, connection } => {
            let path = format!("/v1/conversations/{}", segment(&conversation));
            let done = connection.client()?.send(Method::PATCH, &path, Some(json!({"title": title}))).await?;
            output::one(connection.output, &done, &STATED);
        }
        Verb::Cancel { conversation, turn, connection } => {
            let client = connection.client()?;
            let path = format!("/v1/conversations/{}", segment(&conversation));
            let turn = match turn {
                Some(turn) => turn,
                None => {
                    let shown = client.get(&path).await?;
                    let open = |turn: &&Value| turn["state"] == "running" || turn["state"] == "submitted";
                    let running = shown["turns"].as_array().into_iter().flatten().find(open);
                    running.and_then(|turn| turn["turn_id"].as_str()).ok_or("no turn of this conversation runs")?.to_owned()
                }
            };
            let ended = client.send(Method::POST, &format!("{path}/turns/{}/cancel", segment(&turn)), None).await?;
            output::one(connection.output, &ended, &[("turn", "turn_id"), ("state", "state"), ("partial", "partial")]);
        }
        Verb::Delete { conversation, connection } => {
            let path = format!("/v1/conversations/{}", segment(&conversation));
            let done = connection.client()?.send(Method::DELETE, &path, None).await?;
            output::one(connection.output, &done, &STATED);
        }
    }
    Ok(())
}

/// How a request names a deployment that the user named by its id, its display name or its name in requests. Members
/// may talk to deployments of their account that are not their own, so the models are asked, not the list.
async fn deployment(client: &Client, text: &str) -> Result<Value, Error> {
    if uuid::Uuid::try_parse(text).is_ok() {
        return Ok(json!({"workload": text}));
    }
    let models = client.get("/v1/models").await?;
    let named = models["data"].as_array().into_iter().flatten().filter(|model| model["id"] == text || model["name"] == text);
    let named: Vec<&str> = named.filter_map(|model| model["id"].as_str()).collect();
    match named.as_slice() {
        [id] => Ok(json!({"model": id})),
        [] => Err(format!("there is no model {text} here").into()),
        several => Err(format!("{} models are named {text}; say which: {}", several.len(), several.join(", ")).into()),
    }
}

/// Prints the answer as it arrives; in JSON, the turn as it ended.
#[expect(clippy::print_stdout, reason = "this is what the command is for")]
async fn say(connection: &Connection, conversation: &str, body: Value) -> Result<(), Error> {
    let path = format!("/v1/conversations/{}/turns", segment(conversation));
    let table = connection.output == output::Format::Table;
    let mut ending = Value::Null;
    connection
        .client()?
        .stream(&path, body, &mut |event| {
            if event.name == "delta" {
                if table {
                    print!("{}", event.data["delta"]["content"].as_str().unwrap_or_default());
                    let _ = std::io::stdout().flush();
                }
            } else {
                ending = event.data.clone();
            }
        })
        .await?;
    if table {
        println!();
    } else {
        output::one(connection.output, &ending, &[]);
    }
    match ending["state"].as_str() {
        Some("completed") => Ok(()),
        Some(state) => Err(format!("the turn is {state}{}", ending["code"].as_str().map(|code| format!(": {code}")).unwrap_or_default()).into()),
        None => Err("the stream broke off; `conversation show` tells how the turn ended".into()),
    }
}

#[expect(clippy::print_stdout, reason = "this is what the command is for")]
fn show(connection: &Connection, shown: &Value) {
    if connection.output == output::Format::Json {
        return output::one(connection.output, shown, &[]);
    }
    println!("{}  ({})", shown["title"].as_str().unwrap_or("untitled"), shown["model"].as_str().unwrap_or_default());
    for turn in shown["turns"].as_array().into_iter().flatten() {
        for message in turn["messages"].as_array().into_iter().flatten() {
            println!("\n{}: {}", message["role"].as_str().unwrap_or_default(), content(message));
        }
        let answer = if turn["answer"].is_null() { turn["partial"].as_str().unwrap_or_default().to_owned() } else { content(&turn["answer"]) };
        let state = turn["state"].as_str().unwrap_or_default();
        println!("\nassistant{}: {answer}", if state == "completed" { String::new() } else { format!(" ({state})") });
    }
}

fn content(message: &Value) -> String {
    signalbox_domain::conversation::message::text_of(message)
}
