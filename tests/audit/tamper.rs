//! Every way to change a log is found.

use bytes::Bytes;
use ed25519_dalek::SigningKey;
use serde_json::json;
use signalbox::config::key;
use signalbox::serve::audit_options;
use signalbox_auditor::{Auditor, Checkpoint, Folder, RunningHash, Verdict, verify};
use signalbox_events::Envelope;
use signalbox_events::envelope::{chain_next, chain_start};
use signalbox_journal::nats::Nats;
use signalbox_journal::{Append, Journal, Stored};
use signalbox_tests::{Behaviour, World};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A real log with its checkpoints: what a few commands and turns state.
async fn recorded() -> (World, Vec<Stored>, Folder, SigningKey) {
    let world = World::ready(1).await;
    let (_model, workload, _) = world.model(Behaviour::Deltas(vec!["ok".to_owned()], Duration::ZERO)).await;
    let conversation = world.admin.conversation(&workload).await;
    for n in 0..4 {
        let turn = json!({"client_turn_id": format!("t{n}"), "content": "hi"});
        world.admin.post(&format!("/v1/conversations/{conversation}/turns"), turn).await.ok();
    }
    let log = world.log().await;
    let folder = Folder(world.scratch.path().join("copy"));
    let signer = SigningKey::from_bytes(&key("checkpoint", &world.config.keys.checkpoint).unwrap());
    // Checkpoints as the role signs them: every few events, and not of the last one.
    let mut hash = RunningHash::default();
    for stored in &log {
        hash = hash.with(stored);
        if stored.sequence % 5 == 0 && (stored.sequence as usize) < log.len() {
            folder.keep(&Checkpoint::sign(&signer, 0, stored.sequence, hash, chrono::DateTime::UNIX_EPOCH)).unwrap();
        }
    }
    (world, log, folder, signer)
}

/// A copy of a log that a test has changed.
struct Copy(Vec<Stored>);

impl Journal for Copy {
    fn partitions(&self) -> u16 {
        1
    }
    fn reads_may_lag(&self) -> bool {
        false
    }
    fn append(&self, _: Append) -> futures_util::future::BoxFuture<'_, Result<u64, signalbox_journal::AppendError>> {
        unreachable!("an auditor does not append")
    }
    fn read<'a>(
        &'a self,
        _: u16,
        _: &'a str,
        after: u64,
        most: usize,
    ) -> futures_util::future::BoxFuture<'a, Result<(Vec<Stored>, bool), signalbox_journal::StoreError>> {
        let mut rest = self.0.iter().filter(|stored| stored.sequence > after);
        let found: Vec<_> = rest.by_ref().take(most).cloned().collect();
        let more = rest.next().is_some();
        Box::pin(async move { Ok((found, more)) })
    }
    fn head<'a>(&'a self, _: u16, _: &'a str) -> futures_util::future::BoxFuture<'a, Result<u64, signalbox_journal::StoreError>> {
        unreachable!()
    }
    fn tail(&self, _: u16) -> futures_util::future::BoxFuture<'_, Result<signalbox_journal::Tail, signalbox_journal::StoreError>> {
        unreachable!()
    }
    fn signal(&self, _: u16) -> tokio::sync::watch::Receiver<u64> {
        unreachable!()
    }
    fn get<'a>(
        &'a self,
        _: signalbox_journal::Store,
        _: &'a str,
    ) -> futures_util::future::BoxFuture<'a, Result<Option<Bytes>, signalbox_journal::StoreError>> {
        unreachable!()
    }
    fn put<'a>(
        &'a self,
        _: signalbox_journal::Store,
        _: &'a str,
        _: Bytes,
    ) -> futures_util::future::BoxFuture<'a, Result<(), signalbox_journal::StoreError>> {
        unreachable!()
    }
    fn create<'a>(
        &'a self,
        _: signalbox_journal::Store,
        _: &'a str,
        _: Bytes,
    ) -> futures_util::future::BoxFuture<'a, Result<bool, signalbox_journal::StoreError>> {
        unreachable!()
    }
    fn delete<'a>(
        &'a self,
        _: signalbox_journal::Store,
        _: &'a str,
    ) -> futures_util::future::BoxFuture<'a, Result<(), signalbox_journal::StoreError>> {
        unreachable!()
    }
    fn probe(&self) -> futures_util::future::BoxFuture<'_, Result<(), signalbox_journal::StoreError>> {
        unreachable!()
    }
}

/// Numbers the messages anew, as whoever inserts or removes one would.
fn renumber(log: &mut [Stored]) {
    for (index, stored) in log.iter_mut().enumerate() {
        stored.sequence = index as u64 + 1;
    }
}

