//! Prints how fast and how safely both laws reach the max-min rates, in the rate-level model.
//!
//! Equal capacities, four sessions per source to random sinks, RTT 1..100 ms, control interval
//! 10..100 ms, alpha and beta 0.05..0.15, from zero. Everything follows from the seeds shown.

#[path = "../tests/fluid/mod.rs"]
mod fluid;

use fluid::scenario::{Law, table_network};
use fluid::{Fluid, SECOND, settling_times};

fn main() {
    println!("nodes seed  law       5 %     1 %  0.01 %   worst sink overload");
    for (nodes, seeds) in [(32, 1..4), (128, 1..4), (256, 1..4)] {
        for seed in seeds {
            for law in [Law::EndNode, Law::Grant] {
                print_row(nodes, seed, law);
            }
        }
    }
}

fn print_row(nodes: usize, seed: u64, law: Law) {
    let mut fluid = Fluid::new(table_network(law, nodes, seed));
    fluid.active.fill(true);
    let goal = fluid.optimum();
    fluid.active.fill(false);
    let end = match law {
        Law::EndNode => 30 * SECOND,
        Law::Grant => 5 * SECOND,
    };
    let times = settling_times(&mut fluid, &goal, &[0.05, 0.01, 0.0001], end);
    let worst = fluid.peak[nodes / 2..].iter().copied().fold(0.0, f64::max) - 1.0;
    let name = match law {
        Law::EndNode => "endnode",
        Law::Grant => "grant",
    };
    println!(
        "{nodes:5} {seed:4}  {name:8} {:5.2} s {:5.2} s {:5.2} s  {:8.4} %",
        times[0],
        times[1],
        times[2],
        worst.max(0.0) * 100.0
    );
}
