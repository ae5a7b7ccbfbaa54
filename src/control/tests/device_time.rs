//! The learned cost of a disk against disks of which the cost is known.

use proptest::collection::vec;
use proptest::prelude::*;

use tenantd_control::measure::device_time::DeviceTime;
use tenantd_control::measure::disk::DiskFlow;

/// A device with these costs of a byte and of an operation, busy with requests of some size.
fn full(byte: f64, operation: f64, size: f64) -> DiskFlow {
    let operations = 1.0 / (byte * size + operation);
    DiskFlow { read_bytes: size * operations, reads: operations, ..DiskFlow::default() }
}

fn part(flow: &DiskFlow, ratio: f64) -> DiskFlow {
    DiskFlow { read_bytes: flow.read_bytes * ratio, reads: flow.reads * ratio, ..*flow }
}

fn learned(flows: &[DiskFlow]) -> DeviceTime {
    let mut device = DeviceTime::default();
    flows.iter().for_each(|flow| device.learn(flow, 1.0, 8.0));
    device
}

/// Costs between those of a slow disk and of a fast one, and sizes of requests from 4 KiB to 1 MiB.
fn device() -> impl Strategy<Value = (f64, f64)> {
    (1e-10..1e-7_f64, 1e-6..2e-2_f64)
}

fn sizes() -> impl Strategy<Value = Vec<f64>> {
    vec((12..21_i32, 0.0..1.0_f64).prop_map(|(power, more)| 2_f64.powi(power) * (1.0 + more)), 1..9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// From a small and a large size, each other size costs its true time.
    #[test]
    fn a_linear_device_is_learned_from_two_sizes(
        (byte, operation) in device(), others in sizes(), ratio in 0.01..1.0_f64,
    ) {
        let device = learned(&[full(byte, operation, 4096.0), full(byte, operation, 1048576.0)]);
        for size in others {
            let whole = full(byte, operation, size);
            // Where one term is a millionth of the other, rounding decides.
            prop_assert!((device.time(&part(&whole, ratio)).unwrap() - ratio).abs() < 1e-3);
        }
    }

    /// Also on a device that is not linear, and with noise. Intervals of one class of sizes differ by a factor of 2 at most.
    #[test]
    fn no_full_interval_costs_more_than_the_device(
        intervals in vec((sizes(), device(), 0.7..1.0_f64), 1..20),
    ) {
        let mut device = DeviceTime::default();
        for (sizes, (byte, operation), noise) in intervals {
            for size in sizes {
                let flow = part(&full(byte, operation, size), noise);
                device.learn(&flow, 1.0, 8.0);
                if flow.reads >= 8.0 {
                    let (bytes, operations) = device.speeds().unwrap();
                    let time = flow.bytes() / bytes + flow.operations() / operations;
                    prop_assert!((0.0..1.5).contains(&time), "{time}");
                }
            }
        }
    }

    #[test]
    fn a_device_twice_as_fast_costs_half((byte, operation) in device(), sizes in sizes()) {
        let flows: Vec<DiskFlow> = sizes.iter().map(|size| full(byte, operation, *size)).collect();
        let fast: Vec<DiskFlow> = flows.iter().map(|flow| part(flow, 2.0)).collect();
        // A slow disk with large requests does too few of them.
        prop_assume!(flows.iter().all(|flow| flow.reads >= 8.0));
        let (slow, fast) = (learned(&flows), learned(&fast));
        for flow in &flows {
            let times = (slow.time(flow).unwrap(), fast.time(flow).unwrap());
            prop_assert!((times.0 - (times.1 * 2.0).min(1.0)).abs() < 1e-6, "{times:?}");
        }
    }

    #[test]
    fn the_cost_of_all_is_the_sum_of_the_costs(
        (byte, operation) in device(), sizes in sizes(), ratios in vec(0.0..1.0_f64, 9),
    ) {
        let device = learned(&[full(byte, operation, 4096.0), full(byte, operation, 262144.0)]);
        let nr = sizes.len() as f64;
        let works: Vec<DiskFlow> = sizes.iter().zip(ratios)
            .map(|(size, ratio)| part(&full(byte, operation, *size), ratio / nr)).collect();
        let all = works.iter().copied().reduce(DiskFlow::and).unwrap();
        prop_assume!(device.time(&all).is_some_and(|all| all > 0.0));
        let parts: f64 = works.iter().map(|work| device.part(work, &all)).sum();
        prop_assert!((parts - 1.0).abs() < 1e-6, "{parts}");
    }
}
