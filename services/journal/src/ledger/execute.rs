//! One command: load, decide, append; on conflict again with fresh state, at most five times.

use super::fold::{Folded, REMEMBERED};
use super::{Executed, Failure, Ledger, Request, Requester};
use crate::journal::{Append, AppendError};
use crate::vault;
use signalbox_domain::{Context, Decider};
use signalbox_events::envelope::FORMAT;
use signalbox_events::{Aggregate, Encoded, Envelope, EventId, Fact, Micros};
use std::time::Duration;
use uuid::Uuid;

/// Conflicts after which a command gives up.
const CONFLICTS: usize = 5;
/// Tries against "another append is in flight", which three replicas answer spuriously.
const BUSY_TRIES: u32 = 10;
/// Tries against answers that did not come.
const UNKNOWN_TRIES: usize = 3;

/// How an append ended for us.
enum Appended {
    /// The event stands at this sequence.
    At(u64),
    /// The aggregate has moved on.
    Conflict,
}

impl Ledger {
    /// Carries out a command.
    ///
    /// A command id that the aggregate has seen adds nothing. Commands on one aggregate wait for each other within
    /// this process; across processes the log's expectation decides.
    pub async fn execute<D: Decider>(&self, request: Request<impl Into<D::Command>>) -> Result<Executed<D::State>, Failure> {
        self.carry_out::<D>(request.aggregate, request.command.into(), request.requester, false).await
    }

    /// Carries out a command on an aggregate that most likely does not exist: the log is asked only where it says otherwise.
    pub async fn create<D: Decider>(&self, request: Request<impl Into<D::Command>>) -> Result<Executed<D::State>, Failure> {
        self.carry_out::<D>(request.aggregate, request.command.into(), request.requester, true).await
    }

    async fn carry_out<D: Decider>(
        &self,
        aggregate: Aggregate,
        command: D::Command,
        requester: Requester,
        new: bool,
    ) -> Result<Executed<D::State>, Failure> {
        let slot = self.slot(&aggregate);
        let mut slot = slot.lock().await;
        let (mut folded, mut fresh) = if new && slot.folded.is_none() {
            // Nothing is known, so nothing is believed: a refusal is looked at again, and the expectation guards the append.
            (Box::new(Folded::<D>::empty(&aggregate.subject(self.journal.partitions()))), false)
        } else {
            self.folded::<D>(&mut slot, &aggregate).await?
        };
        let mut ctx = (self.source)();
        let command_id = requester.command_id.map_or(ctx.id, |id| id.0);
        if let Some(at) = self.already(&folded, &aggregate, command_id).await? {
            if !fresh {
                self.catch_up(&mut folded, &aggregate).await?;
            }
            let executed = self.executed(&folded, &aggregate, None, at);
            slot.keep(folded);
            return Ok(executed);
        }
        for _ in 0..CONFLICTS {
            let key = if D::SEALED { Some(self.vault.ensure(self.journal.as_ref(), &aggregate, &ctx, folded.version == 0).await?) } else { None };
            ctx.digest_key = key.as_ref().map_or([0; 32], |key| key.digest_key());
            let decided = D::decide(&folded.state, &command, &ctx);
            let event = match decided {
                Ok(Some(event)) => event,
                // Nothing is appended, so no expectation checks the state: it must be known to be the latest.
                outcome @ (Ok(None) | Err(_)) if !fresh => {
                    drop(outcome);
                    self.catch_up_to_head(&mut folded, &aggregate).await?;
                    fresh = true;
                    continue;
                }
                Ok(None) => {
                    let executed = self.executed(&folded, &aggregate, None, folded.sequence);
                    slot.keep(folded);
                    return Ok(executed);
                }
                Err(rejection) => {
                    // An aggregate that does not exist is not worth a place in the cache.
                    if folded.version > 0 {
                        slot.keep(folded);
                    }
                    return Err(rejection.into());
                }
            };
            let mut fact: Fact = event.clone().into();
            if let Some(key) = &key {
                vault::seal(self.journal.as_ref(), key, &aggregate, folded.version + 1, &ctx.random, &mut fact).await?;
            }
            let event_id = ctx.id;
            let key_id = key.map(|key| key.id);
            let (payload, kind) = envelope(&folded, &fact, &ctx, command_id, &requester, key_id)?;
            let append = Append {
                subject: aggregate.subject(self.journal.partitions()),
                expected: folded.sequence,
                payload: payload.clone().into(),
                kind,
                traceparent: requester.traceparent.clone(),
            };
            match self.append(append, &aggregate, command_id).await? {
                Appended::At(sequence) => {
                    folded.advance(&event, command_id, sequence, &payload);
                    self.maybe_snapshot(&folded, &aggregate);
                    let executed = self.executed(&folded, &aggregate, Some(EventId(event_id)), sequence);
                    slot.keep(folded);
                    return Ok(executed);
                }
                Appended::Conflict => {
                    self.catch_up_to_head(&mut folded, &aggregate).await?;
                    fresh = true;
                    if let Some(at) = folded.remembers(command_id) {
                        let executed = self.executed(&folded, &aggregate, None, at);
                        slot.keep(folded);
                        return Ok(executed);
                    }
                    // A new decision, so new random bits: the old nonces may stand on the log.
                    ctx = (self.source)();
                }
            }
        }
        slot.keep(folded);
        Err(Failure::Contended(aggregate))
    }

    /// The aggregate's state, as the log has it now.
    pub async fn load<D: Decider>(&self, aggregate: &Aggregate) -> Result<D::State, Failure> {
        let slot = self.slot(aggregate);
        let mut slot = slot.lock().await;
        let (mut folded, fresh) = self.folded::<D>(&mut slot, aggregate).await?;
        if !fresh {
            self.catch_up(&mut folded, aggregate).await?;
        }
        let state = folded.state.clone();
        if folded.version > 0 {
            slot.keep(folded);
        }
        Ok(state)
    }

