//! The bytes on the log: frozen for every type and version, bounded against hostile lengths, open to later formats.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use signalbox_events::account::{Created, KeyIssued, KeyRevoked, MemberAdded, Role};
use signalbox_events::conversation::*;
use signalbox_events::envelope::{FORMAT, chain_next, chain_start};
use signalbox_events::setting::{GapAccepted, InferenceSwitched, Transport, TransportSet};
use signalbox_events::workload::{self, DeletionRequested, Deployed, Observed, Resumed, RolledBack, Scaled, Spec, State, Suspended, Updated};
use signalbox_events::{
    AccountId, Encoded, Envelope, Fact, IncarnationId, KeyId, Micros, Noun, PoolId, PrincipalId, Sealed, Text, TurnId, UpstreamId, WorkloadId,
    account, conversation, json, pool, setting, task, upstream, worker,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use uuid::Uuid;

fn sealed() -> Text {
    Text::Sealed(Sealed { inline: Some(vec![1, 2, 3]), object: None, characters: 2 })
}

fn large() -> Text {
    let object = signalbox_events::text::Object { name: "o".to_owned(), size: 300_000, sha256: [9; 32] };
    Text::Sealed(Sealed { inline: None, object: Some(object), characters: 299_000 })
}

/// One example of every fact.
fn examples() -> Vec<Fact> {
    let principal = PrincipalId(Uuid::from_u128(1));
    let turn = TurnId(Uuid::from_u128(2));
    let key = KeyId(Uuid::from_u128(3));
    let usage = Usage { prompt_tokens: 5, completion_tokens: 7, estimated: true };
    let parameters = BTreeMap::from([("model".to_owned(), "m".to_owned())]);
    let inference = Spec::LocalInference { runtime: "llama".to_owned(), parameters: parameters.clone(), replicas: 2 };
    let account: Vec<account::Event> = vec![
        Created { name: "Acme".to_owned() }.into(),
        MemberAdded { principal, name: "Ada".to_owned(), roles: vec![Role::Member, Role::AccountAdmin] }.into(),
        KeyIssued { key, principal, label: "laptop".to_owned(), hash: [4; 32], roles: vec![Role::Member], expires_at: Some(Micros(6)) }.into(),
        KeyRevoked { key }.into(),
    ];
    let setting: Vec<setting::Event> = vec![
        InferenceSwitched { enabled: true }.into(),
        GapAccepted { partition: 0, sequence: 7, reason: "disk fault".to_owned() }.into(),
        TransportSet { kind: Some("chat.completions".to_owned()), transport: Some(Transport::Lease) }.into(),
    ];
    let workload: Vec<workload::Event> = vec![
        Deployed {
            name: "SmolLM2".to_owned(),
            object_name: "smollm2-00000001".to_owned(),
            spec: inference.clone(),
            owner: principal,
            owner_name: "Ada".to_owned(),
            labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
        }
        .into(),
        Updated { revision: 2, spec: Spec::Endpoint { url: "http://127.0.0.1:1/v1".to_owned(), model: "m".to_owned() } }.into(),
        RolledBack { revision: 3, to: 1, spec: Spec::LocalJob { runtime: "batch".to_owned(), parameters } }.into(),
        Scaled { replicas: 3 }.into(),
        Suspended {}.into(),
        Resumed {}.into(),
        DeletionRequested {}.into(),
        Observed {
            state: State::Running,
            reason: "serving".to_owned(),
            revision: 1,
            ready: 1,
            nodes: vec!["local".to_owned()],
            endpoints: vec!["http://127.0.0.1:1/v1".to_owned()],
            exit_code: Some(-1),
            log_tail: vec!["line".to_owned()],
            seen_at: Micros(8),
        }
        .into(),
        workload::Deleted {}.into(),
    ];
    let conversation: Vec<conversation::Event> = vec![
        Started {
            owner: principal,
            owner_name: "Ada".to_owned(),
            workload: WorkloadId(Uuid::from_u128(4)),
            model: "m".to_owned(),
            title: Some(sealed()),
        }
        .into(),
        TurnSubmitted {
            turn,
            number: 1,
            client_turn_id: "ct-1".to_owned(),
            digest: [5; 32],
            messages: sealed(),
            parameters: large(),
            title: None,
            on_disconnect: OnDisconnect::Cancel,
            executor: "g1".to_owned(),
            stream: "stream.gateway.g1.t.1".to_owned(),
        }
        .into(),
        TurnBegun { turn, executor: "g1".to_owned(), stream: "stream.gateway.g1.t.1".to_owned() }.into(),
        TurnCompleted { turn, message: sealed(), finish_reason: "stop".to_owned(), usage }.into(),
        TurnFailed { turn, code: "upstream_disconnected".to_owned(), upstream_status: Some(500), partial: Some(sealed()), usage }.into(),
        TurnInterrupted { turn, partial: None, usage }.into(),
        TurnCancelled { turn, partial: Some(sealed()), usage }.into(),
        TurnSubmissionUnknown { turn }.into(),
        Renamed { title: sealed() }.into(),
        Deleted {}.into(),
    ];
    let all = account.into_iter().map(Fact::from).chain(setting.into_iter().map(Fact::from));
    all.chain(workload.into_iter().map(Fact::from)).chain(conversation.into_iter().map(Fact::from)).chain(execution()).collect()
}

/// One example of every fact about pools, workers and tasks.
fn execution() -> Vec<Fact> {
    use signalbox_events::worker::{Capabilities, State as Seen};
    let (eu, us): (PoolId, PoolId) = ("eu".parse().unwrap(), "us".parse().unwrap());
    let (incarnation, epoch) = (IncarnationId(Uuid::from_u128(6)), 4);
    let profile = pool::Profile {
        description: "Frankfurt".to_owned(),
        tier: 1,
        priority: -5,
        labels: BTreeMap::from([("region".to_owned(), "eu".to_owned())]),
    };
    let pools: Vec<pool::Event> = vec![
        pool::Created { profile: profile.clone() }.into(),
        pool::Updated { profile }.into(),
        pool::Switched { state: pool::State::Cordoned, reason: "upgrade".to_owned() }.into(),
        pool::Deleted {}.into(),
    ];
    let workers: Vec<worker::Event> = vec![
        worker::Registered {
            pool: eu.clone(),
            incarnation,
            protocol: 1,
            version: "1.0".to_owned(),
            capabilities: Capabilities { kinds: vec!["chat.*".to_owned()], streaming: true },
            slots: 4,
            public_key: None,
        }
        .into(),
        worker::Observed { incarnation, state: Seen::NotConsuming }.into(),
        worker::DrainRequested { incarnation }.into(),
        worker::Retired { incarnation, reason: "bye".to_owned() }.into(),
    ];
    let model = upstream::Model { name: "gpt-5".to_owned(), kinds: vec!["chat.*".to_owned()] };
    let profile = upstream::Profile {
        provider: "openai".to_owned(),
        protocol: "openai".to_owned(),
        base_url: "https://api.example.com/v1".to_owned(),
        models: vec![model],
    };
    let upstreams: Vec<upstream::Event> = vec![
        upstream::Registered {
            owner: PrincipalId(Uuid::from_u128(1)),
            owner_name: "Ada".to_owned(),
            name: "example".to_owned(),
            profile: profile.clone(),
        }
        .into(),
        upstream::Updated { profile, keeps_credential: true }.into(),
        upstream::CredentialSet {
            secret: sealed(),
            header: "authorization".to_owned(),
            origin: "https://api.example.com".to_owned(),
            digest: [5; 32],
        }
        .into(),
        upstream::Switched { enabled: false, reason: "too slow".to_owned() }.into(),
        upstream::Deleted {}.into(),
    ];
    let code = || "connect_failed".to_owned();
    let usage = Some(Usage { prompt_tokens: 5, completion_tokens: 7, estimated: false });
    let account = AccountId(Uuid::from_u128(8));
    let platform = Some(UpstreamId(Uuid::from_u128(7)));
    let tasks: Vec<task::Event> = vec![
        task::Accepted {
            owner: PrincipalId(Uuid::from_u128(1)),
            owner_name: "Ada".to_owned(),
            kind: "chat.completions".to_owned(),
            payload: sealed(),
            digest: [5; 32],
            mode: task::Mode::Async,
            run_mode: task::RunMode::Live,
            priority: 5,
            streaming: true,
            target: Some(task::Target { account, workload: Some(WorkloadId(Uuid::from_u128(4))), upstream: platform, model: "m".to_owned() }),
            wanted_pool: Some(eu.clone()),
            pool: Some(eu.clone()),
            start_deadline: Some(Micros(6)),
            idempotent: false,
            to: task::State::Queued,
        }
        .into(),
        task::Routed { pool: eu.clone(), reason: "default_pool".to_owned() }.into(),
        task::RouteUnavailable { reason: "no_eligible_pool".to_owned(), retry_after_seconds: 10 }.into(),
        task::Rerouted { pool: us, reason: "pool_draining".to_owned() }.into(),
        task::Leased {
            attempt: 1,
            epoch,
            pool: eu.clone(),
            worker: "gpu-01".parse().unwrap(),
            incarnation,
            token_hash: [3; 32],
            expires_at: Micros(9),
        }
        .into(),
        task::LeaseReleased { epoch, reason: "drained".to_owned(), to: task::State::Queued }.into(),
        task::LeaseExpired { epoch, reason: "expired".to_owned(), to: task::State::DeadLettered }.into(),
        task::StartDeadlineExceeded {}.into(),
        task::TokenRedeemed { epoch, nonce: Uuid::from_u128(13) }.into(),
        task::SubmissionAcknowledged { epoch, upstream_id: "chatcmpl-1".to_owned() }.into(),
        task::NotSent { epoch, code: code(), to: task::State::RetryWait, retry_at: Some(Micros(10)) }.into(),
        task::UpstreamRejected { epoch, code: code(), upstream_status: Some(429), to: task::State::Failed, retry_at: None, detail: None }.into(),
        task::RetryDue { pool: eu }.into(),
        task::Succeeded { epoch, result: large(), usage }.into(),
        task::Failed { epoch, code: code(), upstream_status: Some(500), partial: Some(sealed()), usage, detail: None }.into(),
        task::Cancelled { epoch, partial: None, usage }.into(),
        task::LeaseLost { epoch }.into(),
        task::WorkerLost { epoch }.into(),
        task::SubmissionBecameUnknown { epoch, code: "reset".to_owned(), partial: Some(sealed()) }.into(),
        task::LateResult { epoch, to: task::State::Succeeded, code: None, result: Some(sealed()), usage }.into(),
        task::StaleResultKept { epoch, incarnation, outcome: "succeeded".to_owned(), result: Some(sealed()) }.into(),
        task::Requeued { epoch, reason: "idempotent_kind".to_owned() }.into(),
        task::Resolved {
            epoch,
            resolution: task::Resolution::AcceptDuplicate,
            reason: "asked the provider".to_owned(),
            result: None,
            to: task::State::Queued,
        }
        .into(),
        task::CancelRequested { to: task::State::Cancelled }.into(),
        task::Revived { reason: "mended".to_owned() }.into(),
    ];
    let all = pools.into_iter().map(Fact::from).chain(workers.into_iter().map(Fact::from));
    all.chain(upstreams.into_iter().map(Fact::from)).chain(tasks.into_iter().map(Fact::from)).collect()
}

fn noun(kind: &str) -> Noun {
    kind.split('.').next().unwrap().parse().unwrap()
}

fn envelope(fact: &Fact) -> Envelope {
    let Encoded { kind, schema_version, data } = fact.encode().unwrap().unwrap();
    Envelope {
        format: FORMAT,
        event_id: Uuid::from_u128(11),
        command_id: Uuid::from_u128(12),
        version: 1,
        at: Micros(1_700_000_000_000_001),
        actor: "key:k".to_owned(),
        on_behalf_of: Some("principal:p".to_owned()),
        correlation_id: Uuid::from_u128(13),
        causation_id: None,
        traceparent: None,
        prev: chain_start("evt.0.platform.setting.features"),
        key_id: Some(Uuid::from_u128(14)),
        kind: kind.to_owned(),
        schema_version,
        data,
    }
}

/// Stored bytes never change their meaning: a change of a file under `golden/` is a change of history. To add a new
/// type or version, run with `SIGNALBOX_WRITE_GOLDEN=1`, which only ever writes files that are missing.
#[test]
fn golden_bytes_are_what_they_were() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden");
    let write = std::env::var_os("SIGNALBOX_WRITE_GOLDEN").is_some();
    for fact in examples() {
        let envelope = envelope(&fact);
        let bytes = envelope.encode().unwrap();
        let text = format!("{envelope:#?}\n{fact:#?}\n");
        let folder = root.join(&envelope.kind);
        let (binary, readable) = (folder.join(format!("v{}.mp", envelope.schema_version)), folder.join(format!("v{}.txt", envelope.schema_version)));
        if write && !binary.exists() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&binary, &bytes).unwrap();
            std::fs::write(&readable, &text).unwrap();
        }
        let frozen = std::fs::read(&binary).unwrap_or_else(|_| panic!("no golden file for {}", envelope.kind));
        assert_eq!(frozen, bytes, "today's code writes {} differently", envelope.kind);
        let read = Envelope::decode(&frozen).unwrap();
        let fact = Fact::decode(noun(&read.kind), &read).unwrap();
        assert_eq!(format!("{read:#?}\n{fact:#?}\n"), std::fs::read_to_string(&readable).unwrap(), "today's code reads {} differently", read.kind);
    }
}

