//! Given past facts, when a command comes, then a fact or a refusal: the form of every rule's test.

use crate::{Code, Context, Decider, Rejection};
use chrono::DateTime;
use uuid::Uuid;

/// A law with a past.
pub struct Given<D: Decider> {
    state: D::State,
}

/// What a decision came to.
#[derive(Debug)]
pub struct Outcome<E>(Result<Option<E>, Rejection>);

/// The context of every test: fixed.
pub fn context() -> Context {
    Context { now: DateTime::from_timestamp_micros(1_700_000_000_000_000).unwrap(), id: Uuid::from_u128(99), random: [7; 32], digest_key: [9; 32] }
}

/// Nothing has happened yet.
pub fn given<D: Decider>() -> Given<D> {
    Given { state: D::State::default() }
}

impl<D: Decider> Given<D> {
    /// This has happened.
    pub fn event(mut self, event: impl Into<D::Event>) -> Self {
        D::evolve(&mut self.state, &event.into());
        self
    }

    /// What the rules know now.
    pub fn state(&self) -> &D::State {
        &self.state
    }

    /// This is asked so many seconds later.
    pub fn when_later(&self, seconds: i64, command: impl Into<D::Command>) -> Outcome<D::Event> {
        let ctx = Context { now: context().now + chrono::TimeDelta::seconds(seconds), ..context() };
        Outcome(D::decide(&self.state, &command.into(), &ctx))
    }

    /// This is asked.
    pub fn when(&self, command: impl Into<D::Command>) -> Outcome<D::Event> {
        Outcome(D::decide(&self.state, &command.into(), &context()))
    }
}

impl<E: PartialEq + std::fmt::Debug> Outcome<E> {
    /// This fact is stated.
    pub fn then(self, event: impl Into<E>) {
        assert_eq!(self.0, Ok(Some(event.into())));
    }

    /// Some fact is stated.
    pub fn fact(self) -> E {
        self.0.expect("not refused").expect("a fact")
    }

    /// It is already so.
    pub fn nothing(self) {
        assert_eq!(self.0, Ok(None));
    }

    /// It is refused.
    pub fn refused(self, code: Code) -> Rejection {
        let rejection = self.0.expect_err("refused");
        assert_eq!(rejection.code, code, "{rejection}");
        rejection
    }
}
