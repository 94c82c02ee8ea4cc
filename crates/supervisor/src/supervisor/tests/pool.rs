//! Descriptors of all sorts, to go along with messages.

use super::bytes::Bytes;
use crate::ipc::wire;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, Mode, OFlags, memfd_create, open},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
};
use std::{io::Write, path::Path};

pub struct Pool {
    all: Vec<OwnedFd>,
}

impl Pool {
    /// Makes the descriptors once. `scratch` is a directory for swap files.
    pub fn new(scratch: &Path) -> Self {
        let directory = scratch.display();
        let texts = [
            "ram,size=4M".to_owned(),
            "ram,size=2M,prio=7".to_owned(),
            format!("file:{directory},size=4M"),
            format!("file:{directory},size=4M,encrypt=yes"),
            "ram,size=99999T".to_owned(),
            "zram".to_owned(),
            "nonsense".to_owned(),
            "file:/proc/self/mem".to_owned(),
            "x".repeat(100_000),
            String::new(),
        ];
        let mut all: Vec<OwnedFd> =
            texts.iter().map(|text| wire::text(text.as_bytes()).expect("memory")).collect();
        all.push(wire::text(b"file:\xff\xfe,prio=\x00").expect("memory"));
        let opened = |path: &str, flags| open(path, flags | OFlags::CLOEXEC, Mode::empty()).expect("opens");
        all.push(open(scratch, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("opens"));
        all.push(opened("/", OFlags::RDONLY));
        all.push(opened("/dev/null", OFlags::RDWR));
        all.push(opened("/dev/zero", OFlags::RDWR));
        all.push(memfd_create("anon_inode:[userfaultfd]", MemfdFlags::CLOEXEC).expect("memory"));
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        // A message of a userfaultfd, as it would be of a fork that names descriptor 0.
        writer.write_all(&[[0x13; 8], [0; 8], [0; 8], [0; 8]].concat()).expect("written");
        all.extend([reader.into(), writer.into()]);
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("sockets");
        all.extend([one, other]);
        Pool { all }
    }

    /// The descriptors that an input asks for: none, one that fits, or up to 35 of any sort.
    /// `others` are those that are not always the same.
    pub fn chosen<'a>(&'a self, bytes: &mut Bytes<'_>, others: &[BorrowedFd<'a>]) -> Vec<BorrowedFd<'a>> {
        let count = match bytes.byte() {
            255 => 35,
            few => usize::from(few) % 4,
        };
        (0..count)
            .map(|_| match bytes.below(self.all.len() + others.len()) {
                index if index < others.len() => others[index],
                index => self.all[index - others.len()].as_fd(),
            })
            .collect()
    }
}
