//! Calls to models that someone waits for, by either transport: what comes back is the same.

pub(crate) mod leased;
mod model;

use crate::problem::Problem;
use crate::state::App;
use leased::{Leased, Wanted};
pub(crate) use model::{Served, serve, target};
use serde_json::Value;
use signalbox_domain::Code;
use signalbox_events::setting::Transport;
use signalbox_worker::upstream::{self, Fault, Marks};
pub(crate) use signalbox_worker::upstream::{Answer, as_chunk};

/// Why a call brought no whole answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallError {
    /// A stable reason.
    pub code: Code,
    /// What the caller may know.
    pub detail: String,
    /// The status that the model answered, where it did.
    pub status: Option<u16>,
}

impl From<upstream::CallError> for CallError {
    fn from(error: upstream::CallError) -> Self {
        let code = match error.fault {
            Fault::Unreachable => Code::UpstreamUnreachable,
            Fault::Rejected => Code::UpstreamRejected,
            Fault::AuthFailed => Code::UpstreamAuthFailed,
            Fault::TooManyRequests => Code::TooManyRequests,
            Fault::Timeout => Code::UpstreamTimeout,
            Fault::Disconnected => Code::UpstreamDisconnected,
            Fault::Protocol => Code::UpstreamProtocol,
        };
        Self { code, detail: error.detail, status: error.status }
    }
}

impl CallError {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), status: None }
    }

    pub fn problem(&self) -> Problem {
        // A refusal of the request is the caller's to mend, so the model's status reaches the caller.
        let status = self.status.filter(|status| self.code == Code::UpstreamRejected && *status >= 400);
        let retry_after = (self.code == Code::NoWorkerAvailable).then_some(1);
        Problem { status, retry_after, ..Problem::new(self.code, self.detail.clone()) }
    }
}

/// A model's answer whose beginning has come.
pub(crate) enum Reply {
    /// It streams.
    Stream(Chunks),
    /// It is whole.
    Whole(Value),
}

/// The chunks of a streamed answer.
pub(crate) enum Chunks {
    /// From the model itself.
    Direct(Box<upstream::Chunks>),
    /// From a worker.
    Leased(Box<Leased>),
}

impl Chunks {
    /// The next chunk; `None` at the model's own end mark. A stream that ends without one gives an error.
    pub async fn next(&mut self) -> Result<Option<Value>, CallError> {
        match self {
            Self::Direct(chunks) => Ok(chunks.next().await?),
            Self::Leased(leased) => leased.next().await,
        }
    }
}

/// Calls a model: `body` is sent as it is, save for the model's name there.
pub(crate) async fn send(app: &App, served: &Served, wanted: Wanted) -> Result<Reply, CallError> {
    match (&served.address, served.transport) {
        (Some((base, model)), Transport::Direct) => {
            let mut body = wanted.body;
            body.insert("model".to_owned(), model.as_str().into());
            let (_, path) = signalbox_worker::openai::OpenAi::KINDS.into_iter().find(|(kind, _)| *kind == wanted.kind).unwrap_or_default();
            let reply = upstream::call(&app.http, &format!("{base}{path}"), Value::Object(body).to_string(), &Marks::default()).await?;
            Ok(match reply {
                upstream::Reply::Whole(whole) => Reply::Whole(whole),
                upstream::Reply::Stream(chunks) => Reply::Stream(Chunks::Direct(Box::new(chunks))),
            })
        }
        // Credentials of upstreams are a worker's to hold, so their models are called by workers alone.
        (Some(_), Transport::Lease) | (None, _) => Leased::call(app, wanted, served.target.clone()).await,
    }
}
