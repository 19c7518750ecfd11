//! Role: brings the log into the views, each event once, in order; parks what cannot be taken in; rebuilds views.

mod batch;
mod reader;
mod rebuild;
mod status;

pub use reader::{Projector, Stopped};
pub use rebuild::{Rebuilt, TableDifference, rebuild};
pub use status::{PartitionStatus, Status, ViewStatus};
