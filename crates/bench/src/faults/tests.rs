use super::*;
use crate::memory::Mapping;
use std::cell::Cell;

/// An engine that answers with these figures, one after the other.
struct Figures(Cell<usize>, Vec<Served>);

impl Engine for Figures {
    fn served(&self) -> Served {
        let next = self.0.get();
        self.0.set(next + 1);
        self.1[next.min(self.1.len() - 1)]
    }
}

fn touch(memory: &Mapping, page: usize) {
    // SAFETY: the page lies within the mapping.
    unsafe { memory.as_ptr().add(page * 4096).read_volatile() };
}

#[test]
fn the_kernels_first_touch_is_a_fault_and_the_second_none() {
    let memory = Mapping::new(1 << 20);
    memory.advise(libc::MADV_NOHUGEPAGE);
    let mut witness = FaultWitness::new(None);
    for page in 0..256 {
        touch(&memory, page);
        assert_eq!(witness.outcome(), TouchOutcome::Fault, "page {page}");
        touch(&memory, page);
        assert_eq!(witness.outcome(), TouchOutcome::NoFault, "page {page}");
    }
}

#[test]
fn an_engines_figures_tell_what_a_fault_was() {
    let served = |faults, from_store| Served { faults, from_store };
    let memory = Mapping::new(1 << 20);
    memory.advise(libc::MADV_NOHUGEPAGE);
    // The second answer comes too early: the figures of the first fault are not there yet.
    let figures = [served(7, 3), served(7, 3), served(8, 4), served(9, 4)];
    let engine = Figures(Cell::new(0), figures.into());
    let mut witness = FaultWitness::new(Some(&engine));
    touch(&memory, 0);
    assert_eq!(witness.outcome(), TouchOutcome::Store);
    touch(&memory, 0);
    assert_eq!(
        (witness.outcome(), engine.0.get()),
        (TouchOutcome::NoFault, 3),
        "nobody is asked without a fault"
    );
    touch(&memory, 1);
    assert_eq!(witness.outcome(), TouchOutcome::Fault);
    touch(&memory, 2);
    assert_eq!(witness.outcome(), TouchOutcome::Unclear);
}