#[test]
fn every_type_has_an_example_and_every_golden_file_a_type() {
    let shown: BTreeSet<String> = examples().iter().map(|fact| envelope(fact).kind).collect();
    let known: BTreeSet<String> = Fact::types().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(shown, known);
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden");
    for folder in std::fs::read_dir(root).unwrap() {
        let folder = folder.unwrap();
        let kind = folder.file_name().to_string_lossy().into_owned();
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "mp") {
                let read = Envelope::decode(&std::fs::read(&path).unwrap()).unwrap();
                assert_eq!(read.kind, kind);
                assert_ne!(Fact::decode(noun(&kind), &read).unwrap(), Fact::Unknown, "{} can no longer be read", path.display());
            }
        }
    }
}

#[test]
fn plain_text_cannot_be_encoded() {
    let fact: conversation::Event = Renamed { title: "secret".into() }.into();
    assert!(fact.encode().is_err());
    assert!(!format!("{fact:?}").contains("secret"));
    let erased: conversation::Event = Renamed { title: Text::Erased }.into();
    assert!(erased.encode().is_err());
}

#[test]
fn a_later_format_may_append_elements() {
    let bytes = envelope(&examples()[0]).encode().unwrap();
    // 15 elements in a fixarray; two more make an array16.
    assert_eq!(bytes[0], 0x9f);
    let longer = [&[0xdc, 0x00, 0x11][..], &bytes[1..], &[0xc0, 0xa1, b'x']].concat();
    assert_eq!(Envelope::decode(&longer).unwrap(), Envelope::decode(&bytes).unwrap());
    assert!(Envelope::decode(&[&bytes[..], &[0xc0]].concat()).is_err(), "trailing bytes");
    assert!(Envelope::decode(&bytes[..bytes.len() - 1]).is_err(), "cut short");
}

