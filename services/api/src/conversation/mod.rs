//! Conversations: start, list, show, rename, delete.

use crate::auth::Caller;
use crate::body::Body;
use crate::cursor;
use crate::problem::{Problem, ProblemBody};
use crate::request::{Asked, row, wait_for};
use crate::state::App;
use crate::turn::TurnView;
use crate::workload::{Stated, id};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::conversation::{Command, Conversation, Delete, Existing, Rename, Start};
use signalbox_domain::workload::Workload;
use signalbox_domain::{Code, Rejection};
use signalbox_events::workload::Category;
use signalbox_events::{Aggregate, ConversationId, WorkloadId};
use signalbox_journal::Request;
use signalbox_projections::conversation::{self, Row, View};
use signalbox_projections::workload_list;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Most turns of one page.
const MOST_TURNS: u32 = 500;

/// Refuses everything about conversations while inference is off.
pub(crate) async fn gate(app: &App, caller: &Caller) -> Result<(), Problem> {
    crate::workload::gate(app, caller.account, Category::Deployment).await
}

/// A conversation of the caller's that is not deleted. Anyone else's is one that does not exist.
pub(crate) async fn visible(app: &App, caller: &Caller, text: &str) -> Result<(Aggregate, Existing), Problem> {
    let id: ConversationId = id(text)?;
    let aggregate = Aggregate::conversation(caller.account, id);
    let state = app.ledger.load::<Conversation>(&aggregate).await?;
    let conversation = state.filter(|conversation| !conversation.deleted && conversation.owner == caller.principal);
    Ok((aggregate, conversation.ok_or_else(Problem::not_found)?))
}

/// A conversation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConversationView {
    id: Uuid,
    title: Option<String>,
    /// The deployment that it talks to.
    workload: Uuid,
    /// The model's name in requests.
    model: String,
    /// Count of turns.
    turn_count: u32,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    /// Only in the detail: at most 500, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    turns: Option<Vec<TurnView>>,
}

impl ConversationView {
    fn new(row: Row, turns: Option<Vec<TurnView>>) -> Self {
        Self {
            id: row.id,
            title: row.title,
            workload: row.workload,
            model: row.model,
            turn_count: row.turns,
            created_at: row.created_at,
            updated_at: row.updated_at,
            turns,
        }
    }
}

/// What to talk to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartBody {
    /// The deployment; or name it by `model`.
    workload: Option<Uuid>,
    /// The deployment's name in requests.
    model: Option<String>,
    /// 1 to 256 characters; else the first message makes one.
    title: Option<String>,
}

/// Starts a conversation
#[utoipa::path(post, path = "/v1/conversations", tag = "conversation", request_body = StartBody, security(("key" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key starts once, for ever")),
    responses((status = 201, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn start(State(app): State<App>, asked: Asked, body: Body) -> Result<(StatusCode, Json<Stated>), Problem> {
    asked.caller.must_be_member()?;
    let body: StartBody = body.of(&asked.caller)?.read()?;
    gate(&app, &asked.caller).await?;
    let workload = match (body.workload, &body.model) {
        (Some(workload), None) => workload,
        (None, Some(model)) => {
            let row = workload_list::by_route(&app.db, asked.caller.account.0, model).await?;
            row.ok_or_else(|| no_model(model))?.id
        }
        (Some(_), Some(_)) => return Err(Rejection::field("model", "give either `workload` or `model`").into()),
        (None, None) => return Err(Rejection::missing("workload").into()),
    };
    let aggregate = Aggregate::workload(asked.caller.account, WorkloadId(workload));
    let found = app.ledger.load::<Workload>(&aggregate).await?;
    let found = found.filter(|found| !found.deleting && !found.deleted && found.kind().is_some_and(|kind| kind.category() == Category::Deployment));
    let model = found.ok_or_else(|| Rejection::field("workload", "is no deployment of this account"))?.object_name;
    let id = ConversationId(asked.new_id(&app));
    let command = Start {
        owner: asked.caller.principal,
        owner_name: asked.caller.name.clone(),
        workload: WorkloadId(workload),
        model,
        title: body.title.map(Into::into),
    };
    let mut requester = asked.requester();
    requester.command_id = None;
    let request = Request { aggregate: Aggregate::conversation(asked.caller.account, id), command, requester };
    let done = app.ledger.execute::<Conversation>(request).await?;
    Ok((StatusCode::CREATED, Json(Stated::new(id.0, done.position, done.stated.is_some()))))
}

/// A model that is not there, in the words of both worlds.
pub(crate) fn no_model(model: &str) -> Problem {
    let shown: String = model.chars().take(128).collect();
    Problem {
        field: Some("model".to_owned()),
        ..Problem::new(Code::ModelNotFound, format!("there is no model `{shown}` here; GET /v1/models lists them"))
    }
}

/// Which conversations.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Rows of the page, 1 to 200; 50 where it is not given.
    limit: Option<u32>,
    /// Where the page begins: `next_cursor` of the page before.
    cursor: Option<String>,
    /// A position that the list must have reached.
    after: Option<String>,
}

/// A page.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConversationPage {
    items: Vec<ConversationView>,
    /// Where the next page begins; null on the last.
    next_cursor: Option<String>,
}

