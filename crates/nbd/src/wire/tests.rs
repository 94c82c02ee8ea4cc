use super::*;

#[test]
fn a_request_is_written_as_the_protocol_says() {
    let request = Request {
        flags: command_flags::FUA,
        command: Command::Write,
        cookie: 7,
        offset: 1 << 33,
        length: 4096,
    };
    let expected =
        [0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0x10, 0];
    assert_eq!(request.encode(), expected);
}

#[test]
fn replies_are_told_apart() {
    let mut bytes = [0; SIMPLE_BYTES];
    bytes[..4].copy_from_slice(&MAGIC_SIMPLE.to_be_bytes());
    bytes[7] = 5;
    bytes[15] = 9;
    assert_eq!(ReplyHeader::decode(&bytes), Ok(ReplyHeader::Simple { error: 5, cookie: 9 }));
    bytes[..4].copy_from_slice(&MAGIC_CHUNK.to_be_bytes());
    bytes[4..8].copy_from_slice(&[0, 1, 0x80, 2]);
    assert_eq!(ReplyHeader::decode(&bytes), Ok(ReplyHeader::Chunk { done: true, kind: 0x8002, cookie: 9 }));
    assert_eq!(ChunkKind::from_number(0x8002), Ok(ChunkKind::Error));
    assert_eq!(ChunkKind::from_number(5), Err(ProtocolError::Chunk(5)));
    bytes[0] = 0;
    assert!(matches!(ReplyHeader::decode(&bytes), Err(ProtocolError::Magic(_))));
}

#[test]
fn information_of_a_wrong_length_or_with_odd_blocks_is_refused() {
    let mut export = ExportInformation::default();
    assert_eq!(
        export.take(&[0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0x21]).map(|()| export.size),
        Ok(Some(0x10_0000))
    );
    assert!(export.flags.has(ExportFlags::TRIM) && !export.flags.has(ExportFlags::READ_ONLY));
    assert!(export.take(&[0]).is_err());
    assert!(export.take(&[0, 0, 1]).is_err());
    assert!(export.take(&[0, 3, 0, 0, 0, 3, 0, 0, 16, 0, 2, 0, 0, 0]).is_err(), "3 is no power of two");
    assert!(export.take(&[0, 3, 0, 0, 0, 1, 0, 0, 16, 0, 2, 0, 0, 0]).is_ok());
    assert_eq!(export.blocks, Some((1, 32 << 20)));
    assert!(export.take(&[0, 99, 1, 2, 3]).is_ok(), "what is unknown is passed over");
}
