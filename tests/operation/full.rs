//! A full disk: refused with a code, nothing that was acknowledged is lost, and it goes on once there is room.

use reqwest::Method;
use serde_json::json;
use signalbox::serve::{Role, Service};
use signalbox_embedded::testing::{Scratch, nats_in};
use signalbox_events::{AccountId, Aggregate};
use signalbox_journal::{Append, AppendError};
use signalbox_tests::world::{config, database};
use std::path::Path;
use std::process::Command;
use uuid::Uuid;

/// A volume of 64 MiB.
struct Volume<'a>(&'a Path);

impl<'a> Volume<'a> {
    fn mount(folder: &'a Path) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "signalbox-test"]).arg(folder).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }
}

impl Drop for Volume<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_volume_loses_nothing() {
    signalbox_tests::ready();
    let scratch = Scratch::new("full");
    let folder = scratch.path().join("volume");
    std::fs::create_dir_all(&folder).unwrap();
    let Some(_volume) = Volume::mount(&folder) else {
        eprintln!("no volume can be mounted here (that takes root): a full disk is not tried");
        return;
    };
    // Half of it is taken by something else.
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![1_u8; 32 << 20]).unwrap();
    let server = nats_in(&folder, |_| {}).await.unwrap();
    let port = server.port();
    let config = config(server.url(), database().await, &scratch, Default::default());
    let service = Service::start(&config, &[Role::All]).await.unwrap();
    let key = signalbox::bootstrap::bootstrap(&service.ledger).await.unwrap().unwrap();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}", service.address.unwrap());
    let journal = service.ledger.journal().clone();
    let fill = async |from: u128| {
        let mut taken = Vec::new();
        for n in from.. {
            let subject = Aggregate::setting(AccountId(Uuid::from_u128(n))).subject(1);
            let append = Append { subject, expected: 0, payload: vec![7; 500_000].into(), kind: "x", traceparent: None };
            match journal.append(append).await {
                Ok(sequence) => taken.push(sequence),
                Err(AppendError::Full) => return taken,
                Err(error) => panic!("{error} after {} appends", taken.len()),
            }
        }
        taken
    };
    let taken = fill(1).await;
    assert!(taken.len() > 10, "{}", taken.len());
    let refused = http
        .request(Method::POST, format!("{url}/v1/accounts"))
        .bearer_auth(&key.secret)
        .json(&json!({"name": "x".repeat(128)}))
        .send()
        .await
        .unwrap();
    // A small event may still fit where half a megabyte does not; the next that does not fit says why.
    if refused.status() != 503 {
        let mut status = refused.status();
        let mut said = String::new();
        for n in 0..20_000 {
            let answer = http
                .request(Method::POST, format!("{url}/v1/accounts"))
                .bearer_auth(&key.secret)
                .json(&json!({"name": format!("{n}{}", "x".repeat(100))}))
                .send()
                .await
                .unwrap();
            status = answer.status();
            if status == 503 {
                said = answer.text().await.unwrap();
                break;
            }
        }
        assert_eq!(status, 503);
        assert!(said.contains("log_full"), "{said}");
    } else {
        assert!(refused.text().await.unwrap().contains("log_full"));
    }
    let last = journal.tail(0).await.unwrap();
    service.stop().await;
    let mut server = server;
    // Restarted twice while full, then with room again.
    for restart in 0..3 {
        server.stop().await;
        if restart == 2 {
            std::fs::remove_file(&ballast).unwrap();
        }
        server = nats_in(&folder, |options| options.port = Some(port)).await.unwrap();
        let (nats, _) = signalbox::serve::ledger(&config).await.unwrap();
        let journal: &dyn signalbox_journal::Journal = nats.as_ref();
        assert_eq!(journal.tail(0).await.unwrap(), last, "the same log, whole");
        for sequence in &taken {
            assert_eq!(journal.read(0, ">", sequence - 1, 1).await.unwrap().0[0].sequence, *sequence);
        }
        if restart == 2 {
            let subject = Aggregate::setting(AccountId(Uuid::from_u128(1 << 100))).subject(1);
            let append = Append { subject, expected: 0, payload: vec![7; 500_000].into(), kind: "x", traceparent: None };
            assert_eq!(journal.append(append).await.unwrap(), last.last + 1, "the sequence goes on");
        }
    }
    server.stop().await;
}
