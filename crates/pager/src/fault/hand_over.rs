//! The handler's part of a handover: between two faults it takes planned rows out of the program.

use crate::fault::handler::Handler;

/// Pages that leave for each page that comes, as long as memory is not short.
const PAGES_OUT: u64 = 4;

/// Pages that come before the first row of a plan leaves: by then the evictor, which has just
/// offered the plan, sleeps, and no move interrupts it.
const PAGES_BEFORE: u64 = 2;

impl Handler {
    /// Called after faults were served: takes a planned row out of the program, if one is due.
    pub(crate) fn take_out_planned(&mut self) {
        if !self.engine.plans.are_offered() {
            // Of a plan that is offered next, nothing is due before the evictor sleeps.
            self.pages_to_next_row = PAGES_BEFORE;
        } else if self.pages_to_next_row == 0 {
            self.take_out_row();
        }
    }

    /// Takes a planned row out of the program. Returns false if nothing is planned, or if the plan
    /// is not for the handler: beside several threads a move from here costs as much as one by the
    /// evictor, and a fork is to find the evictor between two batches. Cost: some 2 µs a page, up
    /// to sixteen moves.
    pub(crate) fn take_out_row(&mut self) -> bool {
        let plans = &self.engine.plans;
        if self.reads.several_threads_fault() || self.engine.fork.is_preparing() {
            plans.decline();
            return false;
        }
        let Some(mut held) = self.engine.take_plan() else { return false };
        let (plan, turn) = held.parts();
        let before = plan.done.isolated;
        let rest = plan.go_on(turn);
        self.pages_to_next_row = (plan.done.isolated - before) / PAGES_OUT;
        held.put_down(rest);
        true
    }
}

#[cfg(test)]
mod tests;
