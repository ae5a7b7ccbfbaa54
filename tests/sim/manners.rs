//! What the files say, what they accept, and with which errno they refuse.

use nix::errno::Errno;

use super::host;

#[test]
fn placeholder() {
    let _ = (host(1, &[]), Errno::EINVAL);
}
