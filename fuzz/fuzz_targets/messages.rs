//! Messages of the group, of links to network devices, and what they carry: any bytes are a message
//! that has the same bytes again, or are refused. What is read from the words of a message reads
//! the same after it is written.
#![no_main]

use folioswap_group::protocol::{
    CLUSTERS_PER_MESSAGE, Change, ChangeEnd, Ending, ForkToken, Invariant, Kind, Lost, Message, Note,
    OutOfMemory, ProcFile, SwapoffEnd, welcome,
};
use folioswap_group::seat::WEIGHT_MAX;
use folioswap_group::segment::Faulting;
use folioswap_group::swap_link::{Reply, Request};
use libfuzzer_sys::fuzz_target;

/// The numbers of a kind of report are those that its list has, and no other.
macro_rules! numbers {
    ($type:ty, $number:expr) => {
        if let Some(known) = <$type>::from_number($number) {
            assert_eq!(known as u64, $number);
        }
    };
}

fn words(words: [u64; 3]) {
    if let Some(change) = Change::unpack(words) {
        assert_eq!(Change::unpack(change.pack()), Some(change));
        match change {
            Change::Weight { weight, .. } | Change::GroupWeight(weight) => {
                assert!((1..=WEIGHT_MAX).contains(&weight));
            }
            Change::Tiers(devices) | Change::LimitInTiers { devices, .. } => assert_ne!(devices, 0),
            Change::Limit(_) | Change::Freeze | Change::Thaw => {}
        }
        // A number that was cut off would be another process, or other devices.
        assert_eq!(change.pack()[0], words[0]);
        match change {
            Change::Limit(_) | Change::GroupWeight(_) | Change::Tiers(_) => {
                assert_eq!(change.pack()[1], words[1]);
            }
            Change::LimitInTiers { .. } | Change::Weight { .. } => assert_eq!(change.pack(), words),
            Change::Freeze | Change::Thaw => {}
        }
    }
    if let Some(end) = ChangeEnd::unpack(words) {
        assert_eq!(ChangeEnd::unpack(end.pack()), Some(end));
    }
    if let Some(end) = SwapoffEnd::unpack(words) {
        assert_eq!(SwapoffEnd::unpack(end.pack()), Some(end));
    }
    let token = ForkToken::of_message(words);
    assert_eq!(token.message_words()[..2], words[..2]);
    assert!(token == ForkToken::from_words(token.words()) && token.is_none() == (words[..2] == [0, 0]));
    // The secret is never shown.
    assert!(matches!(format!("{token:?}").as_str(), "ForkToken(none)" | "ForkToken(secret)"));
    for word in words {
        let lost = Lost::unpack(word);
        assert_eq!(Lost::unpack(lost.pack()), lost);
        assert!(lost.slot().is_none_or(|slot| slot < 1 << 44));
        assert_eq!(Faulting::unpack(word).pack(), word);
        let flags = welcome::USERFAULT | welcome::TRACE | welcome::FILES;
        assert_eq!(u64::from(welcome::filters(welcome::with_filters(word) | flags)), word.min(0xffff));
        let files = ProcFile::of_mask(word).fold(0, |mask, file| mask | file.bit());
        assert_eq!(files, word & ((1 << ProcFile::ALL.len()) - 1));
        numbers!(Note, word);
        numbers!(Ending, word);
        numbers!(OutOfMemory, word);
        numbers!(Invariant, word);
    }
}

fuzz_target!(|data: &[u8]| {
    if let Some(bytes) = data.first_chunk::<{ Message::BYTES }>() {
        let message = Message::from_bytes(bytes);
        assert_eq!(message.as_bytes(), bytes);
        let clusters = message.clusters();
        assert_eq!(clusters.len(), (message.cluster_count as usize).min(CLUSTERS_PER_MESSAGE));
        assert_eq!(message.kind().map_or(message.kind, |kind| kind as u32), message.kind);
        let made = Message::new(Kind::Clusters, message.words).with_clusters(clusters);
        let made = Message::from_bytes(made.as_bytes());
        assert!(made.kind() == Some(Kind::Clusters) && made.words == message.words);
        assert_eq!(made.clusters(), clusters);
        words(message.words);
    }
    if let Some(request) = Request::decode(data) {
        // The link has no flags.
        assert_eq!(request.encode(), data[..28]);
    }
    if let Some(reply) = Reply::decode(data) {
        assert_eq!(reply.encode(), data);
    }
    let (numbers, _) = data.as_chunks::<8>();
    for numbers in numbers.chunks_exact(3) {
        let [first, second, third] = [0, 1, 2].map(|at| u64::from_le_bytes(numbers[at]));
        words([first, second, third]);
        // Small numbers, among which the known ones are.
        words([first % 16, second, third % (1 << 32)]);
    }
});
