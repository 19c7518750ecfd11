//! Hides and closes a conversation.

use super::Existing;
use crate::Rejection;
use signalbox_events::conversation::{Deleted, Event};

/// Delete. The text stays until it is erased.
#[derive(Debug, Clone)]
pub struct Delete {}

pub(super) fn decide(conversation: &Existing) -> Result<Option<Event>, Rejection> {
    Ok((!conversation.deleted).then(|| Deleted {}.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::conversation::Conversation;
    use crate::conversation::fixtures::{made, running};
    use crate::given::given;

    #[test]
    fn a_conversation_is_deleted_once() {
        made().when(Delete {}).then(Deleted {});
        running().when(Delete {}).then(Deleted {});
        made().event(Deleted {}).when(Delete {}).nothing();
        given::<Conversation>().when(Delete {}).refused(Code::NotFound);
    }
}
