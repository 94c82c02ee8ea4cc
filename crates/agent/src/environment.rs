//! The environment that a new image needs to stay in the group.

use crate::scratch::{self, NoMemory, Text};
use core::ffi::{CStr, c_char, c_int};
use folioswap_group::protocol::GROUP_VARIABLE;

/// A null-terminated array of terminated strings, as exec takes it; null is an empty one.
pub type Strings = *const *const c_char;

/// The variable that names the group.
pub const GROUP: &[u8] = GROUP_VARIABLE.as_bytes();
/// The variable that names the agent.
pub const PRELOAD: &[u8] = b"LD_PRELOAD";

/// Finds a variable's value.
///
/// # Safety
/// `environment` must be null or a null-terminated array of terminated strings that live on.
pub unsafe fn find<'a>(environment: Strings, name: &[u8]) -> Option<&'a [u8]> {
    // SAFETY: by contract.
    unsafe { position(environment, name) }.map(|(_, value)| value)
}

/// Finds a variable's index and value.
///
/// # Safety
/// As [`find`].
unsafe fn position<'a>(environment: Strings, name: &[u8]) -> Option<(usize, &'a [u8])> {
    // SAFETY: within the array, by contract.
    (0..unsafe { count(environment) }).find_map(|index| {
        // SAFETY: a terminated string within the array, by contract.
        let text = unsafe { CStr::from_ptr(*environment.add(index)) }.to_bytes();
        Some((index, text.strip_prefix(name)?.strip_prefix(b"=")?))
    })
}

/// Number of strings in an array.
///
/// # Safety
/// As [`find`].
pub unsafe fn count(array: Strings) -> usize {
    let mut count = 0;
    // SAFETY: by contract.
    while !array.is_null() && unsafe { !(*array.add(count)).is_null() } {
        count += 1;
    }
    count
}

/// The agent's own path in the value of an LD_PRELOAD: the first one, to the supervisor's copy in
/// memory.
pub fn agent_of(preload: &[u8]) -> &[u8] {
    paths(preload).next().unwrap_or_default()
}

fn paths(preload: &[u8]) -> impl Iterator<Item = &[u8]> {
    preload.split(|&byte| byte == b':' || byte == b' ')
}

/// The variables that an environment lacks so that an image started with it joins the group.
pub struct Lack<'a> {
    agent: &'static [u8],
    group: &'static [u8],
    /// Index of the caller's LD_PRELOAD, and its value.
    preload: Option<(usize, &'a [u8])>,
    /// Index of the caller's variable that names a group.
    group_index: Option<usize>,
}

impl<'a> Lack<'a> {
    /// `None` when nothing is lacking, or this process is in no group.
    ///
    /// # Safety
    /// As [`find`].
    pub unsafe fn of(environment: Strings) -> Option<Lack<'a>> {
        let engine = crate::start::engine()?;
        let (agent, own_group) = (engine.agent_path(), engine.group_name());
        // SAFETY: by contract.
        let (preload, group) = unsafe { (position(environment, PRELOAD), position(environment, GROUP)) };
        let has_agent = preload.is_some_and(|(_, value)| paths(value).any(|path| path == agent));
        if agent.is_empty() || has_agent && group.is_some_and(|(_, value)| value == own_group) {
            return None;
        }
        Some(Lack { agent, group: own_group, preload, group_index: group.map(|(index, _)| index) })
    }

    /// The value that LD_PRELOAD must have, in parts: the agent first, the caller's value after it.
    pub fn preload(&self) -> [&[u8]; 3] {
        let theirs = self.preload.map_or(&b""[..], |(_, value)| value);
        [self.agent, if theirs.is_empty() { b"" } else { b":" }, theirs]
    }

    /// The value that the group's variable must have.
    pub fn group(&self) -> &'static [u8] {
        self.group
    }
}

/// Whether an image that is started with this environment, and preloads what it names, joins the
/// group of this process.
///
/// # Safety
/// As [`find`].
pub unsafe fn is_complete(environment: Strings) -> bool {
    // SAFETY: by contract.
    unsafe { Lack::of(environment) }.is_none()
}

/// Calls `call` with `environment`, or with a copy of it that has the variables which keep an image
/// in the group.
///
/// # Errors
/// There is no memory for the copy, and nothing was called: an image is not started rather than
/// started unmanaged.
///
/// # Safety
/// As [`find`].
pub unsafe fn extended(
    environment: Strings,
    call: &mut dyn FnMut(Strings) -> c_int,
) -> Result<c_int, NoMemory> {
    // SAFETY: by contract.
    let Some(lack) = (unsafe { Lack::of(environment) }) else { return Ok(call(environment)) };
    // SAFETY: by contract.
    let length = unsafe { count(environment) };
    let preload = lack.preload();
    let text = PRELOAD.len()
        + 1
        + preload.iter().map(|part| part.len()).sum::<usize>()
        + 1
        + GROUP.len()
        + 1
        + lack.group().len()
        + 1;
    // The array needs two strings more, and the null.
    let pointers = length + 3;
    let mut result = 0;
    scratch::with(pointers + Text::words(text), &mut |words| {
        let (strings, text) = words.split_at_mut(pointers);
        for (index, string) in strings[..length].iter_mut().enumerate() {
            // SAFETY: within the array.
            *string = unsafe { *environment.add(index) } as usize;
        }
        let mut text = Text::new(text);
        let mut end = length;
        let mut put = |at: Option<usize>, string: *const c_char| match at {
            Some(index) => strings[index] = string as usize,
            None => {
                strings[end] = string as usize;
                end += 1;
            }
        };
        text.push(PRELOAD);
        text.push(b"=");
        preload.iter().for_each(|part| text.push(part));
        put(lack.preload.map(|(index, _)| index), text.end(0));
        let from = text.length();
        text.push(GROUP);
        text.push(b"=");
        text.push(lack.group());
        put(lack.group_index, text.end(from));
        result = call(strings.as_ptr().cast());
    })?;
    Ok(result)
}
