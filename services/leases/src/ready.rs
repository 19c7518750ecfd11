//! Tasks that wait in pools, and which is next: by priority, then fairly among accounts, and the older the higher.

use signalbox_events::{AccountId, Micros, PoolId, TaskId};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A task rises by one priority for each of these microseconds that it waits, so that none starves.
const AGEING: i64 = 30_000_000;
/// Characters of payload that count like one more task.
const CHARACTERS: u64 = 16 * 1024;
/// The most that one task counts.
const MOST_COST: u64 = 64;

/// A task that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The account.
    pub account: AccountId,
    /// The task.
    pub task: TaskId,
    /// What is to be done.
    pub kind: String,
    /// Whether the answer is wanted piece by piece.
    pub streaming: bool,
    /// 0 to 9, the higher first.
    pub priority: u8,
    /// Since when it waits.
    pub since: Micros,
    /// Length of its payload.
    pub characters: u64,
}

impl Waiting {
    /// What serving it takes from its account's share.
    fn cost(&self) -> u64 {
        (1 + self.characters / CHARACTERS).min(MOST_COST)
    }

    /// Its priority with what it gained by waiting.
    fn band(&self, now: Micros) -> i64 {
        i64::from(self.priority) + (now.0 - self.since.0).max(0) / AGEING
    }
}

/// What waits in every pool.
#[derive(Debug, Default)]
pub struct Ready {
    pools: HashMap<PoolId, Pool>,
}

/// What waits in one pool: each account's tasks by priority and age, and the accounts' turns.
#[derive(Debug, Default)]
struct Pool {
    accounts: HashMap<AccountId, Account>,
    turns: VecDeque<AccountId>,
}

#[derive(Debug, Default)]
struct Account {
    /// The higher priority first: the key's first part is 9 less the priority.
    queue: BTreeMap<(u8, Micros, TaskId), Waiting>,
    /// What it may still spend in this round.
    deficit: u64,
}

fn key(waiting: &Waiting) -> (u8, Micros, TaskId) {
    (9 - waiting.priority.min(9), waiting.since, waiting.task)
}

impl Ready {
    /// Adds a task, once.
    pub fn add(&mut self, pool: &PoolId, waiting: Waiting) {
        let pool = self.pools.entry(pool.clone()).or_default();
        if !pool.accounts.contains_key(&waiting.account) {
            pool.turns.push_back(waiting.account);
        }
        pool.accounts.entry(waiting.account).or_default().queue.insert(key(&waiting), waiting);
    }

    /// Takes a task out, wherever it came from.
    pub fn remove(&mut self, pool: &PoolId, waiting: &Waiting) {
        let Some(found) = self.pools.get_mut(pool) else { return };
        let Some(account) = found.accounts.get_mut(&waiting.account) else { return };
        account.queue.remove(&key(waiting));
        if account.queue.is_empty() {
            found.accounts.remove(&waiting.account);
            found.turns.retain(|turn| *turn != waiting.account);
        }
        if found.accounts.is_empty() {
            self.pools.remove(pool);
        }
    }

    /// Takes out the task that is next among those that match.
    pub fn take(&mut self, pool: &PoolId, now: Micros, matches: impl Fn(&Waiting) -> bool) -> Option<Waiting> {
        let found = self.pools.get_mut(pool)?;
        // Each account's best: within one priority the oldest, so one look a priority is enough.
        let best: HashMap<AccountId, Waiting> =
            found.accounts.iter().filter_map(|(id, account)| Some((*id, account.best(now, &matches)?.clone()))).collect();
        let band = best.values().map(|waiting| waiting.band(now)).max()?;
        let chosen = found.turn_of(&best, now, band)?;
        let waiting = best.get(&chosen)?.clone();
        self.remove(pool, &waiting);
        Some(waiting)
    }

    /// How many tasks wait in each pool, and since when the oldest.
    pub fn depths(&self) -> impl Iterator<Item = (&PoolId, usize, Micros)> {
        self.pools.iter().map(|(id, pool)| {
            let all = pool.accounts.values().flat_map(|account| account.queue.values());
            let oldest = all.clone().map(|waiting| waiting.since).min().unwrap_or_default();
            (id, all.count(), oldest)
        })
    }
}

