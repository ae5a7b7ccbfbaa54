//! Who gets how much.
