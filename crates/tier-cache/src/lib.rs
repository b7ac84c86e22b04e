//! Where each expert is and what must move. Empty for now: the README says what comes here.
