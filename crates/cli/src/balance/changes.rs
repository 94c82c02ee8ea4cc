//! Changes of limits that are under way, each in a thread of its own: a group may take seconds to
//! come within a lower limit, and one that does not answer must not hold the others up.
//!
//! Whoever ends this process ends the connections of its threads, and the groups whose changes are
//! under way take them back.

use super::partners::Partner;
use crate::operate::{OperateError, change};
use folioswap_group::protocol::Change;
use std::{
    collections::HashMap,
    sync::mpsc::{self, Receiver, Sender},
    thread,
};

/// A change that has ended.
pub struct Ended {
    /// The socket of the group.
    pub socket: String,
    /// Its name.
    pub name: String,
    /// The limit before, in bytes.
    pub from: u64,
    /// The limit that was asked for.
    pub to: u64,
    /// Whether it holds, by the charge then.
    pub end: Result<u64, OperateError>,
}

/// The changes under way, at most one a group.
pub struct Changes {
    /// The higher one of both limits, by the socket of the group: either may hold.
    under_way: HashMap<String, u64>,
    ends: Receiver<Ended>,
    sender: Sender<Ended>,
}

impl Changes {
    /// None is under way.
    pub fn new() -> Self {
        let (sender, ends) = mpsc::channel();
        Changes { under_way: HashMap::new(), ends, sender }
    }

    /// The most that the limit of a group may be, if a change of it is under way.
    pub fn most(&self, socket: &str) -> Option<u64> {
        self.under_way.get(socket).copied()
    }

    /// Asks a group, of which no change is under way, for another limit.
    pub fn begin(&mut self, partner: &Partner, to: u64) {
        let (from, address) = (partner.limit, partner.address.clone());
        let (socket, name, sender) = (partner.socket.clone(), partner.name.clone(), self.sender.clone());
        let work = move || {
            let end = change::ask_at(&address, Change::Limit(to));
            // Without a receiver the program is ending.
            let _ = sender.send(Ended { socket, name, from, to, end });
        };
        // Without a thread nothing changes; the next look tries again.
        if thread::Builder::new().name("change".to_owned()).spawn(work).is_ok() {
            self.under_way.insert(partner.socket.clone(), from.max(to));
        }
    }

    /// The changes that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        let ended: Vec<Ended> = self.ends.try_iter().collect();
        for ended in &ended {
            self.under_way.remove(&ended.socket);
        }
        ended
    }
}
