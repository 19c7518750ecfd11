//! The worker protocol, version 1: what workers ask over NATS and what they are answered.
//!
//! Requests go to `work.<pool>.<worker>.<verb>`. Bodies are maps with field names, MessagePack, or JSON where the header
//! `Content-Type` is `application/json`; an answer comes in the form of its request. Ids are texts in JSON and 16 bytes in
//! MessagePack. Durations are milliseconds, relative: no clock of a worker is ever compared with ours.

use crate::conversation::Usage;
use crate::facts::words;
use crate::id::{AccountId, IncarnationId, PoolId, TaskId, WorkerId};
use crate::task::{RunMode, State};
use crate::time::Micros;
use crate::worker::Capabilities;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The version of the protocol.
pub const PROTOCOL: u16 = 1;
/// The header of a refusal; its value is the code.
pub const ERROR_HEADER: &str = "Signalbox-Error";
/// The header that says `application/json` where a body is JSON.
pub const TYPE_HEADER: &str = "Content-Type";
/// A body of JSON.
pub const JSON: &str = "application/json";
/// Largest payload or result in bytes that travels within a message; larger ones move in pieces.
pub const MOST_INLINE: usize = 640 * 1024;
/// Largest piece in bytes of a payload or result that moves in pieces.
pub const MOST_PIECE: usize = 256 * 1024;
/// Largest result in bytes.
pub const MOST_RESULT: usize = 32 * 1024 * 1024;
/// Longest word of an upstream on why it refused, in characters.
pub const MOST_DETAIL: usize = 500;

words! {
    /// What a worker may ask.
    Verb {
        /// [`Hello`].
        Hello = "hello",
        /// [`Claim`].
        Claim = "claim",
        /// [`Redeem`].
        Redeem = "redeem",
        /// [`Renew`].
        Renew = "renew",
        /// [`Release`].
        Release = "release",
        /// [`Report`].
        Report = "report",
        /// [`Fetch`].
        Fetch = "fetch",
        /// [`StorePart`].
        Store = "store",
        /// [`Bye`].
        Bye = "bye",
    }
}

words! {
    /// What became of an attempt.
    Outcome {
        /// The upstream took it; it goes on.
        Acknowledged = "acknowledged",
        /// E0: it failed before the first byte of the request.
        NotSent = "not_sent",
        /// E1: a complete refusal.
        Rejected = "rejected",
        /// It is done.
        Succeeded = "succeeded",
        /// It ended with an error that another try would not mend.
        Failed = "failed",
        /// It was broken off on demand.
        Cancelled = "cancelled",
        /// E3: nobody knows.
        Unknown = "unknown",
    }
}

/// The subject of a worker's request.
pub fn request_subject(pool: &PoolId, worker: &WorkerId, verb: Verb) -> String {
    format!("work.{pool}.{worker}.{verb}")
}

/// Reads the subject of a request.
pub fn parse_request(subject: &str) -> Option<(PoolId, WorkerId, Verb)> {
    let mut tokens = subject.strip_prefix("work.")?.split('.');
    let parsed = (tokens.next()?.parse().ok()?, tokens.next()?.parse().ok()?, tokens.next()?.parse().ok()?);
    tokens.next().is_none().then_some(parsed)
}

/// The subject of hints that a pool has work: empty messages without authority, for a queue group of its workers.
pub fn queue_subject(pool: &PoolId) -> String {
    format!("queue.{pool}")
}

/// The subject on which a worker is told to act.
pub fn control_subject(pool: &PoolId, worker: &WorkerId) -> String {
    format!("ctl.{pool}.{worker}.control")
}

/// The subject of an attempt's deltas, numbered from 1 by the header `Signalbox-Seq`; an empty one is the last.
pub fn stream_subject(pool: &PoolId, worker: &WorkerId, task: TaskId, attempt: u32) -> String {
    format!("stream.{pool}.{worker}.{task}.{attempt}")
}

/// A worker has started. The first request of an incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u16,
    /// A fresh id of this start.
    pub incarnation: IncarnationId,
    /// The worker's own version, for people, at most 64 bytes.
    pub version: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Tasks that it executes at once.
    pub slots: u32,
    /// The X25519 key of this start, 64 hex digits: credentials are sealed for it. A worker without one gets no task that needs
    /// a credential.
    #[serde(default)]
    pub public_key: Option<String>,
}