impl Account {
    fn best(&self, now: Micros, matches: &impl Fn(&Waiting) -> bool) -> Option<&Waiting> {
        let mut best: Option<&Waiting> = None;
        let mut skip = None;
        for ((priority, _, _), waiting) in &self.queue {
            if skip == Some(*priority) || !matches(waiting) {
                continue;
            }
            skip = Some(*priority);
            if best.is_none_or(|best| waiting.band(now) > best.band(now)) {
                best = Some(waiting);
            }
        }
        best
    }
}

impl Pool {
    /// Deficit round robin among the accounts whose best is in the highest band.
    fn turn_of(&mut self, best: &HashMap<AccountId, Waiting>, now: Micros, band: i64) -> Option<AccountId> {
        // A task costs at most MOST_COST and each round gives one, so this ends.
        for _ in 0..=MOST_COST {
            for _ in 0..self.turns.len() {
                let id = *self.turns.front()?;
                if let Some(waiting) = best.get(&id).filter(|waiting| waiting.band(now) == band)
                    && let Some(account) = self.accounts.get_mut(&id)
                {
                    account.deficit += 1;
                    if account.deficit >= waiting.cost() {
                        account.deficit -= waiting.cost();
                        self.turns.rotate_left(1);
                        return Some(id);
                    }
                }
                self.turns.rotate_left(1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn waiting(account: u128, task: u128, priority: u8, since: i64) -> Waiting {
        Waiting {
            account: AccountId(Uuid::from_u128(account)),
            task: TaskId(Uuid::from_u128(task)),
            kind: "chat.completions".to_owned(),
            streaming: false,
            priority,
            since: Micros(since),
            characters: 10,
        }
    }

    fn eu() -> PoolId {
        "eu".parse().unwrap()
    }

    fn order(tasks: impl IntoIterator<Item = Waiting>, now: i64) -> Vec<u128> {
        let mut ready = Ready::default();
        tasks.into_iter().for_each(|task| ready.add(&eu(), task));
        std::iter::from_fn(|| ready.take(&eu(), Micros(now), |_| true)).map(|task| task.task.0.as_u128()).collect()
    }

    #[test]
    fn the_higher_priority_goes_first_then_the_older() {
        let tasks = [waiting(1, 1, 5, 10), waiting(1, 2, 9, 20), waiting(1, 3, 5, 5), waiting(1, 4, 0, 1)];
        assert_eq!(order(tasks, 30), [2, 3, 1, 4]);
    }

    #[test]
    fn accounts_take_turns_however_much_each_has() {
        let many = (0..6).map(|n| waiting(1, n, 5, 0));
        let few = (10..12).map(|n| waiting(2, n, 5, 1));
        assert_eq!(order(many.chain(few), 2), [0, 10, 1, 11, 2, 3, 4, 5]);
    }

    #[test]
    fn large_tasks_use_up_more_of_a_share() {
        let large = (0..3).map(|n| Waiting { characters: 2 * CHARACTERS, ..waiting(1, n, 5, 0) });
        let small = (10..16).map(|n| waiting(2, n, 5, 1));
        let order = order(large.chain(small), 2);
        let before_second_large = order.iter().take_while(|task| **task != 1).filter(|task| **task >= 10).count();
        assert!(before_second_large >= 5, "{order:?}");
    }

    #[test]
    fn waiting_raises_a_task() {
        let old = waiting(1, 1, 0, 0);
        let fresh = waiting(2, 2, 5, 5 * AGEING);
        assert_eq!(order([old.clone(), fresh.clone()], 5 * AGEING - 1), [2, 1]);
        assert_eq!(order([old, fresh], 6 * AGEING), [1, 2]);
    }

    #[test]
    fn what_does_not_match_is_passed_over_and_stays() {
        let mut ready = Ready::default();
        ready.add(&eu(), Waiting { streaming: true, ..waiting(1, 1, 9, 0) });
        ready.add(&eu(), waiting(1, 2, 5, 0));
        let taken = ready.take(&eu(), Micros(1), |task| !task.streaming).unwrap();
        assert_eq!(taken.task.0.as_u128(), 2);
        assert_eq!(ready.take(&eu(), Micros(1), |task| !task.streaming), None);
        assert_eq!(ready.depths().map(|(_, count, _)| count).collect::<Vec<_>>(), [1]);
        ready.remove(&eu(), &waiting(1, 1, 9, 0));
        assert_eq!(ready.depths().count(), 0);
        assert_eq!(ready.take(&"us".parse().unwrap(), Micros(1), |_| true), None);
    }
}
