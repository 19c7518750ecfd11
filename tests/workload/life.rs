//! The life of deployments and jobs, made real by local processes.

use super::runtimes;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_tests::World;
use std::time::Duration;

async fn world() -> World {
    let world = World::with(1, runtimes()).await;
    world.admin.send(Method::PUT, "/v1/settings/platform/inference", json!({"enabled": true})).await.ok();
    world
}

async fn deploy(world: &World, kind: &str, runtime: &str, parameters: Value) -> String {
    let spec = json!({"kind": kind, "runtime": runtime, "parameters": parameters});
    world.admin.post("/v1/workloads", json!({"name": runtime, "spec": spec})).await.ok()["id"].as_str().unwrap().to_owned()
}

async fn says(world: &World, model: &str) -> Value {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    world.admin.post("/v1/chat/completions", body).await.ok()["choices"][0]["message"]["content"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_lives_through_every_command() {
    let world = world().await;
    let id = deploy(&world, "local-inference", "server", json!({"word": "one"})).await;
    let path = format!("/v1/workloads/{id}");
    let row = world.admin.reaches(&id, "running").await;
    let model = row["route_name"].as_str().unwrap().to_owned();
    assert_eq!(says(&world, &model).await, "one");
    // A new revision serves before the old one goes: at no time is the model not there.
    let asker = (world.admin.clone(), model.clone());
    let asking = tokio::spawn(async move {
        let mut answers = Vec::new();
        for _ in 0..60 {
            let body = json!({"model": asker.1, "messages": [{"role": "user", "content": "hi"}]});
            answers.push(asker.0.post("/v1/chat/completions", body).await.status);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        answers
    });
    let spec = json!({"kind": "local-inference", "runtime": "server", "parameters": {"word": "two"}});
    world.admin.send(Method::PUT, &path, json!({"spec": spec.clone(), "expected_revision": 7})).await.refused(409, "revision_conflict");
    world.admin.send(Method::PUT, &path, json!({"spec": spec, "expected_revision": 1})).await.ok();
    let answers = asking.await.unwrap();
    assert!(answers.iter().all(|status| *status == 200), "{answers:?}");
    world.admin.reaches(&id, "running").await;
    for _ in 0..200 {
        if says(&world, &model).await == "two" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(says(&world, &model).await, "two");
    world.admin.post(&format!("{path}/scale"), json!({"replicas": 2})).await.ok();
    for _ in 0..400 {
        if world.admin.get(&path).await.ok()["replicas"] == json!({"desired": 2, "ready": 2}) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.admin.get(&path).await.ok()["replicas"], json!({"desired": 2, "ready": 2}));
    world.admin.post(&format!("{path}/rollback"), json!({"to": 1})).await.ok();
    for _ in 0..400 {
        if says(&world, &model).await == "one" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(says(&world, &model).await, "one");
    let row = world.admin.get(&path).await.ok();
    assert_eq!((&row["revision"], row["detail"]["revisions"].as_array().unwrap().len()), (&json!(3), 3));
    assert_eq!(row["detail"]["revisions"][2]["rolled_back_to"], 1);
    world.admin.post(&format!("{path}/suspend"), json!({})).await.ok();
    world.admin.reaches(&id, "suspended").await;
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    world.admin.post("/v1/chat/completions", body.clone()).await.refused(409, "workload_not_ready");
    world.admin.post(&format!("{path}/resume"), json!({})).await.ok();
    world.admin.reaches(&id, "running").await;
    world.admin.send(Method::DELETE, &path, json!({})).await.ok();
    world.admin.send(Method::DELETE, &path, json!({})).await;
    world.admin.reaches(&id, "deleted").await;
    world.admin.post("/v1/chat/completions", body).await.refused(404, "model_not_found");
    let kinds: Vec<String> = world
        .log()
        .await
        .iter()
        .filter(|stored| stored.subject.contains(&id))
        .map(|stored| signalbox_events::Envelope::decode(&stored.payload).unwrap().kind)
        .collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "workload.deletion_requested").count(), 1);
    assert_eq!(kinds.last().unwrap(), "workload.deleted");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_keeps_ending_is_given_up_with_its_last_words() {
    let world = world().await;
    let id = deploy(&world, "local-inference", "broken", json!({})).await;
    let row = world.admin.reaches(&id, "failed").await;
    assert_eq!((&row["reason"], &row["exit_code"]), (&json!("crash_loop"), &json!(3)));
    assert_eq!(row["detail"]["log_tail"][0], "no model");
    let logs = world.admin.get(&format!("/v1/workloads/{id}/logs")).await.ok();
    assert_eq!((&logs["lines"][0], &logs["exit_code"]), (&json!("no model"), &json!(3)));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_run_once_to_their_end() {
    let world = world().await;
    let (good, bad, endless) = (
        deploy(&world, "local-job", "count", json!({"word": "$(sheep); {port}"})).await,
        deploy(&world, "local-job", "fails", json!({})).await,
        deploy(&world, "local-job", "endless", json!({})).await,
    );
    let row = world.admin.reaches(&good, "succeeded").await;
    assert_eq!((&row["exit_code"], &row["category"]), (&json!(0), &json!("job")));
    assert!(!row["ended_at"].is_null() && !row["started_at"].is_null());
    let row = world.admin.reaches(&bad, "failed").await;
    assert_eq!((&row["exit_code"], &row["detail"]["log_tail"][0]), (&json!(7), &json!("it went wrong")));
    for (verb, body) in [("scale", json!({"replicas": 2})), ("suspend", json!({})), ("resume", json!({}))] {
        world.admin.post(&format!("/v1/workloads/{good}/{verb}"), body).await.refused(409, "unsupported_for_kind");
    }
    world.admin.reaches(&endless, "running").await;
    world.admin.send(Method::DELETE, &format!("/v1/workloads/{endless}"), json!({})).await.ok();
    world.admin.reaches(&endless, "deleted").await;
    world.stop().await;
}

/// What cannot be deployed is refused before anything is stated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_specs_are_refused_with_their_path() {
    let world = world().await;
    let before = world.log().await.len();
    let table = [
        (json!({"name": "a", "spec": {"kind": "x"}}), "invalid_field", "spec.kind"),
        (json!({"name": "a", "spec": {"kind": "local-inference"}}), "missing_field", "spec.runtime"),
        (json!({"name": "a", "spec": {"kind": "local-inference", "runtime": "/bin/sh"}}), "unknown_runtime", "spec.runtime"),
        (json!({"name": "a", "spec": {"kind": "local-inference", "runtime": "count"}}), "unknown_runtime", "spec.runtime"),
        (json!({"name": "a", "spec": {"kind": "local-inference", "runtime": "server", "replicas": 0}}), "invalid_field", "spec.replicas"),
        (
            json!({"name": "a", "spec": {"kind": "local-inference", "runtime": "server", "parameters": {"x": "1"}}}),
            "unknown_field",
            "spec.parameters.x",
        ),
        (
            json!({"name": "a", "spec": {"kind": "local-inference", "runtime": "server", "parameters": {"word": "--x"}}}),
            "invalid_field",
            "spec.parameters.word",
        ),
        (json!({"name": "a", "spec": {"kind": "local-inference", "runtime": "server", "command": "rm"}}), "unknown_field", "spec.command"),
        (json!({"name": "a", "spec": {"kind": "endpoint", "url": "file:///etc/passwd", "model": "m"}}), "invalid_field", "spec.url"),
        (json!({"name": "", "spec": {"kind": "local-job", "runtime": "count"}}), "invalid_field", "name"),
        (json!({"spec": {"kind": "local-job", "runtime": "count"}}), "missing_field", "name"),
    ];
    for (body, code, field) in table {
        let problem = world.admin.post("/v1/workloads", body.clone()).await.refused(400, code);
        assert_eq!(problem["field"], field, "{body}");
    }
    assert_eq!(world.log().await.len(), before);
    world.stop().await;
}