/// The answer to [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`PROTOCOL`].
    pub protocol: u16,
    /// How long a lease lives after its grant or last renewal.
    pub lease_ttl_ms: u64,
    /// How often to renew, give or take a fifth.
    pub renew_every_ms: u64,
    /// The longest wait of a claim.
    pub claim_wait_ms: u64,
}

/// A worker with a free slot wants a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// This start.
    pub incarnation: IncarnationId,
    /// How long the answer may take where there is no task yet, at most [`Welcome::claim_wait_ms`].
    pub wait_ms: u64,
}

/// The answer to [`Claim`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// A task; null when none came in time.
    pub task: Option<Assignment>,
    /// Claim no more: end what runs, then say bye.
    pub draining: bool,
}

/// Where a task is to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// The base URL of an OpenAI-compatible service, without a slash at its end.
    pub base_url: String,
    /// The model's name there.
    pub model: String,
}

/// A leased task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The account.
    pub account: AccountId,
    /// The task.
    pub task: TaskId,
    /// Which try, from 1.
    pub attempt: u32,
    /// The fence: goes with everything that is said of this lease.
    pub epoch: u64,
    /// The execution token, hex: memory only.
    pub token: String,
    /// What is to be done.
    pub kind: String,
    /// Whether deltas are wanted.
    pub streaming: bool,
    /// `simulation`: nothing is sent.
    pub run_mode: RunMode,
    /// What it is to be done with: a JSON object, as text. Null: it is larger than [`MOST_INLINE`] and read by [`Fetch`].
    #[serde(default)]
    pub payload: Option<String>,
    /// The payload's size.
    pub payload_bytes: u64,
    /// Where it is to be sent, where its kind is sent anywhere.
    pub destination: Option<Destination>,
    /// The upstream's idempotency key: the same for every message of this attempt.
    pub attempt_id: Uuid,
    /// How long the lease lives unless it is renewed.
    pub expires_in_ms: u64,
}

/// Names a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRef {
    /// The account.
    pub account: AccountId,
    /// The task.
    pub task: TaskId,
    /// The fence.
    pub epoch: u64,
}

/// The commit point: asked as the last step before bytes leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redeem {
    /// This start.
    pub incarnation: IncarnationId,
    /// The lease.
    pub lease: LeaseRef,
    /// The token, hex.
    pub token: String,
    /// The worker's own mark: the same where a lost answer is asked for again.
    pub nonce: Uuid,
}

/// The answer to [`Redeem`]: send now, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redeemed {
    /// The upstream's credential, where it has one.
    #[serde(default)]
    pub credential: Option<SealedCredential>,
}

/// A credential that only one start of one worker can read. Memory only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedCredential {
    /// The header that it goes into, lower case.
    pub header: String,
    /// The only origin that it may be sent to, `https://api.example.com`.
    pub origin: String,
    /// The header's value in a sealed box of libsodium (X25519, XSalsa20-Poly1305) for [`Hello::public_key`], hex.
    pub sealed: String,
}

/// Reads a piece of a large payload, under a live lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    /// This start.
    pub incarnation: IncarnationId,
    /// The lease.
    pub lease: LeaseRef,
    /// Where the piece begins, in bytes: 0, then [`Fetched::next`].
    pub offset: u64,
}

/// The answer to [`Fetch`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetched {
    /// The piece, at most [`MOST_PIECE`] bytes.
    pub text: String,
    /// Where the next piece begins; null at the end.
    pub next: Option<u64>,
    /// The payload's size.
    pub total: u64,
}

/// Hands a piece of a large result in, under a lease that was redeemed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorePart {
    /// This start.
    pub incarnation: IncarnationId,
    /// The lease.
    pub lease: LeaseRef,
    /// Which piece, from 0.
    pub part: u32,
    /// The piece, at most [`MOST_PIECE`] bytes.
    pub text: String,
}

/// The answer to [`StorePart`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {}

