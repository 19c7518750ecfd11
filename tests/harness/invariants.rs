//! What must hold of the views, as queries: each finds the rows that must not be.

use signalbox_projections::sqlx::{self, PgPool};

/// Rule, what it says, and the query for rows that break it.
pub const INVARIANTS: [(&str, &str, &str); 7] = [
    ("I1", "a lease is redeemed once", "SELECT id::text FROM task_v1 WHERE redemptions > attempt"),
    (
        "I3",
        "submissions need refusals, or leave to send again",
        "SELECT id::text FROM task_v1 WHERE redemptions > 1 + retries AND resolution IS NULL AND reason IS NULL AND NOT idempotent",
    ),
    (
        "I4",
        "nothing goes back into a queue that may have been sent",
        "SELECT id::text FROM task_v1 WHERE state IN ('queued', 'leased', 'accepted') AND redemptions > retries
            AND resolution IS NULL AND reason IS NULL AND NOT idempotent",
    ),
    (
        "I5",
        "what has ended has an end, and nothing else has",
        "SELECT id::text FROM task_v1 WHERE (ended_at IS NOT NULL) <> (state IN ('succeeded', 'failed', 'cancelled', 'dead_lettered'))",
    ),
    (
        "I7",
        "a lease has a holder",
        "SELECT id::text FROM task_v1 WHERE state IN ('leased', 'executing', 'submission_unknown') AND (worker IS NULL OR incarnation IS NULL OR epoch IS NULL)",
    ),
    (
        "I10",
        "no worker holds more than it has slots for",
        "SELECT w.id FROM worker_v1 w JOIN task_v1 t ON t.worker = w.id AND t.incarnation = w.incarnation
            WHERE t.state IN ('leased', 'executing') GROUP BY w.id, w.slots HAVING count(*) > w.slots",
    ),
    (
        "I12",
        "what is unknown says since when, and by which evidence",
        "SELECT id::text FROM task_v1 WHERE (state = 'submission_unknown') <> (unknown_since IS NOT NULL) OR (state = 'submission_unknown' AND evidence IS NULL)",
    ),
];

/// Every row that breaks a rule, by rule.
pub async fn broken(db: &PgPool) -> Vec<String> {
    let mut found = Vec::new();
    for (rule, says, query) in INVARIANTS {
        let rows: Vec<String> = sqlx::query_scalar(query).fetch_all(db).await.unwrap();
        found.extend(rows.into_iter().map(|row| format!("{rule} ({says}): {row}")));
    }
    found
}
