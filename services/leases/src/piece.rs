//! Payloads and results that are too large for a message: read and handed in piece by piece under a lease.

use crate::answer::{Answered, Asker, Refused};
use signalbox_domain::task::{Holder, Task};
use signalbox_domain::{Code, Rejection};
use signalbox_events::task::{Event, State};
use signalbox_events::work::{Fetch, Fetched, Kept, LeaseRef, MOST_PIECE, MOST_RESULT, StorePart};
use signalbox_events::{Aggregate, Fact, TaskId};
use signalbox_journal::Piece;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Payloads that are held while workers read them, so that each piece does not cost a whole one.
const HELD: usize = 8;

/// Large payloads that were read lately.
#[derive(Default)]
pub(crate) struct Payloads(Mutex<VecDeque<(TaskId, Arc<str>)>>);

impl Payloads {
    fn get(&self, task: TaskId) -> Option<Arc<str>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().find(|(of, _)| *of == task).map(|(_, payload)| payload.clone())
    }

    fn put(&self, task: TaskId, payload: Arc<str>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.push_back((task, payload));
        while held.len() > HELD {
            held.pop_front();
        }
    }
}

/// The end of a piece that begins at `offset`: at most [`MOST_PIECE`] on, and never within a character.
fn end(text: &str, offset: usize) -> usize {
    text.floor_char_boundary(offset.saturating_add(MOST_PIECE).min(text.len()))
}

/// Names the result of a lease among the pieces of its task.
fn result_of(lease: &LeaseRef) -> String {
    format!("result{}", lease.epoch)
}

impl Asker<'_> {
    pub async fn fetch(&self) -> Answered<Fetched> {
        let fetch: Fetch = self.read()?;
        self.current(fetch.incarnation).await?;
        self.held(&self.holder(fetch.incarnation, &fetch.lease), &fetch.lease, false).await?;
        let payload = match self.shared.payloads.get(fetch.lease.task) {
            Some(payload) => payload,
            None => {
                let first = self.shared.beginning(fetch.lease.account, fetch.lease.task).await?;
                let Some(Fact::Task(Event::Accepted(fact))) = first.map(|recorded| recorded.fact) else { return Err(Refused::Unavailable) };
                let payload: Arc<str> = fact.payload.plain().ok_or(Refused::Unavailable)?.into();
                self.shared.payloads.put(fetch.lease.task, payload.clone());
                payload
            }
        };
        let begin = usize::try_from(fetch.offset).unwrap_or(usize::MAX);
        if begin > payload.len() || !payload.is_char_boundary(begin) {
            return Err(Rejection::field("offset", "must be 0 or what `next` said").into());
        }
        let end = end(&payload, begin);
        Ok(Fetched { text: payload[begin..end].to_owned(), next: (end < payload.len()).then_some(end as u64), total: payload.len() as u64 })
    }

    pub async fn store(&self) -> Answered<Kept> {
        let store: StorePart = self.read()?;
        // A result may come late: what counts is that the lease is this worker's and was redeemed.
        self.held(&self.holder(store.incarnation, &store.lease), &store.lease, true).await?;
        if store.text.len() > MOST_PIECE {
            return Err(Rejection::field("text", format!("has at most {MOST_PIECE} bytes")).into());
        }
        if store.part as usize >= MOST_RESULT / MOST_PIECE * 2 {
            return Err(Rejection::field("part", format!("a result has at most {MOST_RESULT} bytes")).into());
        }
        let aggregate = Aggregate::task(store.lease.account, store.lease.task);
        let piece = Piece { aggregate: &aggregate, text: &result_of(&store.lease), part: store.part };
        self.shared.ledger.put_piece(piece, &store.text).await?;
        Ok(Kept {})
    }

    /// Refuses who does not hold the lease; with `redeemed`, also who has not redeemed it.
    async fn held(&self, holder: &Holder, lease: &LeaseRef, redeemed: bool) -> Answered<()> {
        let task = self.shared.ledger.load::<Task>(&Aggregate::task(lease.account, lease.task)).await?;
        let task = task.ok_or_else(|| Rejection::new(Code::TokenUnknown, Code::TokenUnknown.title()))?;
        let superseded = || Rejection::new(Code::LeaseSuperseded, "another lease has taken the place of this one");
        let held = task.lease.as_ref().filter(|held| held.epoch == holder.epoch).ok_or_else(superseded)?;
        if held.worker != holder.worker || held.incarnation != holder.incarnation {
            return Err(Rejection::new(Code::WrongWorker, "the lease is another worker's, or another start of it has it").into());
        }
        if redeemed && held.nonce.is_none() {
            return Err(Rejection::new(Code::TokenNotRedeemed, "redeem the token before there is a result").into());
        }
        match task.state {
            State::Leased | State::Executing => Ok(()),
            State::SubmissionUnknown if redeemed => Ok(()),
            State::Accepted
            | State::Queued
            | State::SubmissionUnknown
            | State::RetryWait
            | State::Succeeded
            | State::Failed
            | State::Cancelled
            | State::DeadLettered => Err(Rejection::new(Code::LeaseClosed, "the lease has ended").into()),
        }
    }

    /// The result whose pieces were stored.
    pub async fn gather(&self, holder: &Holder, lease: &LeaseRef, parts: u32) -> Answered<String> {
        // A repeated report: its pieces are gone, and its outcome is known.
        if let Err(Refused::Rejection(rejection)) = self.held(holder, lease, true).await {
            return if rejection.code == Code::LeaseClosed { Ok(String::new()) } else { Err(rejection.into()) };
        }
        let aggregate = Aggregate::task(lease.account, lease.task);
        let mut text = String::new();
        for part in 0..parts {
            let piece = self.shared.ledger.piece(Piece { aggregate: &aggregate, text: &result_of(lease), part }).await?;
            text.push_str(&piece.ok_or_else(|| Rejection::field("parts", format!("piece {part} was not stored, or is older than an hour")))?);
            if text.len() > MOST_RESULT {
                return Err(Rejection::field("parts", format!("a result has at most {MOST_RESULT} bytes")).into());
            }
        }
        Ok(text)
    }

    /// Lets go of the pieces of a result that an event holds.
    pub async fn forget(&self, lease: &LeaseRef, parts: u32) {
        let aggregate = Aggregate::task(lease.account, lease.task);
        for part in 0..parts {
            if let Err(error) = self.shared.ledger.drop_piece(Piece { aggregate: &aggregate, text: &result_of(lease), part }).await {
                tracing::info!(task = %lease.task, %error, "a piece goes by itself in an hour");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_never_cut_a_character() {
        let text = "a".repeat(MOST_PIECE - 1) + "\u{20ac}" + "b";
        let first = end(&text, 0);
        assert_eq!(first, MOST_PIECE - 1);
        assert_eq!(end(&text, first), text.len());
        assert_eq!(end("", 0), 0);
    }
}
