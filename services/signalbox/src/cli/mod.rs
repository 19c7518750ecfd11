//! The command line: `signalbox <noun> <verb>` on the HTTP API, and the processes themselves.

mod account;
mod audit;
mod conversation;
mod key;
mod output;
mod pool;
mod rebuild;
mod setting;
mod task;
mod upstream;
mod worker;
mod workload;

use crate::client::Client;
use crate::config::Config;
use crate::dev::{self, Dev};
use crate::serve::{self, Role, Service};
use crate::{Error, bootstrap};
use clap::{Args, CommandFactory, Parser, Subcommand};
pub use output::Format;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// An event-sourced control plane for AI workloads.
#[derive(Debug, Parser)]
#[command(name = "signalbox", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything on this machine, from nothing.
    Dev(Dev),
    /// Run roles of an installation.
    Serve(Serve),
    /// Bring the database's schema up to date, or take it away.
    Migrate(Migrate),
    /// Deployments and jobs.
    #[command(subcommand)]
    Workload(workload::Verb),
    /// Conversations with deployments.
    #[command(subcommand)]
    Conversation(conversation::Verb),
    /// Work that workers execute.
    #[command(subcommand)]
    Task(task::Verb),
    /// Model platforms that tasks are sent to.
    #[command(subcommand)]
    Upstream(upstream::Verb),
    /// Pools of workers.
    #[command(subcommand)]
    Pool(pool::Verb),
    /// Workers.
    #[command(subcommand)]
    Worker(worker::Verb),
    /// Accounts and members.
    #[command(subcommand)]
    Account(account::Verb),
    /// API keys.
    #[command(subcommand)]
    Key(key::Verb),
    /// Switches.
    #[command(subcommand)]
    Setting(setting::Verb),
    /// Read and verify the log.
    #[command(subcommand)]
    Audit(audit::Verb),
    /// Rebuild a view from the log, compare it with the live one, and swap the two.
    Rebuild(rebuild::Rebuild),
    /// Print completions for a shell.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Serve the echo test runtime: no model, it answers with what it was told.
    #[command(hide = true)]
    EchoRuntime {
        /// Port on loopback.
        #[arg(long)]
        port: u16,
        /// The model's name.
        #[arg(long)]
        model: String,
        /// Milliseconds before each word.
        #[arg(long, default_value_t = 20)]
        delay: u64,
    },
}

/// Which service, with which key, and how to print.
#[derive(Debug, Clone, Args)]
struct Connection {
    /// The service's address.
    #[arg(long, env = "SIGNALBOX_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// The API key.
    // An id of its own: a verb may have an argument `key`, too.
    #[arg(id = "api_key", long = "key", value_name = "KEY", env = "SIGNALBOX_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

impl Connection {
    fn client(&self) -> Result<Client, Error> {
        let key = self.api_key.as_deref().ok_or("an API key is needed: set SIGNALBOX_KEY or pass --key (`signalbox dev` prints one)")?;
        Client::new(&self.url, key)
    }
}

/// Which installation, for commands that work beside the service.
#[derive(Debug, Clone, Args)]
pub(crate) struct Installation {
    /// The configuration file; else the one in the data folder of `dev`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data folder of `dev`.
    #[arg(long, value_name = "DIR", default_value = ".signalbox")]
    data: PathBuf,
}

impl Installation {
    fn config(&self) -> Result<Config, Error> {
        let file = self.config.clone().or_else(|| Some(self.data.join("signalbox.toml")).filter(|file| file.exists()));
        if file.is_none() && std::env::var_os("SIGNALBOX_DATABASE_URL").is_none() {
            let data = self.data.display();
            return Err(format!("there is no installation in {data}: pass --data DIR (the data folder of `signalbox dev`) or --config FILE").into());
        }
        Config::read(file.as_deref())
    }
}

/// Roles of an installation.
#[derive(Debug, Args)]
struct Serve {
    /// The roles of this process.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
    role: Vec<Role>,
    /// The configuration file; without one, the environment alone.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A direction.
#[derive(Debug, Args)]
struct Migrate {
    /// `up` or `down`; `down` drops every view (the log can rebuild them).
    #[arg(value_parser = ["up", "down"], default_value = "up")]
    direction: String,
    #[command(flatten)]
    installation: Installation,
}

/// Runs what the command line asks for.
pub async fn run() -> Result<ExitCode, Error> {
    let cli = Cli::parse();
    let quiet = !matches!(cli.command, Command::Dev(_) | Command::Serve(_));
    logs(quiet);
    if quiet {
        end_with_the_reader();
    }
    let done = |()| ExitCode::SUCCESS;
    match cli.command {
        Command::Dev(options) => dev::dev(options).await,
        Command::Serve(options) => serve(options).await.map(done),
        Command::Migrate(options) => migrate(&options).await.map(done),
        Command::Workload(verb) => workload::run(verb).await.map(done),
        Command::Conversation(verb) => conversation::run(verb).await.map(done),
        Command::Task(verb) => task::run(verb).await.map(done),
        Command::Upstream(verb) => upstream::run(verb).await.map(done),
        Command::Pool(verb) => pool::run(verb).await.map(done),
        Command::Worker(verb) => worker::run(verb).await.map(done),
        Command::Account(verb) => account::run(verb).await.map(done),
        Command::Key(verb) => key::run(verb).await.map(done),
        Command::Setting(verb) => setting::run(verb).await.map(done),
        Command::Audit(verb) => audit::run(verb).await,
        Command::Rebuild(options) => rebuild::run(options).await,
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "signalbox", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::EchoRuntime { port, model, delay } => {
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
            let options = signalbox_local::echo::Options { model, delay: Duration::from_millis(delay) };
            signalbox_local::echo::serve(listener, options).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// A command whose reader has seen enough (`| head`) ends quietly instead of failing to print.
fn end_with_the_reader() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    // SAFETY: the default action replaces the one that Rust sets at the start; no handler of ours is involved.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
}

/// Logs go to standard error. Levels by `SIGNALBOX_LOG`, for example `info` or `signalbox_journal=debug`.
fn logs(quiet: bool) {
    let default = if quiet { "error" } else { "warn" };
    let filter = EnvFilter::try_from_env("SIGNALBOX_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}

#[expect(clippy::print_stdout, reason = "a script takes the key from standard output")]
async fn serve(options: Serve) -> Result<(), Error> {
    let config = Config::read(options.config.as_deref())?;
    let service = Service::start(&config, &options.role).await?;
    if let Some(address) = service.address {
        eprintln!("signalbox: API at http://{address}");
        if let Some(key) = bootstrap::bootstrap(&service.ledger).await? {
            eprintln!("signalbox: admin key, shown this once:");
            println!("export SIGNALBOX_KEY={}", key.secret);
        }
    }
    serve::asked_to_stop().await;
    service.stop().await;
    Ok(())
}

async fn migrate(options: &Migrate) -> Result<(), Error> {
    let database = serve::database_options(&options.installation.config()?)?;
    if options.direction == "down" {
        signalbox_projections::down(&database).await?
    } else {
        signalbox_projections::up(&database).await?
    }
    Ok(())
}

/// A path segment of what a user typed.
fn segment(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
