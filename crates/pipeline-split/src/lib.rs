//! Layers over several devices. Empty for now: the README says what comes here.

#![forbid(unsafe_code)]
