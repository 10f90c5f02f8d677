//! The story that `wharf up --demo` tells.
