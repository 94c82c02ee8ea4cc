use super::*;
use crate::wire::ExportFlags;

fn hello(flags: u16) -> Vec<u8> {
    let mut bytes = MAGIC_GREETING.to_be_bytes().to_vec();
    bytes.extend(MAGIC_OPTION.to_be_bytes());
    bytes.extend(flags.to_be_bytes());
    bytes
}
fn reply(option: ClientOption, kind: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = crate::wire::MAGIC_OPTION_REPLY.to_be_bytes().to_vec();
    bytes.extend((option as u32).to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}
fn good() -> Vec<u8> {
    [
        hello(3),
        reply(ClientOption::StructuredReply, option_reply::ACK, &[]),
        reply(ClientOption::Go, option_reply::INFO, &[0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 1, 0x6d]),
        reply(ClientOption::Go, option_reply::INFO, &[0, 3, 0, 0, 0, 1, 0, 0, 16, 0, 0, 0x40, 0, 0]),
        reply(ClientOption::Go, option_reply::ACK, &[]),
    ]
    .concat()
}

#[test]
fn a_negotiation_comes_to_its_end() {
    let agreed = negotiate_with(&good()).expect("agreed");
    assert_eq!((agreed.size, agreed.block, agreed.request_max), (4 << 20, 1, 4 << 20));
    assert_eq!(agreed.style, ReplyStyle::Structured);
    assert!(agreed.flags.has(ExportFlags::MULTI_CONN) && agreed.flags.has(ExportFlags::TRIM));
}

#[test]
fn each_refusal_has_its_error() {
    let until_go =
        [hello(3), reply(ClientOption::StructuredReply, option_reply::UNSUPPORTED, b"no")].concat();
    let go = |kind, text: &[u8]| {
        negotiate_with(&[&until_go[..], &reply(ClientOption::Go, kind, text)].concat()).expect_err("refused")
    };
    assert!(matches!(go(option_reply::UNKNOWN, b"none\x1b[31m"), ConnectError::NoExport { reason, .. }
        if reason == " (none[31m)"));
    assert!(matches!(go(option_reply::TLS_REQUIRED, b""), ConnectError::TlsRequired));
    assert!(matches!(go(option_reply::SHUTDOWN, b""), ConnectError::Refused { .. }));
    assert!(matches!(go(option_reply::ACK, b""), ConnectError::Protocol(ProtocolError::NoSize)));
    assert!(matches!(negotiate_with(&hello(0)), Err(ConnectError::Protocol(ProtocolError::Greeting))));
    assert!(matches!(negotiate_with(b"SSH-2.0-OpenSSH_9.2 and more"), Err(ConnectError::Protocol(_))));
    assert!(matches!(negotiate_with(b"short"), Err(ConnectError::Broken(_))));
}

#[test]
fn no_greeting_makes_it_panic_or_wait_for_more_than_there_is() {
    let good = good();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..60_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + random % 4 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = (random % bytes.len() as u64) as usize;
            bytes[at] = (random >> 32) as u8;
        }
        let _ = negotiate_with(&bytes);
    }
}
