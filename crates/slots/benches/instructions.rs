//! A workload of a given length and nothing else, for `benches/instructions.sh`, which counts its
//! instructions under valgrind. Arguments: allocator (`today`, `slot-cache`, `bitmap`), pattern
//! (`tasks`, `oldest`, `random`), order, pairs.

#[path = "../tests/common/mod.rs"]
mod common;

#[path = "slots/bitmap.rs"]
mod bitmap;
#[path = "slots/workload.rs"]
mod workload;

use folioswap_slots::*;
use workload::{Allocator, Engine, Pattern, Thread, held};

fn run(allocator: &impl Allocator, pattern: Pattern, order: Order, pairs: usize) {
    Thread::new(allocator, pattern, order, held(order), vec![0]).run(allocator, pairs);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [allocator, pattern, order, pairs] = &arguments[..] else {
        println!("see benches/instructions.sh");
        return;
    };
    let pattern = match pattern.as_str() {
        "tasks" => Pattern::Tasks,
        "oldest" => Pattern::Oldest,
        _ => Pattern::Random,
    };
    let order = Order::new(order.parse().expect("order")).expect("order from 0 to 9");
    let pairs = pairs.parse().expect("pairs");
    match allocator.as_str() {
        "today" => run(&Engine::<Current>::new(2), pattern, order, pairs),
        "slot-cache" => run(&Engine::<SlotCachePerCpu>::new(2), pattern, order, pairs),
        _ => run(&bitmap::Bitmap::new(), pattern, order, pairs),
    }
}
