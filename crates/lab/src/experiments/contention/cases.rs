//! The cases: a workload, its policies, and their published system times.

use super::load::tasks_of;
use super::{Options, Series};
use crate::build::Sizes;
use crate::policies::PolicyName;
use crate::replay::Medium;
use serde::Serialize;

/// The size of series 1's device, as it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FillChoice {
    /// The build needs at most this part of it, percent.
    Peak(u32),
    /// As full as the published devices: before the series as many folios find no room as there.
    Published,
}

/// How full the device of a build becomes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// The build needs at most this part of it, percent.
    Peak(u32),
    /// So full that before the series this share of the folios of an order finds no room.
    Failing {
        /// The order.
        order: usize,
        /// The share, 0 to 1.
        share: f64,
    },
}

/// A build of series 1, and its device.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Build {
    /// Sizes of folios.
    pub sizes: Sizes,
    /// The device.
    pub medium: Medium,
    /// How full it becomes.
    pub fill: Fill,
}

/// What all policies of a comparison replay.
#[derive(Debug, Clone, Serialize)]
pub struct Case {
    /// The series.
    pub series: Series,
    /// Logical CPUs.
    pub cpus: u32,
    /// The build of series 1.
    pub build: Option<Build>,
    /// The title in the table.
    pub title: String,
    /// Steps: the name of each, its policy, and its published system time in seconds.
    pub steps: Vec<(&'static str, PolicyName, Option<f64>)>,
}

/// A run that was published of series 1: its name, sizes, device, the order and the numbers of its
/// folios that were swapped out whole and that found no room before the series, and the system
/// times before, with patch 1 and with patch 2.
type Published = (&'static str, Sizes, Medium, usize, [f64; 2], [Option<f64>; 3]);

const PUBLISHED: [Published; 4] = [
    (
        "64 kB, zram as the published 10 G",
        Sizes::Only64k,
        Medium::Zram,
        4,
        [1_793_044.0, 17_653.0],
        [Some(10230.22), Some(5527.90), Some(5538.3)],
    ),
    (
        "64 kB, zram as the published 8 G",
        Sizes::Only64k,
        Medium::Zram,
        4,
        [1_634_681.0, 173_056.0],
        [Some(21929.17), Some(6121.01), Some(6145.3)],
    ),
    (
        "64 kB, brd as the published 8 G",
        Sizes::Only64k,
        Medium::Ram,
        4,
        [1_645_421.0, 148_408.0],
        [Some(28139.60), Some(8941.90), None],
    ),
    (
        "all sizes, zram as the published 10 G",
        Sizes::All,
        Medium::Zram,
        7,
        [11_663.0, 1767.0],
        [Some(11609.69), None, Some(5587.53)],
    ),
];

fn cluster_scan(cpus: u32, build: Build, title: &str, times: [Option<f64>; 3]) -> Case {
    Case {
        series: Series::ClusterScan,
        cpus,
        build: Some(build),
        title: format!("series 1, build, {title}, {cpus} CPUs"),
        steps: vec![
            ("before", PolicyName::ScanAll, times[0]),
            ("patch 1", PolicyName::ScanOne, times[1]),
            ("patch 2", PolicyName::NonfullFirst, times[2]),
            ("today", PolicyName::Current, None),
        ],
    }
}

fn cluster_scans(cpus: u32, choice: FillChoice) -> Vec<Case> {
    match choice {
        FillChoice::Peak(percent) => {
            let fill = Fill::Peak(percent);
            let build = Build { sizes: Sizes::Only64k, medium: Medium::Zram, fill };
            vec![cluster_scan(cpus, build, &format!("64 kB, zram {percent} % full"), [None; 3])]
        }
        FillChoice::Published => PUBLISHED
            .iter()
            .map(|&(name, sizes, medium, order, [out, failed], times)| {
                let share = failed / (out + failed);
                let build = Build { sizes, medium, fill: Fill::Failing { order, share } };
                let title = format!("{name} ({:.2} % of {} kB fail before)", 100.0 * share, 4 << order);
                cluster_scan(cpus, build, &title, times)
            })
            .collect(),
    }
}

/// The cases of these options.
pub(super) fn cases(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for &series in &options.series {
        for &cpus in &options.cpus {
            match series {
                Series::ClusterScan => {
                    cases.extend(options.fills.iter().flat_map(|&choice| cluster_scans(cpus, choice)));
                }
                Series::SlotCache => cases.push(Case {
                    series,
                    cpus,
                    build: None,
                    title: format!("series 2, build with 4 kB pages, {cpus} CPUs"),
                    steps: vec![
                        ("before", PolicyName::Linux6_14, Some(6445.69)),
                        ("after", PolicyName::Linux6_15, Some(6408.80)),
                        ("today", PolicyName::Current, None),
                    ],
                }),
                Series::RoundRobin => cases.push(Case {
                    series,
                    cpus,
                    build: None,
                    title: format!(
                        "series 4, {} tasks to 4 zram devices on nodes 0 to 3 of 8",
                        tasks_of(cpus)
                    ),
                    steps: vec![
                        ("before", PolicyName::Linux6_18, Some(637.92)),
                        ("after", PolicyName::Linux6_19, Some(526.74)),
                        ("today", PolicyName::Current, None),
                    ],
                }),
            }
        }
    }
    cases
}
