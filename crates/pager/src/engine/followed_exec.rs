//! Execs of files that cannot preload the agent: the supervisor follows the thread, and puts it
//! there.

use crate::engine::{Engine, link};
use crate::kernel::sys;
use folioswap_group::protocol::{Kind, Message};

impl Engine {
    /// Asks the supervisor to put the agent into the image that the calling thread is about to
    /// execute; returns the connection, which the exec is to close. `None` where it does not: the
    /// image runs unmanaged then. Threads of the program, and children made by vfork(2), which have
    /// its memory. Cost: a connection, and two messages.
    pub fn ask_for_agent(&self) -> Option<i32> {
        let socket = link::connect_to(self.group_name(), self.agent_path()).ok()?;
        let asked = Message::new(Kind::Exec, [sys::gettid().into(), 0, 0]);
        let answer = link::send(socket, &asked, None).and_then(|()| link::receive(socket));
        match answer {
            Ok((answer, _)) if answer.kind() == Some(Kind::Followed) && answer.words[0] == 1 => Some(socket),
            _ => {
                sys::close_range(socket as u32, socket as u32);
                None
            }
        }
    }

    /// Says that the exec has failed, and returns when the thread is followed no more.
    pub fn needs_no_agent(&self, socket: i32) {
        if link::send(socket, &Message::new(Kind::ExecFailed, [0; 3]), None).is_ok() {
            let _ = link::receive(socket);
        }
        sys::close_range(socket as u32, socket as u32);
    }
}
