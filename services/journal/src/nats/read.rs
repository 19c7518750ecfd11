//! Reading by batches of direct gets: without a consumer there is no state on the server that could stall.

use super::PATIENCE;
use crate::journal::{StoreError, Stored, Tail};
use async_nats::jetstream::Context;
use async_nats::jetstream::stream::Info;
use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use chrono::DateTime;
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::json;
use signalbox_events::subject;

/// Bytes of one batch: keeps memory bounded whatever the size of single messages.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// A message as a direct get answers it.
pub(super) struct Got {
    pub sequence: u64,
    pub subject: String,
    pub headers: HeaderMap,
    pub payload: Bytes,
}

pub(super) async fn read(
    client: &Client,
    api: &str,
    partition: u16,
    filter: &str,
    after: u64,
    most: usize,
) -> Result<(Vec<Stored>, bool), StoreError> {
    let (found, more) = direct_batch(client, api, &subject::stream(partition), filter, after, most).await?;
    let stored = |got: Got| Stored { sequence: got.sequence, subject: got.subject, payload: got.payload };
    Ok((found.into_iter().map(stored).collect(), more))
}

/// Messages of `stream` behind sequence `after` on subjects that match `filter`; whether more follow.
pub(super) async fn direct_batch(
    client: &Client,
    api: &str,
    stream: &str,
    filter: &str,
    after: u64,
    most: usize,
) -> Result<(Vec<Got>, bool), StoreError> {
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.map_err(failed)?;
    // With `next_by_subj` a deleted message is stepped over, and so becomes visible as a gap in the sequences.
    let request = json!({ "seq": after + 1, "next_by_subj": filter, "batch": most, "max_bytes": MOST_BYTES });
    client.publish_with_reply(format!("{api}.DIRECT.GET.{stream}"), inbox, request.to_string().into()).await.map_err(failed)?;
    let mut found = Vec::new();
    let mut pending = 0_u64;
    loop {
        let answer = tokio::time::timeout(PATIENCE, answers.next()).await.map_err(|_| StoreError::Timeout)?;
        let answer = answer.ok_or_else(|| StoreError::Failed("the connection closed".to_owned()))?;
        let headers = answer.headers.unwrap_or_default();
        let number = |name: &str| headers.get(name).and_then(|text| text.as_str().parse::<u64>().ok());
        match answer.status.map(|status| status.as_u16()) {
            None | Some(200) => {
                let (Some(sequence), Some(subject)) = (number("Nats-Sequence"), headers.get("Nats-Subject")) else {
                    return Err(StoreError::Failed("an answer without sequence or subject".to_owned()));
                };
                pending = number("Nats-Num-Pending").unwrap_or(0);
                let subject = subject.as_str().to_owned();
                found.push(Got { sequence, subject, headers, payload: answer.payload });
            }
            // End of the batch.
            Some(204) => return Ok((found, pending > 0)),
            // Nothing at or behind the sequence.
            Some(404) => return Ok((found, false)),
            Some(status) => {
                let description = answer.description.unwrap_or_default();
                return Err(StoreError::Failed(format!("a read was answered with {status} {description}")));
            }
        }
    }
}

pub(super) async fn head(client: &Client, api: &str, partition: u16, subject: &str) -> Result<u64, StoreError> {
    #[derive(Deserialize)]
    struct Answer {
        message: Option<Message>,
        error: Option<Error>,
    }
    #[derive(Deserialize)]
    struct Message {
        seq: u64,
    }
    #[derive(Deserialize)]
    struct Error {
        err_code: u64,
        description: String,
    }
    // Unlike a direct get, this is answered by the leader.
    let request = json!({ "last_by_subj": subject }).to_string();
    let to = format!("{api}.STREAM.MSG.GET.{}", subject::stream(partition));
    let answer = tokio::time::timeout(PATIENCE, client.request(to, request.into())).await.map_err(|_| StoreError::Timeout)?.map_err(failed)?;
    let answer: Answer = serde_json::from_slice(&answer.payload).map_err(failed)?;
    match (answer.message, answer.error) {
        (Some(message), _) => Ok(message.seq),
        (None, Some(error)) if error.err_code == 10037 => Ok(0),
        (None, Some(error)) => Err(StoreError::Failed(error.description)),
        (None, None) => Err(StoreError::Failed("an empty answer".to_owned())),
    }
}

pub(super) async fn tail(jetstream: &Context, partition: u16) -> Result<Tail, StoreError> {
    let stream = jetstream.get_stream(subject::stream(partition)).await.map_err(failed)?;
    Ok(tail_of(stream.cached_info()))
}

pub(super) fn tail_of(info: &Info) -> Tail {
    let created = i64::try_from(info.created.unix_timestamp_nanos() / 1000).unwrap_or(0);
    Tail { created: DateTime::from_timestamp_micros(created).unwrap_or_default(), first: info.state.first_sequence, last: info.state.last_sequence }
}

pub(super) fn failed(error: impl std::fmt::Display) -> StoreError {
    StoreError::Failed(error.to_string())
}
