//! Adds a device to the group while it runs (swapon).
//!
//! A thread of its own prepares the device, because that may wait for a disk or a server; the
//! thread works in the current directory of the asking command. Then the device gets the next
//! device number and the next cluster numbers, and members are told to ask for it.

use super::{
    Supervisor,
    connection::Role,
    members::{After, sent},
};
use crate::{
    devices::{
        self, Existing, PreparedDevice,
        networks::{Access, MemberLink},
    },
    ipc::wire,
    swap_option,
};
use folioswap_group::{
    devices::DEVICES_MAX,
    protocol::{Kind, Message},
};
use rustix::{
    fd::{AsFd, OwnedFd},
    process::fchdir,
    thread::{UnshareFlags, unshare_unsafe},
};
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    sync::mpsc::{self, Receiver, TryRecvError},
    thread,
    time::{Duration, Instant},
};

/// The time between two looks at the thread.
const LOOK: Duration = Duration::from_millis(10);

/// The swapon that is under way.
pub(super) struct Swapon {
    prepared: Receiver<Result<PreparedDevice, String>>,
    next: Instant,
}

impl Swapon {
    /// When the next look at the thread is due.
    pub(super) fn due(&self) -> Instant {
        self.next
    }
}

impl Supervisor {
    /// Begins the swapon that a command asks for, or refuses it.
    pub(super) fn begin_swapon(&mut self, index: usize, descriptors: Vec<OwnedFd>, now: Instant) -> After {
        match self.prepare(index, descriptors) {
            Ok(prepared) => {
                self.connections[index].role = Role::Swapon;
                self.swapon = Some(Swapon { prepared, next: now + LOOK });
                After::Keep
            }
            Err(why) => {
                say(&self.connections[index].socket, Err(&why));
                After::Close
            }
        }
    }

    fn prepare(
        &self,
        index: usize,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Receiver<Result<PreparedDevice, String>>, String> {
        if !self.may_command(index) {
            return Err("only root or the user whose group it is may add a device".to_owned());
        }
        if self.swapon.is_some() {
            return Err("another device is just being added to the group".to_owned());
        }
        if self.settings.devices.devices.len() >= DEVICES_MAX {
            return Err(format!("a group can have {DEVICES_MAX} devices in its life, and has had as many"));
        }
        let mut descriptors = descriptors.into_iter();
        let (Some(text), Some(directory)) = (descriptors.next(), descriptors.next()) else {
            return Err("the command speaks another version".to_owned());
        };
        let text = wire::text_in(&text).map_err(|errno| errno.to_string())?;
        let option = swap_option::parse(OsStr::from_bytes(&text)).map_err(|error| error.to_string())?;
        let decisions = self.settings.memory.group().decisions;
        let existing = Existing::of(&self.settings.devices, decisions, self.settings.file_bytes);
        let (sender, receiver) = mpsc::channel();
        let work = move || {
            // SAFETY: gives this thread a current directory of its own; nothing else is unshared.
            let own = unsafe { unshare_unsafe(UnshareFlags::FS) };
            let there = own.and_then(|()| fchdir(&directory));
            let prepared = there.map_err(|errno| errno.to_string()).and_then(|()| {
                devices::prepare_one_more(option, &existing).map_err(|error| error.to_string())
            });
            let _ = sender.send(prepared);
        };
        thread::Builder::new()
            .name("folioswap-swapon".into())
            .spawn(work)
            .map_err(|error| error.to_string())?;
        Ok(receiver)
    }

    /// Adds the device when the thread has prepared it.
    pub(super) fn tend_swapon(&mut self, now: Instant) {
        let Some(swapon) = self.swapon.as_mut().filter(|swapon| now >= swapon.next) else { return };
        swapon.next = now + LOOK;
        let prepared = match swapon.prepared.try_recv() {
            Ok(prepared) => prepared,
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => Err("the device could not be prepared".to_owned()),
        };
        self.swapon = None;
        let is_asking = |role: &Role| matches!(role, Role::Swapon);
        // Without the asking command the device is dropped.
        let Some(asking) = self.connections.iter().position(|connection| is_asking(&connection.role)) else {
            return;
        };
        self.connections[asking].role = Role::New;
        let added = prepared.and_then(|device| self.add(device));
        say(&self.connections[asking].socket, added.as_ref().map_err(String::as_str).copied());
    }

    fn add(&mut self, mut device: PreparedDevice) -> Result<(), String> {
        let number = self.settings.devices.devices.len();
        if let Some(network) = device.network.take() {
            self.networks.add(number, network).map_err(|error| error.to_string())?;
        }
        self.clusters.add(device.description, device.shared.take());
        let writer = self.settings.memory.writer();
        writer.device(number).take_orders(device.orders.bits());
        writer.device(number).describe(device.description);
        self.settings.devices.devices.push(device);
        self.mask_added(number);
        Ok(())
    }

    /// Gives a member the file of a device that was added, or a link to it.
    pub(super) fn give_device(&mut self, index: usize, number: u64) -> After {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let connection = &mut self.connections[index];
        // A member has one such link to a device: whoever asks again has lost it.
        let lost: Vec<MemberLink> = connection.links.extract_if(.., |link| link.is_to(number)).collect();
        self.networks.forget(&lost);
        let link = self.networks.new_link(number, Access::Granted);
        if let Some((_, link)) = link {
            let held = connection.clusters.iter().filter_map(|it| self.clusters.on_device(it));
            self.networks.grant(&[link], held);
            connection.links.push(link);
        }
        let own = link.as_ref().map(|(socket, _)| socket).or_else(|| self.clusters.file(number));
        let answer = Message::new(Kind::Device, [u64::from(own.is_some()), 0, 0]);
        let carried: Vec<_> = own.iter().map(|own| own.as_fd()).collect();
        sent(wire::send(&connection.socket, &answer, &carried))
    }
}

/// Tells the asking command how the swapon ended.
fn say(socket: &OwnedFd, end: Result<(), &str>) {
    let message = Message::new(Kind::SwaponEnd, [u64::from(end.is_ok()), 0, 0]);
    let text = end.err().and_then(|why| wire::text(why.as_bytes()).ok());
    let carried: Vec<_> = text.iter().map(AsFd::as_fd).collect();
    // A failure is ignored: the command is gone.
    let _ = wire::send(socket, &message, &carried);
}
