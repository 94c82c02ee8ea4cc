use super::*;

#[test]
fn packets_survive_the_link() {
    let (a, b) = Link::pair().expect("socketpair");
    let packets = [
        Packet::Text(b"hello".to_vec()),
        Packet::Stopped(7),
        Packet::Ended(137, Remains::Nothing),
        Packet::Ended(0, Remains::Descendants),
        Packet::Forward(Arrived { signal: 15, code: -6, pid: 99 }),
    ];
    for packet in &packets {
        a.send(packet);
    }
    for packet in &packets {
        assert_eq!(b.receive().as_ref(), Ok(packet));
    }
    assert_eq!(b.receive(), Err(Errno::AGAIN));
    drop(a);
    assert_eq!(b.receive(), Err(Errno::PIPE));
}

#[test]
fn what_an_end_sent_arrives_though_it_went_with_packets_unread() {
    let (a, b) = Link::pair().expect("socketpair");
    b.send(&Packet::Forward(Arrived { signal: 2, code: 0, pid: 1 }));
    a.send(&Packet::Ended(130, Remains::Nothing));
    drop(a);
    assert_eq!(b.receive(), Ok(Packet::Ended(130, Remains::Nothing)));
    assert_eq!(b.receive(), Err(Errno::PIPE));
}
