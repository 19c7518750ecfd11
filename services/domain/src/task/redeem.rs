//! Redeems an execution token: the commit point, after which the task may have been sent.

use super::Existing;
use crate::{Code, Context, Rejection};
use signalbox_events::task::{Event, State, TokenRedeemed};
use signalbox_events::{IncarnationId, Micros, PoolId, WorkerId};
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// Redeem a token.
#[derive(Debug, Clone)]
pub struct Redeem {
    /// SHA-256 of the token that the worker showed.
    pub token_hash: [u8; 32],
    /// The epoch that it was granted with.
    pub epoch: u64,
    /// The pool, by the subject.
    pub pool: PoolId,
    /// The worker, by the subject.
    pub worker: WorkerId,
    /// Which start of it.
    pub incarnation: IncarnationId,
    /// The worker's own mark, so that a lost answer can be asked for again.
    pub nonce: Uuid,
    /// Until when the lease was renewed, where it was.
    pub renewed_until: Option<Micros>,
}

pub(super) fn decide(task: &Existing, command: &Redeem, ctx: &Context) -> Result<Option<Event>, Rejection> {
    let refused = |code: Code| Err(Rejection::new(code, code.title()));
    let equal = |hash: &[u8; 32]| bool::from(hash.ct_eq(&command.token_hash));
    let Some(lease) = task.lease.as_ref().filter(|lease| equal(&lease.token_hash)) else {
        let superseded = task.past.iter().any(|past| equal(&past.token_hash));
        return refused(if superseded { Code::LeaseSuperseded } else { Code::TokenUnknown });
    };
    if lease.worker != command.worker || lease.incarnation != command.incarnation || lease.pool != command.pool {
        return refused(Code::WrongWorker);
    }
    if lease.epoch != command.epoch {
        return refused(Code::LeaseSuperseded);
    }
    match task.state {
        State::Leased => {
            let until = lease.expires_at.max(command.renewed_until.unwrap_or(lease.expires_at));
            if Micros::from(ctx.now) >= until {
                return refused(Code::TokenExpired);
            }
            Ok(Some(TokenRedeemed { epoch: lease.epoch, nonce: command.nonce }.into()))
        }
        State::Executing if lease.nonce == Some(command.nonce) => Ok(None),
        State::Executing => refused(Code::TokenAlreadyRedeemed),
        State::Cancelled => refused(Code::TaskCancelled),
        State::SubmissionUnknown => refused(Code::SubmissionStateUnknown),
        State::Accepted | State::Queued | State::RetryWait | State::Succeeded | State::Failed | State::DeadLettered => {
            refused(if lease.nonce.is_some() { Code::TokenAlreadyRedeemed } else { Code::TokenExpired })
        }
    }
}
