//! Follows a turn wherever it is executed: what is kept of its answer, then what arrives, then how it ended.

use super::ended_row;
use crate::problem::Problem;
use crate::state::App;
use serde_json::Value;
use signalbox_domain::Code;
use signalbox_domain::conversation::Conversation;
use signalbox_events::{Aggregate, TurnId};
use signalbox_projections::conversation::TurnRow;
use std::time::Duration;
use tokio::sync::mpsc;

/// Pieces that wait for a slow reader.
const WAITING: usize = 64;
/// How long a reader hears nothing before it asks the log whether the turn has ended.
const SILENCE: Duration = Duration::from_secs(1);

/// A piece of a turn.
pub(super) enum Piece {
    /// What had arrived before the reader came, as one.
    Kept(Vec<(u64, Value)>),
    /// What arrives.
    Delta(u64, Value),
    /// How it ended.
    End(Box<TurnRow>),
    /// The turn cannot be followed further from here.
    Broken(Problem),
}

/// Which turn, and from where.
pub(super) struct Place {
    pub conversation: Aggregate,
    pub turn: TurnId,
    pub subject: String,
    /// The last delta that the reader has.
    pub after: u64,
}

/// Follows; the task ends with the reader.
pub(super) fn follow(app: &App, place: Place) -> mpsc::Receiver<Piece> {
    let (pieces, reader) = mpsc::channel(WAITING);
    let app = app.clone();
    tokio::spawn(async move {
        let last = match read(&app, &place, &pieces).await {
            Ok(()) => match ended_row(&app, place.turn).await {
                Ok(Some(row)) => Piece::End(Box::new(row)),
                Ok(None) => Piece::Broken(Problem::new(Code::Unavailable, "the turn has ended, but the view does not show it yet")),
                Err(problem) => Piece::Broken(problem),
            },
            Err(Some(problem)) => Piece::Broken(problem),
            // The reader has left.
            Err(None) => return,
        };
        let _ = pieces.send(last).await;
    });
    reader
}

async fn read(app: &App, place: &Place, pieces: &mpsc::Sender<Piece>) -> Result<(), Option<Problem>> {
    let mut reader = app.deltas.follow(&place.subject, place.after).await.map_err(|error| Some(error.into()))?;
    let kept = reader.ready();
    let over = kept.iter().any(|delta| delta.payload.is_empty());
    let kept: Vec<_> = kept.iter().filter_map(|delta| Some((delta.number, serde_json::from_slice(&delta.payload).ok()?))).collect();
    pieces.send(Piece::Kept(kept)).await.map_err(|_| None)?;
    if over || ended(app, place).await? {
        return Ok(());
    }
    loop {
        let delta = tokio::select! {
            () = pieces.closed() => return Err(None),
            delta = reader.next(SILENCE) => delta.map_err(|error| Some(error.into()))?,
        };
        match delta {
            Some(delta) if delta.payload.is_empty() => return Ok(()),
            Some(delta) => {
                if let Ok(chunk) = serde_json::from_slice(&delta.payload) {
                    pieces.send(Piece::Delta(delta.number, chunk)).await.map_err(|_| None)?;
                }
            }
            None if ended(app, place).await? => return Ok(()),
            None => {}
        }
    }
}

/// Whether the log says that the turn has ended.
async fn ended(app: &App, place: &Place) -> Result<bool, Option<Problem>> {
    let state = app.ledger.load::<Conversation>(&place.conversation).await.map_err(|error| Some(error.into()))?;
    Ok(state.is_none_or(|state| state.turns.get(&place.turn).is_none_or(|turn| turn.state.is_terminal())))
}
