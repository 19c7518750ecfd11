//! Restarts, migrations, killed connections, poison.

mod durable;
mod fenced;
mod full;
mod migrate;
mod poison;
mod rebuild;
mod recover;
