pub struct Claim {
    pub weight: f64,
    pub floor: u64,
    pub ceiling: u64,
}
pub fn apportion(slots: u64, claims: &[Claim]) -> Vec<u64> {
    let mut a: Vec<u64> = vec![0; claims.len()];
    let mut left = slots;
    for (x, c) in a.iter_mut().zip(claims) {
        let g = c.floor.min(left);
        *x = g;
        left -= g;
    }
    while left > 0 {
        let Some(i) = (0..a.len()).filter(|&i| a[i] < claims[i].ceiling).min_by(|&i, &j| {
            (a[i] as f64 / claims[i].weight).total_cmp(&(a[j] as f64 / claims[j].weight))
        }) else {
            break;
        };
        a[i] += 1;
        left -= 1;
    }
    a
}
