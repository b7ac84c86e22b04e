//! Byte ranges of files into caller-given memory. Empty for now: the README says what comes here.