    /// The aggregate's state as the log had it at most `age` ago; commands of this process count at once. For questions whose
    /// answer is checked again where it matters.
    pub async fn load_recent<D: Decider>(&self, aggregate: &Aggregate, age: Duration) -> Result<D::State, Failure> {
        {
            let slot = self.slot(aggregate);
            let slot = slot.lock().await;
            let folded = slot.folded.as_ref().and_then(|any| any.downcast_ref::<Folded<D>>());
            if let (Some(folded), Some(at)) = (folded, slot.at)
                && at.elapsed() < age
            {
                return Ok(folded.state.clone());
            }
        }
        self.load::<D>(aggregate).await
    }

    /// Where the command's event stands, if there is one. Ids made for one call (version 7) are never repeated;
    /// deterministic ones may come back after any time, so they are looked for in the whole subject.
    async fn already<D: Decider>(&self, folded: &Folded<D>, aggregate: &Aggregate, command: Uuid) -> Result<Option<u64>, Failure> {
        if let Some(sequence) = folded.remembers(command) {
            return Ok(Some(sequence));
        }
        if command.get_version_num() == 7 || folded.version <= REMEMBERED as u64 {
            return Ok(None);
        }
        let history = self.raw_history(aggregate, 0).await?;
        Ok(history.iter().find(|recorded| recorded.envelope.command_id == command).map(|recorded| recorded.position.sequence))
    }

    /// Catches up with what the leader has, whichever replica answers the reads.
    async fn catch_up_to_head<D: Decider>(&self, folded: &mut Folded<D>, aggregate: &Aggregate) -> Result<(), Failure> {
        if !self.journal.reads_may_lag() {
            return self.catch_up(folded, aggregate).await;
        }
        let partitions = self.journal.partitions();
        let head = self.journal.head(aggregate.partition(partitions), &aggregate.subject(partitions)).await?;
        for wait in [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            self.catch_up(folded, aggregate).await?;
            if folded.sequence >= head {
                return Ok(());
            }
        }
        Err(Failure::Store(crate::StoreError::Timeout))
    }

    /// Appends until the log's answer is known.
    async fn append(&self, append: Append, aggregate: &Aggregate, command: Uuid) -> Result<Appended, Failure> {
        let mut busy = 0;
        let mut unknown = 0;
        loop {
            let error = match self.journal.append(append.clone()).await {
                Ok(sequence) => return Ok(Appended::At(sequence)),
                Err(error) => error,
            };
            match error {
                AppendError::Stale if unknown == 0 => return Ok(Appended::Conflict),
                AppendError::Busy if busy < BUSY_TRIES => {
                    busy += 1;
                    tokio::time::sleep(Duration::from_millis(u64::from(1 + busy / 2))).await;
                }
                // The first try may have been stored although its answer was lost, or may yet be: our command id tells.
                // The same expectation makes the second try safe, since at most one of the two can be stored.
                AppendError::Stale | AppendError::Unknown => {
                    if let Some(sequence) = self.find_mine(aggregate, append.expected, command).await? {
                        return Ok(Appended::At(sequence));
                    }
                    if matches!(error, AppendError::Stale) {
                        return Ok(Appended::Conflict);
                    }
                    unknown += 1;
                    if unknown == UNKNOWN_TRIES {
                        return Err(AppendError::Unknown.into());
                    }
                }
                AppendError::Busy => return Ok(Appended::Conflict),
                AppendError::Full | AppendError::Unavailable | AppendError::Refused { .. } => return Err(error.into()),
            }
        }
    }

    /// The sequence of the event behind `after` that carries our command id.
    async fn find_mine(&self, aggregate: &Aggregate, after: u64, command: Uuid) -> Result<Option<u64>, Failure> {
        let history = self.raw_history(aggregate, after).await?;
        Ok(history.iter().find(|recorded| recorded.envelope.command_id == command).map(|recorded| recorded.position.sequence))
    }

    fn executed<D: Decider>(&self, folded: &Folded<D>, aggregate: &Aggregate, stated: Option<EventId>, sequence: u64) -> Executed<D::State> {
        Executed { state: folded.state.clone(), stated, position: self.position(aggregate, sequence) }
    }
}

/// The bytes of an event and its type.
fn envelope<D: Decider>(
    folded: &Folded<D>,
    fact: &Fact,
    ctx: &Context,
    command_id: Uuid,
    requester: &Requester,
    key_id: Option<Uuid>,
) -> Result<(Vec<u8>, &'static str), Failure> {
    // A rule only states facts that this build knows, so the arm for an unknown one is a refusal that nobody sees.
    let unknown = || AppendError::Refused { code: 0, description: "an unknown fact cannot be stated".to_owned() };
    let Encoded { kind, schema_version, data } = fact.encode()?.ok_or_else(unknown)?;
    let envelope = Envelope {
        format: FORMAT,
        event_id: ctx.id,
        command_id,
        version: folded.version + 1,
        at: Micros::from(ctx.now),
        actor: requester.actor.clone(),
        on_behalf_of: requester.on_behalf_of.clone(),
        correlation_id: requester.correlation_id.unwrap_or(command_id),
        causation_id: requester.causation_id.map(|id| id.0),
        traceparent: requester.traceparent.clone(),
        prev: folded.chain,
        key_id,
        kind: kind.to_owned(),
        schema_version,
        data,
    };
    Ok((envelope.encode()?, kind))
}
