//! The only binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Every TLS connection of the process uses ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("signalbox: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(signalbox::cli::run());
    // Whatever still runs has been told to stop and has had its time.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("signalbox: {}", signalbox::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
