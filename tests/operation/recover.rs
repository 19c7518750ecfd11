//! Servers that go away and come back.

use reqwest::Method;
use serde_json::json;
use signalbox_embedded::testing::nats_in;
use signalbox_projections::checkpoint::position;
use signalbox_projections::sqlx::{self, Connection, PgConnection};
use signalbox_tests::World;
use std::time::{Duration, Instant};

/// The projector goes on after each restart of NATS; nobody has to help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_follow_again_after_each_restart_of_nats() {
    let mut world = World::ready(1).await;
    let nats = world.nats.take().unwrap();
    let (port, folder) = (nats.server.port(), nats.folder);
    let mut server = nats.server;
    for round in 0..3 {
        server.stop().await;
        server = nats_in(folder.path(), |options| options.port = Some(port)).await.unwrap();
        let since = Instant::now();
        let done = loop {
            let enabled = json!({"enabled": round % 2 == 0});
            let answer = world.admin.send(Method::PUT, "/v1/settings/account/inference", enabled).await;
            if answer.status == 200 {
                break answer.json();
            }
            answer.refused(503, "unavailable");
            assert!(since.elapsed() < Duration::from_secs(10));
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let wanted: u64 = done["position"].as_str().unwrap().split_once('.').unwrap().1.parse().unwrap();
        while position(&world.services[0].db, "setting_v1", 0).await.unwrap() < wanted {
            assert!(since.elapsed() < Duration::from_secs(10), "the view does not follow");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    world.stop().await;
    server.stop().await;
}

/// Every database connection is killed again and again; rows and checkpoint stay one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_heal_and_checkpoints_agree_with_rows() {
    let world = World::ready(1).await;
    let mut killer =
        PgConnection::connect(&world.config.database_url.replace(world.config.database_url.rsplit('/').next().unwrap(), "postgres")).await.unwrap();
    let name = world.config.database_url.rsplit('/').next().unwrap().to_owned();
    let mut stated = 0;
    for round in 0..30 {
        sqlx::query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1").bind(&name).execute(&mut killer).await.unwrap();
        let since = Instant::now();
        loop {
            let body = json!({"name": format!("w{round}"), "spec": {"kind": "endpoint", "url": "http://127.0.0.1:9/v1", "model": "m"}});
            let request = world.admin.request(Method::POST, "/v1/workloads").header("idempotency-key", format!("k{round}")).json(&body);
            if request.send().await.unwrap().status().is_success() {
                stated += 1;
                break;
            }
            assert!(since.elapsed() < Duration::from_secs(5), "no recovery");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let last = world.log().await.len();
    for _ in 0..1000 {
        if position(&world.services[0].db, "workload_list_v1", 0).await.unwrap() >= last as u64 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM workload_list_v1").fetch_one(&world.services[0].db).await.unwrap();
    assert_eq!(rows, stated);
    world.stop().await;
}

/// A view never moves on a log that is shorter than what it has seen, or that is another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_regressed_log_moves_no_view() {
    let world = World::ready(1).await;
    let World { config, mut services, nats: _nats, scratch: _scratch, admin: _ } = world;
    services.pop().unwrap().stop().await;
    let db = sqlx::PgPool::connect(&config.database_url).await.unwrap();
    sqlx::query("UPDATE checkpoint SET position = position + 1000 WHERE view = 'setting_v1'").execute(&db).await.unwrap();
    let service = signalbox::serve::Service::start(&config, &[signalbox::serve::Role::All]).await.unwrap();
    let url = format!("http://{}/readyz", service.address.unwrap());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut said = String::new();
    for _ in 0..200 {
        said = http.get(&url).send().await.unwrap().text().await.unwrap();
        if said.contains("log_regressed") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(said.contains("log_regressed") && said.contains("setting_v1"), "{said}");
    assert_eq!(http.get(&url).send().await.unwrap().status(), 503);
    service.stop().await;
}

/// A database whose connections are all taken: answers say so, and all is well again when they are free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_free_connections_is_survived() {
    use signalbox_embedded::{postgres, provision, testing};
    signalbox_tests::ready();
    let scratch = testing::Scratch::new("crowded");
    let programs = postgres::programs(&provision::default_cache(), &|_: &str| {}).await.unwrap();
    let settings = [("max_connections", "24"), ("superuser_reserved_connections", "0"), ("fsync", "off")];
    let server = postgres::Server::start_with(&programs, &scratch.path().join("data"), &scratch.path().join("log"), &testing::secrets(), &settings)
        .await
        .unwrap();
    let nats = testing::nats(|_| {}).await.unwrap();
    let config = signalbox_tests::world::config(nats.server.url(), server.url(), &scratch, Default::default());
    let service = signalbox::serve::Service::start(&config, &[signalbox::serve::Role::All]).await.unwrap();
    let key = signalbox::bootstrap::bootstrap(&service.ledger).await.unwrap().unwrap();
    let url = format!("http://{}/v1/settings", service.address.unwrap());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async || http.get(&url).bearer_auth(&key.secret).send().await.unwrap().status().as_u16();
    while ask().await != 200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..3 {
        // Every connection is someone else's, those of the service included.
        let mut crowd = Vec::new();
        let mut first = PgConnection::connect(&server.url()).await.unwrap();
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
        sqlx::query(sql).execute(&mut first).await.unwrap();
        while let Ok(connection) = PgConnection::connect(&server.url()).await {
            crowd.push(connection);
        }
        assert!(matches!(ask().await, 200 | 503), "an answer, whatever it is");
        drop(crowd);
        let since = Instant::now();
        while ask().await != 200 {
            assert!(since.elapsed() < Duration::from_secs(10), "no recovery");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    service.stop().await;
    server.stop().await;
}
