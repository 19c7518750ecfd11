//! The kinds of workload: one folder a kind, with the validation of its spec.
//!
//! Adding a kind touches its folder and one line here.

pub mod endpoint;
pub mod local_inference;
pub mod local_job;
mod name;
mod runtime;

use crate::Rejection;
pub use name::object_name;
pub use runtime::{Catalog, Parameter, Runtime};
use signalbox_events::workload::Spec;

/// Checks a spec against its kind's rules and the configured runtimes. `path` is where the spec stands in the body.
pub fn validate(spec: &Spec, path: &str, catalog: &Catalog) -> Result<(), Rejection> {
    match spec {
        Spec::LocalInference { runtime, parameters, replicas } => local_inference::validate(path, runtime, parameters, *replicas, catalog),
        Spec::LocalJob { runtime, parameters } => local_job::validate(path, runtime, parameters, catalog),
        Spec::Endpoint { url, model } => endpoint::validate(path, url, model),
    }
}
