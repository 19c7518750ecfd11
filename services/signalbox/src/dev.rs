//! `signalbox dev`: everything on this machine, from nothing, with one command.

#![expect(clippy::print_stdout, reason = "what scripts take is printed on standard output")]

use crate::bootstrap::{self, AdminKey};
use crate::config::{Config, Keys, Nats};
use crate::serve::{self, Role, Service};
use crate::{Error, clock, tour};
use clap::Args;
use signalbox_embedded::folder::Folder;
use signalbox_embedded::{nats, postgres, provision};
use signalbox_events::workload::Category;
use signalbox_events::{PoolId, WorkerId};
use signalbox_local::runtime::{Parameter, Runtime, Runtimes};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Where to work, and what to leave out.
#[derive(Debug, Clone, Args)]
pub struct Dev {
    /// The data folder: the log, the views, secrets and logs.
    #[arg(long, value_name = "DIR", default_value = ".signalbox")]
    pub data: PathBuf,
    /// The port of the API on loopback; 0 takes any that is free.
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// The folder for fetched servers and models, shared by all data folders.
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// A TOML file with more runtimes, `[runtimes.NAME]`.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Let a worker connect; may be repeated. Its seed is written to `workers/WORKER.nk` in the data folder.
    #[arg(long = "worker", value_name = "POOL/WORKER", value_parser = worker_user)]
    pub workers: Vec<nats::WorkerUser>,
    /// Do without the demo model: the tour then deploys the echo test runtime.
    #[arg(long)]
    pub no_model: bool,
    /// Do the main job and tell it as a story.
    #[arg(long)]
    pub tour: bool,
    /// End after the tour, with a last line of JSON.
    #[arg(long, requires = "tour")]
    pub exit: bool,
    /// Issue another admin key and print it.
    #[arg(long)]
    pub new_admin_key: bool,
    /// `strict`, or `relaxed` for benches: acknowledged events can then be lost in a power cut.
    #[arg(long, default_value = "strict", value_parser = ["strict", "relaxed"])]
    pub durability: String,
}

/// The servers that this process started.
struct Servers {
    nats: Option<nats::Server>,
    postgres: Option<postgres::Server>,
}

impl Servers {
    async fn stop(self) {
        if let Some(postgres) = self.postgres {
            postgres.stop().await;
        }
        if let Some(nats) = self.nats {
            nats.stop().await;
        }
    }
}

fn say(line: &str) {
    eprintln!("{line}");
}

/// Runs until told to stop; with a tour and `--exit`, until its end.
pub async fn dev(options: Dev) -> Result<std::process::ExitCode, Error> {
    let started = Instant::now();
    // The folder first: a second `dev` on it must not disturb the first.
    let folder = Folder::take(&options.data, &mut clock::random)?;
    let stop = tokio::spawn(serve::asked_to_stop());
    let cache = options.cache.clone().unwrap_or_else(provision::default_cache);
    let (servers, config) = tokio::select! {
        up = start(&options, &folder, &cache) => up?,
        () = serve::asked_to_stop() => return Ok(std::process::ExitCode::FAILURE),
    };
    let outcome = run(&options, &config, started, stop).await;
    servers.stop().await;
    outcome
}

