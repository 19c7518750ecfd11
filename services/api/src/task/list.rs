//! `GET /v1/tasks`: the caller's tasks, or all of the account's, the newest first.

use super::TaskView;
use crate::auth::Caller;
use crate::cursor;
use crate::problem::{Problem, ProblemBody};
use crate::request::wait_for;
use crate::state::App;
use axum::Json;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use signalbox_domain::Code;
use signalbox_events::task::State as Phase;
use signalbox_projections::task::{self, Filter, View};
use utoipa::{IntoParams, ToSchema};

/// Which tasks.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// `mine` (the default), `account` (account admins) or `all` (platform admins).
    scope: Option<String>,
    /// States, comma-separated: `submission_unknown`, `dead_lettered`, ..
    state: Option<String>,
    /// In this pool.
    pool: Option<String>,
    /// Of this kind.
    kind: Option<String>,
    /// Leased last by this worker.
    worker: Option<String>,
    /// Rows of the page, 1 to 200; 50 where it is not given.
    limit: Option<u32>,
    /// Where the page begins: `next_cursor` of the page before.
    cursor: Option<String>,
    /// A position that the list must have reached.
    after: Option<String>,
}

/// A page.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskPage {
    items: Vec<TaskView>,
    /// Where the next page begins; null on the last.
    next_cursor: Option<String>,
}

fn bad(field: &str, detail: &str) -> Problem {
    Problem { field: Some(field.to_owned()), ..Problem::new(Code::InvalidQuery, detail) }
}

/// Lists tasks, the newest first
#[utoipa::path(get, path = "/v1/tasks", tag = "task", params(ListQuery), security(("key" = [])),
    responses((status = 200, body = TaskPage), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<TaskPage>, Problem> {
    let Query(query) = query.map_err(|rejection| Problem::new(Code::InvalidQuery, rejection.body_text()))?;
    let (account, owner) = match query.scope.as_deref() {
        None | Some("mine") => (Some(caller.account.0), Some(caller.principal.0)),
        Some("account") => {
            caller.must_be_account_admin()?;
            (Some(caller.account.0), None)
        }
        Some("all") => {
            caller.must_be_platform_admin()?;
            (None, None)
        }
        Some(_) => return Err(bad("scope", "must be `mine`, `account` or `all`")),
    };
    let limit = query.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(bad("limit", "must lie within 1 and 200"));
    }
    let words = query.state.as_deref().into_iter().flat_map(|text| text.split(','));
    let states = words.map(|word| word.parse::<Phase>().map_err(|_| bad("state", "is no state of tasks"))).collect::<Result<_, _>>()?;
    let filter = Filter { account, owner, states, pool: query.pool, kind: query.kind, worker: query.worker };
    let scope = format!("tasks {filter:?}");
    let after = query.cursor.as_deref().map(|text| cursor::decode(&app.cursor_key, &scope, text)).transpose()?;
    wait_for(&app, &View, query.after.as_deref()).await?;
    let (rows, next) = task::list(&app.db, &filter, after, limit).await?;
    Ok(Json(TaskPage {
        items: rows.into_iter().map(TaskView::new).collect(),
        next_cursor: next.map(|next| cursor::encode(&app.cursor_key, &scope, next)),
    }))
}
