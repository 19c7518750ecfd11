//! Every route on one page.

use crate::openapi::{Document, viewer};
use crate::problem::Problem;
use crate::state::App;
use crate::{account, conversation, event, health, openai, pool, setting, task, turn, upstream, worker, workload};
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use signalbox_domain::Code;
use std::time::Instant;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::decompression::RequestDecompressionLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Routes that answer without an API key.
pub const ROUTES_WITHOUT_KEY: [&str; 5] = ["/livez", "/readyz", "/metrics", "/openapi.json", "/docs"];

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(workload::deploy::deploy, workload::list::list))
        .routes(routes!(workload::get::get, workload::commands::update, workload::commands::delete))
        .routes(routes!(workload::commands::rollback))
        .routes(routes!(workload::commands::scale))
        .routes(routes!(workload::commands::suspend))
        .routes(routes!(workload::commands::resume))
        .routes(routes!(workload::logs::logs))
        .routes(routes!(event::of_workload))
        .routes(routes!(conversation::start, conversation::list))
        .routes(routes!(conversation::get, conversation::rename, conversation::delete))
        .routes(routes!(event::of_conversation))
        .routes(routes!(turn::submit::submit))
        .routes(routes!(turn::get::get))
        .routes(routes!(turn::stream::stream))
        .routes(routes!(turn::cancel::cancel))
        .routes(routes!(openai::models::list))
        .routes(routes!(openai::models::get))
        .routes(routes!(openai::chat::completions))
        .routes(routes!(task::submit::submit, task::list::list))
        .routes(routes!(task::get))
        .routes(routes!(task::result::result))
        .routes(routes!(task::result::download))
        .routes(routes!(task::cancel))
        .routes(routes!(task::operate::resolve))
        .routes(routes!(task::operate::revive))
        .routes(routes!(event::of_task))
        .routes(routes!(pool::create, pool::list))
        .routes(routes!(pool::get, pool::update, pool::delete))
        .routes(routes!(pool::switch))
        .routes(routes!(worker::list))
        .routes(routes!(worker::drain))
        .routes(routes!(account::create, account::list))
        .routes(routes!(account::get))
        .routes(routes!(account::add_member))
        .routes(routes!(account::issue_key, account::list_keys))
        .routes(routes!(account::revoke_key))
        .routes(routes!(setting::get))
        .routes(routes!(setting::put))
        .routes(routes!(setting::set_transport))
        .routes(routes!(upstream::register, upstream::list))
        .routes(routes!(upstream::get, upstream::update, upstream::delete))
        .routes(routes!(upstream::set_credential))
        .routes(routes!(upstream::switch))
        .routes(routes!(setting::accept_gap))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
}

pub(crate) fn openapi() -> utoipa::openapi::OpenApi {
    routes().into_openapi()
}

/// The role's HTTP service.
pub fn router(app: App) -> Router {
    let (router, document) = routes().split_for_parts();
    let document = document.to_pretty_json().unwrap_or_default();
    router
        .route("/openapi.json", get(move || async move { ([(CONTENT_TYPE, "application/json")], document) }))
        .route("/docs", get(viewer))
        .route("/", get(|| async { Redirect::temporary("/docs") }))
        .method_not_allowed_fallback(|| async { Problem::new(Code::MethodNotAllowed, "the method is not allowed here") })
        .fallback(|| async { Problem::not_found() })
        .layer(middleware::from_fn_with_state(app.clone(), observe))
        .layer(RequestDecompressionLayer::new())
        .layer(CatchPanicLayer::custom(|_| Problem::new(Code::Internal, "something failed here").into_response()))
        .with_state(app)
}

/// Counts and logs each answer. Neither bodies nor queries nor keys are ever logged.
async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    let (status, seconds) = (response.status().as_u16(), started.elapsed().as_secs_f64());
    app.metrics.answered(&format!("{method} {route}"), status, seconds);
    tracing::info!(%method, route, status, milliseconds = (seconds * 1e3) as u64, "answered");
    response
}