async fn start(options: &Dev, folder: &Folder, cache: &Path) -> Result<(Servers, Config), Error> {
    let secrets = folder.secrets().clone();
    let (nats_url, database_url) = (std::env::var("NATS_URL").ok(), std::env::var("DATABASE_URL").ok());
    say(&format!("signalbox: data in {}, cache in {}", folder.path().display(), cache.display()));
    let nats_up = async {
        if nats_url.is_some() {
            return Ok::<_, signalbox_embedded::Error>(None);
        }
        let program = nats::program(cache, &say).await?;
        let options =
            nats::Options { workers: options.workers.clone(), ..nats::Options::new(program, folder.path().join("nats"), folder.log("nats")) };
        let users = options.workers.clone();
        let server = nats::Server::start(options, &secrets).await?;
        for nats::WorkerUser { pool, worker } in users {
            let seed = nats::write_worker_seed(&secrets, folder.path(), &worker)?;
            let url = server.url();
            say(&format!("  worker       signalbox worker run --pool {pool} --id {worker} --seed-file {} --nats {url}", seed.display()));
        }
        Ok(Some(server))
    };
    let postgres_up = async {
        if database_url.is_some() {
            return Ok::<_, signalbox_embedded::Error>(None);
        }
        let programs = postgres::programs(cache, &say).await?;
        let data = postgres::data_folder(folder.path());
        let server = postgres::Server::start(&programs, &data, &folder.log("postgres"), &secrets).await?;
        Ok(Some(server))
    };
    let (nats, postgres, runtimes) = tokio::join!(nats_up, postgres_up, runtimes(options, folder, cache));
    let servers = match (nats, postgres) {
        (Ok(nats), Ok(postgres)) => Servers { nats, postgres },
        (nats, postgres) => {
            let reason = nats.as_ref().err().or(postgres.as_ref().err()).map(ToString::to_string).unwrap_or_default();
            Servers { nats: nats.ok().flatten(), postgres: postgres.ok().flatten() }.stop().await;
            return Err(reason.into());
        }
    };
    let mut runtimes = match runtimes {
        Ok(runtimes) => runtimes,
        Err(error) => {
            servers.stop().await;
            return Err(error);
        }
    };
    if let Some(file) = &options.config {
        runtimes.extend(Config::read(Some(file))?.runtimes);
    }
    let owned = servers.nats.is_some();
    let given = |name: &str, ours: String| std::env::var(name).ok().or_else(|| owned.then_some(ours));
    let config = Config {
        listen: format!("127.0.0.1:{}", options.port),
        database_url: database_url.or_else(|| servers.postgres.as_ref().map(postgres::Server::url)).unwrap_or_default(),
        nats: Nats {
            url: nats_url.or_else(|| servers.nats.as_ref().map(nats::Server::url)).unwrap_or_default(),
            user: given("NATS_USER", nats::USER.to_owned()),
            password: given("NATS_PASSWORD", secrets.nats.clone()),
            auditor_user: given("NATS_AUDITOR_USER", nats::AUDITOR.to_owned()),
            auditor_password: given("NATS_AUDITOR_PASSWORD", secrets.nats_auditor.clone()),
            auditor_api: given("NATS_AUDITOR_API", nats::AUDIT_API.to_owned()),
            system_user: given("NATS_SYSTEM_USER", nats::GATE.to_owned()),
            system_password: given("NATS_SYSTEM_PASSWORD", secrets.nats_gate.clone()),
            partitions: 1,
            replicas: 1,
        },
        durability: options.durability.clone(),
        keys: Keys { master: secrets.master_key.clone(), cursor: secrets.cursor_key.clone(), checkpoint: secrets.checkpoint_key.clone() },
        checkpoints: folder.path().join("checkpoints"),
        workloads: folder.path().join("workloads"),
        runtimes,
    };
    write_config(folder, &config)?;
    Ok((servers, config))
}

/// The configuration as it is, for `signalbox rebuild` and `signalbox audit` beside the running process.
fn write_config(folder: &Folder, config: &Config) -> Result<(), Error> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = folder.path().join("signalbox.toml");
    let text = toml::to_string_pretty(config)?;
    let mut file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    std::io::Write::write_all(&mut file, text.as_bytes())?;
    Ok(())
}

/// `POOL/WORKER`, each one token.
fn worker_user(text: &str) -> Result<nats::WorkerUser, String> {
    let parsed = text.split_once('/').and_then(|(pool, worker)| Some((pool.parse::<PoolId>().ok()?, worker.parse::<WorkerId>().ok()?)));
    let (pool, worker) = parsed.ok_or("must be POOL/WORKER, each of [a-z0-9-]")?;
    Ok(nats::WorkerUser { pool: pool.to_string(), worker: worker.to_string() })
}

