//! From the loading of the agent to a running engine, and the fork handlers.

use crate::environment;
use crate::instruments;
use crate::libc;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};
use folioswap_pager::engine::Engine;
use folioswap_pager::fork::protocol::{self as fork, Made, Stack};
use folioswap_pager::kernel::{process, processor};

static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(null_mut());

/// The process's engine, if it joined a group.
pub fn engine() -> Option<&'static Engine> {
    // SAFETY: the pointer is set once, to an engine that lives as long as the process.
    unsafe { ENGINE.load(Acquire).as_ref() }
}

/// Static thread-local data of the first thread that stay resident, beside its control block.
const THREAD_DATA_BYTES: usize = 64 << 10;

extern "C" fn construct(_argc: i32, _argv: *const *const u8, envp: *const *const core::ffi::c_char) {
    // Without it there is no way to follow forks, and the arguments of a constructor are glibc's:
    // the program runs unmanaged.
    let Some(register_atfork) = libc::register_atfork() else { return };
    if engine().is_some() {
        return;
    }
    // SAFETY: the third argument of a constructor is the environment.
    let Some(group) = (unsafe { environment::find(envp, environment::GROUP) }) else { return };
    // SAFETY: as above.
    let preload = unsafe { environment::find(envp, environment::PRELOAD) }.unwrap_or_default();
    if instruments::is_watched(preload) {
        return;
    }
    // There the pager would be the init of a namespace that is the program's to fill.
    if !process::has_children_beside_it() {
        return;
    }
    let Ok(engine) = Engine::create(group, environment::agent_of(preload)) else { return };
    let thread = processor::thread_data(THREAD_DATA_BYTES);
    engine.keep_resident(thread.start, thread.end);
    engine.learn_exit_word();
    // SAFETY: the handlers stay loaded, because a preloaded object is never unloaded.
    unsafe {
        register_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child), null_mut())
    };
    begin(engine);
    if engine.forks_are_gated() {
        stand_before_calls(engine);
    } else {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the program has not begun.
        unsafe {
            crate::exec_entry::stand_before_execs();
        }
    }
}

/// Starts the pager of this process; returns when it is a member, or cannot be one.
pub fn begin(engine: &'static Engine) {
    #[cfg(target_arch = "x86_64")]
    engine.stand_behind(&crate::holds::GATE);
    ENGINE.store(core::ptr::from_ref(engine).cast_mut(), Release);
    if fork::start(engine).is_err() {
        engine.give_up();
    }
    engine.wait_until_running();
    engine.forget_old_pagers();
}

/// Puts the gate before all calls. Where a filter that the program has inherited forbids that, its
/// memory stays: it must not go on with memory that is away, for nobody sees its forks.
#[cfg(target_arch = "x86_64")]
pub fn stand_before_calls(engine: &Engine) {
    if crate::gate::arm().is_err() {
        engine.leave_everything_to_program();
    }
}

/// There is no gate on this architecture, and no supervisor asks for one.
#[cfg(not(target_arch = "x86_64"))]
fn stand_before_calls(_engine: &Engine) {}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCT: extern "C" fn(i32, *const *const u8, *const *const core::ffi::c_char) = construct;

/// For tests of folioswap: checks the engine's state at the end too.
extern "C" fn at_exit() {
    if let Some(engine) = engine() {
        engine.validate_at_exit();
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn before_fork() {
    if let Some(engine) = engine() {
        fork::prepare(engine, Stack::OfProgram);
    }
}

extern "C" fn after_fork_parent() {
    if let Some(engine) = engine() {
        fork::parent(engine, Made::Unknown);
    }
}

extern "C" fn after_fork_child() {
    if let Some(engine) = engine() {
        // SAFETY: the C library calls this first in the child, and this is the child's only thread.
        unsafe { fork::child(engine) };
    }
}
