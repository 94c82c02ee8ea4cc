//! The public API as a list that is committed beside this test. A review sees each change, which
//! decides the next version (semver).
//!
//! `FOLIOSWAP_API=write cargo test -p folioswap --test api` rewrites the list. It is read out of
//! the sources, which rustfmt keeps in one form: the public items of the modules' files, the
//! contents of public enums and traits, and the traits implemented for each type.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Returns all sources below a directory, by path.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    found.sort();
    found
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Returns the names that the crate re-exports.
fn shown(lib: &str) -> Vec<String> {
    let uses = lib.split(';').filter_map(|item| item.split_once("pub use ")).map(|(_, names)| names);
    let names = uses.flat_map(|names| names.split(|byte: char| !byte.is_alphanumeric() && byte != '_'));
    let is_type = |name: &&str| name.starts_with(char::is_uppercase);
    names.filter(is_type).map(str::to_owned).collect()
}

/// Returns the item that begins at `lines[0]`, on one line, up to its body, and its number of
/// lines.
fn signature(lines: &[&str]) -> (String, usize) {
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        if !is_comment(line) && !line.trim_start().starts_with('#') {
            text.push_str(line.trim());
            text.push(' ');
        }
        if line.ends_with('{') || line.ends_with(';') || line.ends_with('}') {
            return (text.trim().trim_end_matches(['{', ';']).trim().to_owned(), number + 1);
        }
    }
    (text, lines.len())
}

/// Returns the contents of an enum or a trait: each variant, each of its fields, each function.
fn contents(lines: &[&str]) -> Vec<String> {
    let (mut found, mut variant, mut is_attribute) = (Vec::new(), String::new(), false);
    for line in lines.iter().map(|line| line.trim()) {
        is_attribute |= line.starts_with('#');
        if is_attribute {
            is_attribute = !line.ends_with(']');
        } else if line == "}," {
            variant.clear();
        } else if let Some(name) = line.strip_suffix(" {") {
            variant = format!("{name} :: ");
        } else if !line.is_empty() && !is_comment(line) {
            found.push(format!("{variant}{line}"));
        }
    }
    found
}

/// Returns whether the item at the start of a line belongs to a type that the crate re-exports.
fn names_shown(item: &str, shown: &[String]) -> bool {
    item.split(|byte: char| !byte.is_alphanumeric() && byte != '_')
        .any(|word| shown.iter().any(|name| name == word))
}

/// Collects the public items of a source.
fn items(source: &str, shown: &[String], into: &mut Vec<String>) {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines: Vec<&str> = source.lines().collect();
    let (mut at, mut around, mut attributes, mut hidden) = (0, String::new(), String::new(), false);
    while at < lines.len() {
        let (line, indented) = (lines[at], lines[at].starts_with(' '));
        let trimmed = line.trim_start();
        if trimmed.starts_with("#[") {
            hidden |= trimmed.contains("doc(hidden)");
            if trimmed.starts_with("#[derive")
                || trimmed.contains("non_exhaustive")
                || trimmed.contains("must_use")
            {
                let _ = write!(attributes, "{trimmed} ");
            }
            at += 1;
            continue;
        }
        if is_comment(line) || trimmed.is_empty() {
            at += 1;
            continue;
        }
        let is_item = (trimmed.starts_with("pub ")
            && !trimmed.starts_with("pub use ")
            && !trimmed.starts_with("pub mod "))
            || (!indented && trimmed.starts_with("impl"))
            || (!indented && trimmed.starts_with("unsafe impl"));
        if is_item {
            let (text, taken) = signature(&lines[at..]);
            if !indented && trimmed.contains("impl") && !trimmed.starts_with("pub ") {
                around = text.clone();
            }
            let is_block = !indented && lines[at + taken - 1].ends_with('{');
            let is_wanted = !hidden && names_shown(if indented { &around } else { &text }, shown);
            let is_plain_impl = text.starts_with("impl") && !text.contains(" for ");
            if is_wanted && !is_plain_impl {
                let prefix = if indented { format!("{around} :: ") } else { String::new() };
                into.push(format!("{prefix}{attributes}{text}"));
            }
            at += taken;
            // All contents of an enum or a trait are public.
            if is_block && (text.starts_with("pub enum") || text.starts_with("pub trait")) {
                let end = at + lines[at..].iter().position(|line| *line == "}").unwrap_or_default();
                if is_wanted {
                    let name = text.split(['{', '(', ':']).next().unwrap_or_default().trim();
                    into.extend(
                        contents(&lines[at..end]).into_iter().map(|line| format!("{name} :: {line}")),
                    );
                }
                at = end;
            }
        } else {
            at += 1;
        }
        (attributes, hidden) = (String::new(), false);
    }
}

fn listing(crate_directory: &Path) -> String {
    let source = crate_directory.join("src");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let shown = shown(&read(&source.join("lib.rs")));
    let mut found = Vec::new();
    for path in sources(&source) {
        items(&read(&path), &shown, &mut found);
    }
    found.sort();
    found.dedup();
    found.join("\n") + "\n"
}

#[test]
fn the_public_interface_is_the_one_that_is_written_down() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (list, now) = (directory.join("api.txt"), listing(directory));
    if std::env::var("FOLIOSWAP_API").is_ok_and(|word| word == "write") {
        std::fs::write(&list, &now).unwrap();
    }
    let before = std::fs::read_to_string(&list).unwrap_or_default();
    let (before, now): (Vec<&str>, Vec<&str>) = (before.lines().collect(), now.lines().collect());
    let gone = before.iter().filter(|line| !now.contains(line)).map(|line| format!("- {line}\n"));
    let new = now.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}\n"));
    let changes: String = gone.chain(new).collect();
    assert!(
        changes.is_empty(),
        "{changes}The public API has changed. What is gone or different takes a new minor version while it is 0.x (a new major one later), what is \
         only new a patch. Then: FOLIOSWAP_API=write cargo test -p folioswap --test api"
    );
}

#[test]
fn a_change_is_seen() {
    let shown = shown("pub use a::{Shown, Kind};\npub use b::Trait;\n");
    assert_eq!(shown, ["Shown", "Kind", "Trait"]);
    let list = |source: &str| {
        let mut found = Vec::new();
        items(source, &shown, &mut found);
        found
    };
    let source = "#[derive(Debug)]\npub struct Shown {\n    inner: u8,\n}\n\nimpl Shown {\n    /// Text.\n    pub fn get(\n        &self,\n    ) -> u8 {\n        1\n    }\n    pub(crate) fn own(&self) {}\n}\n\nimpl Clone for Shown {\n}\n\npub enum Kind {\n    /// Text.\n    One,\n    Two(u8),\n    #[error(\n        \"text\"\n    )]\n    Three {\n        /// Text.\n        why: u8,\n    },\n}\n\npub struct NotShown;\n";
    let found = list(source);
    assert_eq!(
        found,
        [
            "#[derive(Debug)] pub struct Shown",
            "impl Shown :: pub fn get( &self, ) -> u8",
            "impl Clone for Shown",
            "pub enum Kind",
            "pub enum Kind :: One,",
            "pub enum Kind :: Two(u8),",
            "pub enum Kind :: Three :: why: u8,",
        ]
    );
    assert_ne!(list(&source.replace("-> u8", "-> u16")), found);
    assert_ne!(list(&source.replace("why: u8", "why: u16")), found);
    assert_ne!(list(&source.replace("    One,\n", "")), found);
    assert_ne!(list(&source.replace("#[derive(Debug)]\n", "")), found);
    assert_eq!(list(&source.replace("pub(crate) fn own", "fn own")), found);
}
