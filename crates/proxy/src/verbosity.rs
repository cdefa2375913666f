//! How much the log says: one number, shared by the log and the page that changes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// klog's verbosity. Copies are the same one.
#[derive(Clone, Debug, Default)]
pub struct Verbosity(Arc<AtomicU32>);

impl Verbosity {
    /// So much.
    pub fn new(verbosity: u32) -> Verbosity {
        Verbosity(Arc::new(AtomicU32::new(verbosity)))
    }

    /// How much is said now.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// From now on say so much.
    pub fn set(&self, verbosity: u32) {
        self.0.store(verbosity, Ordering::Relaxed);
        // `tracing` remembers the level that nothing is beyond, and has to ask again.
        tracing_core::callsite::rebuild_interest_cache();
    }
}
