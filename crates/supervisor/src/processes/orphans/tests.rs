use super::*;
use std::process::{Child, Command};

fn sender(user: u32) -> Sender {
    Sender { pid: 1, user: Uid::from_raw(user) }
}

fn sleeper() -> Child {
    Command::new("sleep").arg("60").spawn().expect("sleep")
}

#[test]
fn a_process_of_another_user_is_not_ended() {
    let mut victim = sleeper();
    let own = proc::identity(victim.id()).expect("alive").user;
    assert!(matches!(end(victim.id(), sender(own + 1)), Fate::Spared(pid, _) if pid == victim.id()));
    assert_eq!(victim.try_wait().expect("ours"), None);
    assert!(matches!(end(victim.id(), sender(own)), Fate::Ended(pid, _) if pid == victim.id()));
    victim.wait().expect("waited");
}

#[test]
fn root_may_have_any_process_below_us_ended() {
    let mut victim = sleeper();
    assert!(matches!(end(victim.id(), sender(0)), Fate::Ended(..)));
    victim.wait().expect("waited");
    assert_eq!(end(victim.id(), sender(0)), Fate::Gone);
}

#[test]
fn neither_we_nor_a_process_beside_us_is_ended() {
    let me = std::process::id();
    assert!(!is_ours(me) && !is_ours(1) && !is_ours(0));
    assert!(matches!(end(me, sender(0)), Fate::Spared(..)));
}
