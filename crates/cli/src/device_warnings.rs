//! Warnings, one line each, on combinations of devices that are seldom meant.

use folioswap_devices::Medium;
use folioswap_group::{decisions::Scope, devices::DeviceKind};
use folioswap_supervisor::swap_option::{DeviceOption, SwapOption};

/// The warning on devices of different kinds that take turns. It says how to tier them.
pub fn turns(options: &[SwapOption]) -> Option<String> {
    let without: Vec<&SwapOption> = options.iter().filter(|option| option.priority.is_none()).collect();
    let mut kinds: Vec<DeviceKind> = without.iter().map(|option| kind(option)).collect();
    let cost = |kind: &DeviceKind| match kind {
        DeviceKind::Ram => Medium::Memory.read_ns(),
        DeviceKind::Zram => folioswap_devices::zram::READ_NS,
        DeviceKind::File | DeviceKind::Block => Medium::File.read_ns(),
        // The cost of the server's disk, and that of the way there.
        DeviceKind::Nbd => 2 * Medium::File.read_ns(),
    };
    kinds.sort_unstable_by_key(cost);
    kinds.dedup();
    if kinds.len() < 2 {
        return None;
    }
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    let mut tiers = String::new();
    for (tier, of_kind) in kinds.iter().enumerate() {
        for option in without.iter().filter(|option| kind(option) == *of_kind) {
            tiers.push_str(&format!(" --swap {},prio={}", option.text, kinds.len() - 1 - tier));
        }
    }
    let names = names.join(" and ");
    Some(format!(
        "folioswap: {names} have no priority, so they take turns; to use the faster first, write{tiers}\n"
    ))
}

fn kind(option: &SwapOption) -> DeviceKind {
    match option.device {
        DeviceOption::Zram => DeviceKind::Zram,
        DeviceOption::Ram { .. } => DeviceKind::Ram,
        DeviceOption::File { .. } => DeviceKind::File,
        DeviceOption::Nbd(_) => DeviceKind::Nbd,
    }
}

/// The warning on a `ram` device that counts towards the limit.
pub fn ram(options: &[SwapOption], scope: Scope) -> Option<String> {
    let has_ram = options.iter().any(|option| matches!(option.device, DeviceOption::Ram { .. }));
    (has_ram && scope == Scope::Total).then(|| {
        "folioswap: what is swapped to ram counts to the limit, so nothing is gained by it; --memory-scope resident leaves it out\n"
            .to_owned()
    })
}

#[cfg(test)]
mod tests;
