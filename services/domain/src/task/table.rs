//! The transition table of tasks: rules, diagram and tests come from it.

use signalbox_events::task::{Event, State};

/// One row: in `from` (`None`: no task yet) a fact of this name may be stated, and leads to one of `to`.
#[derive(Debug, Clone, Copy)]
pub struct Transition {
    /// Where the task stands.
    pub from: Option<State>,
    /// The fact's stored name without its noun.
    pub fact: &'static str,
    /// Where it may lead.
    pub to: &'static [State],
}

const fn row(from: State, fact: &'static str, to: &'static [State]) -> Transition {
    Transition { from: Some(from), fact, to }
}

use State::{Accepted, Cancelled, DeadLettered, Executing, Failed, Leased, Queued, RetryWait, SubmissionUnknown, Succeeded};

/// Every transition there is. `stale_result_kept` is evidence and leads nowhere, so it has no row.
pub const TRANSITIONS: &[Transition] = &[
    Transition { from: None, fact: "accepted", to: &[Queued, Accepted] },
    row(Accepted, "routed", &[Queued]),
    row(Accepted, "route_unavailable", &[Failed]),
    row(Accepted, "cancel_requested", &[Cancelled]),
    row(Queued, "leased", &[Leased]),
    row(Queued, "start_deadline_exceeded", &[Failed]),
    row(Queued, "rerouted", &[Queued]),
    row(Queued, "cancel_requested", &[Cancelled]),
    row(Leased, "lease_released", &[Queued, DeadLettered]),
    row(Leased, "lease_expired", &[Queued, DeadLettered]),
    row(Leased, "token_redeemed", &[Executing]),
    row(Leased, "cancel_requested", &[Cancelled]),
    row(Executing, "submission_acknowledged", &[Executing]),
    row(Executing, "not_sent", &[RetryWait, Failed, DeadLettered, Cancelled]),
    row(Executing, "upstream_rejected", &[RetryWait, Failed, DeadLettered, Cancelled]),
    row(Executing, "succeeded", &[Succeeded]),
    row(Executing, "failed", &[Failed]),
    row(Executing, "cancelled", &[Cancelled]),
    row(Executing, "lease_lost", &[SubmissionUnknown]),
    row(Executing, "worker_lost", &[SubmissionUnknown]),
    row(Executing, "submission_became_unknown", &[SubmissionUnknown]),
    row(Executing, "cancel_requested", &[Executing]),
    row(SubmissionUnknown, "late_result", &[Succeeded, Failed, Cancelled]),
    row(SubmissionUnknown, "requeued", &[Queued]),
    row(SubmissionUnknown, "resolved", &[Succeeded, Failed, Cancelled, Queued]),
    row(SubmissionUnknown, "cancel_requested", &[SubmissionUnknown]),
    row(RetryWait, "retry_due", &[Queued]),
    row(RetryWait, "cancel_requested", &[Cancelled]),
    row(DeadLettered, "revived", &[Accepted]),
];

/// Where a fact leads; `None`: nowhere, it is evidence only.
pub fn leads_to(event: &Event) -> Option<State> {
    Some(match event {
        Event::Accepted(fact) => fact.to,
        Event::Routed(_) | Event::Rerouted(_) | Event::RetryDue(_) | Event::Requeued(_) => Queued,
        Event::RouteUnavailable(_) | Event::StartDeadlineExceeded(_) | Event::Failed(_) => Failed,
        Event::Leased(_) => Leased,
        Event::LeaseReleased(fact) => fact.to,
        Event::LeaseExpired(fact) => fact.to,
        Event::TokenRedeemed(_) | Event::SubmissionAcknowledged(_) => Executing,
        Event::NotSent(fact) => fact.to,
        Event::UpstreamRejected(fact) => fact.to,
        Event::Succeeded(_) => Succeeded,
        Event::Cancelled(_) => Cancelled,
        Event::LeaseLost(_) | Event::WorkerLost(_) | Event::SubmissionBecameUnknown(_) => SubmissionUnknown,
        Event::LateResult(fact) => fact.to,
        Event::StaleResultKept(_) => return None,
        Event::Resolved(fact) => fact.to,
        Event::CancelRequested(fact) => fact.to,
        Event::Revived(_) => Accepted,
    })
}

/// The fact's name as the table spells it.
pub fn fact_name(event: &Event) -> &'static str {
    let name = event.type_name();
    name.split_once('.').map_or(name, |(_, fact)| fact)
}

/// Whether the table has this step.
pub fn allows(from: Option<State>, event: &Event) -> bool {
    let Some(to) = leads_to(event) else { return from.is_some() };
    TRANSITIONS.iter().any(|row| row.from == from && row.fact == fact_name(event) && row.to.contains(&to))
}

/// The table as a Mermaid state diagram.
pub fn diagram() -> String {
    let mut text = String::from("stateDiagram-v2\n");
    for row in TRANSITIONS {
        let from = row.from.map_or("[*]", State::as_str);
        for to in row.to {
            text.push_str(&format!("    {from} --> {to}: {}\n", row.fact));
        }
    }
    for state in State::ALL.iter().filter(|state| state.is_terminal()) {
        text.push_str(&format!("    {state} --> [*]\n"));
    }
    text
}
