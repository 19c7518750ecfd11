//! Calls to models from the gateway itself: the worker's own client, with errors as answers know them.

use crate::problem::Problem;
use reqwest::Client;
use signalbox_domain::Code;
use signalbox_worker::upstream::{self, Fault};
pub(crate) use signalbox_worker::upstream::{Answer, Chunks, Reply, as_chunk};

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
    pub fn problem(&self) -> Problem {
        // A refusal of the request is the caller's to mend, so the model's status reaches the caller.
        let status = self.status.filter(|_| self.code == Code::UpstreamRejected);
        Problem { status, ..Problem::new(self.code, self.detail.clone()) }
    }
}

/// Calls a model for a chat completion.
pub(crate) async fn call(http: &Client, base: &str, body: String) -> Result<Reply, CallError> {
    Ok(upstream::call(http, &format!("{base}/chat/completions"), body, None).await?)
}