/// A sign of life that renews every lease in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renew {
    /// This start.
    pub incarnation: IncarnationId,
    /// Slots that are free.
    pub free_slots: u32,
    /// What it holds.
    pub leases: Vec<LeaseRef>,
}

/// What becomes of one lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseState {
    /// The task.
    pub task: TaskId,
    /// The fence.
    pub epoch: u64,
    /// `live`, or the code by which anything else is refused: `lease_closed`, `lease_superseded`, ..
    pub state: String,
    /// Break it off: someone wants the task to end.
    pub cancel: bool,
}

/// The answer to [`Renew`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewed {
    /// How long live leases live from now on.
    pub expires_in_ms: u64,
    /// Each lease that was named.
    pub leases: Vec<LeaseState>,
    /// Claim no more.
    pub draining: bool,
}

/// Gives a task back, unsent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// This start.
    pub incarnation: IncarnationId,
    /// The lease.
    pub lease: LeaseRef,
    /// A stable word: `drained`, ..
    pub reason: String,
}

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// This start.
    pub incarnation: IncarnationId,
    /// The lease.
    pub lease: LeaseRef,
    /// What became of it.
    pub outcome: Outcome,
    /// A stable word: with `not_sent`, `rejected`, `failed`, `unknown`.
    #[serde(default)]
    pub code: Option<String>,
    /// The status that the upstream answered.
    #[serde(default)]
    pub upstream_status: Option<u16>,
    /// The upstream's id of it: with `acknowledged`.
    #[serde(default)]
    pub upstream_id: Option<String>,
    /// Whether another try can mend it: with `not_sent` and `rejected`.
    #[serde(default)]
    pub retryable: bool,
    /// How long the upstream wants to be left alone: with `rejected`.
    #[serde(default)]
    pub retry_after_seconds: Option<u32>,
    /// JSON as text with `succeeded`; what had arrived with `failed`, `cancelled`, `unknown`.
    #[serde(default)]
    pub result: Option<String>,
    /// In place of a result of more than [`MOST_INLINE`] bytes: how many pieces of it were stored.
    #[serde(default)]
    pub parts: Option<u32>,
    /// What the upstream said, at most [`MOST_DETAIL`] characters: with `rejected` and `failed`.
    #[serde(default)]
    pub detail: Option<String>,
    /// What it cost.
    #[serde(default)]
    pub usage: Option<Usage>,
}

/// The answer to [`Report`], [`Release`] and [`Bye`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Where the task stands; null for [`Bye`].
    pub state: Option<State>,
}

/// The incarnation ends in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bye {
    /// This start.
    pub incarnation: IncarnationId,
}

/// One worker's last renewal, as it is kept beside the log under `<pool>.<worker>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Which start of it.
    pub incarnation: IncarnationId,
    /// When, on the clock of the replica that took it.
    pub at: Micros,
    /// Slots that were free.
    pub free_slots: u32,
    /// The leases that it holds: task and fence.
    pub leases: Vec<(TaskId, u64)>,
}

words! {
    /// What a worker can be told.
    Order {
        /// Break the task off.
        Cancel = "cancel",
        /// Claim no more: end what runs, then say bye.
        Drain = "drain",
    }
}

/// The subject on which a gateway asks whether a pool can take work that someone waits for.
pub fn capacity_subject(pool: &PoolId) -> String {
    format!("capacity.{pool}")
}

/// The subject on which gateways hear that something has happened to a task that someone waits for: an empty message
/// without authority.
pub fn notice_subject(task: TaskId) -> String {
    format!("notice.{task}")
}

/// Whether a worker of the pool could take such a task now. Answered with [`Capacity`], or refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// What is to be done.
    pub kind: String,
    /// Whether the answer is wanted piece by piece.
    pub streaming: bool,
}

/// The answer to [`Wanted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Workers that claim and could take it, busy ones included; at least one.
    pub workers: u32,
}

/// A message on a worker's control subject. One for another incarnation is not for this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// Whom it is for.
    pub incarnation: IncarnationId,
    /// What to do.
    pub order: Order,
    /// Which task, with `cancel`.
    #[serde(default)]
    pub task: Option<TaskId>,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct Refusal {
    /// A stable code, as in the HTTP API.
    pub code: String,
    /// One sentence for a person.
    pub detail: String,
}

