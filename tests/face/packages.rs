//! What the packages hold.
