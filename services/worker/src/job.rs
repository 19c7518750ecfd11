//! One leased task, as a handler sees it.

use crate::link::{CallError, Link, PATIENCE};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use signalbox_events::conversation::Usage;
use signalbox_events::work::{
    Assignment, Fetch, Fetched, LeaseRef, Outcome, Redeem, Redeemed, Report, SealedCredential, Taken, Verb, stream_subject,
};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Does the work of one task at a time in each of the worker's slots.
pub trait Handler: Send + Sync + 'static {
    /// Does it. A handler that returns an ending without having redeemed gives the task back unsent.
    fn execute<'a>(&'a self, job: &'a mut Job) -> BoxFuture<'a, Done>;
}

/// How certain it is that nothing was, or that something was, sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// E0: it failed before the first byte of the request.
    NotSent,
    /// E1: a complete refusal: the upstream did nothing.
    Rejected,
    /// E3: nobody knows.
    Unknown,
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// A result, JSON as text.
    Succeeded {
        /// What came of it.
        result: String,
        /// What it cost.
        usage: Option<Usage>,
    },
    /// An error that another try would not mend.
    Failed {
        /// A stable word.
        code: String,
        /// The status that the upstream answered.
        upstream_status: Option<u16>,
        /// What had arrived.
        partial: Option<String>,
        /// What it cost so far.
        usage: Option<Usage>,
        /// What the upstream said.
        detail: Option<String>,
    },
    /// It did not come to an end, and this is known of it.
    Broken {
        /// How certain it is.
        evidence: Evidence,
        /// A stable word.
        code: String,
        /// Whether another try can mend it.
        retryable: bool,
        /// The status that the upstream answered.
        upstream_status: Option<u16>,
        /// How long the upstream wants to be left alone.
        retry_after_seconds: Option<u32>,
        /// What had arrived.
        partial: Option<String>,
        /// What the upstream said.
        detail: Option<String>,
    },
    /// It was broken off on demand.
    Cancelled {
        /// What had arrived.
        partial: Option<String>,
        /// What it cost so far.
        usage: Option<Usage>,
    },
    /// Given back unsent: a stable word says why.
    Released(String),
}

/// The token was not redeemed: nothing may be sent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotRedeemed {
    /// The service says no.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The lease was not renewed for so long that it may be another's.
    #[error("the worker has fenced itself")]
    Fenced,
    /// It was redeemed by this very job before.
    #[error("the job was redeemed before")]
    Twice,
}

/// A credential cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the credential was not sealed for this start")]
pub struct Unreadable;

/// A leased task.
pub struct Job {
    pub(crate) link: Link,
    pub(crate) assignment: Assignment,
    pub(crate) cancel: CancellationToken,
    /// When the last renewal, or the grant, was asked for.
    pub(crate) renewed: watch::Receiver<Instant>,
    /// After this without renewal the worker does not trust its lease.
    pub(crate) fence: Duration,
    pub(crate) redeemed: bool,
    pub(crate) deltas: u64,
    /// Opens credentials that were sealed for this start.
    pub(crate) secret: crypto_box::SecretKey,
    pub(crate) credential: Option<SealedCredential>,
}

/// An upstream's credential: memory only.
#[derive(Clone)]
pub struct Credential {
    /// The header that it goes into.
    pub header: String,
    /// The header's value.
    pub value: String,
    /// The only origin that it may be sent to.
    pub origin: String,
}

