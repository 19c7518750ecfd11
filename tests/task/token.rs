//! Execution tokens under fire: redeemed once each, and no other text is one.

use futures_util::future::join_all;
use serde_json::json;
use sha2::{Digest, Sha256};
use signalbox_domain::task::{Accept, Existing, Grant, Redeem, Task};
use signalbox_domain::{Code, Context};
use signalbox_events::task::{Mode, RunMode};
use signalbox_events::{AccountId, Aggregate, IncarnationId, PrincipalId, TaskId};
use signalbox_journal::memory::Memory;
use signalbox_journal::{Executed, Failure, Ledger, MasterKey, Request, Requester, Vault};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));

/// The shipped rules on a log in memory, at a fixed time.
fn ledger() -> Arc<Ledger> {
    let count = AtomicU64::new(1);
    let source = move || {
        let number = count.fetch_add(1, Ordering::SeqCst);
        let random = Sha256::digest(number.to_be_bytes()).into();
        let now = chrono::DateTime::from_timestamp(1_772_323_200, 0).unwrap();
        Context { now, id: Uuid::new_v5(&Uuid::NAMESPACE_OID, &number.to_be_bytes()), random, digest_key: [0; 32] }
    };
    Arc::new(Ledger::new(Arc::new(Memory::new(1)), Vault::new(MasterKey([1; 32])), Arc::new(source)))
}

fn aggregate(number: u128) -> Aggregate {
    Aggregate::task(ACCOUNT, TaskId(Uuid::from_u128(number)))
}

fn token(number: u128) -> [u8; 32] {
    Sha256::digest(format!("token {number}")).into()
}

async fn execute(ledger: &Ledger, number: u128, command: impl Into<signalbox_domain::task::Command>) -> Result<Executed<Option<Existing>>, Failure> {
    ledger.execute::<Task>(Request { aggregate: aggregate(number), command: command.into(), requester: Requester::role("test") }).await
}

fn grant(number: u128) -> Grant {
    Grant {
        pool: "eu".parse().unwrap(),
        worker: "gpu-01".parse().unwrap(),
        incarnation: IncarnationId(Uuid::from_u128(7)),
        token_hash: Sha256::digest(token(number)).into(),
        ttl: 30_000_000,
    }
}

fn redeem(token: &[u8], nonce: u128) -> Redeem {
    let Grant { pool, worker, incarnation, .. } = grant(0);
    Redeem { token_hash: Sha256::digest(token).into(), epoch: 2, pool, worker, incarnation, nonce: Uuid::from_u128(nonce), renewed_until: None }
}

async fn leased(ledger: &Ledger, number: u128) {
    let accept = Accept {
        owner: PrincipalId(Uuid::from_u128(2)),
        owner_name: "Ada".to_owned(),
        kind: "chat.completions".to_owned(),
        payload: json!({}).to_string(),
        canonical: "{}".to_owned(),
        mode: Mode::Async,
        run_mode: RunMode::Live,
        priority: 5,
        streaming: false,
        target: None,
        wanted_pool: None,
        pool: Some("eu".parse().unwrap()),
        start_deadline: None,
    };
    execute(ledger, number, accept).await.unwrap();
    execute(ledger, number, grant(number)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tokens_and_sixty_four_redemptions_each_give_a_thousand() {
    let ledger = ledger();
    let one = |number: u128| {
        let ledger = ledger.clone();
        tokio::spawn(async move {
            leased(&ledger, number).await;
            let tries = join_all((0..64).map(|nonce| {
                let ledger = ledger.clone();
                tokio::spawn(async move { execute(&ledger, number, redeem(&token(number), nonce)).await })
            }));
            let mut redeemed = 0;
            for outcome in tries.await {
                match outcome.unwrap() {
                    Ok(executed) => redeemed += u32::from(executed.stated.is_some()),
                    Err(Failure::Rejected(rejection)) => assert_eq!(rejection.code, Code::TokenAlreadyRedeemed),
                    Err(error) => panic!("{error}"),
                }
            }
            redeemed
        })
    };
    let mut total = 0;
    for batch in 0..10_u128 {
        for redeemed in join_all((0..100).map(|number| one(batch * 100 + number))).await {
            let redeemed = redeemed.unwrap();
            assert_eq!(redeemed, 1);
            total += redeemed;
        }
    }
    assert_eq!(total, 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_mutated_tokens_are_no_tokens() {
    let ledger = ledger();
    for number in 0..2 {
        leased(&ledger, number).await;
    }
    let own = token(0);
    let mut accepted = 0;
    for attempt in 0..10_000_u32 {
        let mut command = redeem(&own, u128::from(attempt));
        let random = Sha256::digest(attempt.to_be_bytes());
        match attempt % 7 {
            // Any one bit of the token, or of its hash.
            0 => {
                let mut changed = own;
                changed[usize::from(random[0]) % 32] ^= 1 << (random[1] % 8);
                command.token_hash = Sha256::digest(changed).into();
            }
            1 => command.token_hash[usize::from(random[0]) % 32] ^= 1 << (random[1] % 8),
            // Another task's.
            2 => command = redeem(&token(1), u128::from(attempt)),
            3 => command.pool = format!("p{attempt}").parse().unwrap(),
            4 => command.worker = format!("w{attempt}").parse().unwrap(),
            5 => command.epoch = 3 + u64::from(attempt),
            _ => command.incarnation = IncarnationId(Uuid::from_u128(1_000 + u128::from(attempt))),
        }
        match execute(&ledger, 0, command).await {
            Ok(_) => accepted += 1,
            Err(Failure::Rejected(rejection)) => {
                assert!(matches!(rejection.code, Code::TokenUnknown | Code::WrongWorker | Code::LeaseSuperseded), "{rejection}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(accepted, 0);
    execute(&ledger, 0, redeem(&own, 1)).await.unwrap();
}
