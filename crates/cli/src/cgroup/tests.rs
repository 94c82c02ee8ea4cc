use super::*;

fn find(membership: &str, mounts: &str, ram: u64) -> Option<Limit> {
    super::find(&directories(membership, mounts), ram)
}

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("folioswap-cgroup-{}-{name}", std::process::id()));
    fs::create_dir_all(path.join("a/b")).expect("temporary directory");
    path
}

#[test]
fn the_tightest_limit_on_the_way_up_holds_in_v2() {
    let top = directory("v2");
    fs::write(top.join("a/b/memory.max"), "max\n").expect("written");
    fs::write(top.join("a/memory.max"), "268435456\n").expect("written");
    let mounts = format!("30 23 0:26 / {} rw - cgroup2 cgroup2 rw\n", top.display());
    let found = find("0::/a/b\n", &mounts, 1 << 40).expect("a limit");
    assert_eq!(found, Limit { bytes: 256 << 20, source: top.join("a/memory.max") });
    assert_eq!(find("0::/a/b\n", &mounts, 1 << 20), None, "above the machine's memory");
    fs::remove_dir_all(top).expect("removed");
}

#[test]
fn v1_states_the_limit_of_its_hierarchy() {
    let top = directory("v1");
    fs::write(top.join("a/memory.limit_in_bytes"), "9223372036854771712\n").expect("written");
    fs::write(top.join("a/memory.stat"), "cache 0\nhierarchical_memory_limit 536870912\n").expect("written");
    let mounts = format!("35 31 0:32 / {} rw - cgroup cgroup rw,memory\n", top.display());
    let found = find("4:memory:/a\n1:cpu:/\n", &mounts, 1 << 40).expect("a limit");
    assert_eq!(found.bytes, 512 << 20);
    fs::remove_dir_all(top).expect("removed");
}

#[test]
fn kills_are_counted_from_when_counting_began() {
    let top = directory("kills");
    let (new, old) = (top.join("a/memory.events"), top.join("b/memory.oom_control"));
    fs::create_dir(top.join("b")).expect("made");
    fs::write(&new, "low 0\noom 9\noom_kill 3\noom_group_kill 0\n").expect("written");
    fs::write(&old, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n").expect("written");
    let place = top.display();
    let mounts = format!(
        "30 23 0:26 / {place} rw - cgroup2 cgroup2 rw\n35 31 0:32 / {place} rw - cgroup cgroup rw,memory\n"
    );
    let kills = OomKills::begin(&directories("0::/a\n4:memory:/b\n", &mounts));
    assert_eq!(kills.since(), 0);
    fs::write(&new, "low 0\noom 9\noom_kill 4\n").expect("written");
    fs::write(&old, "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n").expect("written");
    assert_eq!(kills.since(), 3);
    fs::remove_dir_all(top).expect("removed");
    assert_eq!(kills.since(), 0, "a cgroup that is gone says nothing");
}
