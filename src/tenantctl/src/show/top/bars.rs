//! Figures as characters: bars, sparklines, the map of the CPUs.

/// A cell of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Used part, in eighths of the cell, 1 to 8.
    Used(u8),
    /// Demanded and unused part.
    Wanted,
    /// Mark of the entitlement.
    Entitled,
    /// Part beyond the demand.
    Free,
}

impl Cell {
    /// Character of the cell.
    pub fn symbol(self) -> char {
        match self {
            Cell::Used(eighths) => EIGHTHS_RIGHT[usize::from(eighths.clamp(1, 8)) - 1],
            Cell::Wanted => '░',
            Cell::Entitled => '┃',
            Cell::Free => '·',
        }
    }
}

const EIGHTHS_RIGHT: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
const EIGHTHS_UP: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws a bar of `width` cells for the whole `capacity`, with the usage, the demand and the mark of the
/// entitlement. Values above the capacity end at its end.
pub fn bar(used: f64, wanted: f64, entitled: f64, capacity: f64, width: usize) -> Vec<Cell> {
    let eighths = |value: f64| {
        let share = if capacity > 0.0 { (value / capacity).clamp(0.0, 1.0) } else { 0.0 };
        (share * width as f64 * 8.0).round() as usize
    };
    let (used, wanted) = (eighths(used), eighths(wanted));
    let cells = (0..width).map(|cell| match used.saturating_sub(cell * 8) {
        0 if wanted > cell * 8 => Cell::Wanted,
        0 => Cell::Free,
        eighths => Cell::Used(eighths.min(8) as u8),
    });
    let mut cells: Vec<Cell> = cells.collect();
    // The mark is in the cell where a usage of that amount would end.
    let mark = eighths(entitled).div_ceil(8).saturating_sub(1);
    if let Some(cell) = cells.get_mut(mark)
        && entitled > 0.0
    {
        *cell = Cell::Entitled;
    }
    cells
}

/// Draws one character per value, from empty at 0 to full at `top`; blank if it is absent.
pub fn sparkline(values: &[Option<f64>], top: f64) -> String {
    let symbol = |value: &Option<f64>| {
        let Some(value) = value.filter(|_| top > 0.0) else { return ' ' };
        let step = (value / top).clamp(0.0, 1.0) * (EIGHTHS_UP.len() - 1) as f64;
        EIGHTHS_UP[step.round() as usize]
    };
    values.iter().map(symbol).collect()
}

/// Letter of a tenant, by its index in the policy.
pub fn letter(place: usize) -> char {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char::from(LETTERS[place % LETTERS.len()])
}

/// Tenants of each CPU: none if no tenant is pinned, several if their CPUs overlap.
///
/// `placed` holds the indices of tenants in the policy, with their CPUs.
pub fn map(nr_cpus: usize, placed: &[(usize, Vec<usize>)]) -> Vec<Vec<usize>> {
    let highest = placed.iter().flat_map(|(_, cpus)| cpus).max();
    let count = nr_cpus.max(highest.map_or(0, |highest| highest + 1));
    let mut map = vec![Vec::new(); count];
    for (place, cpus) in placed {
        for cpu in cpus {
            map[*cpu].push(*place);
        }
    }
    map
}
