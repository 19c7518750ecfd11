//! The OpenAPI document, and a page to read it.

use axum::response::Html;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

#[derive(OpenApi)]
#[openapi(
    info(title = "Signalbox", description = "An event-sourced control plane for AI workloads."),
    modifiers(&Security),
    tags(
        (name = "workload", description = "Deployments and jobs in one list"),
        (name = "conversation", description = "Conversations with deployments"),
        (name = "turn", description = "Turns: claimed once, streamed, resumed"),
        (name = "openai", description = "What OpenAI's clients call"),
        (name = "task", description = "Work that workers execute, each sent at most once a redeemed token"),
        (name = "upstream", description = "Model platforms that tasks are sent to"),
        (name = "pool", description = "Pools and their workers"),
        (name = "account", description = "Accounts, members, API keys"),
        (name = "setting", description = "Switches"),
        (name = "operation", description = "Health and metrics"),
    )
)]
pub(crate) struct Document;

struct Security;

impl Modify for Security {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("key", scheme);
    }
}

/// The document as JSON.
pub fn document() -> serde_json::Result<String> {
    crate::router::openapi().to_pretty_json()
}

/// Shows the document.
pub(crate) async fn viewer() -> Html<&'static str> {
    Html(include_str!("viewer.html"))
}
