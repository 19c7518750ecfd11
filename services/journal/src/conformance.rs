//! One suite for every journal: memory, one nats-server, three nats-servers.

use crate::gate::Durability;
use crate::journal::{Append, AppendError, Journal, Store, StoreError, Stored, Tail};
use crate::memory::Memory;
use crate::nats::{Credentials, Nats, Options};
use crate::{EntryError, Failure, FollowError, Follower, Ledger, MasterKey, Request, Requester, Vault};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use signalbox_domain::account::{Account, AddMember, Create};
use signalbox_domain::conversation::{Conversation, Rename, Start};
use signalbox_domain::setting::{AcceptGap, Setting, Switch};
use signalbox_domain::{Code, Context, Source};
use signalbox_embedded::nats::Cluster;
use signalbox_embedded::process::free_port;
use signalbox_embedded::testing::{TestNats, nats, secrets};
use signalbox_events::account::Role;
use signalbox_events::{AccountId, Aggregate, CommandId, ConversationId, Fact, PrincipalId, Text, WorkloadId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use uuid::Uuid;

/// Ids and random bits that never repeat in a test process; ids are of version 7, like those of the service.
fn source() -> Source {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    Arc::new(|| {
        let count = COUNT.fetch_add(1, Ordering::SeqCst);
        let mut random = [0; 32];
        random[..8].copy_from_slice(&count.to_be_bytes());
        let id = uuid::Builder::from_unix_timestamp_millis(1_700_000_000_000 + count, &[count as u8; 10]).into_uuid();
        Context { now: chrono::DateTime::from_timestamp_micros(1_700_000_000_000_000).unwrap(), id, random, digest_key: [0; 32] }
    })
}

fn ledger(journal: Arc<dyn Journal>) -> Arc<Ledger> {
    Arc::new(Ledger::new(journal, Vault::new(MasterKey([6; 32])), source()))
}

fn account() -> AccountId {
    AccountId((source())().id)
}

fn options(url: String, replicas: usize) -> Options {
    let of = |user: &str, password: &str| Some(Credentials { user: user.to_owned(), password: password.to_owned() });
    Options {
        url,
        credentials: of("signalbox", &secrets().nats),
        system: of("gate", &secrets().nats_gate),
        partitions: 1,
        replicas,
        create: true,
        durability: Durability::Strict,
        api_prefix: None,
    }
}

async fn one_server() -> (TestNats, Arc<Nats>) {
    let server = nats(|_| {}).await.unwrap();
    let journal = Nats::open(options(server.server.url(), 1)).await.unwrap();
    (server, journal)
}

async fn three_servers() -> (Vec<TestNats>, Arc<Nats>) {
    let members: Vec<u16> = (0..3).map(|_| free_port().unwrap()).collect();
    let starts = members.iter().enumerate().map(|(index, port)| {
        let members = members.clone();
        nats(move |options| options.cluster = Some(Cluster { server: format!("n{index}"), port: *port, members }))
    });
    let servers: Vec<TestNats> = join_all(starts).await.into_iter().map(Result::unwrap).collect();
    let urls: Vec<String> = servers.iter().map(|server| server.server.url()).collect();
    let mut last = String::new();
    for _ in 0..120 {
        match Nats::open(options(urls.join(","), 3)).await {
            Ok(journal) => return (servers, journal),
            // The cluster elects its leaders first.
            Err(error) => last = error.to_string(),
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    panic!("the cluster did not form: {last}");
}

async fn everything(journal: Arc<dyn Journal>) {
    appends_are_ordered_and_expected(journal.clone()).await;
    stores_keep_and_create_once(journal.clone()).await;
    a_command_is_carried_out_once(journal.clone()).await;
    racers_are_serialised(journal.clone()).await;
    a_stale_cache_is_noticed(journal.clone()).await;
    lost_answers_have_one_effect(journal.clone()).await;
    busy_answers_are_tried_again(journal.clone()).await;
    texts_are_sealed_and_come_back(journal.clone()).await;
    a_long_history_is_loaded(journal.clone()).await;
    a_follower_sees_everything_once(journal.clone()).await;
    journal.probe().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_keeps_the_contract() {
    everything(Arc::new(Memory::new(1))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_nats_server_keeps_the_contract() {
    let (_server, journal) = one_server().await;
    everything(journal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nats_servers_keep_the_contract() {
    let (_servers, journal) = three_servers().await;
    assert!(journal.reads_may_lag());
    everything(journal).await;
}

fn message(subject: &str, expected: u64, payload: &'static [u8]) -> Append {
    Append { subject: subject.to_owned(), expected, payload: Bytes::from_static(payload), kind: "setting.inference_switched", traceparent: None }
}

async fn appends_are_ordered_and_expected(journal: Arc<dyn Journal>) {
    let (a, b) = (Aggregate::setting(account()).subject(1), Aggregate::setting(account()).subject(1));
    let first = append(&journal, message(&a, 0, b"1")).await.unwrap();
    assert!(matches!(append(&journal, message(&a, 0, b"x")).await, Err(AppendError::Stale)));
    assert!(matches!(append(&journal, message(&a, first + 100, b"x")).await, Err(AppendError::Stale)));
    let second = append(&journal, message(&b, 0, b"2")).await.unwrap();
    let third = append(&journal, message(&a, first, b"3")).await.unwrap();
    assert_eq!((second, third), (first + 1, first + 2));
    settled(&journal, third).await;
    let (found, more) = journal.read(0, &a, 0, 10).await.unwrap();
    assert_eq!(found.iter().map(|stored| (stored.sequence, stored.payload.as_ref())).collect::<Vec<_>>(), [(first, &b"1"[..]), (third, b"3")]);
    assert!(!more);
    let (found, more) = journal.read(0, ">", first - 1, 2).await.unwrap();
    assert_eq!((found.len(), found[1].sequence, more), (2, second, true));
    assert_eq!(journal.read(0, &a, third, 10).await.unwrap(), (vec![], false));
    assert_eq!(journal.head(0, &a).await.unwrap(), third);
    assert_eq!(journal.head(0, &Aggregate::setting(account()).subject(1)).await.unwrap(), 0);
    assert_eq!(journal.tail(0).await.unwrap().last, third);
}

/// Appends as the ledger does: what three replicas answer spuriously is tried again.
async fn append(journal: &Arc<dyn Journal>, message: Append) -> Result<u64, AppendError> {
    for _ in 0..50 {
        match journal.append(message.clone()).await {
            Err(AppendError::Busy) => tokio::time::sleep(Duration::from_millis(2)).await,
            other => return other,
        }
    }
    Err(AppendError::Busy)
}

/// Waits until reads, which a lagging replica may answer, have come to `sequence`.
async fn settled(journal: &Arc<dyn Journal>, sequence: u64) {
    for _ in 0..200 {
        let (found, _) = journal.read(0, ">", sequence - 1, 1).await.unwrap();
        if !found.is_empty() {
            // Another read may be answered by another replica.
            tokio::time::sleep(Duration::from_millis(if journal.reads_may_lag() { 300 } else { 0 })).await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the log does not show {sequence}");
}

async fn stores_keep_and_create_once(journal: Arc<dyn Journal>) {
    for store in [Store::Keys, Store::Snapshots, Store::Heartbeats, Store::Objects] {
        assert_eq!(journal.get(store, "k.1").await.unwrap(), None, "{store:?}");
        assert!(journal.create(store, "k.1", Bytes::from_static(b"a")).await.unwrap());
        assert!(!journal.create(store, "k.1", Bytes::from_static(b"b")).await.unwrap());
        eventually(|| async { journal.get(store, "k.1").await.unwrap() == Some(Bytes::from_static(b"a")) }).await;
        journal.put(store, "k.1", Bytes::from_static(b"c")).await.unwrap();
        eventually(|| async { journal.get(store, "k.1").await.unwrap() == Some(Bytes::from_static(b"c")) }).await;
        journal.delete(store, "k.1").await.unwrap();
        eventually(|| async { journal.get(store, "k.1").await.unwrap().is_none() }).await;
    }
}

async fn eventually<F: Future<Output = bool>>(mut check: impl FnMut() -> F) {
    for _ in 0..200 {
        if check().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come about");
}

fn switch(account: AccountId, enabled: bool, command: Option<CommandId>) -> Request<Switch> {
    Request {
        aggregate: Aggregate::setting(account),
        command: Switch { enabled },
        requester: Requester { command_id: command, ..Requester::role("test") },
    }
}

async fn a_command_is_carried_out_once(journal: Arc<dyn Journal>) {
    let (ledger, other) = (ledger(journal.clone()), ledger(journal.clone()));
    let (one, two) = (account(), account());
    let command = Some(CommandId(Uuid::new_v5(&one.0, b"command")));
    let first = ledger.execute::<Setting>(switch(one, true, command)).await.unwrap();
    assert!(first.stated.is_some());
    // Repeated: by the same process, by another, and after later events.
    for repeat in [&ledger, &other] {
        let again = repeat.execute::<Setting>(switch(one, true, command)).await.unwrap();
        assert_eq!((again.stated, again.position), (None, first.position));
    }
    let later = ledger.execute::<Setting>(switch(one, false, None)).await.unwrap();
    let again = other.execute::<Setting>(switch(one, true, command)).await.unwrap();
    assert_eq!((again.stated, again.position), (None, first.position), "a repeat does not switch back");
    assert_eq!(again.state.inference_enabled, Some(false));
    assert_eq!(ledger.execute::<Setting>(switch(one, false, None)).await.unwrap().position, later.position, "already so");
    // The same command id on another aggregate is another command: nothing is dropped as a duplicate.
    assert!(ledger.execute::<Setting>(switch(two, true, command)).await.unwrap().stated.is_some());
    assert_eq!(journal.head(0, &Aggregate::setting(two).subject(1)).await.unwrap(), journal.tail(0).await.unwrap().last);
}

async fn racers_are_serialised(journal: Arc<dyn Journal>) {
    // Three replicas of the service, sixteen racers each on one aggregate: every command is stated once.
    let ledgers: Vec<_> = (0..3).map(|_| ledger(journal.clone())).collect();
    let of = account();
    let add = |n: u128| AddMember {
        principal: PrincipalId(Uuid::from_u128(n)),
        name: format!("member {n}"),
        roles: vec![Role::Member],
        granter: vec![Role::AccountAdmin],
    };
    let request =
        |command: signalbox_domain::account::Command| Request { aggregate: Aggregate::account(of), command, requester: Requester::role("test") };
    ledgers[0].execute::<Account>(request(Create { name: "a".to_owned() }.into())).await.unwrap();
    let racers = (0..24_u128).map(|n| {
        let ledger = ledgers[n as usize % 3].clone();
        let request = request(add(n % 12).into());
        async move {
            loop {
                match ledger.execute::<Account>(request.clone()).await {
                    Ok(executed) => return executed.stated.is_some(),
                    Err(Failure::Contended(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    let stated = join_all(racers).await.into_iter().filter(|stated| *stated).count();
    assert_eq!(stated, 12, "each member once");
    assert_eq!(ledgers[1].load::<Account>(&Aggregate::account(of)).await.unwrap().members.len(), 12);
    let history = ledgers[2].history(&Aggregate::account(of), 0).await.unwrap();
    assert_eq!(history.iter().map(|event| event.envelope.version).collect::<Vec<_>>(), (1..=13).collect::<Vec<_>>());
}

async fn a_stale_cache_is_noticed(journal: Arc<dyn Journal>) {
    let (one, other) = (ledger(journal.clone()), ledger(journal));
    let of = account();
    one.execute::<Setting>(switch(of, true, None)).await.unwrap();
    other.execute::<Setting>(switch(of, false, None)).await.unwrap();
    // In its own memory it is on already; the log says otherwise, and no append would have checked that.
    assert!(one.execute::<Setting>(switch(of, true, None)).await.unwrap().stated.is_some());
    // A refusal, too, is decided again with what the log says.
    let conversation = Aggregate::conversation(of, ConversationId((source())().id));
    let rename = || Request { aggregate: conversation.clone(), command: Rename { title: "t".into() }, requester: Requester::role("test") };
    let refused = one.execute::<Conversation>(rename()).await.unwrap_err();
    assert!(matches!(refused, Failure::Rejected(ref rejection) if rejection.code == Code::NotFound));
    other.execute::<Conversation>(start(&conversation)).await.unwrap();
    assert!(one.execute::<Conversation>(rename()).await.unwrap().stated.is_some());
}

fn start(conversation: &Aggregate) -> Request<Start> {
    let command = Start {
        owner: PrincipalId(Uuid::from_u128(1)),
        owner_name: "Ada".to_owned(),
        workload: WorkloadId(Uuid::from_u128(2)),
        model: "m".to_owned(),
        title: Some("Ein Gespräch".into()),
    };
    Request { aggregate: conversation.clone(), command, requester: Requester::role("test") }
}

/// Stands between ledger and log: spoils answers, and hides what was lost.
struct Proxy {
    inner: Arc<dyn Journal>,
    /// Appends whose answer is spoiled, counted down.
    spoil: AtomicUsize,
    how: Spoil,
    appends: AtomicUsize,
    /// Sequences that were lost.
    missing: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Spoil {
    /// Stored, but the answer is lost.
    LostAck,
    /// Not stored, and no answer.
    LostRequest,
    /// Not stored: another append is in flight (10164).
    Busy,
}

impl Proxy {
    fn new(inner: Arc<dyn Journal>, how: Spoil, times: usize) -> Arc<Self> {
        Arc::new(Self { inner, spoil: AtomicUsize::new(times), how, appends: AtomicUsize::new(0), missing: vec![] })
    }
}

impl Journal for Proxy {
    fn partitions(&self) -> u16 {
        self.inner.partitions()
    }
    fn reads_may_lag(&self) -> bool {
        self.inner.reads_may_lag()
    }
    fn append(&self, message: Append) -> BoxFuture<'_, Result<u64, AppendError>> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        let spoiled = self.spoil.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        async move {
            match (spoiled, self.how) {
                (false, _) => self.inner.append(message).await,
                (true, Spoil::LostAck) => {
                    append(&self.inner, message).await?;
                    Err(AppendError::Unknown)
                }
                (true, Spoil::LostRequest) => Err(AppendError::Unknown),
                (true, Spoil::Busy) => Err(AppendError::Busy),
            }
        }
        .boxed()
    }
    fn read<'a>(&'a self, partition: u16, filter: &'a str, after: u64, most: usize) -> BoxFuture<'a, Result<(Vec<Stored>, bool), StoreError>> {
        async move {
            let (mut found, more) = self.inner.read(partition, filter, after, most).await?;
            found.retain(|stored| !self.missing.contains(&stored.sequence));
            Ok((found, more))
        }
        .boxed()
    }
    fn head<'a>(&'a self, partition: u16, subject: &'a str) -> BoxFuture<'a, Result<u64, StoreError>> {
        self.inner.head(partition, subject)
    }
    fn tail(&self, partition: u16) -> BoxFuture<'_, Result<Tail, StoreError>> {
        self.inner.tail(partition)
    }
    fn signal(&self, partition: u16) -> tokio::sync::watch::Receiver<u64> {
        self.inner.signal(partition)
    }
    fn get<'a>(&'a self, store: Store, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, StoreError>> {
        self.inner.get(store, key)
    }
    fn put<'a>(&'a self, store: Store, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<(), StoreError>> {
        self.inner.put(store, key, value)
    }
    fn create<'a>(&'a self, store: Store, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.inner.create(store, key, value)
    }
    fn delete<'a>(&'a self, store: Store, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.inner.delete(store, key)
    }
    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.probe()
    }
}

async fn lost_answers_have_one_effect(journal: Arc<dyn Journal>) {
    for (how, times) in [(Spoil::LostAck, 1), (Spoil::LostAck, 2), (Spoil::LostRequest, 1), (Spoil::LostRequest, 2)] {
        let of = account();
        let proxy = Proxy::new(journal.clone(), how, times);
        let spoiled = ledger(proxy.clone());
        let command = Some(CommandId(Uuid::new_v5(&of.0, b"lost")));
        let executed = spoiled.execute::<Setting>(switch(of, true, command)).await.unwrap();
        assert!(executed.stated.is_some());
        let again = ledger(journal.clone()).execute::<Setting>(switch(of, true, command)).await.unwrap();
        assert_eq!((again.stated, again.position), (None, executed.position));
        let history = spoiled.history(&Aggregate::setting(of), 0).await.unwrap();
        assert_eq!(history.len(), 1, "one effect");
    }
    // No answer at all: the caller is told that it is not known, and a repeat has one effect.
    let of = account();
    let silent = ledger(Proxy::new(journal.clone(), Spoil::LostRequest, usize::MAX));
    let command = Some(CommandId(Uuid::new_v5(&of.0, b"silent")));
    let error = silent.execute::<Setting>(switch(of, true, command)).await.unwrap_err();
    assert!(matches!(error, Failure::Append(AppendError::Unknown)), "{error}");
    assert!(ledger(journal).execute::<Setting>(switch(of, true, command)).await.unwrap().stated.is_some());
}

async fn busy_answers_are_tried_again(journal: Arc<dyn Journal>) {
    let of = account();
    let proxy = Proxy::new(journal.clone(), Spoil::Busy, 10);
    let executed = ledger(proxy.clone()).execute::<Setting>(switch(of, true, None)).await.unwrap();
    assert!(executed.stated.is_some());
    assert!(proxy.appends.load(Ordering::SeqCst) >= 11, "the same expectation again, up to ten times");
    // For ever busy is given up, and nothing was stored.
    let of = account();
    let error = ledger(Proxy::new(journal.clone(), Spoil::Busy, usize::MAX)).execute::<Setting>(switch(of, true, None)).await.unwrap_err();
    assert!(matches!(error, Failure::Contended(_)), "{error}");
    assert_eq!(journal.head(0, &Aggregate::setting(of).subject(1)).await.unwrap(), 0);
}

async fn texts_are_sealed_and_come_back(journal: Arc<dyn Journal>) {
    let (writer, reader) = (ledger(journal.clone()), ledger(journal.clone()));
    let of = Aggregate::conversation(account(), ConversationId((source())().id));
    writer.execute::<Conversation>(start(&of)).await.unwrap();
    let large = "ü".repeat(200_000);
    let submit = signalbox_domain::conversation::Submit {
        turn: signalbox_events::TurnId(Uuid::from_u128(3)),
        client_turn_id: "ct".to_owned(),
        canonical: "{}".to_owned(),
        messages: large.clone(),
        parameters: "{}".to_owned(),
        title: "unused".to_owned(),
        on_disconnect: signalbox_events::conversation::OnDisconnect::Continue,
        executor: "g".to_owned(),
        stream: "stream.gateway.g.t.1".to_owned(),
    };
    writer.execute::<Conversation>(Request { aggregate: of.clone(), command: submit, requester: Requester::role("test") }).await.unwrap();
    let (stored, _) = journal.read(0, &of.subject(1), 0, 10).await.unwrap();
    for stored in &stored {
        let bytes = stored.payload.as_ref();
        assert!(!bytes.windows(8).any(|window| window == "Gespräch".as_bytes().get(..8).unwrap()), "a title in the log");
        assert!(bytes.len() < 10_000, "a large text is in the object store");
    }
    let events = reader.history(&of, 0).await.unwrap();
    let Fact::Conversation(signalbox_events::conversation::Event::Started(started)) = &events[0].fact else { panic!() };
    assert_eq!(started.title, Some(Text::from("Ein Gespräch")));
    let Fact::Conversation(signalbox_events::conversation::Event::TurnSubmitted(submitted)) = &events[1].fact else { panic!() };
    assert_eq!(submitted.messages.plain(), Some(large.as_str()));
    // Another master key opens nothing; a missing key is a failure, not an erasure.
    let stranger = Arc::new(Ledger::new(journal.clone(), Vault::new(MasterKey([7; 32])), source()));
    assert!(matches!(stranger.history(&of, 0).await, Err(Failure::Vault(crate::VaultError::WrongMasterKey(_)))));
    journal.delete(Store::Keys, &of.to_string()).await.unwrap();
    eventually(|| async { journal.get(Store::Keys, &of.to_string()).await.unwrap().is_none() }).await;
    assert!(matches!(ledger(journal).history(&of, 0).await, Err(Failure::Vault(crate::VaultError::MissingKey(_)))));
}

async fn a_long_history_is_loaded(journal: Arc<dyn Journal>) {
    let writer = ledger(journal.clone());
    let of = account();
    let early = Some(CommandId(Uuid::new_v5(&of.0, b"early")));
    let first = writer.execute::<Setting>(switch(of, true, early)).await.unwrap();
    for n in 0..150 {
        writer.execute::<Setting>(switch(of, n % 2 == 1, None)).await.unwrap();
    }
    // By snapshot and tail, by tail alone, and by a snapshot that is rubbish.
    let key = Aggregate::setting(of).to_string();
    eventually(|| async { journal.get(Store::Snapshots, &key).await.unwrap().is_some() }).await;
    let expected = writer.load::<Setting>(&Aggregate::setting(of)).await.unwrap();
    assert_eq!(ledger(journal.clone()).load::<Setting>(&Aggregate::setting(of)).await.unwrap(), expected);
    journal.put(Store::Snapshots, &key, Bytes::from_static(b"rubbish")).await.unwrap();
    assert_eq!(ledger(journal.clone()).load::<Setting>(&Aggregate::setting(of)).await.unwrap(), expected);
    // A repeat of a command that the aggregate has long forgotten still has one effect.
    let again = ledger(journal).execute::<Setting>(switch(of, true, early)).await.unwrap();
    assert_eq!((again.stated, again.position), (None, first.position));
}

async fn a_follower_sees_everything_once(journal: Arc<dyn Journal>) {
    let ledger = ledger(journal.clone());
    let from = journal.tail(0).await.unwrap().last;
    let mut follower = Follower::new(ledger.clone(), 0, from);
    let writer = ledger.clone();
    let of = account();
    tokio::spawn(async move {
        for n in 0..40 {
            writer.execute::<Setting>(switch(of, n % 2 == 0, None)).await.unwrap();
        }
        writer.execute::<Conversation>(start(&Aggregate::conversation(of, ConversationId(of.0)))).await.unwrap();
    });
    let mut seen = Vec::new();
    while seen.len() < 41 {
        for entry in follower.next().await.unwrap() {
            seen.push(entry);
        }
    }
    assert_eq!(seen.iter().map(|entry| entry.position.sequence).collect::<Vec<_>>(), (from + 1..=from + 41).collect::<Vec<_>>());
    let last = seen.pop().unwrap().event.unwrap();
    let Fact::Conversation(signalbox_events::conversation::Event::Started(started)) = last.fact else { panic!() };
    assert_eq!(started.title, Some(Text::from("Ein Gespräch")), "a follower sees text");
}

/// A retry long after the server's own window for duplicates, and after its restart, still has one effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_outlives_the_servers_memory() {
    let scratch = signalbox_embedded::testing::Scratch::new("restart");
    let server = signalbox_embedded::testing::nats_in(scratch.path(), |_| {}).await.unwrap();
    let of = account();
    let command = Some(CommandId(Uuid::new_v5(&of.0, b"old")));
    let journal = Nats::open(options(server.url(), 1)).await.unwrap();
    let first = ledger(journal).execute::<Setting>(switch(of, true, command)).await.unwrap();
    // The window is 100 ms.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let journal = Nats::open(options(server.url(), 1)).await.unwrap();
    let again = ledger(journal.clone()).execute::<Setting>(switch(of, true, command)).await.unwrap();
    assert_eq!((again.stated, again.position), (None, first.position));
    server.stop().await;
    let server = signalbox_embedded::testing::nats_in(scratch.path(), |_| {}).await.unwrap();
    let journal = Nats::open(options(server.url(), 1)).await.unwrap();
    let again = ledger(journal.clone()).execute::<Setting>(switch(of, true, command)).await.unwrap();
    assert_eq!((again.stated, again.position), (None, first.position));
    assert_eq!(journal.tail(0).await.unwrap().last, 1);
    server.stop().await;
}

/// A header that only looks like the server's own id for duplicates drops nothing of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn near_miss_headers_are_no_ids() {
    let (_server, journal) = one_server().await;
    let client = crate::nats::connect(&_server.server.url(), options(String::new(), 1).credentials.as_ref(), "test").await.unwrap();
    let mut stored = Vec::new();
    for header in ["Nats-Msg-Id", "Orig-Nats-Msg-Id", "nats-msg-id"] {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert(header, "m1");
        let answer = client.request_with_headers(Aggregate::setting(account()).subject(1), headers, Bytes::from_static(b"x")).await.unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
        stored.push(answer["duplicate"] != true);
    }
    // The server takes names as they are spelled: only the exact one is its own.
    assert_eq!(stored, [true, true, true]);
    // Our events carry no such header, so the same command id on another subject is never dropped by the server.
    a_command_is_carried_out_once(journal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gate_reads_the_servers_own_words() {
    let lax = nats(|options| options.sync_interval = "2m".to_owned()).await.unwrap();
    let refusal = Nats::open(options(lax.server.url(), 1)).await.err().unwrap().to_string();
    assert!(refusal.contains("sync_interval") && refusal.contains("unsafe_setting"), "{refusal}");
    let unproven = Options { system: None, ..options(lax.server.url(), 1) };
    let refusal = Nats::open(unproven).await.err().unwrap().to_string();
    assert!(refusal.contains("durability_unproven"), "{refusal}");
    let relaxed = Options { durability: Durability::Relaxed, ..options(lax.server.url(), 1) };
    Nats::open(relaxed).await.unwrap();
    // A stream that someone made beforehand with other settings.
    let server = nats(|_| {}).await.unwrap();
    let client = crate::nats::connect(&server.server.url(), options(String::new(), 1).credentials.as_ref(), "test").await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    let mut config = crate::nats::stream_config_for_tests(0, 1);
    config.persist_mode = Some(async_nats::jetstream::stream::PersistenceMode::Async);
    jetstream.create_stream(config).await.unwrap();
    let refusal = Nats::open(options(server.server.url(), 1)).await.err().unwrap().to_string();
    assert!(refusal.contains("persist_mode"), "{refusal}");
}

/// Every duration that we set is read back from the server in the unit that was meant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durations_are_what_they_were_meant_to_be() {
    let (server, _journal) = one_server().await;
    let client = crate::nats::connect(&server.server.url(), options(String::new(), 1).credentials.as_ref(), "test").await.unwrap();
    let answer = client.request("$JS.API.STREAM.INFO.KV_HEARTBEATS", Bytes::new()).await.unwrap();
    let info: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
    assert_eq!(info["config"]["max_age"], 20_000_000_000_u64, "20 s in nanoseconds");
    let answer = client.request("$JS.API.STREAM.INFO.EVENTS_0", Bytes::new()).await.unwrap();
    let info: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
    assert_eq!((&info["config"]["duplicate_window"], &info["config"]["max_age"]), (&100_000_000.into(), &0.into()));
    // A bucket that someone made with 20 ms is refused by name.
    let server = nats(|_| {}).await.unwrap();
    let client = crate::nats::connect(&server.server.url(), options(String::new(), 1).credentials.as_ref(), "test").await.unwrap();
    let config = async_nats::jetstream::kv::Config { bucket: "HEARTBEATS".to_owned(), max_age: Duration::from_millis(100), ..Default::default() };
    async_nats::jetstream::new(client).create_key_value(config).await.unwrap();
    let refusal = Nats::open(options(server.server.url(), 1)).await.err().unwrap().to_string();
    assert!(refusal.contains("HEARTBEATS") && refusal.contains("20s"), "{refusal}");
}

#[tokio::test]
async fn a_gap_stops_a_follower_until_it_is_accepted() {
    let memory = Arc::new(Memory::new(1));
    // A log that lost messages: some sequences are missing.
    let proxy = Proxy { inner: memory.clone(), spoil: AtomicUsize::new(0), how: Spoil::Busy, appends: AtomicUsize::new(0), missing: vec![3, 4] };
    let ledger = ledger(Arc::new(proxy));
    let whole = self::ledger(memory);
    for n in 0..6 {
        whole.execute::<Setting>(switch(account(), n % 2 == 0, None)).await.unwrap();
    }
    let mut follower = Follower::new(ledger.clone(), 0, 0);
    let before = follower.next().await.unwrap();
    assert_eq!(before.iter().map(|entry| entry.position.sequence).collect::<Vec<_>>(), [1, 2], "what stands before the gap");
    for _ in 0..3 {
        let error = follower.next().await.unwrap_err();
        assert!(matches!(error, FollowError::Gap { expected: 3, found: 5, .. }), "{error}");
        assert!(error.to_string().starts_with("log_gap: 0.3 to 0.4 are missing"), "{error}");
    }
    let accept = AcceptGap { partition: 0, sequence: 3, reason: "known loss".to_owned() };
    let request = Request { aggregate: Aggregate::setting(AccountId::PLATFORM), command: accept, requester: Requester::role("test") };
    whole.execute::<Setting>(request).await.unwrap();
    let after = follower.next().await.unwrap();
    assert_eq!(after.iter().map(|entry| entry.position.sequence).collect::<Vec<_>>(), [5, 6, 7]);
}

/// A message that was changed on its way is no event, and says so.
#[tokio::test]
async fn a_broken_chain_is_not_loaded() {
    let memory: Arc<dyn Journal> = Arc::new(Memory::new(1));
    let of = account();
    ledger(memory.clone()).execute::<Setting>(switch(of, true, None)).await.unwrap();
    let (stored, _) = memory.read(0, ">", 0, 1).await.unwrap();
    // The same bytes on another subject: transplanted.
    let other = account();
    let subject = Aggregate::setting(other).subject(1);
    memory.append(Append { subject, expected: 0, payload: stored[0].payload.clone(), kind: "x", traceparent: None }).await.unwrap();
    let error = ledger(memory.clone()).load::<Setting>(&Aggregate::setting(other)).await.unwrap_err();
    assert!(matches!(error, Failure::Broken { .. }), "{error}");
    let subject = Aggregate::setting(account()).subject(1);
    memory.append(Append { subject, expected: 0, payload: Bytes::from_static(b"not an event"), kind: "x", traceparent: None }).await.unwrap();
    let mut follower = Follower::new(ledger(memory), 0, 2);
    let entries = follower.next().await.unwrap();
    assert!(matches!(entries[0].event, Err(EntryError::Decode(_))), "carried, so that it can be parked");
}
