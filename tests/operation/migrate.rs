//! Migrations: reversible, and safe when several start at once.

use signalbox_projections::sqlx::postgres::PgConnectOptions;
use signalbox_projections::sqlx::{self, Connection, PgConnection};
use signalbox_tests::world::database;
use std::str::FromStr;

async fn schema(url: &str) -> Vec<(String, String, String)> {
    let mut db = PgConnection::connect(url).await.unwrap();
    let columns = "SELECT table_name::text, column_name::text, data_type || is_nullable FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE '\\_sqlx%'
        UNION ALL SELECT tablename::text, indexname::text, indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename NOT LIKE '\\_sqlx%' ORDER BY 1, 2, 3";
    sqlx::query_as(columns).fetch_all(&mut db).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_down_up_leaves_the_same_schema() {
    let url = database().await;
    let options = PgConnectOptions::from_str(&url).unwrap();
    signalbox_projections::up(&options).await.unwrap();
    let first = schema(&url).await;
    assert!(first.iter().any(|(table, _, _)| table == "workload_list_v1"));
    signalbox_projections::down(&options).await.unwrap();
    assert_eq!(schema(&url).await, []);
    signalbox_projections::up(&options).await.unwrap();
    assert_eq!(schema(&url).await, first);
}

/// Three replicas on an empty database, many times: one migrates, the others wait, all come up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_start_at_once_migrate_once() {
    for _ in 0..20 {
        let url = database().await;
        let options = PgConnectOptions::from_str(&url).unwrap();
        let starts = (0..3).map(|_| signalbox_projections::up(&options));
        for outcome in futures_util::future::join_all(starts).await {
            outcome.unwrap();
        }
        let mut db = PgConnection::connect(&url).await.unwrap();
        let applied: i64 = sqlx::query_scalar("SELECT count(*) FROM _sqlx_migrations WHERE success").fetch_one(&mut db).await.unwrap();
        assert_eq!(applied, 9);
    }
}

/// One of them is killed in the middle of it: the next start finishes by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_is_killed_is_finished_by_the_next_start() {
    for pause in [0, 1, 2, 4, 8, 16, 32] {
        let url = database().await;
        let options = PgConnectOptions::from_str(&url).unwrap();
        let killed = options.clone();
        let first = tokio::spawn(async move { signalbox_projections::up(&killed).await });
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        let mut db = PgConnection::connect(&url).await.unwrap();
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        sqlx::query(sql).execute(&mut db).await.unwrap();
        let _ = first.await.unwrap();
        signalbox_projections::up(&options).await.unwrap();
        assert!(schema(&url).await.iter().any(|(table, _, _)| table == "conversation_turn_v1"));
    }
}
