use super::{
    probe::{USER_MODE_ONLY, by_syscall, handshake},
    *,
};

#[test]
fn our_own_memory_is_not_gone() {
    let Ok(fd) = by_syscall(USER_MODE_ONLY) else { return };
    handshake(&fd, 0).expect("API");
    assert!(!is_orphaned(&fd));
    assert!(read_event(&fd).is_none());
}
