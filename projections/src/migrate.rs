//! Migrations: one pair a view, run under a lock, each in a transaction of its own.

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection, SqlStr};

macro_rules! migrations {
    ($($version:literal $name:literal),+ $(,)?) => {
        vec![$(
            Migration::new(
                $version,
                $name.into(),
                MigrationType::ReversibleUp,
                SqlStr::from_static(include_str!(concat!("../../migrations/", $name, ".up.sql"))),
                false,
            ),
            Migration::new(
                $version,
                $name.into(),
                MigrationType::ReversibleDown,
                SqlStr::from_static(include_str!(concat!("../../migrations/", $name, ".down.sql"))),
                false,
            ),
        )+]
    };
}

fn migrator() -> Migrator {
    let all = migrations![
        1 "0001_checkpoint",
        2 "0002_account_v1",
        3 "0003_setting_v1",
        4 "0004_workload_list_v1",
        5 "0005_conversation_v1",
        6 "0006_task_v1",
        7 "0007_pool_v1",
        8 "0008_worker_v1",
        9 "0009_upstream_v1",
    ];
    let mut migrator = Migrator::with_migrations(all);
    // An older release that still runs beside a newer one sees migrations that it does not know.
    migrator.set_ignore_missing(true);
    migrator
}

/// Brings the schema up to date. Of several that start at once one migrates, the others wait.
pub async fn up(options: &PgConnectOptions) -> Result<(), MigrateError> {
    // A connection of its own: after an error the lock is only released by closing it.
    let mut db = PgConnection::connect_with(options).await?;
    let outcome = migrator().run_direct(None, &mut db, false).await;
    let _ = db.close().await;
    outcome
}

/// Takes everything away again.
pub async fn down(options: &PgConnectOptions) -> Result<(), MigrateError> {
    let mut db = PgConnection::connect_with(options).await?;
    let outcome = migrator().undo(&mut db, 0).await;
    let _ = db.close().await;
    outcome
}
