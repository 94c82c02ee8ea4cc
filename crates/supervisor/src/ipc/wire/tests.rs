use super::*;
use folioswap_group::protocol::Kind;
use rustix::net::socketpair;

#[test]
fn what_an_end_sent_arrives_though_it_went_with_messages_unread() {
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("socketpair");
    send(&b, &Message::new(Kind::Clusters, [0; 3]), &[]).expect("sent");
    send(&a, &Message::new(Kind::Forked, [7, 0, 0]), &[b.as_fd()]).expect("sent");
    drop(a);
    let got = receive(&b).expect("received").expect("not the end");
    assert_eq!((got.message.kind(), got.message.words[0]), (Some(Kind::Forked), 7));
    assert_eq!(got.descriptors.len(), 1);
    assert!(receive(&b).expect("received").is_none());
}

#[test]
fn a_message_arrives_whole_with_its_descriptors() {
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("socketpair");
    let sent = Message::new(Kind::DropClusters, [3, 0, 7]).with_clusters(&[5, 6, 9]);
    send(&a, &sent, &[a.as_fd(), b.as_fd()]).expect("sent");
    drop(a);
    let got = receive(&b).expect("received").expect("not the end");
    assert_eq!(got.message.kind(), Some(Kind::DropClusters));
    assert_eq!(got.message.words, [3, 0, 7]);
    assert_eq!(got.message.clusters(), [5, 6, 9]);
    assert_eq!(got.descriptors.len(), 2);
    drop(got);
    assert!(receive(&b).expect("end").is_none());
}

#[test]
fn what_is_no_message_is_an_error() {
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("socketpair");
    rustix::io::write(&a, b"hello").expect("sent");
    assert!(matches!(receive(&b), Err(Errno::PROTO)));
}

/// A listener whose queue is full is passed over, not waited for; one with room is connected to,
/// and the socket waits for answers as any other.
#[test]
fn a_listener_with_a_full_queue_is_not_waited_for() {
    let name = new_name().expect("a name");
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("a socket");
    bind(&listener, &SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name")).expect("bound");
    listen(&listener, 0).expect("listens");
    let first = connect_at_once(&name).expect("the queue has room for one");
    let (done, ended) = std::sync::mpsc::channel();
    let asked = name.clone();
    std::thread::spawn(move || done.send(connect_at_once(&asked).map(drop)));
    let second = ended.recv_timeout(std::time::Duration::from_secs(20)).expect("nobody waits");
    assert_eq!(second, Err(Errno::AGAIN));
    let flags = rustix::fs::fcntl_getfl(&first).expect("flags");
    assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "its answers are waited for");
    drop(listener);
    assert_eq!(connect_at_once(&name).map(drop), Err(Errno::CONNREFUSED));
}
