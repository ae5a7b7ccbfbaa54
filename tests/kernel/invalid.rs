//! Values that the kernel takes for invalid because of what another file of the cgroup holds.

use std::fs;

use nix::sys::signal::Signal;
use tenantd_host::cgroup::Facet;

use super::ground::{Daemon, Ground};
use crate::util::{self, assert_same, wait_until};

const POLICY: &str = "tenants: { a: { weight: 300 }, b: { limit: { memory: 256MiB } } }";
const SMALL: &str = "67108864";

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn what_makes_a_value_invalid_is_said_with_its_remedy() {
    let Some(ground) = Ground::take() else { return };
    ["a", "b"].iter().for_each(|below| ground.make(below));
    let before = ground.snapshot();
    let idle = ground.dir(Facet::Cpu, "a").join("cpu.idle");
    if !idle.exists() {
        return util::skipped("this kernel has no cpu.idle");
    }
    // Of the legacy hierarchy, where the kernel accounts swap.
    let limit = ground.dir(Facet::Memory, "b").join("memory.limit_in_bytes");
    let both = ground.dir(Facet::Memory, "b").join("memory.memsw.limit_in_bytes");
    let mut causes = vec!["cpu.idle is 1 there"];
    let daemon = Daemon::start(&mut ground.enforce(POLICY));
    wait_until("the weight", || ground.is_weighed("a"));
    fs::write(&idle, "1").unwrap();
    if both.exists() {
        wait_until("the limit", || fs::read_to_string(&limit).unwrap().trim() == "268435456");
        // The agent may raise the first before the second is written.
        let is_bounded = || [&limit, &both].iter().all(|file| fs::write(file, SMALL).is_ok());
        wait_until("the bound", is_bounded);
        causes.push("memory.memsw.limit_in_bytes is 64MiB there");
    }
    causes.iter().for_each(|cause| daemon.says(cause));
    let (_, said) = daemon.signal(Signal::SIGTERM);
    let (_, last) = said.rsplit_once("restored the values").unwrap();
    for cause in causes {
        assert!(last.contains(cause), "{cause}: {said}");
    }
    fs::write(&idle, "0").unwrap();
    if both.exists() {
        fs::write(&both, "-1").unwrap();
    }
    util::run(ground.tenantd().arg("--restore")).exits(0);
    assert_same(&before, &ground.snapshot(), "restored");
}
