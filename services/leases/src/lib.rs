//! Role: what waits in pools, who gets it, one-time execution tokens, and what becomes of leases without a holder.
//!
//! Any number of replicas may run: each keeps an index of what has not ended, and the log decides between them.

mod answer;
mod beat;
mod capacity;
mod claim;
mod index;
mod metrics;
mod piece;
mod ready;
mod redeem;
mod role;
mod sweep;

pub use metrics::Metrics;
pub use role::Leases;
