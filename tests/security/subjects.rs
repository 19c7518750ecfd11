//! Who may say and hear what on NATS: every credential against every kind of subject, on a real server.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::SigningKey;
use serde_json::{Value, json};
use signalbox_auditor::{Folder, verify};
use signalbox_embedded::nats::{AUDITOR, GATE, USER, worker_key};
use signalbox_embedded::testing::secrets;
use signalbox_journal::nats::Nats;
use signalbox_tests::World;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// The subjects that are tried: the log, JetStream's API, the stores, the system's, and each kind of worker's.
const SUBJECTS: [&str; 30] = [
    "evt.0.platform.setting.features",
    "$JS.API.STREAM.PURGE.EVENTS_0",
    "$JS.API.STREAM.DELETE.EVENTS_0",
    "$JS.API.STREAM.UPDATE.EVENTS_0",
    "$JS.API.STREAM.MSG.DELETE.EVENTS_0",
    "$JS.API.STREAM.INFO.EVENTS_0",
    "$JS.API.STREAM.RESTORE.EVENTS_0",
    "$JS.API.STREAM.PEER.REMOVE.EVENTS_0",
    "$JS.API.META.LEADER.STEPDOWN",
    "$JS.API.SERVER.REMOVE",
    "$JS.API.ACCOUNT.PURGE.SIGNALBOX",
    "$JS.API.CONSUMER.CREATE.EVENTS_0.pool-b",
    "$JS.API.CONSUMER.MSG.NEXT.EVENTS_0.pool-b",
    "$JS.API.DIRECT.GET.EVENTS_0",
    "$JS.ACK.EVENTS_0.x.1.1.1.1.0",
    "$KV.KEYS.x",
    "$SYS.REQ.SERVER.PING.VARZ",
    "work.eu.gpu-01.claim",
    "work.eu.gpu-02.claim",
    "work.us.gpu-11.claim",
    "stream.eu.gpu-01.t.1",
    "stream.eu.gpu-02.t.1",
    "stream.gateway.g.t.1",
    "capacity.eu",
    "notice.t",
    "$KV.PIECES.x",
    "queue.eu",
    "ctl.eu.gpu-01.control",
    "ctl.eu.gpu-02.control",
    "_INBOX_gpu-02.x",
];

/// What each credential may publish, and what it may hear. Everything else is refused by the server.
fn table() -> Vec<(&'static str, Vec<&'static str>, Vec<&'static str>)> {
    vec![
        ("gpu-01", vec!["work.eu.gpu-01.claim", "stream.eu.gpu-01.t.1"], vec!["ctl.eu.gpu-01.control", "queue.eu"]),
        ("gpu-02", vec!["work.eu.gpu-02.claim", "stream.eu.gpu-02.t.1"], vec!["ctl.eu.gpu-02.control", "queue.eu", "_INBOX_gpu-02.x"]),
        ("gpu-11", vec!["work.us.gpu-11.claim"], vec![]),
        (AUDITOR, vec![], vec![]),
        (GATE, vec!["$SYS.REQ.SERVER.PING.VARZ"], vec![]),
        // The service itself: its account is the log's.
        (USER, SUBJECTS.to_vec(), SUBJECTS.to_vec()),
    ]
}

/// A connection that speaks the wire protocol, so that each refusal is seen before the next word.
struct Wire(BufReader<TcpStream>);

impl Wire {
    async fn connect(world: &World, who: &str) -> Self {
        let address = world.config.nats.url.trim_start_matches("nats://").to_owned();
        let mut wire = Self(BufReader::new(TcpStream::connect(address).await.unwrap()));
        let info = wire.line().await;
        let info: Value = serde_json::from_str(info.strip_prefix("INFO ").unwrap()).unwrap();
        let secrets = secrets();
        let password = |password: &str| json!({"user": who, "pass": password});
        let mut hello = match who {
            USER => password(&secrets.nats),
            AUDITOR => password(&secrets.nats_auditor),
            GATE => password(&secrets.nats_gate),
            worker => {
                let key = worker_key(&secrets, worker).unwrap();
                let signed = key.sign(info["nonce"].as_str().unwrap().as_bytes()).unwrap();
                json!({"nkey": key.public_key(), "sig": URL_SAFE_NO_PAD.encode(signed)})
            }
        };
        hello["verbose"] = false.into();
        hello["headers"] = true.into();
        wire.say(&format!("CONNECT {hello}\r\n")).await;
        assert_eq!(wire.refusals().await, Vec::<String>::new(), "{who}");
        wire
    }

    async fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    /// What the server refused of everything that was said so far.
    async fn refusals(&mut self) -> Vec<String> {
        self.say("PING\r\n").await;
        let mut refused = Vec::new();
        loop {
            let line = self.line().await;
            match line.split(' ').next().unwrap_or_default() {
                "PONG" => return refused,
                "-ERR" => refused.push(line),
                "PING" => self.say("PONG\r\n").await,
                // A message for one of our subscriptions: its length is the last word.
                "MSG" | "HMSG" => {
                    let length: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
                    let mut body = vec![0; length + 2];
                    self.0.read_exact(&mut body).await.unwrap();
                }
                "INFO" | "+OK" => {}
                _ => panic!("the connection was closed: {line:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_credential_may_do_what_the_table_says_and_no_more() {
    let world = World::pools(1).await;
    let before = world.log().await;
    for (who, may_say, may_hear) in table() {
        let mut wire = Wire::connect(&world, who).await;
        for (number, subject) in SUBJECTS.iter().enumerate() {
            // The service may do anything in its own account; it is not made to destroy it here.
            if who != USER {
                wire.say(&format!("PUB {subject} 0\r\n\r\n")).await;
                assert_eq!(wire.refusals().await.is_empty(), may_say.contains(subject), "{who} publishes to {subject}");
                // The same with the log as the place for the answer.
                wire.say(&format!("PUB {subject} evt.0.platform.setting.features 0\r\n\r\n")).await;
                assert_eq!(wire.refusals().await.is_empty(), may_say.contains(subject), "{who} asks {subject}");
            }
            wire.say(&format!("SUB {subject} {number}\r\n")).await;
            assert_eq!(wire.refusals().await.is_empty(), may_hear.contains(subject), "{who} hears {subject}");
        }
        if who != USER {
            for all in [">", "*", "*.*.*.*", "evt.>", "work.>", "stream.>", "ctl.>", "$JS.>", "$KV.>", "_INBOX_*.>"] {
                wire.say(&format!("SUB {all} all\r\n")).await;
                assert!(!wire.refusals().await.is_empty(), "{who} hears {all}");
            }
        }
    }
    let mut stranger = BufReader::new(TcpStream::connect(world.config.nats.url.trim_start_matches("nats://")).await.unwrap());
    stranger.get_mut().write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n").await.unwrap();
    let mut said = String::new();
    stranger.read_to_string(&mut said).await.unwrap();
    assert!(said.contains("Authorization Violation") && !said.contains("PONG"), "{said}");
    // Nothing was written, nothing destroyed, and the chain verifies.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(world.log().await, before);
    let journal = Nats::open(signalbox::serve::audit_options(&world.config).unwrap()).await.unwrap();
    let signer = SigningKey::from_bytes(&[8; 32]);
    let verdict = verify(journal.as_ref(), &Folder(world.config.checkpoints.clone()), &signer.verifying_key()).await.unwrap();
    assert!(verdict.ok, "{verdict:?}");
    world.stop().await;
}
