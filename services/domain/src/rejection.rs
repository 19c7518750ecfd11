//! Every reason for which a command or query is refused: one list, stable codes.

/// Declares the codes with their HTTP status and title.
macro_rules! codes {
    ($($(#[$meta:meta])* $variant:ident = $code:literal $status:literal $title:literal),+ $(,)?) => {
        /// A stable reason. Callers branch on it, so a code never changes its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$meta])* #[doc = $title] $variant),+ }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The stable word.
            pub fn as_str(self) -> &'static str { match self { $(Self::$variant => $code),+ } }
            /// The HTTP status that it is answered with.
            pub fn status(self) -> u16 { match self { $(Self::$variant => $status),+ } }
            /// What it means, in a few words that never vary.
            pub fn title(self) -> &'static str { match self { $(Self::$variant => $title),+ } }
        }
    };
}

codes! {
    InvalidBody = "invalid_body" 400 "The body is not valid.",
    InvalidField = "invalid_field" 400 "A field is not valid.",
    UnknownField = "unknown_field" 400 "A field is not known.",
    MissingField = "missing_field" 400 "A required field is missing.",
    InvalidCursor = "invalid_cursor" 400 "The cursor is not valid here.",
    InvalidQuery = "invalid_query" 400 "A query parameter is not valid.",
    UnknownRuntime = "unknown_runtime" 400 "The runtime is not configured.",
    Unauthenticated = "unauthenticated" 401 "A valid API key is required.",
    Forbidden = "forbidden" 403 "The key's roles do not allow this.",
    AccountMismatch = "account_mismatch" 403 "The body names another account than the key's.",
    NotFound = "not_found" 404 "There is no such thing here.",
    ModelNotFound = "model_not_found" 404 "There is no such model here.",
    MethodNotAllowed = "method_not_allowed" 405 "The method is not allowed here.",
    IdempotencyKeyConflict = "idempotency_key_conflict" 409 "The same key came with another body.",
    PoolExists = "pool_exists" 409 "The pool exists already.",
    PoolNotEmpty = "pool_not_empty" 409 "The pool still has workers or tasks.",
    PoolNotEnabled = "pool_not_enabled" 409 "The pool does not take this on now.",
    WorkerInOtherPool = "worker_in_other_pool" 409 "The worker belongs to another pool.",
    IncarnationRetired = "incarnation_retired" 409 "This start of the worker is over.",
    TaskAlreadyLeased = "task_already_leased" 409 "A worker holds the task.",
    SubmissionStateUnknown = "submission_state_unknown" 409 "Whether the task was sent is not known.",
    TaskNotEnded = "task_not_ended" 409 "The task has not ended with a result.",
    TaskEnded = "task_ended" 409 "The task has ended.",
    TaskNotQueued = "task_not_queued" 409 "The task is not in a queue.",
    TaskNotUnknown = "task_not_unknown" 409 "The task's submission is not unknown.",
    TaskNotDeadLettered = "task_not_dead_lettered" 409 "The task is no dead letter.",
    TaskCancelled = "task_cancelled" 409 "The task is cancelled.",
    LeaseClosed = "lease_closed" 409 "The lease has ended.",
    LeaseSuperseded = "lease_superseded" 409 "The lease is no longer the task's.",
    LeaseLive = "lease_live" 409 "The lease has not expired.",
    TokenAlreadyRedeemed = "token_already_redeemed" 409 "The token was redeemed before.",
    TokenExpired = "token_expired" 409 "The token has expired.",
    TokenNotRedeemed = "token_not_redeemed" 409 "The token was not redeemed.",
    PublicKeyMissing = "public_key_missing" 409 "The worker has no key for credentials.",
    TokenUnknown = "token_unknown" 403 "There is no such token.",
    WrongWorker = "wrong_worker" 403 "The token is another worker's.",
    FeatureDisabled = "feature_disabled" 409 "The feature is switched off.",
    TurnInProgress = "turn_in_progress" 409 "Another turn of this conversation is running.",
    TurnEnded = "turn_ended" 409 "The turn has ended.",
    TurnAlreadyBegun = "turn_already_begun" 409 "Another executor has begun this turn.",
    UnsupportedForKind = "unsupported_for_kind" 409 "This kind of workload cannot do that.",
    WorkloadDeleting = "workload_deleting" 409 "The workload is being deleted.",
    WorkloadNotReady = "workload_not_ready" 409 "The workload does not serve now.",
    RevisionNotFound = "revision_not_found" 409 "There is no such revision.",
    RevisionConflict = "revision_conflict" 409 "The workload has another revision by now.",
    AlreadyExists = "already_exists" 409 "It exists already.",
    BodyTooLarge = "body_too_large" 413 "The body is too large.",
    UnsupportedMediaType = "unsupported_media_type" 415 "The content type is not supported.",
    ViewBehind = "view_behind" 425 "The view has not reached the position yet.",
    TooManyRequests = "too_many_requests" 429 "Too many requests.",
    Internal = "internal" 500 "Something failed here.",
    UpstreamRejected = "upstream_rejected" 502 "The model refused the request.",
    UpstreamUnreachable = "upstream_unreachable" 502 "The model could not be reached.",
    UpstreamDisconnected = "upstream_disconnected" 502 "The model's answer broke off.",
    UpstreamProtocol = "upstream_protocol" 502 "The model's answer is not valid.",
    UpstreamAuthFailed = "upstream_auth_failed" 502 "The model refused our credential.",
    TurnFailed = "turn_failed" 502 "The turn ended without an answer.",
    WorkerLost = "worker_lost" 502 "The worker was lost while the call was out.",
    NoWorkerAvailable = "no_worker_available" 503 "No worker takes this now.",
    Unavailable = "unavailable" 503 "A part of the service is not available.",
    LogFull = "log_full" 503 "The log's storage is full.",
    Contended = "contended" 503 "Too many writers at once.",
    DurabilityUnproven = "durability_unproven" 503 "The log's durability is not proven.",
    UpstreamTimeout = "upstream_timeout" 504 "The model did not answer in time.",
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal: the caller's fault or the state's, never a fault of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct Rejection {
    /// The stable reason.
    pub code: Code,
    /// One sentence for a person. Holds nothing that the caller may not see.
    pub detail: String,
    /// The path of the offending field, `messages[2].content`.
    pub field: Option<String>,
}

impl Rejection {
    /// A refusal for `code`.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None }
    }

    /// A bad value at a field's path.
    pub fn field(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { code: Code::InvalidField, detail: detail.into(), field: Some(path.into()) }
    }

    /// A required field that is not there.
    pub fn missing(path: impl Into<String>) -> Self {
        let path = path.into();
        Self { code: Code::MissingField, detail: format!("`{path}` is required"), field: Some(path) }
    }

    /// A thing that does not exist, or that the caller may not know of: the answer is the same.
    pub fn not_found() -> Self {
        Self::new(Code::NotFound, "no such thing, or not yours")
    }

    /// An action that this kind of workload cannot do.
    pub fn unsupported(kind: signalbox_events::workload::Kind, action: &str) -> Self {
        Self::new(Code::UnsupportedForKind, format!("a workload of kind {kind} cannot {action}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_distinct_words_with_an_error_status() {
        let words: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!((400..600).contains(&code.status()), "{code}");
            assert!(code.as_str().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{code}");
        }
    }
}