/// Makes every chain whole again over the changed log: what an attacker with full access can do.
fn rechain(log: &mut [Stored]) {
    let mut chains: HashMap<String, ([u8; 32], u64)> = HashMap::new();
    for stored in log {
        let (prev, version) = chains.get(&stored.subject).copied().unwrap_or((chain_start(&stored.subject), 0));
        let mut envelope = Envelope::decode(&stored.payload).unwrap();
        (envelope.prev, envelope.version) = (prev, version + 1);
        stored.payload = envelope.encode().unwrap().into();
        chains.insert(stored.subject.clone(), (chain_next(&stored.payload), version + 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_change_a_log_is_found() {
    let (world, log, folder, signer) = recorded().await;
    assert!(log.len() >= 15, "{}", log.len());
    let judge = async |log: Vec<Stored>| -> Verdict { verify(&Copy(log), &folder, &signer.verifying_key()).await.unwrap() };
    let good = judge(log.clone()).await;
    assert!(good.ok, "{good:?}");
    assert_eq!((good.events as usize, good.checkpoints as usize), (log.len(), (log.len() - 1) / 5));
    assert_eq!(good.uncovered as usize, log.len() - (log.len() - 1) / 5 * 5);

    let bad = async |name: &str, change: &dyn Fn(&mut Vec<Stored>), code: &str, first: usize| {
        let mut copy = log.clone();
        change(&mut copy);
        let verdict = judge(copy).await;
        assert!(!verdict.ok, "{name} is not found");
        let found = &verdict.findings[0];
        assert_eq!((found.code, found.position.as_str()), (code, format!("0.{first}").as_str()), "{name}: {verdict:?}");
    };
    let flip = |stored: &mut Stored| {
        let mut bytes = stored.payload.to_vec();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        stored.payload = bytes.into();
    };
    // An aggregate whose events stand at these places (counted from 0).
    let chain: Vec<usize> = (0..log.len()).filter(|at| log[*at].subject == log[8].subject).collect();
    let conversation: Vec<usize> = (0..log.len()).filter(|at| log[*at].subject.contains(".conversation.")).collect();
    assert!(conversation.len() >= 12 && chain.len() >= 2);
    let (victim, after) = (conversation[2], conversation[3]);
    // A changed event: the chain breaks at the next one, the checkpoint names the stretch from the last true one.
    bad("changed", &|log| flip(&mut log[victim]), "checkpoint_mismatch", victim / 5 * 5 + 1).await;
    let mut copy = log.clone();
    flip(&mut copy[victim]);
    let verdict = judge(copy).await;
    assert!(
        verdict.findings.iter().any(|found| found.position == format!("0.{}", after + 1) && found.code == "chain_broken")
            || verdict.findings.iter().any(|found| found.code == "unreadable"),
        "{verdict:?}"
    );
    bad("removed", &|log| drop(log.remove(victim)), "checkpoint_mismatch", victim / 5 * 5 + 1).await;
    let mut copy = log.clone();
    copy.remove(victim);
    assert!(judge(copy).await.findings.iter().any(|found| found.code == "gap" && found.position == format!("0.{}", victim + 1)));
    let swap = |log: &mut Vec<Stored>| {
        log.swap(victim, after);
        renumber(log);
    };
    bad("swapped", &swap, "checkpoint_mismatch", victim / 5 * 5 + 1).await;
    let insert = |log: &mut Vec<Stored>| {
        let forged = log[victim].clone();
        log.insert(victim, forged);
        renumber(log);
    };
    bad("inserted", &insert, "checkpoint_mismatch", victim / 5 * 5 + 1).await;
    bad("transplanted", &|log| log[victim].subject = log[0].subject.clone(), "checkpoint_mismatch", victim / 5 * 5 + 1).await;
    // A dropped tail that checkpoints cover.
    let cut = (log.len() - 1) / 5 * 5 - 2;
    bad("tail", &|log| log.truncate(cut), "tail_missing", cut + 1).await;
    let dropped = (0..log.len()).find(|at| log[*at].subject.contains(".workload.")).unwrap();
    let without = |log: &mut Vec<Stored>| {
        let subject = log[dropped].subject.clone();
        log.retain(|stored| stored.subject != subject);
        renumber(log);
    };
    bad("aggregate", &without, "checkpoint_mismatch", dropped / 5 * 5 + 1).await;
    // The whole log rewritten, every chain whole again: only the checkpoints tell.
    let rewrite = |log: &mut Vec<Stored>| {
        log.remove(victim);
        renumber(log);
        rechain(log);
    };
    let mut copy = log.clone();
    rewrite(&mut copy);
    let verdict = judge(copy).await;
    assert!(verdict.findings.iter().all(|found| matches!(found.code, "checkpoint_mismatch" | "tail_missing")), "{verdict:?}");
    bad("rewritten", &rewrite, "checkpoint_mismatch", victim / 5 * 5 + 1).await;
    // A checkpoint that someone else has signed.
    let forger = SigningKey::from_bytes(&[9; 32]);
    folder.keep(&Checkpoint::sign(&forger, 0, 5, RunningHash::default(), chrono::DateTime::UNIX_EPOCH)).unwrap();
    let verdict = judge(log.clone()).await;
    assert!(verdict.findings.iter().any(|found| found.code == "checkpoint_forged"), "{verdict:?}");
    world.stop().await;
}

/// The role signs what is there with a credential that cannot append, and `verify` covers it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_role_signs_and_cannot_append() {
    let world = World::ready(1).await;
    for n in 0..20 {
        world.admin.send(reqwest::Method::PUT, "/v1/settings/account/inference", json!({"enabled": n % 2 == 0})).await.ok();
    }
    let journal = Nats::open(audit_options(&world.config).unwrap()).await.unwrap();
    let folder = Folder(world.scratch.path().join("signed"));
    let signer = SigningKey::from_bytes(&key("checkpoint", &world.config.keys.checkpoint).unwrap());
    let auditor = Auditor { journal: journal.clone(), folder: folder.clone(), key: signer.clone(), now: Arc::new(|| chrono::DateTime::UNIX_EPOCH) };
    let stop = CancellationToken::new();
    let running = tokio::spawn(auditor.run(stop.clone()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.cancel();
    running.await.unwrap();
    let verdict = verify(journal.as_ref(), &folder, &signer.verifying_key()).await.unwrap();
    assert!(verdict.ok && verdict.checkpoints >= 1 && verdict.uncovered == 0, "{verdict:?}");
    let before = world.log().await;
    let forged =
        Append { subject: before[0].subject.clone(), expected: before.len() as u64, payload: Bytes::from_static(b"x"), kind: "x", traceparent: None };
    assert!(journal.append(forged).await.is_err());
    assert_eq!(world.log().await, before);
    world.stop().await;
}
