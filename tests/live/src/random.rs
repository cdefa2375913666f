//! Random numbers, clusters and packets, the same for the same seed.

pub mod cluster;
pub mod compare;
pub mod packets;
pub mod site;

/// Numbers that are the same in every run (Knuth's MMIX multiplier and increment).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// One below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// True in so many of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    ///
    /// # Panics
    /// When there is none.
    pub fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        let count = u64::try_from(of.len()).expect("few");
        of[usize::try_from(self.below(count)).expect("few")]
    }

    /// Each with a chance of `percent` in 100.
    pub fn some_of<T: Copy>(&mut self, of: &[T], percent: u64) -> Vec<T> {
        of.iter().copied().filter(|_| self.percent(percent)).collect()
    }
}