#[test]
fn unknown_types_and_versions_are_carried() {
    let mut unknown = envelope(&examples()[0]);
    unknown.kind = "account.model_paused".to_owned();
    assert_eq!(Fact::decode(Noun::Account, &unknown).unwrap(), Fact::Unknown);
    let mut newer = envelope(&examples()[0]);
    newer.schema_version = 9;
    assert_eq!(Fact::decode(Noun::Account, &newer).unwrap(), Fact::Unknown);
    assert!(Fact::decode(Noun::Workload, &newer).is_err(), "an event of another noun");
}

#[test]
fn new_fields_are_passed_over_and_data_reads_as_json() {
    #[derive(serde::Serialize)]
    struct Later {
        name: &'static str,
        more: Vec<u8>,
    }
    let data = rmp_serde::to_vec_named(&Later { name: "Acme", more: vec![1] }).unwrap();
    let read = account::Event::decode("account.created", 1, &data).unwrap();
    assert_eq!(read, Some(Created { name: "Acme".to_owned() }.into()));
    assert_eq!(json::data(&data).unwrap()["more"], serde_json::json!([1]));
    for fact in examples() {
        let shown = json::data(&envelope(&fact).data).unwrap();
        assert!(matches!(shown, Value::Object(_)));
        assert!(!shown.to_string().contains("inline"), "sealed bytes are not shown: {shown}");
    }
}

#[test]
fn a_chain_ties_events_to_their_subject_and_order() {
    assert_ne!(chain_start("evt.0.a.workload.x"), chain_start("evt.0.a.workload.y"));
    assert_ne!(chain_next(b"a"), chain_next(b"b"));
}

#[test]
fn the_platform_is_an_account_of_its_own() {
    assert_eq!(AccountId::PLATFORM.to_string(), "platform");
}
