use super::*;
use crate::kernel::sys;

#[test]
fn a_cell_is_empty_at_first_and_gives_back_what_it_got() {
    let cell = TokenCell([AtomicU64::new(0), AtomicU64::new(0)]);
    assert!(cell.load().is_none());
    let token = ForkToken::from_words([3, 1 << 63]);
    cell.store(token);
    assert!(cell.load() == token);
}

/// Nothing of a token follows from another one, or from the process.
#[test]
fn tokens_have_no_order() {
    let tokens: Vec<[u64; 2]> = (0..64).map(|_| sys::random().expect("random")).collect();
    let pid = u64::from(std::process::id());
    for (index, token) in tokens.iter().enumerate() {
        assert!(token.iter().all(|word| word >> 32 != pid && *word != 0));
        assert!(tokens[index + 1..].iter().all(|other| other[0] != token[0] && other[1] != token[1]));
    }
}
