//! What the command line does not say: environment, profile, configuration files.

use super::{
    arguments::{GroupArguments, StatsArgument},
    memory,
};
use clap::ValueEnum;
use folioswap_supervisor::{size, suggestion, swap_option};
use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
};
use toml::{Table, Value};

/// The configuration of the machine.
const SYSTEM_FILE: &str = "/etc/folioswap.toml";
/// The name of a user's file.
const FILE_NAME: &str = "folioswap.toml";
/// The table of profiles.
const PROFILE: &str = "profile";
/// The keys of a file and of a profile.
const KEYS: [&str; 11] = [
    "memory",
    "memory-scope",
    "swap",
    "swap-dir",
    "swap-max",
    "swap-tiers",
    "thp",
    "page-cluster",
    "thrashing",
    "gate",
    "stats",
];

/// Why environment or files were not understood.
#[derive(Debug, thiserror::Error)]
pub enum DefaultsError {
    /// A variable has a bad value.
    #[error("{variable}={value}: {why}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file is no TOML.
    #[error("{}: {why}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The place, and the reason.
        why: String,
    },
    /// A file has a bad key or value.
    #[error("{}: {key}: {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The key, with its profile.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// No file has the profile.
    #[error("--profile {name}: there is no such profile{meant}; {known}")]
    NoProfile {
        /// The profile as given.
        name: String,
        /// What it was probably meant to be.
        meant: String,
        /// The profiles that there are.
        known: String,
    },
}

/// What one source says.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// As on the command line.
    pub group: GroupArguments,
    /// As on the command line.
    pub stats: Option<StatsArgument>,
}

impl Asked {
    /// This, and where it says nothing, the other.
    fn or(self, other: Asked) -> Asked {
        let (ours, theirs) = (self.group, other.group);
        // They describe the devices together.
        let decides = !ours.swap.is_empty() || ours.swap_dir.is_some() || ours.swap_max.is_some();
        let (swap, swap_dir, swap_max, their_tiers) = if decides {
            (ours.swap, ours.swap_dir, ours.swap_max, None)
        } else {
            (theirs.swap, theirs.swap_dir, theirs.swap_max, theirs.swap_tiers)
        };
        let group = GroupArguments {
            memory: ours.memory.or(theirs.memory),
            memory_scope: ours.memory_scope.or(theirs.memory_scope),
            swap,
            swap_dir,
            swap_max,
            swap_tiers: ours.swap_tiers.or(their_tiers),
            thp: ours.thp.or(theirs.thp),
            page_cluster: ours.page_cluster.or(theirs.page_cluster),
            thrashing: ours.thrashing.or(theirs.thrashing),
            gate: ours.gate.or(theirs.gate),
            profile: ours.profile,
        };
        Asked { group, stats: self.stats.or(other.stats) }
    }
}

/// Completes what the command line says.
///
/// # Errors
/// A variable or a file is not understood, or the profile does not exist.
pub fn complete(asked: Asked) -> Result<Asked, DefaultsError> {
    let files = [user_file(env::var_os("XDG_CONFIG_HOME"), env::var_os("HOME")), Some(SYSTEM_FILE.into())];
    complete_by(asked, env::var_os, files.into_iter().flatten())
}

