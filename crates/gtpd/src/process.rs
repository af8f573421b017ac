//! Numbers of a process for Prometheus, by the names that dashboards for all programs expect.
//!
//! A page registers this and the numbers are taken anew for each page. What else is on the page is
//! unknown here.

use std::fmt;

use gtp_sys::process::usage;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// Adds `process_…` of this process, and `gtp_build_info`, to what is registered.
pub fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(OwnProcess));
    let version = vec![("version", env!("CARGO_PKG_VERSION"))];
    registry.register("gtp_build", "The version of this program", Info::new(version));
}

#[derive(Debug)]
struct OwnProcess;

impl Collector for OwnProcess {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(usage) = usage() else { return Ok(()) };
        let help = "Processor time in user space and in the kernel";
        let cpu = ConstCounter::new(usage.cpu.as_secs_f64());
        cpu.encode(to.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)?;
        // The client libraries of other languages call these so.
        let gauges = [
            ("process_resident_memory_bytes", "Memory in RAM", usage.resident.0 as f64),
            ("process_virtual_memory_bytes", "Addresses that are mapped", usage.mapped.0 as f64),
            ("process_open_fds", "Descriptors that are open", usage.descriptors as f64),
            (
                "process_max_fds",
                "Descriptors that may be open",
                usage.descriptors_most.map_or(f64::INFINITY, |most| most as f64),
            ),
            ("process_threads", "Threads", usage.threads as f64),
            (
                "process_start_time_seconds",
                "When the process began, in seconds since 1970",
                usage.began_unix_s,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            gauge.encode(to.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