/// How bodies are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// MessagePack maps with field names.
    MessagePack,
    /// JSON.
    Json,
}

/// A body that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Not the MessagePack that was expected.
    #[error("the body is not the MessagePack that was expected: {0}")]
    Read(#[from] crate::DecodeError),
    /// Not the JSON that was expected.
    #[error("the body is not the JSON that was expected: {0}")]
    Json(#[from] serde_json::Error),
    /// It cannot be written.
    #[error("the body cannot be written")]
    Write(#[from] rmp_serde::encode::Error),
}

impl Form {
    /// A body's bytes.
    pub fn write<T: Serialize>(self, body: &T) -> Result<Vec<u8>, BodyError> {
        match self {
            Self::MessagePack => Ok(rmp_serde::to_vec_named(body)?),
            Self::Json => Ok(serde_json::to_vec(body)?),
        }
    }

    /// Reads a body. Fields that this version does not know are passed over.
    pub fn read<T: serde::de::DeserializeOwned>(self, bytes: &[u8]) -> Result<T, BodyError> {
        match self {
            Self::MessagePack => Ok(crate::codec::read(bytes)?),
            Self::Json => Ok(serde_json::from_slice(bytes)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            incarnation: IncarnationId(Uuid::from_u128(1)),
            lease: LeaseRef { account: AccountId(Uuid::from_u128(2)), task: TaskId(Uuid::from_u128(3)), epoch: 4 },
            outcome: Outcome::Rejected,
            code: Some("rate_limited".to_owned()),
            upstream_status: Some(429),
            upstream_id: None,
            retryable: true,
            retry_after_seconds: Some(7),
            result: None,
            parts: None,
            detail: None,
            usage: None,
        }
    }

    #[test]
    fn a_body_reads_back_in_both_forms() {
        for form in [Form::MessagePack, Form::Json] {
            let bytes = form.write(&report()).unwrap();
            assert_eq!(form.read::<Report>(&bytes).unwrap(), report());
            assert!(form.read::<Report>(&bytes[..bytes.len() - 1]).is_err());
        }
        let short = br#"{"incarnation":"00000000-0000-0000-0000-000000000001","lease":{"account":"00000000-0000-0000-0000-000000000002",
            "task":"00000000-0000-0000-0000-000000000003","epoch":4},"outcome":"succeeded","later":1}"#;
        assert_eq!(Form::Json.read::<Report>(short).unwrap().outcome, Outcome::Succeeded);
    }

    /// The bytes that docs/worker-protocol.md shows.
    #[test]
    fn the_documented_exchange_is_what_is_spoken() {
        let document = include_str!("../../docs/worker-protocol.md");
        let claim = Claim { incarnation: IncarnationId(Uuid::from_u128(1)), wait_ms: 1000 };
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        let shown = document.replace('\n', " ");
        assert!(shown.contains(&hex(&Form::MessagePack.write(&claim).unwrap())), "{}", hex(&Form::MessagePack.write(&claim).unwrap()));
        let json = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert!(document.contains(&json(Form::Json.write(&claim).unwrap())));
        assert!(document.contains(&json(Form::Json.write(&Claimed { task: None, draining: false }).unwrap())));
        for verb in Verb::ALL {
            assert!(document.contains(&format!("| `{verb}` |")), "{verb}");
        }
        for outcome in Outcome::ALL {
            assert!(document.contains(&format!("| `{outcome}` |")), "{outcome}");
        }
    }

    #[test]
    fn a_request_is_known_by_its_subject() {
        let (pool, worker): (PoolId, WorkerId) = ("eu".parse().unwrap(), "gpu-01".parse().unwrap());
        for verb in Verb::ALL {
            let subject = request_subject(&pool, &worker, *verb);
            assert_eq!(parse_request(&subject), Some((pool.clone(), worker.clone(), *verb)));
        }
        for bad in
            ["work.eu.gpu-01", "work.eu.gpu-01.steal", "work.eu.gpu-01.claim.x", "work.*.gpu-01.claim", "work.eu..claim", "evt.eu.gpu-01.claim"]
        {
            assert_eq!(parse_request(bad), None, "{bad}");
        }
    }
}
