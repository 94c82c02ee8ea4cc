use super::*;

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
