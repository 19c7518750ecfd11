//! The only place that spells subjects of the log: `evt.<partition>.<account>.<noun>.<id>`.

use crate::facts::words;
use crate::id::{AccountId, ConversationId, ParseError, PoolId, TaskId, UpstreamId, WorkerId, WorkloadId};
use sha2::{Digest, Sha256};
use std::fmt;

words! {
    /// What an event is about. Spelled alike in subject, module, table, URL and CLI.
    Noun {
        /// A tenant with its members and keys.
        Account = "account",
        /// A conversation with its turns.
        Conversation = "conversation",
        /// A group of workers with a queue.
        Pool = "pool",
        /// Switches of the platform or of one account.
        Setting = "setting",
        /// A piece of work that a worker executes.
        Task = "task",
        /// A model platform that tasks are sent to.
        Upstream = "upstream",
        /// A process that executes tasks.
        Worker = "worker",
        /// A deployment or a job.
        Workload = "workload",
    }
}

/// The id of the one setting aggregate that an account has.
const SETTING_ID: &str = "features";

/// One aggregate: the unit of consistency, and one subject of the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Aggregate {
    /// Whose it is.
    pub account: AccountId,
    /// What it is.
    pub noun: Noun,
    /// Which one: a token of `[a-z0-9-]`.
    pub id: String,
}

impl Aggregate {
    /// A workload of `account`.
    pub fn workload(account: AccountId, id: WorkloadId) -> Self {
        Self { account, noun: Noun::Workload, id: id.to_string() }
    }

    /// A conversation of `account`.
    pub fn conversation(account: AccountId, id: ConversationId) -> Self {
        Self { account, noun: Noun::Conversation, id: id.to_string() }
    }

    /// A task of `account`.
    pub fn task(account: AccountId, id: TaskId) -> Self {
        Self { account, noun: Noun::Task, id: id.to_string() }
    }

    /// An upstream of `account`; one that everyone may use for [`AccountId::PLATFORM`].
    pub fn upstream(account: AccountId, id: UpstreamId) -> Self {
        Self { account, noun: Noun::Upstream, id: id.to_string() }
    }

    /// A pool: the platform's.
    pub fn pool(id: &PoolId) -> Self {
        Self { account: AccountId::PLATFORM, noun: Noun::Pool, id: id.to_string() }
    }

    /// A worker: the platform's.
    pub fn worker(id: &WorkerId) -> Self {
        Self { account: AccountId::PLATFORM, noun: Noun::Worker, id: id.to_string() }
    }

    /// The account itself.
    pub fn account(account: AccountId) -> Self {
        Self { account, noun: Noun::Account, id: account.to_string() }
    }

    /// The switches of `account`; those of the whole platform for [`AccountId::PLATFORM`].
    pub fn setting(account: AccountId) -> Self {
        Self { account, noun: Noun::Setting, id: SETTING_ID.to_owned() }
    }

    /// The partition among `partitions`: a hash of the account, so that one account stays in one stream.
    pub fn partition(&self, partitions: u16) -> u16 {
        let digest = Sha256::digest(self.account.0.as_bytes());
        let hash = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        u16::try_from(hash % u32::from(partitions.max(1))).unwrap_or(0)
    }

    /// The subject of this aggregate's events.
    pub fn subject(&self, partitions: u16) -> String {
        format!("evt.{}.{self}", self.partition(partitions))
    }

    /// Reads a subject of the log back, with its partition.
    pub fn parse(subject: &str) -> Result<(u16, Self), ParseError> {
        let bad = || ParseError::new("event subject");
        let mut tokens = subject.split('.');
        let (Some("evt"), Some(partition), Some(account), Some(noun), Some(id), None) =
            (tokens.next(), tokens.next(), tokens.next(), tokens.next(), tokens.next(), tokens.next())
        else {
            return Err(bad());
        };
        if !is_token(id) {
            return Err(bad());
        }
        let aggregate = Self { account: account.parse()?, noun: noun.parse()?, id: id.to_owned() };
        Ok((partition.parse().map_err(|_| bad())?, aggregate))
    }
}

/// `<account>.<noun>.<id>`: the aggregate without its partition, used as a key outside the log.
impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.account, self.noun, self.id)
    }
}

/// The name of a partition's stream.
pub fn stream(partition: u16) -> String {
    format!("EVENTS_{partition}")
}

/// What a partition's stream captures.
pub fn stream_subjects(partition: u16) -> String {
    format!("evt.{partition}.>")
}

/// Whether a text may stand as one token of a subject: `^[a-z0-9][a-z0-9-]{0,62}$`.
pub fn is_token(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len()) && plain(bytes[0]) && bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_subject_reads_back_as_its_aggregate() {
        let account = AccountId(Uuid::from_u128(7));
        for aggregate in [
            Aggregate::workload(account, WorkloadId(Uuid::from_u128(1))),
            Aggregate::conversation(account, ConversationId(Uuid::from_u128(2))),
            Aggregate::task(account, TaskId(Uuid::from_u128(3))),
            Aggregate::pool(&"eu".parse().unwrap()),
            Aggregate::worker(&"gpu-01".parse().unwrap()),
            Aggregate::account(AccountId::PLATFORM),
            Aggregate::setting(account),
        ] {
            for partitions in [1, 2, 16] {
                let subject = aggregate.subject(partitions);
                assert_eq!(Aggregate::parse(&subject), Ok((aggregate.partition(partitions), aggregate.clone())));
            }
        }
    }

    #[test]
    fn no_other_text_is_a_subject() {
        for bad in [
            "",
            "evt.0.platform.setting",
            "evt.0.platform.setting.features.x",
            "evt.x.platform.setting.features",
            "evt.0.platform.pods.x",
            "evt.0.platform.setting.*",
            "evt.0.platform.setting.>",
            "evt.0.platform.setting.A",
            "evt.0.platform.setting. x",
            "stream.0.platform.setting.features",
        ] {
            assert!(Aggregate::parse(bad).is_err(), "{bad}");
        }
        assert!(!is_token(&"a".repeat(64)));
        assert!(!is_token("-a"));
    }
}
