//! Scenarios for tests: folders of cluster objects, a node and expectations, read into [`model`] values.
//!
//! Only tests depend on this crate. Its data lives in `scenarios/` at the root of the repository.
