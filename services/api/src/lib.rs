//! Role: commands in, queries out, over HTTP; streams of answers; the OpenAI-compatible surface.

mod account;
mod auth;
mod body;
mod call;
mod conversation;
mod cursor;
mod event;
mod executor;
mod health;
mod metrics;
mod openai;
mod openapi;
mod pool;
mod problem;
mod request;
mod router;
mod setting;
mod sse;
mod state;
mod task;
mod turn;
mod upstream;
mod watchdog;
mod worker;
mod workload;

pub use health::{Ready, Report};
pub use metrics::Metrics;
pub use openapi::document;
pub use router::{ROUTES_WITHOUT_KEY, router};
pub use state::{App, Parts};
