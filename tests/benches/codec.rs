//! Encoding, decoding, chaining, deciding: what each event costs in the processor.

use divan::{Bencher, black_box};
use signalbox_domain::setting::{Setting, State, Switch};
use signalbox_domain::{Context, Decider};
use signalbox_events::envelope::{FORMAT, chain_next};
use signalbox_events::{Envelope, Micros, Recorded};
use uuid::Uuid;

fn main() {
    divan::main();
}

fn envelope() -> Envelope {
    Envelope {
        format: FORMAT,
        event_id: Uuid::from_u128(1),
        command_id: Uuid::from_u128(2),
        version: 7,
        at: Micros(1_700_000_000_000_000),
        actor: "key:0190f3a8-7b1c-7def-8abc-0123456789ab".to_owned(),
        on_behalf_of: None,
        correlation_id: Uuid::from_u128(3),
        causation_id: None,
        traceparent: None,
        prev: [7; 32],
        key_id: None,
        kind: "setting.inference_switched".to_owned(),
        schema_version: 1,
        data: b"\x81\xa7enabled\xc3".to_vec(),
    }
}

#[divan::bench]
fn encode(bencher: Bencher) {
    let envelope = envelope();
    bencher.bench_local(|| black_box(&envelope).encode());
}

#[divan::bench]
fn decode(bencher: Bencher) {
    let payload = envelope().encode().unwrap();
    bencher.bench_local(|| Recorded::decode(1, "evt.0.platform.setting.features", black_box(&payload)));
}

#[divan::bench]
fn chain(bencher: Bencher) {
    let payload = envelope().encode().unwrap();
    bencher.bench_local(|| chain_next(black_box(&payload)));
}

#[divan::bench]
fn decide(bencher: Bencher) {
    let ctx = Context { now: chrono::DateTime::UNIX_EPOCH, id: Uuid::nil(), random: [0; 32], digest_key: [0; 32] };
    let (state, command) = (State::default(), Switch { enabled: true }.into());
    bencher.bench_local(|| Setting::decide(black_box(&state), black_box(&command), &ctx));
}
