use tenantd::fair::*;
fn main() {
    for (n, g) in [(10000usize, None), (100000, None), (10000, Some(10)), (100000, Some(10))] {
        let mut x = 1u64;
        let mut roll = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut nodes = Vec::new();
        let mut parent = None;
        for leaf in 0..n {
            if g.is_some_and(|g| leaf % g == 0) {
                parent = Some(nodes.len());
                nodes.push(Node {
                    parent: None,
                    weight: vec![1.0 + (roll() * 4.0).floor(); 3],
                    kind: Kind::Group,
                });
            }
            let mut d = Demand::once((0..3).map(|_| roll()).collect());
            for r in 0..3 {
                match leaf % 3 {
                    0 => d.guarantee[r] = d.task[r] * 0.25,
                    1 => d.limit[r] = d.task[r] * 0.75,
                    _ => {}
                }
            }
            nodes.push(Node {
                parent,
                weight: vec![1.0 + (roll() * 4.0).floor(); 3],
                kind: Kind::Leaf(d),
            });
        }
        let p = Problem::try_new(vec![n as f64 * 0.375; 3], nodes).unwrap();
        let cpu = || {
            let t = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID.now().unwrap();
            t.tv_sec() as f64 * 1e3 + t.tv_nsec() as f64 / 1e6
        };
        let mut best = f64::INFINITY;
        let mut v = vec![];
        for _ in 0..(if n > 10000 { 12 } else { 60 }) {
            let a = cpu();
            std::hint::black_box(allocate(&p, Algorithm::Drf, WorkConserving::No));
            let d = cpu() - a;
            v.push(d);
            best = best.min(d);
        }
        v.sort_by(f64::total_cmp);
        println!("{n} {g:?} min {best:.3} median {:.3} ms", v[v.len() / 2]);
    }
}
