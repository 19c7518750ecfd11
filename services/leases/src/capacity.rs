//! Tells gateways whether a pool can take work that someone waits for: an answer at once, from what this replica knows.

use crate::role::Shared;
use signalbox_domain::Code;
use signalbox_domain::task::kind_matches;
use signalbox_events::work::{Capacity, ERROR_HEADER, Form, Refusal, Wanted};
use signalbox_events::{PoolId, worker};
use signalbox_journal::StoreError;
use signalbox_journal::nats::HeaderMap;
use std::sync::Arc;

pub(crate) async fn serve(shared: Arc<Shared>) -> Result<(), StoreError> {
    let mut requests = shared.nats.serve("capacity.*", "leases").await?;
    while let Some(request) = requests.next().await {
        let pool = request.subject.strip_prefix("capacity.").and_then(|pool| pool.parse::<PoolId>().ok());
        let (Some(pool), Ok(wanted)) = (pool, Form::MessagePack.read::<Wanted>(&request.payload)) else { continue };
        let workers = shared.index().able(&pool, &wanted);
        let mut headers = HeaderMap::new();
        let body = if workers > 0 {
            Form::MessagePack.write(&Capacity { workers })
        } else {
            let code = Code::NoWorkerAvailable;
            headers.insert(ERROR_HEADER, code.as_str());
            Form::MessagePack.write(&Refusal { code: code.as_str().to_owned(), detail: code.title().to_owned() })
        };
        if let Err(error) = shared.nats.answer(request.reply, headers, body.unwrap_or_default().into()).await {
            tracing::warn!(%error, "an answer was not sent");
        }
    }
    Err(StoreError::Failed("the connection closed".to_owned()))
}

impl crate::index::Index {
    /// Workers of the pool that take work and can do this.
    fn able(&self, pool: &PoolId, wanted: &Wanted) -> u32 {
        let able = self.workers.values().filter(|known| {
            let can = &known.capabilities;
            known.pool == *pool
                && known.state == worker::State::Ready
                && can.kinds.iter().any(|kind| kind_matches(kind, &wanted.kind))
                && (can.streaming || !wanted.streaming)
        });
        u32::try_from(able.count()).unwrap_or(u32::MAX)
    }
}
