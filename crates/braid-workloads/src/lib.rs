//! Workloads that measure Braid.
