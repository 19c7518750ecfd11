//! What must hold of any task's history, whatever the rules did: read from the facts alone, by nobody who states them.

use super::table::{fact_name, leads_to};
use signalbox_events::task::{Event, State};
use std::collections::BTreeSet;

/// A history that must not be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule} is broken by event {version}, `{fact}`: {detail}")]
pub struct Violation {
    /// `I1`, `I2`, ..
    pub rule: &'static str,
    /// The event's version.
    pub version: u64,
    /// The event's name.
    pub fact: &'static str,
    /// What is wrong.
    pub detail: String,
}

/// What the facts so far amount to.
#[derive(Default)]
struct Told {
    state: Option<State>,
    epochs: Vec<u64>,
    tokens: BTreeSet<[u8; 32]>,
    /// Epochs that were redeemed.
    redeemed: BTreeSet<u64>,
    /// What allows another submission: refusals, and explicit leave to send again.
    leaves: usize,
    /// Redeemed, and since then neither refused nor let go.
    owes: bool,
    cancel_waits: bool,
}

/// Checks a task's whole history, in order.
pub fn check<'a>(history: impl IntoIterator<Item = &'a Event>) -> Result<(), Violation> {
    let mut told = Told::default();
    for (index, event) in history.into_iter().enumerate() {
        let version = index as u64 + 1;
        told.take(version, event).map_err(|(rule, detail)| Violation { rule, version, fact: fact_name(event), detail })?;
    }
    Ok(())
}

/// The lease of which a fact speaks.
fn epoch_of(event: &Event) -> Option<u64> {
    match event {
        Event::LeaseReleased(fact) => Some(fact.epoch),
        Event::LeaseExpired(fact) => Some(fact.epoch),
        Event::TokenRedeemed(fact) => Some(fact.epoch),
        Event::SubmissionAcknowledged(fact) => Some(fact.epoch),
        Event::NotSent(fact) => Some(fact.epoch),
        Event::UpstreamRejected(fact) => Some(fact.epoch),
        Event::Succeeded(fact) => Some(fact.epoch),
        Event::Failed(fact) => Some(fact.epoch),
        Event::Cancelled(fact) => Some(fact.epoch),
        Event::LeaseLost(fact) => Some(fact.epoch),
        Event::WorkerLost(fact) => Some(fact.epoch),
        Event::SubmissionBecameUnknown(fact) => Some(fact.epoch),
        Event::LateResult(fact) => Some(fact.epoch),
        Event::Requeued(fact) => Some(fact.epoch),
        Event::Resolved(fact) => Some(fact.epoch),
        Event::Accepted(_)
        | Event::Routed(_)
        | Event::RouteUnavailable(_)
        | Event::Rerouted(_)
        | Event::Leased(_)
        | Event::StartDeadlineExceeded(_)
        | Event::RetryDue(_)
        | Event::StaleResultKept(_)
        | Event::CancelRequested(_)
        | Event::Revived(_) => None,
    }
}

impl Told {
    fn take(&mut self, version: u64, event: &Event) -> Result<(), (&'static str, String)> {
        let broken = |rule, detail: &str| Err((rule, detail.to_owned()));
        if self.state.is_some_and(State::is_terminal) && !matches!(event, Event::Revived(_) | Event::StaleResultKept(_)) {
            return broken("I5", "the task had ended");
        }
        if let Some(epoch) = epoch_of(event)
            && self.epochs.last() != Some(&epoch)
        {
            return broken("I6", "it speaks of a lease that is not the last");
        }
        match event {
            Event::Leased(fact) => {
                if self.state != Some(State::Queued) {
                    return broken("I2", "the task was not in a queue");
                }
                if fact.epoch != version || self.epochs.last().is_some_and(|last| *last >= fact.epoch) {
                    return broken("I6", "epochs rise with versions");
                }
                if !self.tokens.insert(fact.token_hash) {
                    return broken("I1", "a token is granted twice");
                }
                if self.cancel_waits {
                    return broken("I9", "a cancel was accepted before");
                }
                self.epochs.push(fact.epoch);
            }
            Event::TokenRedeemed(fact) => {
                if !self.redeemed.insert(fact.epoch) {
                    return broken("I1", "the lease was redeemed before");
                }
                if self.cancel_waits {
                    return broken("I9", "a cancel was accepted before");
                }
                if self.redeemed.len() > 1 + self.leaves {
                    return broken("I3", "more submissions than refusals and leaves allow");
                }
                self.owes = true;
            }
            Event::NotSent(_) | Event::UpstreamRejected(_) | Event::Requeued(_) => {
                self.leaves += 1;
                self.owes = false;
            }
            Event::Resolved(fact) if fact.to == State::Queued => {
                self.leaves += 1;
                self.owes = false;
            }
            Event::CancelRequested(fact) => self.cancel_waits = !fact.to.is_terminal(),
            Event::Revived(_) => {
                // What was given up had come to rest by evidence, so another beginning is one more leave.
                self.leaves += 1;
                self.cancel_waits = false;
            }
            _ => {}
        }
        let to = leads_to(event);
        if self.owes && matches!(to, Some(State::Queued | State::RetryWait | State::Accepted)) {
            return broken("I4", "it may have been sent, and nothing says that it was not");
        }
        self.state = to.or(self.state);
        Ok(())
    }
}
