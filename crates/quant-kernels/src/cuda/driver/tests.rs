//! The driver on a real device; skipped by name where there is none.
