//! Restarts, migrations, killed connections, poison.

mod migrate;
mod poison;
mod rebuild;
mod recover;
