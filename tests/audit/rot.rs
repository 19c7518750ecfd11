//! A bit that flips on the server's own disk.

use reqwest::Method;
use serde_json::json;
use signalbox::config::key;
use signalbox::serve::{Role, Service, audit_options};
use signalbox_auditor::{Auditor, Folder, verify};
use signalbox_embedded::testing::nats_in;
use signalbox_journal::nats::Nats;
use signalbox_tests::World;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn block(folder: &Path) -> PathBuf {
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        for entry in std::fs::read_dir(path).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                pending.push(path);
            } else if path.to_string_lossy().contains("/EVENTS_0/msgs/") && path.extension().is_some_and(|extension| extension == "blk") {
                return path;
            }
        }
    }
    panic!("no block file below {}", folder.display());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_is_found_and_stops_the_views() {
    let mut world = World::ready(1).await;
    for n in 0..60 {
        world.admin.send(Method::PUT, "/v1/settings/account/inference", json!({"enabled": n % 2 == 0})).await.ok();
    }
    let folder = Folder(world.scratch.path().join("signed"));
    let signer = ed25519_dalek::SigningKey::from_bytes(&key("checkpoint", &world.config.keys.checkpoint).unwrap());
    let journal = Nats::open(audit_options(&world.config).unwrap()).await.unwrap();
    let stop = CancellationToken::new();
    let auditor = Auditor { journal, folder: folder.clone(), key: signer.clone(), now: Arc::new(|| chrono::DateTime::UNIX_EPOCH) };
    let signing = tokio::spawn(auditor.run(stop.clone()));
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.cancel();
    signing.await.unwrap();
    world.services.pop().unwrap().stop().await;
    let nats = world.nats.take().unwrap();
    let port = nats.server.port();
    nats.server.stop().await;
    let file = block(nats.folder.path());
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    // What the server remembers beside the blocks would hide what the blocks say until they are read.
    let server = nats_in(nats.folder.path(), |options| options.port = Some(port)).await.unwrap();
    let journal = Nats::open(audit_options(&world.config).unwrap()).await.unwrap();
    let verdict = verify(journal.as_ref(), &folder, &signer.verifying_key()).await.unwrap();
    assert!(!verdict.ok, "{verdict:?}");
    let first: u64 = verdict.findings[0].position.strip_prefix("0.").unwrap().parse().unwrap();
    assert!((1..=70).contains(&first), "{verdict:?}");
    eprintln!("found: {:?}", verdict.findings);
    // A view that begins at the first event stops at the loss, and says so.
    let db = signalbox_tests::world::database().await;
    let config = signalbox::config::Config { database_url: db, ..world.config.clone() };
    let service = Service::start(&config, &[Role::Api, Role::Projector]).await.unwrap();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut said = String::new();
    for _ in 0..100 {
        said = http.get(format!("http://{}/readyz", service.address.unwrap())).send().await.unwrap().text().await.unwrap();
        if said.contains("log_gap") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(said.contains("log_gap"), "{said}");
    service.stop().await;
    server.stop().await;
}
