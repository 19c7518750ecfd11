//! Bodies that are no bodies, for every route that takes one.

use reqwest::Method;
use serde_json::{Value, json};
use signalbox_tests::{Answer, Behaviour, World};
use std::time::Duration;

/// Every route with a body from the OpenAPI document, with ids filled in.
fn routes(id: &str) -> Vec<(Method, String)> {
    let document: Value = serde_json::from_str(&signalbox_api::document().unwrap()).unwrap();
    let mut found = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            if !operation["requestBody"].is_null() {
                let path = path.replace("{account}", "current").replace("{scope}", "account").replace("{id}", id);
                found.push((method.to_uppercase().parse().unwrap(), path));
            }
        }
    }
    assert!(found.len() >= 10);
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_bodies_are_refused_everywhere() {
    let world = World::ready(1).await;
    let (_model, workload, _) = world.model(Behaviour::Hangs).await;
    let conversation = world.admin.conversation(&workload).await;
    let made = world.admin.post("/v1/pools", json!({"id": "eu"})).await.ok();
    world.admin.get(&format!("/v1/pools?after={}", made["position"].as_str().unwrap())).await.ok();
    let task = world.admin.post("/v1/tasks", json!({"kind": "test.say", "payload": {}})).await.ok()["id"].as_str().unwrap().to_owned();
    let upstream = json!({"name": "a", "base_url": "http://127.0.0.1:9", "models": [{"name": "m"}]});
    let upstream = world.admin.post("/v1/upstreams", upstream).await.ok()["id"].as_str().unwrap().to_owned();
    let before = world.log().await.len();
    let gzip = |_: ()| {
        use std::io::Write;
        // A gzip member of a gigabyte of zeros is made by the shell's own tool.
        let mut child =
            std::process::Command::new("gzip").arg("-9").stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            let zeros = vec![b' '; 1 << 20];
            for _ in 0..256 {
                stdin.write_all(&zeros).unwrap();
            }
        });
        let output = child.wait_with_output().unwrap().stdout;
        writer.join().unwrap();
        output
    };
    let bomb = gzip(());
    let own = [("conversations", conversation.as_str()), ("tasks", &task), ("pools", "eu"), ("upstreams", &upstream)];
    let with_own_id = |path: String| own.iter().fold(path, |path, (noun, id)| path.replace(&format!("/{noun}/{workload}"), &format!("/{noun}/{id}")));
    for (method, path) in routes(&workload).into_iter().map(|(method, path)| (method, with_own_id(path))) {
        let send = async |body: Vec<u8>, kind: Option<&str>, encoding: Option<&str>| {
            let mut request = world.admin.request(method.clone(), &path).body(body);
            if let Some(kind) = kind {
                request = request.header("content-type", kind);
            }
            if let Some(encoding) = encoding {
                request = request.header("content-encoding", encoding);
            }
            Answer::read(request.send().await.unwrap()).await
        };
        let json = Some("application/json");
        for body in ["", "null", "[]", "\"\"", "{}", "{\"arg\":null}", "{", "\u{0}"] {
            let answer = send(body.into(), json, None).await;
            assert_eq!(answer.status, 400, "{method} {path} {body:?}: {}", answer.text);
            assert!(!answer.json()["code"].is_null());
        }
        assert_eq!(send(b"{}".to_vec(), Some("text/plain"), None).await.status, 415);
        assert_eq!(send(b"{}".to_vec(), None, None).await.status, 415);
        let deep = [b"{\"a\":".to_vec(), b"[".repeat(100_000)].concat();
        assert_eq!(send(deep, json, None).await.status, 400);
        assert_eq!(send(vec![b' '; 9 << 20], json, None).await.status, 413);
        assert_eq!(send(bomb.clone(), json, Some("gzip")).await.status, 413, "{path}");
        assert!((400..500).contains(&send(b"not gzip".to_vec(), json, Some("gzip")).await.status));
    }
    assert_eq!(world.log().await.len(), before, "nothing was stated");
    assert_eq!(world.admin.get("/livez").await.status, 200);
    world.stop().await;
}

/// Messages that no model can be given are refused with the path of the first bad value, before anything else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_messages_are_refused_before_the_model_is_looked_up() {
    let world = World::ready(1).await;
    let table = [
        (json!([]), "messages"),
        (Value::Null, "messages"),
        (json!(5), "messages"),
        (json!({}), "messages"),
        (json!([null]), "messages[0]"),
        (json!([{}]), "messages[0].role"),
        (json!([{"role": "user"}]), "messages[0].content"),
        (json!([{"role": "user", "content": ""}]), "messages[0].content"),
        (json!([{"role": "user", "content": "a\u{0}b"}]), "messages[0].content"),
    ];
    for stream in [false, true] {
        for (messages, param) in &table {
            let answer = world.admin.post("/v1/chat/completions", json!({"model": "none", "messages": messages, "stream": stream})).await;
            assert_eq!(answer.status, 400, "{messages}");
            assert_eq!(answer.json()["error"]["param"], *param, "{messages}");
        }
        let answer = world.admin.post("/v1/chat/completions", json!({"model": "none", "stream": stream})).await;
        assert_eq!(answer.refused(400, "missing_field")["error"]["param"], "messages");
    }
    for text in [r#"{"messages":[{"role":"user","content":"\ud83d"}]}"#, r#"{"messages":[{"role":"user","content":"\ude00\ud83d"}]}"#] {
        let request = world.admin.request(Method::POST, "/v1/chat/completions").header("content-type", "application/json").body(text);
        Answer::read(request.send().await.unwrap()).await.refused(400, "invalid_body");
    }
    let raw = [b"{\"messages\":\"".to_vec(), vec![0xed, 0xa0, 0x80], b"\"}".to_vec()].concat();
    let request = world.admin.request(Method::POST, "/v1/chat/completions").header("content-type", "application/json").body(raw);
    Answer::read(request.send().await.unwrap()).await.refused(400, "invalid_body");
    world.stop().await;
}

/// A declared length that lies ends the connection, not the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lying_length_harms_nobody() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = World::start(1).await;
    let address = world.admin.url.strip_prefix("http://").unwrap().to_owned();
    for length in ["5000000", "99999999999999999999", "-1", "x"] {
        let mut socket = tokio::net::TcpStream::connect(&address).await.unwrap();
        let head = format!(
            "POST /v1/accounts HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{{}}",
            world.admin.key
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut answer = String::new();
        let _ = tokio::time::timeout(Duration::from_secs(5), socket.read_to_string(&mut answer)).await.expect("an end");
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(world.admin.get("/livez").await.status, 200);
    world.stop().await;
}