/// Lists the caller's conversations, the one touched last first
#[utoipa::path(get, path = "/v1/conversations", tag = "conversation", params(ListQuery), security(("key" = [])),
    responses((status = 200, body = ConversationPage), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<ConversationPage>, Problem> {
    let Query(query) = query.map_err(|rejection| Problem::new(Code::InvalidQuery, rejection.body_text()))?;
    gate(&app, &caller).await?;
    let limit = query.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(Problem { field: Some("limit".to_owned()), ..Problem::new(Code::InvalidQuery, "must lie within 1 and 200") });
    }
    let scope = format!("conversations {} {}", caller.account, caller.principal);
    let after = query.cursor.as_deref().map(|text| cursor::decode(&app.cursor_key, &scope, text)).transpose()?;
    wait_for(&app, &View, query.after.as_deref()).await?;
    let (rows, next) = conversation::list(&app.db, caller.account.0, caller.principal.0, after, limit).await?;
    Ok(Json(ConversationPage {
        items: rows.into_iter().map(|row| ConversationView::new(row, None)).collect(),
        next_cursor: next.map(|next| cursor::encode(&app.cursor_key, &scope, next)),
    }))
}

/// Which turns.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct GetQuery {
    /// A position that the view must have reached.
    after: Option<String>,
    /// Only turns with a number above this.
    after_turn: Option<u32>,
}

/// Shows a conversation with its turns
#[utoipa::path(get, path = "/v1/conversations/{id}", tag = "conversation", params(("id" = String, Path), GetQuery), security(("key" = [])),
    responses((status = 200, body = ConversationView), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(text): Path<String>,
    Query(query): Query<GetQuery>,
) -> Result<Json<ConversationView>, Problem> {
    gate(&app, &caller).await?;
    visible(&app, &caller, &text).await?;
    wait_for(&app, &View, query.after.as_deref()).await?;
    let id: ConversationId = id(&text)?;
    let row = row(|| conversation::find(&app.db, id.0)).await?;
    let turns = conversation::turns(&app.db, id.0, query.after_turn.unwrap_or(0), MOST_TURNS).await?;
    Ok(Json(ConversationView::new(row, Some(turns.into_iter().map(TurnView::new).collect()))))
}

/// Another title.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenameBody {
    /// 1 to 256 characters.
    title: String,
}

/// Renames a conversation
#[utoipa::path(patch, path = "/v1/conversations/{id}", tag = "conversation", params(("id" = String, Path)), request_body = RenameBody, security(("key" = [])),
    responses((status = 200, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn rename(State(app): State<App>, asked: Asked, Path(text): Path<String>, body: Body) -> Result<Json<Stated>, Problem> {
    gate(&app, &asked.caller).await?;
    let (aggregate, _) = visible(&app, &asked.caller, &text).await?;
    let RenameBody { title } = body.of(&asked.caller)?.read()?;
    carry_out(&app, &asked, aggregate, Rename { title: title.into() }).await
}

/// Deletes a conversation
#[utoipa::path(delete, path = "/v1/conversations/{id}", tag = "conversation", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 200, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn delete(State(app): State<App>, asked: Asked, Path(text): Path<String>) -> Result<Json<Stated>, Problem> {
    gate(&app, &asked.caller).await?;
    let (aggregate, _) = visible(&app, &asked.caller, &text).await?;
    carry_out(&app, &asked, aggregate, Delete {}).await
}

async fn carry_out(app: &App, asked: &Asked, aggregate: Aggregate, command: impl Into<Command>) -> Result<Json<Stated>, Problem> {
    let about: ConversationId = id(&aggregate.id)?;
    let request = Request { aggregate, command: command.into(), requester: asked.requester() };
    let done = app.ledger.execute::<Conversation>(request).await?;
    Ok(Json(Stated::new(about.0, done.position, done.stated.is_some())))
}
