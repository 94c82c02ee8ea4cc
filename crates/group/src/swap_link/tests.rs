use super::*;

#[test]
fn what_is_written_is_read_and_nothing_else() {
    for command in [Command::Read, Command::Write, Command::Attach] {
        let request = Request { command, cookie: 1 << 40 | 3, offset: 5 << 40, length: 65536 };
        let mut bytes = request.encode();
        assert_eq!(Request::decode(&bytes), Some(request));
        assert_eq!(Request::decode(&bytes[..27]), None);
        bytes[5] = 1;
        assert_eq!(Request::decode(&bytes), None, "no flag is known");
    }
    let reply = Reply { error: 5, cookie: u64::MAX };
    assert_eq!(Reply::decode(&reply.encode()), Some(reply));
    assert_eq!(Reply::decode(&[0; REPLY_BYTES]), None);
}
