use super::*;
use std::process::Command;

#[test]
fn who_joins_late_was_never_unmanaged() {
    let now = Instant::now();
    let mut children = [(); 2].map(|()| Command::new("sleep").arg("60").spawn().expect("started"));
    let [late, never] = [0, 1].map(|index: usize| children[index].id());
    let mut census = Census::new(now);
    let members = HashSet::new();
    census.walk(&members, now);
    assert_eq!(census.programs().count(), 0, "both have the grace time");
    census.walk(&members, now + GRACE);
    let processes = |census: &Census| census.programs().map(|program| program.processes).sum::<u64>();
    let before = processes(&census);
    assert!(before >= 2, "{:?}", census.programs);
    census.joined(late);
    census.joined(late);
    assert_eq!(processes(&census), before - 1);
    census.joined(never);
    assert_eq!(processes(&census), before - 2);
    assert!(census.programs().all(|program| program.processes > 0));
    for child in &mut children {
        child.kill().and_then(|()| child.wait()).expect("ended");
    }
}
