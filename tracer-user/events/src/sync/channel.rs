//! Matches received messages with their senders: messages of a channel have numbers, of which the lowest bits are
//! seen. Makes no events.

use checker::event::{SyncId, ThreadId};
use rustc_hash::FxHashMap;

use super::{Known, new_id};

/// Maximal number of messages in flight; senders of further ones are not stored.
const MAX_MESSAGES: usize = 1 << 12;

#[derive(Debug, Default)]
pub(super) struct Channel {
    /// Messages by their numbers; `None` if two messages under way have the same number.
    messages: FxHashMap<u16, Option<Message>>,
    /// For each thread that has sent: objects that are free for further messages.
    free: FxHashMap<ThreadId, Vec<SyncId>>,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    sender: ThreadId,
    id: SyncId,
}

impl Channel {
    /// Returns the object for a message.
    pub(super) fn send(
        &mut self,
        sender: ThreadId,
        number: u16,
        syncs: &mut Vec<Known>,
        known: Known,
    ) -> Option<SyncId> {
        if let Some(other) = self.messages.get_mut(&number) {
            *other = None;
            return None;
        }
        if self.messages.len() >= MAX_MESSAGES {
            return None;
        }
        let free = self.free.entry(sender).or_default().pop();
        let id = free.unwrap_or_else(|| new_id(syncs, known));
        self.messages.insert(number, Some(Message { sender, id }));
        Some(id)
    }

    /// Returns the object for the message that a thread receives, if another thread has sent it.
    pub(super) fn receive(&mut self, receiver: ThreadId, number: u16) -> Option<SyncId> {
        let Message { sender, id } = self.messages.remove(&number)??;
        self.free.entry(sender).or_default().push(id);
        (sender != receiver).then_some(id)
    }

    /// Events were lost.
    pub(super) fn gap(&mut self) {
        self.messages.clear();
    }
}

#[cfg(test)]
mod tests {
    use checker::{event::LocationId, format::ObjectKind};

    use super::*;

    const RECEIVER: ThreadId = ThreadId(9);

    #[test]
    fn each_message_is_of_its_sender() {
        let known =
            Known { address: 8, object: ObjectKind::Channel, bytes: 1, first_used: LocationId(0) };
        let mut syncs = Vec::new();
        let mut channel = Channel::default();
        let mut send = |channel: &mut Channel, sender, number| {
            channel.send(ThreadId(sender), number, &mut syncs, known)
        };
        assert_eq!(send(&mut channel, 0, 0), Some(SyncId(0)));
        assert_eq!(send(&mut channel, 0, 1), Some(SyncId(1)));
        assert_eq!(send(&mut channel, 1, 2), Some(SyncId(2)));
        assert_eq!(channel.receive(RECEIVER, 1), Some(SyncId(1)));
        assert_eq!(send(&mut channel, 0, 3), Some(SyncId(1)), "it stands for nothing now");
        assert_eq!(channel.receive(RECEIVER, 2), Some(SyncId(2)));
        assert_eq!(channel.receive(ThreadId(0), 0), None, "its own");
        assert_eq!(channel.receive(RECEIVER, 0), None, "it was not seen");
        assert_eq!(send(&mut channel, 2, 3), None, "there is one of this number");
        assert_eq!(channel.receive(RECEIVER, 3), None, "which one it is cannot be told");
        send(&mut channel, 0, 4);
        channel.gap();
        assert_eq!(channel.receive(RECEIVER, 4), None);
    }

    #[test]
    fn messages_that_nobody_receives_take_no_more_than_some_memory() {
        let known =
            Known { address: 8, object: ObjectKind::Channel, bytes: 1, first_used: LocationId(0) };
        let mut syncs = Vec::new();
        let mut channel = Channel::default();
        for number in 0..u16::MAX {
            channel.send(RECEIVER, number, &mut syncs, known);
        }
        assert_eq!(syncs.len(), MAX_MESSAGES);
    }
}
