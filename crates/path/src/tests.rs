//! Hand-written hosts, and where packets go on them.
