//! Takes a task on.

use super::Existing;
use crate::{Code, Context, Rejection};
use signalbox_events::task::{Accepted, Event, Mode, RunMode, State, Target};
use signalbox_events::{Micros, PoolId, PrincipalId};

/// Accept a task.
#[derive(Debug, Clone)]
pub struct Accept {
    /// Whose it is.
    pub owner: PrincipalId,
    /// The owner's name.
    pub owner_name: String,
    /// What is to be done: a dotted word of at most 64 characters.
    pub kind: String,
    /// A JSON object.
    pub payload: String,
    /// The canonical request: equal for equal requests.
    pub canonical: String,
    /// Whether a caller waits.
    pub mode: Mode,
    /// Whether anything is sent.
    pub run_mode: RunMode,
    /// 0 to 9.
    pub priority: u8,
    /// Whether the answer is wanted piece by piece.
    pub streaming: bool,
    /// Where it is to be sent.
    pub target: Option<Target>,
    /// The pool that the caller asked for.
    pub wanted_pool: Option<PoolId>,
    /// The pool whose queue it goes into.
    pub pool: Option<PoolId>,
    /// When it must have been leased.
    pub start_deadline: Option<Micros>,
}

/// Kinds that may be sent twice without harm: they change nothing, and their answer is the same.
const IDEMPOTENT: [&str; 1] = ["embeddings"];

/// Whether a worker's pattern covers a kind: exact, `*`, or `x.*` for what begins with `x.`. An empty kind never matches.
pub fn kind_matches(pattern: &str, kind: &str) -> bool {
    let (pattern, kind) = (pattern.trim().to_ascii_lowercase(), kind.trim().to_ascii_lowercase());
    if kind.is_empty() || pattern.is_empty() {
        return false;
    }
    pattern == "*" || pattern == kind || pattern.strip_suffix('*').is_some_and(|prefix| prefix.ends_with('.') && kind.starts_with(prefix))
}

/// Refuses what is no kind.
pub(crate) fn check_kind(kind: &str) -> Result<(), Rejection> {
    let word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if kind.len() <= 64 && kind.split('.').all(word) {
        Ok(())
    } else {
        Err(Rejection::field("kind", "must be dotted words of [a-z0-9_], at most 64 characters, like `chat.completions`"))
    }
}

pub(super) fn decide(task: Option<&Existing>, command: &Accept, ctx: &Context) -> Result<Option<Event>, Rejection> {
    let digest = ctx.digest(command.canonical.as_bytes());
    if let Some(task) = task {
        let conflict = || Rejection::new(Code::IdempotencyKeyConflict, "this Idempotency-Key came with another body");
        return if task.digest == digest { Ok(None) } else { Err(conflict()) };
    }
    check_kind(&command.kind)?;
    if command.priority > 9 {
        return Err(Rejection::field("priority", "must lie within 0 and 9"));
    }
    if command.start_deadline.is_some_and(|deadline| deadline <= Micros::from(ctx.now)) {
        return Err(Rejection::field("start_deadline", "must lie in the future"));
    }
    let fact = Accepted {
        owner: command.owner,
        owner_name: command.owner_name.clone(),
        kind: command.kind.clone(),
        payload: command.payload.clone().into(),
        digest,
        mode: command.mode,
        run_mode: command.run_mode,
        priority: command.priority,
        streaming: command.streaming,
        target: command.target.clone(),
        wanted_pool: command.wanted_pool.clone(),
        pool: command.pool.clone(),
        start_deadline: command.start_deadline,
        idempotent: IDEMPOTENT.contains(&command.kind.as_str()),
        to: if command.pool.is_some() { State::Queued } else { State::Accepted },
    };
    Ok(Some(fact.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::given::given;
    use crate::task::Task;
    use crate::task::scenarios::{accept, queued};

    #[test]
    fn a_task_is_accepted_once_for_its_key() {
        given::<Task>().when(accept()).fact();
        queued().when(accept()).nothing();
        queued().when(Accept { canonical: "other".to_owned(), ..accept() }).refused(Code::IdempotencyKeyConflict);
    }

    #[test]
    fn bad_fields_are_named() {
        for kind in ["", ".", "chat.", "Chat", "chat completions", "*", &"a".repeat(65)] {
            let refusal = given::<Task>().when(Accept { kind: kind.to_owned(), ..accept() }).refused(Code::InvalidField);
            assert_eq!(refusal.field.as_deref(), Some("kind"));
        }
        let refusal = given::<Task>().when(Accept { priority: 10, ..accept() }).refused(Code::InvalidField);
        assert_eq!(refusal.field.as_deref(), Some("priority"));
        let refusal = given::<Task>().when(Accept { start_deadline: Some(Micros(1)), ..accept() }).refused(Code::InvalidField);
        assert_eq!(refusal.field.as_deref(), Some("start_deadline"));
    }

    #[test]
    fn kinds_match_by_word_or_prefix() {
        let table = [
            ("chat.completions", "chat.completions", true),
            (" Chat.Completions ", "chat.completions", true),
            ("*", "anything", true),
            ("chat.*", "chat.completions", true),
            ("chat.*", "chat", false),
            ("chat.*", "chatter.x", false),
            ("chat*", "chat.completions", false),
            ("", "chat", false),
            ("*", "", false),
            ("embeddings", "chat.completions", false),
        ];
        for (pattern, kind, matches) in table {
            assert_eq!(kind_matches(pattern, kind), matches, "{pattern:?} {kind:?}");
        }
    }
}