/// The runtimes that ship: `echo`, and `llama` with the demo model.
async fn runtimes(options: &Dev, folder: &Folder, cache: &Path) -> Result<Runtimes, Error> {
    let own = std::env::current_exe()?.display().to_string();
    let text = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
    let runtime = |command: Vec<String>, parameters: BTreeMap<String, Parameter>| Runtime {
        category: Category::Deployment,
        command,
        environment: BTreeMap::new(),
        folder: None,
        health: "/health".to_owned(),
        start_seconds: 120,
        memory_bytes: None,
        parameters,
    };
    let delay = Parameter { default: Some("20".to_owned()), values: text(&["0", "5", "20", "50", "100", "500"]) };
    let echo = [text(&[&own, "echo-runtime", "--port", "{port}", "--model", "{name}", "--delay", "{parameters.delay}"])].concat();
    let mut runtimes = Runtimes::from([("echo".to_owned(), runtime(echo, BTreeMap::from([("delay".to_owned(), delay)])))]);
    if !options.no_model {
        let python = provision::llama_python(cache, &say).await?;
        let home = provision::package(cache, &provision::SMOLLM2, &say).await?;
        let script = folder.path().join("llama_server.py");
        std::fs::write(&script, include_str!("llama_server.py"))?;
        let (python, script, model) =
            (python.display().to_string(), script.display().to_string(), home.join(provision::SMOLLM2.proof).display().to_string());
        let command = text(&[&python, &script, "--model", &model, "--port", "{port}", "--alias", "{name}"]);
        let parameter = Parameter { default: Some("smollm2-135m-instruct".to_owned()), values: text(&["smollm2-135m-instruct"]) };
        runtimes.insert("llama".to_owned(), runtime(command, BTreeMap::from([("model".to_owned(), parameter)])));
    }
    Ok(runtimes)
}

async fn run(options: &Dev, config: &Config, started: Instant, stop: tokio::task::JoinHandle<()>) -> Result<std::process::ExitCode, Error> {
    let service = Service::start(config, &[Role::All]).await?;
    let outcome = work(options, config, &service, started, stop).await;
    say("signalbox: stopping");
    service.stop().await;
    outcome
}

async fn work(
    options: &Dev,
    config: &Config,
    service: &Service,
    started: Instant,
    stop: tokio::task::JoinHandle<()>,
) -> Result<std::process::ExitCode, Error> {
    let first = bootstrap::bootstrap(&service.ledger).await?;
    let address = service.address.ok_or("the API does not run")?;
    let url = format!("http://{address}");
    say(&format!("signalbox: ready in {:.1} s", started.elapsed().as_secs_f64()));
    say(&format!("  API          {url}   (documentation: {url}/docs)"));
    let shown = match (&first, options.new_admin_key) {
        (Some(key), _) => Some(key.clone()),
        (None, true) => Some(bootstrap::issue(&service.ledger, "admin key").await?),
        (None, false) => None,
    };
    match &shown {
        Some(AdminKey { secret, .. }) => {
            say("  admin key    shown this once; keep it:");
            // The only line on standard output, so that a script can take it.
            println!("export SIGNALBOX_URL={url} SIGNALBOX_KEY={secret}");
        }
        None => say("  admin key    was shown at the first start; `dev --new-admin-key` makes another"),
    }
    if options.tour {
        let key = bootstrap::issue(&service.ledger, "tour").await?;
        let told = tour::tour(&url, &key.secret, config, options.no_model).await;
        bootstrap::revoke(&service.ledger, key.id).await?;
        match told {
            Ok(summary) if options.exit => {
                println!("{summary}");
                return Ok(std::process::ExitCode::SUCCESS);
            }
            Ok(_) => {}
            Err(error) => {
                let reason = crate::chain(error.as_ref());
                if options.exit {
                    println!("{}", serde_json::json!({"tour": "failed", "reason": reason}));
                    return Ok(std::process::ExitCode::FAILURE);
                }
                say(&format!("the tour has failed: {reason}"));
            }
        }
    } else {
        let (name, runtime) = if options.no_model { ("echo", "echo") } else { ("smollm2", "llama") };
        say("  next         signalbox setting inference on");
        say(&format!("               signalbox workload deploy {name} --runtime {runtime} --wait"));
    }
    say("  stop         Ctrl-C");
    let _ = stop.await;
    Ok(std::process::ExitCode::SUCCESS)
}