fn complete_by(
    asked: Asked,
    variable: impl Fn(&'static str) -> Option<OsString>,
    files: impl Iterator<Item = PathBuf>,
) -> Result<Asked, DefaultsError> {
    let profile = asked.group.profile.clone();
    let files: Vec<File> = files.filter_map(|path| File::read(path).transpose()).collect::<Result<_, _>>()?;
    let environment = environment(variable)?;
    let mut all = asked.or(environment);
    if let Some(name) = profile {
        let found: Vec<&Asked> = files.iter().filter_map(|file| file.profile(&name)).collect();
        if found.is_empty() {
            return Err(no_profile(name, &files));
        }
        all = found.into_iter().cloned().fold(all, Asked::or);
    }
    Ok(files.into_iter().map(|file| file.always).fold(all, Asked::or))
}

fn no_profile(name: String, files: &[File]) -> DefaultsError {
    let names: Vec<&str> =
        files.iter().flat_map(|file| &file.profiles).map(|(name, _)| name.as_str()).collect();
    let meant = suggestion::did_you_mean(&name, &names);
    let known = match names[..] {
        [] => format!("write [profile.{name}] into ~/.config/{FILE_NAME} or {SYSTEM_FILE}"),
        _ => format!("there are {}", names.join(", ")),
    };
    DefaultsError::NoProfile { name, meant, known }
}

fn user_file(config: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let set = |value: Option<OsString>| value.filter(|value| Path::new(value).is_absolute());
    let directory =
        set(config).map(PathBuf::from).or_else(|| Some(Path::new(&set(home)?).join(".config")))?;
    Some(directory.join(FILE_NAME))
}

fn environment(variable: impl Fn(&'static str) -> Option<OsString>) -> Result<Asked, DefaultsError> {
    let text = |name| variable(name).filter(|value| !value.is_empty());
    let mut asked = Asked::default();
    let bad = |variable, value: &OsStr, why: String| DefaultsError::Variable {
        variable,
        value: value.to_string_lossy().into_owned(),
        why,
    };
    if let Some(value) = text("FOLIOSWAP_MEMORY") {
        let read = memory::parse(&value.to_string_lossy());
        asked.group.memory = Some(read.map_err(|error| bad("FOLIOSWAP_MEMORY", &value, error.to_string()))?);
    }
    if let Some(value) = text("FOLIOSWAP_SWAP") {
        let devices = value.to_string_lossy().into_owned();
        let read = devices.split_whitespace().map(|device| swap_option::parse(OsStr::new(device)));
        asked.group.swap = read
            .collect::<Result<_, _>>()
            .map_err(|error| bad("FOLIOSWAP_SWAP", &value, error.to_string()))?;
    }
    if let Some(value) = text("FOLIOSWAP_GATE") {
        let read = one_of(&value.to_string_lossy()).map_err(|why| bad("FOLIOSWAP_GATE", &value, why))?;
        asked.group.gate = Some(read);
    }
    if let Some(value) = text("FOLIOSWAP_STATS") {
        let read = stats(&value.to_string_lossy()).map_err(|why| bad("FOLIOSWAP_STATS", &value, why))?;
        asked.stats = Some(read);
    }
    Ok(asked)
}

fn stats(text: &str) -> Result<StatsArgument, String> {
    one_of(text)
}

/// One of the words of an option.
fn one_of<T: ValueEnum>(text: &str) -> Result<T, String> {
    let names: Vec<String> = T::value_variants()
        .iter()
        .filter_map(|value| Some(value.to_possible_value()?.get_name().to_owned()))
        .collect();
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    T::from_str(text, false).map_err(|_| {
        format!("'{text}' is none of {}{}", names.join(", "), suggestion::did_you_mean(text, &words))
    })
}

/// One configuration file.
#[derive(Debug)]
struct File {
    /// What holds for every run.
    always: Asked,
    /// The profiles by name.
    profiles: Vec<(String, Asked)>,
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

impl File {
    /// Reads a file; `None` when there is none.
    fn read(path: PathBuf) -> Result<Option<File>, DefaultsError> {
        match fs::read_to_string(&path) {
            Ok(text) => File::parse(&path, &text).map(Some),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            // A directory that we may not search is another user's: `HOME` is left over from him.
            Err(error) if is_denied(&error) && fs::metadata(&path).is_err_and(|error| is_denied(&error)) => {
                Ok(None)
            }
            Err(source) => Err(DefaultsError::File { path, source }),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<File, DefaultsError> {
        let mut table: Table = toml::from_str(text).map_err(|error| DefaultsError::Syntax {
            path: path.to_owned(),
            why: error.to_string().trim_end().to_owned(),
        })?;
        let mut profiles = Vec::new();
        if let Some(value) = table.remove(PROFILE) {
            let Value::Table(all) = value else {
                return Err(key(path, PROFILE, "write profiles as tables: [profile.NAME]"));
            };
            for (name, value) in all {
                let prefix = format!("{PROFILE}.{name}");
                let Value::Table(table) = value else {
                    return Err(key(path, &prefix, &format!("write it as a table: [{prefix}]")));
                };
                profiles.push((name, read_table(path, &format!("{prefix}."), table)?));
            }
        }
        Ok(File { always: read_table(path, "", table)?, profiles })
    }

    fn profile(&self, name: &str) -> Option<&Asked> {
        self.profiles.iter().find(|(known, _)| known == name).map(|(_, asked)| asked)
    }
}

fn key(path: &Path, key: &str, why: &str) -> DefaultsError {
    DefaultsError::Key { path: path.to_owned(), key: key.to_owned(), why: why.to_owned() }
}

/// Reads the keys of a table, of which `prefix` is the name.
fn read_table(path: &Path, prefix: &str, table: Table) -> Result<Asked, DefaultsError> {
    let mut asked = Asked::default();
    for (name, value) in table {
        read_key(&mut asked, &name, &value).map_err(|why| key(path, &format!("{prefix}{name}"), &why))?;
    }
    Ok(asked)
}

fn read_key(asked: &mut Asked, name: &str, value: &Value) -> Result<(), String> {
    let group = &mut asked.group;
    let text = || value.as_str().ok_or_else(|| "write the value in quotes, as text".to_owned());
    let said = |error: &dyn std::error::Error| error.to_string();
    match name {
        "memory" => group.memory = Some(memory::parse(text()?).map_err(|error| said(&error))?),
        "memory-scope" => group.memory_scope = Some(one_of(text()?)?),
        "swap" => {
            let one = |device: &Value| {
                let device = device.as_str().ok_or("write devices in quotes: [\"zram,prio=1\", ...]")?;
                swap_option::parse(OsStr::new(device)).map_err(|error| error.to_string())
            };
            group.swap = match value {
                Value::Array(devices) => devices.iter().map(one).collect::<Result<_, _>>()?,
                device => vec![one(device)?],
            };
        }
        "swap-dir" => group.swap_dir = Some(text()?.into()),
        "swap-max" => {
            let bytes = match value.as_integer() {
                Some(0) => 0,
                _ => size::parse_swap_max(text()?).map_err(|error| said(&error))?,
            };
            group.swap_max = Some(bytes);
        }
        "swap-tiers" => {
            group.swap_tiers = Some(crate::swap_tiers::parse(text()?).map_err(|error| said(&error))?)
        }
        "thp" => group.thp = Some(crate::folio_option::parse(text()?).map_err(|error| said(&error))?),
        "page-cluster" => {
            let most = folioswap_group::decisions::PAGE_CLUSTER_MAX;
            let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
            let number = number.filter(|number| *number <= most);
            group.page_cluster = Some(number.ok_or_else(|| format!("give a whole number from 0 to {most}"))?);
        }
        "thrashing" => group.thrashing = Some(one_of(text()?)?),
        "gate" => group.gate = Some(one_of(text()?)?),
        "stats" => asked.stats = Some(stats(text()?)?),
        unknown => {
            let meant = suggestion::did_you_mean(unknown, &KEYS);
            return Err(format!(
                "there is no such key{meant}; there are {} and [profile.NAME]",
                KEYS.join(", ")
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
