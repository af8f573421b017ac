//! A run in a few numbers, for the end of the table and the head of the page.
//!
//! Nothing is made better than it is: the worst second counts, the longest settling time, every
//! packet that was lost. How the numbers are shown is not decided here.

use super::analysis::{Phase, Report};
use super::record::Record;

/// A run in a few numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Phases of the sessions that came and went.
    pub phases: usize,
    /// Of them, those that settled.
    pub settled: usize,
    /// Median settling time of those that did, in seconds.
    pub settling_median: Option<f64>,
    /// The longest, in seconds.
    pub settling_longest: Option<f64>,
    /// The lowest Jain index of a steady second.
    pub jain_worst: Option<f64>,
    /// Packets that the shared queue dropped, of all that came to it in both parts.
    pub loss: f64,
    /// Files that arrived as they were served.
    pub verified: usize,
    /// Rate on the wire while all five sources of one file sent, in bit/s.
    pub gather_rate: Option<f64>,
}

impl Summary {
    /// The numbers of a run.
    pub fn of(record: &Record, report: &Report) -> Summary {
        let mut times: Vec<f64> = report.phases.iter().filter_map(|p| p.settled).collect();
        times.sort_by(f64::total_cmp);
        let (offered, dropped) = record
            .samples
            .last()
            .map_or((0, 0), |last| (last.offered_packets, last.dropped_packets));
        let arrivals = record.arrivals.iter().chain([&record.gather_arrival]);
        Summary {
            phases: report.phases.len(),
            settled: times.len(),
            settling_median: times.get(times.len() / 2).copied(),
            settling_longest: times.last().copied(),
            jain_worst: report.phases.iter().map(|p| p.jain_worst).reduce(f64::min),
            loss: if offered > 0 { dropped as f64 / offered as f64 } else { 0.0 },
            verified: arrivals.filter(|arrival| arrival.verified).count(),
            gather_rate: report.gather.as_ref().map(Phase::sum),
        }
    }
}

/// A share in per cent; a small one keeps its first digits, none is called zero that is not.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        small if small < 0.001 => "< 0.001 %".into(),
        small if small < 1.0 => format!("{small:.3} %"),
        large => format!("{large:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::analysis::analyse;
    use crate::demo::synthetic;

    #[test]
    fn a_loss_that_is_not_zero_is_never_called_zero() {
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(1e-9), "< 0.001 %");
        assert_eq!(percent(0.000_12), "0.012 %");
        assert_eq!(percent(0.25), "25.0 %");
    }

    #[test]
    fn the_longest_settling_time_is_told_beside_the_median() {
        let record = synthetic::record(0.2);
        let summary = Summary::of(&record, &analyse(&record));
        assert_eq!((summary.phases, summary.settled, summary.verified), (9, 9, 6));
        assert!(summary.settling_longest > summary.settling_median);
        assert!(summary.jain_worst.is_some_and(|jain| jain > 0.99));
    }
}
