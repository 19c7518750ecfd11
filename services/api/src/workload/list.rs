//! `GET /v1/workloads`: jobs and deployments in one list, newest first.

use super::Workload;
use crate::auth::Caller;
use crate::cursor;
use crate::problem::{Problem, ProblemBody};
use crate::request::wait_for;
use crate::setting::inference_enabled;
use crate::state::App;
use axum::Json;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use signalbox_domain::{Code, Rejection};
use signalbox_events::workload::{Category, Kind, State as Phase};
use signalbox_projections::workload_list::{self, Filter, View};
use utoipa::{IntoParams, ToSchema};

/// Rows of a page where the caller does not say.
const ROWS: u32 = 50;
/// Most rows of a page.
const MOST_ROWS: u32 = 200;
/// Most values of one filter.
const MOST_VALUES: usize = 20;

/// Which rows.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// `mine` (the default), `account` (account admins) or `all` (platform admins).
    scope: Option<String>,
    /// `job` or `deployment`.
    category: Option<String>,
    /// Kinds, comma-separated, at most 20.
    kind: Option<String>,
    /// States, comma-separated, at most 20.
    state: Option<String>,
    /// Rows of the page, 1 to 200; 50 where it is not given.
    limit: Option<u32>,
    /// Where the page begins: `next_cursor` of the page before.
    cursor: Option<String>,
    /// A position that the list must have reached.
    after: Option<String>,
}

/// A page.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkloadPage {
    items: Vec<Workload>,
    /// Where the next page begins; null on the last.
    next_cursor: Option<String>,
}

/// Lists workloads
#[utoipa::path(get, path = "/v1/workloads", tag = "workload", params(ListQuery), security(("key" = [])),
    responses((status = 200, body = WorkloadPage), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<WorkloadPage>, Problem> {
    let Query(query) = query.map_err(|rejection| Problem::new(Code::InvalidQuery, rejection.body_text()))?;
    let limit = query.limit.unwrap_or(ROWS);
    if !(1..=MOST_ROWS).contains(&limit) {
        return Err(bad("limit", format!("must lie within 1 and {MOST_ROWS}")).into());
    }
    let mut filter = scope(&caller, query.scope.as_deref())?;
    filter.category = query.category.as_deref().map(|text| word("category", text, &known(Category::ALL))).transpose()?;
    filter.kinds = words("kind", query.kind.as_deref(), &known(Kind::ALL))?;
    filter.states = words("state", query.state.as_deref(), &known(Phase::ALL))?;
    let scope = format!("{filter:?}");
    let after = query.cursor.as_deref().map(|text| cursor::decode(&app.cursor_key, &scope, text)).transpose()?;
    // While inference is off its deployments vanish, but for the admins who can still delete them.
    if !caller.is_platform_admin() && !inference_enabled(&app, caller.account).await? {
        if filter.category == Some(Category::Deployment) {
            return Ok(Json(WorkloadPage { items: vec![], next_cursor: None }));
        }
        filter.category = Some(Category::Job);
    }
    wait_for(&app, &View, query.after.as_deref()).await?;
    let page = workload_list::list(&app.db, &filter, after, limit).await?;
    Ok(Json(WorkloadPage {
        items: page.rows.into_iter().map(|row| Workload::new(row, false)).collect(),
        next_cursor: page.next.map(|next| cursor::encode(&app.cursor_key, &scope, next)),
    }))
}

/// The rows that a scope lets the caller see.
fn scope(caller: &Caller, scope: Option<&str>) -> Result<Filter, Problem> {
    let (account, owner) = (Some(caller.account.0), Some(caller.principal.0));
    match scope.unwrap_or("mine") {
        "mine" => Ok(Filter { account, owner, ..Filter::default() }),
        "account" => caller.must_be_account_admin().map(|()| Filter { account, ..Filter::default() }),
        "all" => caller.must_be_platform_admin().map(|()| Filter::default()),
        _ => Err(bad("scope", "must be one of mine, account, all").into()),
    }
}

/// The words that a filter takes, for people.
fn known<T: std::fmt::Display>(words: &[T]) -> String {
    words.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn word<T: std::str::FromStr>(name: &str, text: &str, known: &str) -> Result<T, Rejection> {
    text.parse().map_err(|_| bad(name, format!("must be one of {known}")))
}

fn words<T: std::str::FromStr>(name: &str, text: Option<&str>, known: &str) -> Result<Vec<T>, Rejection> {
    let values: Vec<_> = text.into_iter().flat_map(|text| text.split(',')).map(str::trim).collect();
    if values.len() > MOST_VALUES {
        return Err(bad(name, format!("must have at most {MOST_VALUES} values")));
    }
    values.into_iter().map(|text| word(name, text, known)).collect()
}

fn bad(name: &str, detail: impl Into<String>) -> Rejection {
    Rejection { code: Code::InvalidQuery, detail: detail.into(), field: Some(name.to_owned()) }
}
