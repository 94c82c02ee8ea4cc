use super::*;
use crate::run::{arguments::ThrashingArgument, memory::MemoryArgument};

const MIB: u64 = 1 << 20;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = env::temp_dir().join(format!("folioswap-defaults-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn memory(asked: &Asked) -> Option<MemoryArgument> {
    asked.group.memory
}

fn with_profile(name: &str) -> Asked {
    Asked {
        group: GroupArguments { profile: Some(name.to_owned()), ..GroupArguments::default() },
        stats: None,
    }
}

fn no_variable(_: &'static str) -> Option<OsString> {
    None
}

#[test]
fn the_nearer_source_decides() {
    let directory = Directory::new("order");
    let user = directory.file("user.toml", "memory = '64M'\nstats = 'all'\n[profile.p]\nmemory = '96M'\n");
    let system = directory.file(
        "system.toml",
        "memory = '32M'\npage-cluster = 5\n[profile.p]\npage-cluster = 1\nthrashing = 'end'\n",
    );
    let files = || [user.clone(), system.clone()].into_iter();
    let of_files = complete_by(Asked::default(), no_variable, files()).expect("read");
    assert_eq!(memory(&of_files), Some(MemoryArgument::Bytes(64 * MIB)));
    assert_eq!((of_files.group.page_cluster, of_files.stats), (Some(5), Some(StatsArgument::All)));
    let of_profile = complete_by(with_profile("p"), no_variable, files()).expect("read");
    assert_eq!(memory(&of_profile), Some(MemoryArgument::Bytes(96 * MIB)));
    assert_eq!(of_profile.group.page_cluster, Some(1));
    assert_eq!(of_profile.group.thrashing, Some(ThrashingArgument::End));
    assert_eq!(of_files.group.thrashing, None);
    let variable = |name| (name == "FOLIOSWAP_MEMORY").then(|| "25%".into());
    let of_environment = complete_by(with_profile("p"), variable, files()).expect("read");
    assert_eq!(memory(&of_environment), Some(MemoryArgument::Percent(25.0)));
    let mut given = with_profile("p");
    given.group.memory = Some(MemoryArgument::Bytes(8 * MIB));
    let of_command_line = complete_by(given, variable, files()).expect("read");
    assert_eq!(memory(&of_command_line), Some(MemoryArgument::Bytes(8 * MIB)));
}

/// A file's device list and a command line's --swap-max would describe something that nobody asked
/// for.
#[test]
fn devices_come_from_one_source() {
    let directory = Directory::new("devices");
    let user = directory.file("user.toml", "swap = ['zram,prio=3', 'ram,size=1G']\n");
    let system = directory.file("system.toml", "swap-dir = '/mnt'\nswap-max = '2G'\n");
    let files = || [user.clone(), system.clone()].into_iter();
    let of_files = complete_by(Asked::default(), no_variable, files()).expect("read").group;
    assert_eq!((of_files.swap.len(), of_files.swap_dir, of_files.swap_max), (2, None, None));
    let mut given = Asked::default();
    given.group.swap_max = Some(0);
    let of_command_line = complete_by(given, no_variable, files()).expect("read").group;
    assert_eq!((of_command_line.swap.len(), of_command_line.swap_max), (0, Some(0)));
    let variable = |name| (name == "FOLIOSWAP_SWAP").then(|| " zram   ram,size=2G".into());
    let of_environment = complete_by(Asked::default(), variable, files()).expect("read").group;
    assert_eq!(of_environment.swap[1].text, "ram,size=2G");
}

#[test]
fn empty_variables_and_absent_files_say_nothing() {
    let files = ["/no/such/file", "/dev/null/x"].map(PathBuf::from).into_iter();
    let asked = complete_by(Asked::default(), |_| Some(OsString::new()), files).expect("read");
    assert_eq!((asked.group.memory, asked.stats, asked.group.swap.len()), (None, None, 0));
}

#[test]
fn the_users_file_is_where_xdg_says() {
    let of = |config: Option<&str>, home: Option<&str>| {
        user_file(config.map(Into::into), home.map(Into::into)).map(|path| path.display().to_string())
    };
    assert_eq!(of(Some("/c"), Some("/h")).as_deref(), Some("/c/folioswap.toml"));
    assert_eq!(of(None, Some("/h")).as_deref(), Some("/h/.config/folioswap.toml"));
    assert_eq!(of(Some("relative"), Some("/h")).as_deref(), Some("/h/.config/folioswap.toml"));
    assert_eq!(of(None, None), None);
}

/// Each bad file, and what its message must have.
#[test]
fn bad_files_are_refused_and_named() {
    let directory = Directory::new("bad");
    let cases: [(&str, &[&str]); 15] = [
        ("memory = 512", &["memory", "in quotes"]),
        ("memory = '1M'", &["memory", "too small", "8M"]),
        ("memroy = '1G'", &["memroy", "did you mean 'memory'?"]),
        ("memory = '150%'", &["memory", "up to 100"]),
        ("memory = '1G", &["TOML parse error", "line 1"]),
        ("swap = ['fiel:/x']", &["swap", "did you mean 'file'?"]),
        ("swap = [1]", &["swap", "in quotes"]),
        ("gate = 'open'", &["gate", "auto, always, never"]),
        ("thrashing = 'stop'", &["thrashing", "tell, end"]),
        ("page-cluster = 9", &["page-cluster", "from 0 to 5"]),
        ("stats = 'shrot'", &["stats", "did you mean 'short'?"]),
        ("memory-scope = 'all'", &["memory-scope", "total, resident"]),
        ("profile = 'x'", &["profile", "[profile.NAME]"]),
        ("[profile.a]\nthp = '64k=alway'", &["profile.a.thp", "did you mean 'always'?"]),
        ("[profile]\na = 1", &["profile.a", "[profile.a]"]),
    ];
    for (text, words) in cases {
        let path = directory.file("folioswap.toml", text);
        let error = complete_by(Asked::default(), no_variable, [path.clone()].into_iter());
        let message = error.expect_err(text).to_string();
        assert!(message.contains(&path.display().to_string()), "{text}: {message}");
        words.iter().for_each(|word| assert!(message.contains(word), "{text}: {word} in {message}"));
    }
}

#[test]
fn bad_variables_are_refused_and_named() {
    let cases = [
        ("FOLIOSWAP_MEMORY", "lots", "not a size"),
        ("FOLIOSWAP_MEMORY", "0%", "up to 100"),
        ("FOLIOSWAP_SWAP", "zram zarm", "did you mean 'zram'?"),
        ("FOLIOSWAP_STATS", "yes", "short, all, off"),
    ];
    for (name, value, word) in cases {
        let variable = |asked| (asked == name).then(|| value.into());
        let message =
            complete_by(Asked::default(), variable, std::iter::empty()).expect_err(value).to_string();
        assert!(message.starts_with(&format!("{name}={value}: ")) && message.contains(word), "{message}");
    }
}

#[test]
fn an_unknown_profile_is_refused_with_those_that_there_are() {
    let directory = Directory::new("profile");
    let path =
        directory.file("folioswap.toml", "[profile.build]\nmemory='1G'\n[profile.night]\nmemory='2G'\n");
    let refused = |name: &str, files: Vec<PathBuf>| {
        complete_by(with_profile(name), no_variable, files.into_iter()).expect_err(name).to_string()
    };
    let message = refused("biuld", vec![path]);
    assert!(message.contains("did you mean 'build'?") && message.contains("build, night"), "{message}");
    assert!(refused("x", Vec::new()).contains("write [profile.x] into"));
}
