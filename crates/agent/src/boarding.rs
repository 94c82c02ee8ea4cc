//! Before an exec that the gate or a function of ours sees: whether the new image will preload the
//! agent, or the supervisor has to put it there.
//!
//! It may run in a child made by vfork, in its parent's memory, and keeps nothing there.

use crate::environment::{self, Strings};
use crate::exec::File as Named;
use crate::instruments;
use crate::start::engine;
use core::ffi::{CStr, c_char};
use folioswap_group::units::PAGE_SIZE;
use folioswap_pager::kernel::sys;
use linux_raw_sys::elf::{Elf_Ehdr, Elf_Phdr, PT_INTERP};
use linux_raw_sys::general as raw;

/// Interpreters of interpreters that are followed, as the kernel does.
const SCRIPTS_MAX: usize = 4;
/// Bytes of a file that are read at once: the kernel looks at so many for `#!`.
const HEAD: usize = 256;
/// Program headers that are looked at.
const HEADERS_MAX: u64 = 64;
/// Nobody follows the exec.
const FOUND_NONE: u64 = 0;
/// What Valgrind sets before it becomes its tool, a static program that makes all mappings and
/// threads of the process itself.
const VALGRIND: &[u8] = b"VALGRIND_LAUNCHER";
/// The working directory.
const HERE: usize = raw::AT_FDCWD as usize;
/// Bytes of a path that is put together here, on a stack that may be small.
const PATH_MAX: usize = 512;

/// How a file gets the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// glibc's dynamic linker preloads it, where the environment says so.
    Environment,
    /// The supervisor puts it there.
    Supervisor,
    /// Nothing can be done, or nothing is known.
    Nothing,
}

/// Before an exec that the gate sees. Returns what [`exec_failed`] wants.
pub extern "C" fn before_exec([number, arguments @ ..]: &[u64; 7]) -> u64 {
    let [first, second, third, fourth, fifth, _] = arguments.map(|argument| argument as usize);
    let (file, environment) = match *number as u32 {
        raw::__NR_execve => (Named::path(first as *const c_char), third),
        _ => (Named::At { directory: first, path: second as *const c_char, flags: fifth as u32 }, fourth),
    };
    // What leads nowhere is the kernel's to refuse.
    if may_be_read(environment) { before_exec_of(file, environment as Strings) } else { FOUND_NONE }
}

/// Whether an environment, or nothing, is where this says.
fn may_be_read(environment: usize) -> bool {
    // The words are in one page, and the strings are in another, one after the other.
    let mut known = [usize::MAX; 2];
    let mut is_mapped = |address: usize| {
        let page = address & !(PAGE_SIZE - 1);
        if !known.contains(&page) {
            if !instruments::is_mapped(page) {
                return false;
            }
            known = [page, known[0]];
        }
        true
    };
    let words = (environment..).step_by(size_of::<usize>());
    for word in words.take_while(|_| environment != 0) {
        if !is_mapped(word) {
            return false;
        }
        // SAFETY: the page is mapped, and the kernel is about to read the word too.
        match unsafe { (word as *const usize).read_unaligned() } {
            0 => return true,
            text if !is_mapped(text) => return false,
            _ => {}
        }
    }
    true
}

/// Before an exec. Returns what [`exec_failed`] wants.
pub fn before_exec_of(file: Named<'_>, environment: Strings) -> u64 {
    let Some(engine) = engine() else { return FOUND_NONE };
    let file = match file {
        Named::Searched(name, directories) => search(name, directories),
        Named::At { directory, path, flags } => open_at(directory, path, flags),
    };
    let lacks_agent = match file.map_or(Needs::Nothing, File::needs) {
        Needs::Nothing => false,
        // SAFETY: the environment of the program's exec.
        Needs::Environment => unsafe { !environment::is_complete(environment) },
        // SAFETY: as above.
        Needs::Supervisor => unsafe { environment::find(environment, VALGRIND) }.is_none(),
    };
    let socket = if lacks_agent { engine.ask_for_agent() } else { None };
    socket.map_or(FOUND_NONE, |socket| socket as u64 + 1)
}

/// The exec has failed: nobody follows it any more.
pub extern "C" fn exec_failed(found: u64) {
    if let (Some(engine), true) = (engine(), found != FOUND_NONE) {
        engine.needs_no_agent((found - 1) as i32);
    }
}

/// A file that is open, or belongs to the program.
struct File {
    descriptor: usize,
    is_ours: bool,
}

/// Opens the file of execveat(2). Its path may be anywhere, and nowhere.
fn open_at(directory: usize, path: *const c_char, flags: u32) -> Option<File> {
    let is_mapped = || instruments::is_mapped(path as usize);
    // SAFETY: the page is mapped.
    if flags & raw::AT_EMPTY_PATH != 0 && (path.is_null() || is_mapped() && unsafe { *path } == 0) {
        return Some(File { descriptor: directory, is_ours: false });
    }
    open(directory, path)
}

fn open(directory: usize, path: *const c_char) -> Option<File> {
    let flags = (raw::O_RDONLY | raw::O_CLOEXEC | raw::O_NONBLOCK) as usize;
    // SAFETY: the kernel reads the path.
    let descriptor = unsafe { sys::syscall(raw::__NR_openat, [directory, path as usize, flags, 0, 0, 0]) };
    descriptor.ok().map(|descriptor| File { descriptor, is_ours: true })
}

