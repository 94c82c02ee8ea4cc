//! `--report`: the run as one page of HTML, with its charts and its JSON inside, and nothing from
//! outside.

use super::{Report, table};
use crate::{
    course::record::{Record, Sample},
    size,
};
use folioswap_group::{
    counters::{Counter, ORDERS, SIZE_NAMES, SizeCounter},
    moments::latency_bucket_start_ns,
    units::PAGE_SIZE,
};
use folioswap_report::svg::{Arrangement, BarChart, CurveChart, Series, Span, TimeChart, escaped, gantt};
use serde_json::json;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
/// The most processes that are drawn; those that lived longest.
const SPANS_MAX: usize = 60;
const MIB: f64 = (1 << 20) as f64;

impl Report {
    /// The page of this run.
    pub fn page(&self, record: &Record, title: &str) -> String {
        let mut page = String::new();
        self.write_page(&mut page, record, title).expect("a String takes everything");
        page
    }

    fn write_page(&self, page: &mut String, record: &Record, title: &str) -> std::fmt::Result {
        let command = title;
        let title = escaped(title);
        write!(
            page,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>folioswap: {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1><code>{title}</code></h1>\n"
        )?;
        writeln!(page, "<p class=\"lead\">{}</p>", escaped(&self.sentence()))?;
        writeln!(page, "<pre>{}</pre>", escaped(&self.summary()))?;
        self.write_memory(page, record)?;
        write_rates(page, record)?;
        self.write_processes(page, record)?;
        self.write_orders(page)?;
        writeln!(
            page,
            "<h2>Devices</h2>\n<pre>{}</pre>",
            escaped(&table::render(&self.devices, table::Sizes::Readable))
        )?;
        writeln!(page, "<p class=\"note\">USED: at most.</p>")?;
        self.write_pressure(page)?;
        self.write_latency(page)?;
        self.write_curve(page)?;
        let data = json!({
            "command": command,
            "statistics": self.json(),
            "samples": record.samples,
            "processes": record.lives,
            "moments": record.slices,
            "moments_not_kept": record.not_kept,
        });
        // Within a script element only `<` can end it.
        let data = data.to_string().replace('<', "\\u003c");
        writeln!(
            page,
            "<script type=\"application/json\" id=\"folioswap-data\">{data}</script>\n</body>\n</html>"
        )
    }

    /// Pressure stall information, as a `memory.pressure` file has it.
    fn write_pressure(&self, page: &mut String) -> std::fmt::Result {
        let line = |name: &str, [ten, minute, five]: [u32; 3], total: u64| {
            let [ten, minute, five] = [ten, minute, five].map(|avg| f64::from(avg) / 100.0);
            format!("{name} avg10={ten:.2} avg60={minute:.2} avg300={five:.2} total={total}\n")
        };
        let pressure = &self.pressure;
        let some = line("some", pressure.some, pressure.some_total_us);
        let full = line("full", pressure.full, pressure.full_total_us);
        writeln!(page, "<h2>Pressure</h2>\n<pre>{some}{full}</pre>")?;
        writeln!(
            page,
            "<p class=\"note\">Share of time in percent, when the program ended; total in microseconds.</p>"
        )
    }

    /// The sentence of the whole page.
    fn sentence(&self) -> String {
        let wall = self.wall.as_secs_f64();
        let advice = self.another_limit().map_or_else(String::new, |advice| format!("; {advice}"));
        format!("{wall:.1} s within {}: {}{advice}.", size::show(self.limit), self.waiting())
    }

    fn write_memory(&self, page: &mut String, record: &Record) -> std::fmt::Result {
        let samples = &record.samples;
        let times: Vec<f64> = samples.iter().map(|sample| sample.at_ms as f64 / 1000.0).collect();
        let series = |name: &str, of: &dyn Fn(&Sample) -> f64| Series {
            name: name.to_owned(),
            values: samples.iter().map(of).collect(),
        };
        let mib = |bytes: u64| bytes as f64 / MIB;
        let limit = Some((mib(self.limit), format!("limit {}", size::show(self.limit))));
        let of_store = |sample: &Sample| match self.scope {
            folioswap_group::decisions::Scope::Total => sample.store,
            folioswap_group::decisions::Scope::Resident => 0,
        };
        let rest = |sample: &Sample| {
            let known = of_store(sample).saturating_add(sample.staging).saturating_add(sample.metadata);
            sample.charge.saturating_sub(known.saturating_add(sample.unmanaged))
        };
        let memory = TimeChart {
            times: &times,
            series: vec![
                series("resident", &|sample| mib(rest(sample))),
                series("compressed store", &|sample| mib(of_store(sample))),
                series("staging", &|sample| mib(sample.staging)),
                series("tables", &|sample| mib(sample.metadata)),
                series("not managed", &|sample| mib(sample.unmanaged)),
            ],
            arrangement: Arrangement::Stacked,
            unit: "MiB",
            mark: limit,
        };
        chart(page, "Memory that counts", "", &memory.svg("Memory that counts"))?;
        let swapped = TimeChart {
            times: &times,
            series: vec![
                series("swapped out", &|sample| mib(sample.swapped)),
                series("store", &|sample| mib(sample.store)),
                series("devices", &|sample| mib(sample.file)),
            ],
            arrangement: Arrangement::Lines,
            unit: "MiB",
            mark: None,
        };
        chart(
            page,
            "Swapped out",
            "What is away, uncompressed, and where its bytes are.",
            &swapped.svg("Swapped out"),
        )
    }

    fn write_processes(&self, page: &mut String, record: &Record) -> std::fmt::Result {
        let end = self.wall.as_secs_f64();
        let span = |life: &crate::course::record::Life| Span {
            name: format!("{} {}", life.pid, life.name),
            began: life.began_ms as f64 / 1000.0,
            ended: life.ended_ms.map_or(end, |ended| ended as f64 / 1000.0),
        };
        let mut spans: Vec<Span> = record.lives.iter().map(span).collect();
        let all = spans.len();
        spans.sort_by(|a, b| (b.ended - b.began).total_cmp(&(a.ended - a.began)));
        spans.truncate(SPANS_MAX);
        spans.sort_by(|a, b| a.began.total_cmp(&b.began));
        let note = match all {
            0 => "No process was managed.".to_owned(),
            _ if all > spans.len() => format!("The {} of {all} that lived longest.", spans.len()),
            _ => String::new(),
        };
        chart(page, "Processes", &note, &gantt("Processes", &spans, end))
    }

    fn write_orders(&self, page: &mut String) -> std::fmt::Result {
        writeln!(
            page,
            "<h2>Folios by size</h2>\n<table><tr><th>Size</th><th>out whole</th><th>split</th><th>back whole</th><th>back in parts</th></tr>"
        )?;
        let mut rows = 0;
        for (order, name) in SIZE_NAMES.iter().enumerate().take(ORDERS) {
            let kinds = [
                SizeCounter::SwapOut,
                SizeCounter::SwapOutFallback,
                SizeCounter::SwapIn,
                SizeCounter::SwapInFallback,
            ];
            let counts = kinds.map(|counter| self.sums.size(counter, order));
            if counts.iter().any(|count| *count > 0) {
                let [out, split, back, parts] = counts;
                writeln!(
                    page,
                    "<tr><td>{name}</td><td>{out}</td><td>{split}</td><td>{back}</td><td>{parts}</td></tr>"
                )?;
                rows += 1;
            }
        }
        writeln!(page, "</table>")?;
        if rows == 0 { writeln!(page, "<p class=\"note\">None left or came back.</p>") } else { Ok(()) }
    }

    fn write_latency(&self, page: &mut String) -> std::fmt::Result {
        let seen: Vec<usize> = (0..self.latency.len()).filter(|&bucket| self.latency[bucket] > 0).collect();
        let (Some(&first), Some(&last)) = (seen.first(), seen.last()) else {
            return chart(page, "How long faults took", "There was no fault.", "");
        };
        let name = |bucket| match latency_bucket_start_ns(bucket) {
            short @ ..10_000 => format!("{:.1} us", short as f64 / 1e3),
            middle @ ..1_000_000 => format!("{:.0} us", middle as f64 / 1e3),
            long => format!("{:.0} ms", long as f64 / 1e6),
        };
        let bars = (first..=last).map(|bucket| (name(bucket), self.latency[bucket] as f64)).collect();
        let faults = BarChart { bars, unit: "faults" };
        chart(
            page,
            "How long faults took",
            "From reading the fault to its end; a bar has those of at least so long.",
            &faults.svg("Latency of faults"),
        )
    }

    fn write_curve(&self, page: &mut String) -> std::fmt::Result {
        let points = self.refaulted.points();
        let curve = CurveChart {
            points: points
                .iter()
                .map(|point| (point.limit_bytes as f64 / MIB, point.pages_in as f64))
                .collect(),
            x: "MiB",
            y: "pages back",
            mark: Some((self.refaulted.known_from() as f64 / MIB, "limit".to_owned())),
        };
        if points.is_empty() {
            return chart(
                page,
                "Which limit costs how much",
                "Nothing that left came back: this limit costs nothing.",
                "",
            );
        }
        let note = "Pages that would have come back within larger limits, from how long pages were away; of smaller limits nothing is known.";
        chart(page, "Which limit costs how much", note, &curve.svg("Miss-ratio curve"))?;
        let pages = self.sums.counter(Counter::PagesIn).max(1);
        writeln!(page, "<table><tr><th>Limit</th><th>pages back</th><th>of those of this run</th></tr>")?;
        for point in points {
            let (limit, part) = (size::show(point.limit_bytes), 100.0 * point.pages_in as f64 / pages as f64);
            writeln!(page, "<tr><td>{limit}</td><td>{}</td><td>{part:.0} %</td></tr>", point.pages_in)?;
        }
        writeln!(page, "</table>")
    }
}

/// The charts of what happened each second.
fn write_rates(page: &mut String, record: &Record) -> std::fmt::Result {
    let samples = &record.samples;
    let times: Vec<f64> = samples.iter().map(|sample| sample.at_ms as f64 / 1000.0).collect();
    let rate = |of: &dyn Fn(&Sample) -> u64, each: f64| -> Vec<f64> {
        let step = |two: &[Sample]| {
            let seconds = (two[1].at_ms - two[0].at_ms).max(1) as f64 / 1000.0;
            of(&two[1]).saturating_sub(of(&two[0])) as f64 / seconds / each
        };
        std::iter::once(0.0).chain(samples.windows(2).map(step)).take(samples.len()).collect()
    };
    let lines = |unit, series: Vec<(&str, Vec<f64>)>| TimeChart {
        times: &times,
        series: series.into_iter().map(|(name, values)| Series { name: name.to_owned(), values }).collect(),
        arrangement: Arrangement::Lines,
        unit,
        mark: None,
    };
    let pages = MIB / PAGE_SIZE as f64;
    let traffic = lines(
        "MiB/s",
        vec![
            ("out", rate(&|sample| sample.pages_out, pages)),
            ("back", rate(&|sample| sample.pages_in, pages)),
        ],
    );
    chart(page, "Traffic", "", &traffic.svg("Traffic"))?;
    let waiting = lines(
        "% of one",
        vec![
            ("threads that wait", rate(&|sample| sample.waited_ns, 1e7)),
            ("pager threads", rate(&|sample| sample.pager_ns, 1e7)),
        ],
    );
    chart(
        page,
        "Waiting",
        "Threads that waited for pages, and processor time of the pagers.",
        &waiting.svg("Waiting"),
    )
}

/// A section with its heading, a note, and a chart.
fn chart(page: &mut String, heading: &str, note: &str, svg: &str) -> std::fmt::Result {
    writeln!(page, "<h2>{heading}</h2>")?;
    if !note.is_empty() {
        writeln!(page, "<p class=\"note\">{note}</p>")?;
    }
    page.write_str(svg)
}
