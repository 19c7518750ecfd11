//! Health: whether the process lives, whether it can serve and what holds it up, what it counts.

use crate::state::App;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use prometheus_client::encoding::text::encode;
use serde::Serialize;
use std::sync::Arc;

/// What one part says of itself.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The part.
    pub part: String,
    /// Whether it can do its work.
    pub ready: bool,
    /// What holds it up, or what should be known of it.
    pub detail: String,
}

/// Asks every part of the process.
pub type Ready = Arc<dyn Fn() -> BoxFuture<'static, Vec<Report>> + Send + Sync>;

/// Whether the process lives
#[utoipa::path(get, path = "/livez", tag = "operation", responses((status = 200, body = String)))]
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Whether the process can serve, and what holds it up
#[utoipa::path(get, path = "/readyz", tag = "operation", responses((status = 200, body = Object), (status = 503, body = Object)))]
pub(crate) async fn readyz(State(app): State<App>) -> Response {
    let parts = (app.ready)().await;
    let ready = parts.iter().all(|part| part.ready);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(serde_json::json!({"ready": ready, "parts": parts}))).into_response()
}

/// Counters, in the OpenMetrics text format
#[utoipa::path(get, path = "/metrics", tag = "operation", responses((status = 200, body = String)))]
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let mut out = String::new();
    if encode(&mut out, &app.registry).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], out).into_response()
}