/// Opens the first file of this name that these directories have.
fn search(name: &CStr, directories: &[u8]) -> Option<File> {
    let name = name.to_bytes_with_nul();
    if name.contains(&b'/') {
        return open(HERE, name.as_ptr().cast());
    }
    directories.split(|&byte| byte == b':').find_map(|directory| {
        let mut path = [0; PATH_MAX];
        let directory = if directory.is_empty() { b"." } else { directory };
        let (first, rest) = path.split_at_mut_checked(directory.len())?;
        first.copy_from_slice(directory);
        let (slash, rest) = rest.split_first_mut()?;
        *slash = b'/';
        rest.get_mut(..name.len())?.copy_from_slice(name);
        open(HERE, path.as_ptr().cast())
    })
}

impl Drop for File {
    fn drop(&mut self) {
        if self.is_ours {
            // SAFETY: the descriptor was opened here.
            let _ = unsafe { sys::syscall(raw::__NR_close, [self.descriptor, 0, 0, 0, 0, 0]) };
        }
    }
}

impl File {
    fn read(&self, into: &mut [u8], at: u64) -> Option<usize> {
        let words = [self.descriptor, into.as_mut_ptr() as usize, into.len(), at as usize, 0, 0];
        // SAFETY: the kernel writes to the slice.
        unsafe { sys::syscall(raw::__NR_pread64, words) }.ok()
    }

    /// Reads a structure of plain words.
    fn structure<T>(&self, at: u64) -> Option<T> {
        let mut read = core::mem::MaybeUninit::<T>::zeroed();
        // SAFETY: the bytes of a local.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut(read.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
        // SAFETY: all bytes are there, and any are a value of these structures.
        (self.read(bytes, at)? == size_of::<T>()).then(|| unsafe { read.assume_init() })
    }

    fn needs(self) -> Needs {
        let mut file = self;
        for _ in 0..=SCRIPTS_MAX {
            if file.gives_privilege() {
                return Needs::Nothing;
            }
            let mut head = [0; HEAD];
            let Some(count) = file.read(&mut head[..HEAD - 1], 0) else { return Needs::Nothing };
            if !head.starts_with(b"#!") {
                return file.needs_of_program();
            }
            let Some(interpreter) = interpreter(&mut head[..count]) else { return Needs::Nothing };
            let Some(next) = open(HERE, interpreter) else { return Needs::Nothing };
            file = next;
        }
        Needs::Nothing
    }

    /// Whether the file runs with rights that its caller has not: nobody may trace it then.
    fn gives_privilege(&self) -> bool {
        let mut state = core::mem::MaybeUninit::<raw::stat>::zeroed();
        let words = [self.descriptor, state.as_mut_ptr() as usize, 0, 0, 0, 0];
        // SAFETY: the kernel writes one structure.
        if unsafe { sys::syscall(raw::__NR_fstat, words) }.is_err() {
            return true;
        }
        // SAFETY: written by the kernel.
        let mode = unsafe { state.assume_init() }.st_mode;
        let name = c"security.capability".as_ptr() as usize;
        // SAFETY: the kernel reads the name, and writes nothing.
        let has_capabilities =
            unsafe { sys::syscall(raw::__NR_fgetxattr, [self.descriptor, name, 0, 0, 0, 0]) };
        mode & (raw::S_ISUID | raw::S_ISGID) != 0 || has_capabilities.is_ok_and(|bytes| bytes > 0)
    }

    fn needs_of_program(&self) -> Needs {
        const CLASS_64: u8 = 2;
        const X86_64: u16 = 62;
        let Some(header) = self.structure::<Elf_Ehdr>(0) else { return Needs::Nothing };
        if !header.e_ident.starts_with(b"\x7fELF")
            || header.e_ident[4] != CLASS_64
            || header.e_machine != X86_64
        {
            return Needs::Nothing;
        }
        for index in 0..u64::from(header.e_phnum).min(HEADERS_MAX) {
            let at = header.e_phoff as u64 + index * u64::from(header.e_phentsize);
            let Some(segment) = self.structure::<Elf_Phdr>(at) else { return Needs::Nothing };
            if segment.p_type == PT_INTERP {
                let mut path = [0; HEAD];
                let count = segment.p_filesz.min(HEAD);
                let Some(_) = self.read(&mut path[..count], segment.p_offset as u64) else {
                    return Needs::Nothing;
                };
                let is_musls = path.windows(4).any(|part| part == b"musl");
                return if is_musls { Needs::Supervisor } else { Needs::Environment };
            }
        }
        Needs::Supervisor
    }
}

/// The path of a script's interpreter, in the first line of it.
fn interpreter(head: &mut [u8]) -> Option<*const c_char> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = 2 + head[2..].iter().position(|byte| !is_blank(byte))?;
    let length = head[start..].iter().position(|byte| is_blank(byte) || matches!(byte, b'\n' | 0))?;
    *head.get_mut(start + length)? = 0;
    (length > 0).then(|| head[start..].as_ptr().cast())
}