impl Job {
    /// What was leased.
    pub fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// Cancelled when someone wants the task to end, and when an unredeemed lease can no longer be trusted.
    pub fn cancelled(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Whether the token was redeemed.
    pub fn is_redeemed(&self) -> bool {
        self.redeemed
    }

    pub(crate) fn lease(&self) -> LeaseRef {
        LeaseRef { account: self.assignment.account, task: self.assignment.task, epoch: self.assignment.epoch }
    }

    fn is_fenced(&self) -> bool {
        self.renewed.borrow().elapsed() >= self.fence
    }

    /// The commit point, and the last step before bytes leave. Once `Ok`, send, once.
    ///
    /// A lost answer is asked for again with the same nonce, and never by another incarnation.
    pub async fn redeem(&mut self) -> Result<(), NotRedeemed> {
        if self.redeemed {
            return Err(NotRedeemed::Twice);
        }
        let incarnation = self.link.incarnation;
        // One nonce a lease of this incarnation: what a crash leaves behind cannot make it again.
        let nonce = Uuid::new_v5(&incarnation.0, format!("{} {}", self.assignment.task, self.assignment.epoch).as_bytes());
        let redeem = Redeem { incarnation, lease: self.lease(), token: self.assignment.token.clone(), nonce };
        let mut pause = Duration::from_millis(20);
        loop {
            if self.is_fenced() {
                return Err(NotRedeemed::Fenced);
            }
            match self.link.call::<Redeemed>(Verb::Redeem, &redeem, PATIENCE).await {
                Ok(Redeemed { credential }) => {
                    self.credential = credential;
                    break;
                }
                Err(error) if error.is_transient() => tokio::time::sleep(pause).await,
                Err(error) => return Err(error.into()),
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
        self.redeemed = true;
        // The answer may have taken its time.
        if self.is_fenced() { Err(NotRedeemed::Fenced) } else { Ok(()) }
    }

    /// The whole payload, fetched in pieces where it is large. Before [`Job::redeem`]: what cannot be read is not sent.
    pub async fn payload(&self) -> Result<String, CallError> {
        if let Some(payload) = &self.assignment.payload {
            return Ok(payload.clone());
        }
        let mut payload = String::new();
        let mut offset = 0;
        loop {
            let fetch = Fetch { incarnation: self.link.incarnation, lease: self.lease(), offset };
            let until = tokio::time::Instant::now() + self.fence;
            let piece = self.link.insist::<Fetched>(Verb::Fetch, &fetch, until).await?;
            payload.push_str(&piece.text);
            match piece.next {
                Some(next) => offset = next,
                None => return Ok(payload),
            }
        }
    }

    /// The upstream's credential, once the token is redeemed; `None`: it has none. `Err`: it was not sealed for this start.
    pub fn credential(&self) -> Result<Option<Credential>, Unreadable> {
        let Some(sealed) = &self.credential else { return Ok(None) };
        let bytes = hex::decode(&sealed.sealed).map_err(|_| Unreadable)?;
        let opened = self.secret.unseal(&bytes).map_err(|_| Unreadable)?;
        let value = String::from_utf8(opened).map_err(|_| Unreadable)?;
        Ok(Some(Credential { header: sealed.header.clone(), value, origin: sealed.origin.clone() }))
    }

    /// Says that the upstream took the task.
    pub async fn acknowledge(&self, upstream_id: &str) -> Result<(), CallError> {
        let report = Report { upstream_id: Some(upstream_id.to_owned()), ..self.report(Outcome::Acknowledged) };
        self.link.call::<Taken>(Verb::Report, &report, PATIENCE).await.map(drop)
    }

    /// Passes a piece of the answer on to whoever reads along.
    pub async fn delta(&mut self, payload: Bytes) {
        self.deltas += 1;
        let Assignment { task, attempt, .. } = self.assignment;
        self.link.delta(stream_subject(&self.link.pool, &self.link.worker, task, attempt), self.deltas, payload).await;
    }

    pub(crate) fn report(&self, outcome: Outcome) -> Report {
        Report {
            incarnation: self.link.incarnation,
            lease: self.lease(),
            outcome,
            code: None,
            upstream_status: None,
            upstream_id: None,
            retryable: false,
            retry_after_seconds: None,
            result: None,
            parts: None,
            detail: None,
            usage: None,
        }
    }
}
