//! Puts the roles together: one process, from one command line.

pub mod bootstrap;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod dev;
pub mod serve;
pub mod tour;

/// An error with its causes, for people.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// What ends a command badly.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
