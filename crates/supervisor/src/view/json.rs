//! A group as JSON. Names are those of `--stats-json` where both have the figure.

use super::GroupSnapshot;
use crate::report::table::{Device, Health};
use folioswap_group::{
    counters::{Counter, Gauge, SIZE_NAMES, SizeCounter},
    decisions::Pressure,
};
use serde_json::{Map, Value, json};

impl GroupSnapshot {
    /// What a list shows of it.
    pub fn summary(&self) -> Value {
        json!({
            "name": self.name,
            "pid": self.pid,
            "uid": self.owner,
            "command": self.command,
            "started_unix": self.started_unix,
            "weight": self.weight,
            "state": self.state,
            "scope": self.scope,
            "limit_bytes": self.limit,
            "charge_bytes": self.charge,
            "swapped_bytes": self.swapped,
            "ratio": self.ratio(),
            "pressure": pressure(&self.pressure),
            "members": self.members.len(),
        })
    }

    /// All of it.
    pub fn json(&self) -> Value {
        let mut all = self.summary();
        let counters: Map<String, Value> = Counter::ALL
            .iter()
            .map(|&counter| (counter.name().to_owned(), json!(self.counters.get(counter))))
            .collect();
        let of_size = |order: usize| -> Map<String, Value> {
            SizeCounter::ALL
                .iter()
                .map(|&counter| (counter.name().to_owned(), json!(self.counters.size(counter, order))))
                .collect()
        };
        let sizes: Map<String, Value> = SIZE_NAMES
            .iter()
            .enumerate()
            .map(|(order, name)| ((*name).to_owned(), Value::Object(of_size(order))))
            .collect();
        let levels: Map<String, Value> = Gauge::ALL
            .iter()
            .map(|&gauge| (gauge.name().to_owned(), json!(self.levels.gauge(gauge))))
            .collect();
        all["parts"] = json!(self.parts);
        all["members"] = json!(self.members);
        all["devices"] = self.devices.iter().map(device).collect();
        all["counters"] = Value::Object(counters);
        all["sizes"] = Value::Object(sizes);
        all["levels"] = Value::Object(levels);
        all
    }
}

/// As a `memory.pressure` file has it: averages in percent, totals in microseconds.
pub(crate) fn pressure(pressure: &Pressure) -> Value {
    let line = |avg: [u32; 3], total: u64| {
        let [ten, minute, five_minutes] = avg.map(|avg| f64::from(avg) / 100.0);
        json!({ "avg10": ten, "avg60": minute, "avg300": five_minutes, "total_us": total })
    };
    json!({
        "some": line(pressure.some, pressure.some_total_us),
        "full": line(pressure.full, pressure.full_total_us),
    })
}

fn device(device: &Device) -> Value {
    json!({
        "name": device.name, "type": device.kind.name(), "size_bytes": device.size, "used_bytes": device.used,
        "prio": device.prio, "errors": device.errors, "failed": device.health == Health::Failed,
        "masked": device.health == Health::Masked,
    })
}
