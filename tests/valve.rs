//! Tests of `valve`: tokens are conserved, whoever is killed, and real build tools follow.

mod tools;
pub(crate) mod works;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tenantd_host::valve::Valve;
use works::Client;

use crate::util::{self, Dice, wait_until};

fn me() -> u32 {
    nix::unistd::getuid().as_raw()
}

fn valve(dir: &Path, tokens: u32) -> Valve {
    Valve::create(&dir.join("valve"), me(), tokens).unwrap()
}

#[test]
fn tokens_are_as_many_as_was_told() {
    let dir = util::scratch();
    let mut valve = valve(dir.path(), 3);
    for target in [3, 7, 2, 0, 0, 5, 5, 1, 200, 4] {
        valve.set(target).unwrap();
        assert_eq!((valve.free().unwrap(), valve.target(), valve.debt()), (target, target, 0));
    }
    // More than a pipe takes is not an error that comes back each tick.
    valve.set(u32::MAX).unwrap();
    assert_eq!(valve.free().unwrap(), tenantd_host::valve::TOKENS_MAX);
    valve.set(0).unwrap();
    assert_eq!(valve.free().unwrap(), 0);
}

#[test]
fn held_tokens_are_taken_as_they_come_back() {
    let dir = util::scratch();
    let mut valve = valve(dir.path(), 5);
    let mut client = Client::open(&valve);
    client.take(4);
    // One is free and goes at once; three are owed.
    valve.set(1).unwrap();
    assert_eq!((valve.free().unwrap(), valve.debt()), (0, 3));
    for debt in [2, 1, 0] {
        client.give(1);
        wait_until("a returned token is taken", || valve.debt() == debt);
    }
    client.give(1);
    wait_until("the last token stays", || valve.free().unwrap() == 1);
    // What was owed and is wanted again is neither taken nor added.
    client.take(1);
    valve.set(0).unwrap();
    assert_eq!(valve.debt(), 1);
    valve.set(1).unwrap();
    assert_eq!((valve.free().unwrap(), valve.debt()), (0, 0));
    client.give(1);
    wait_until("the token stays", || valve.free().unwrap() == 1);
}

#[test]
fn the_fifo_is_the_users_and_nobody_elses() {
    let dir = util::scratch();
    let uid = if me() == 0 { 65534 } else { me() };
    let place = dir.path().join("valve");
    let valve = Valve::create(&place, uid, 1).unwrap();
    let fifo = fs::metadata(valve.fifo()).unwrap();
    assert!(fifo.file_type().is_fifo());
    assert_eq!((fifo.uid(), fifo.mode() & 0o777), (uid, 0o600));
    // The user cannot put something else in its place.
    let around = fs::metadata(&place).unwrap();
    assert_eq!((around.uid(), around.mode() & 0o777), (me(), 0o755));
    valve.remove().unwrap();
    assert!(!place.exists());
}

#[test]
fn what_an_earlier_valve_left_is_replaced() {
    let dir = util::scratch();
    let first = valve(dir.path(), 3);
    let second = valve(dir.path(), 2);
    assert_eq!((first.free().unwrap(), second.free().unwrap()), (3, 2));
    second.remove().unwrap();
    // There is nothing to open, and the error names the file.
    let error = Valve::open(&dir.path().join("valve")).unwrap_err();
    assert!(error.to_string().contains("valve/jobserver"), "{error}");
}

#[test]
fn a_damaged_record_is_an_error_and_no_number() {
    let dir = util::scratch();
    let kept = valve(dir.path(), 3);
    for text in ["", "-1\n", "three\n", "99999999\n"] {
        fs::write(dir.path().join("valve/tokens"), text).unwrap();
        let error = Valve::open(&dir.path().join("valve")).unwrap_err();
        assert!(error.to_string().contains("valve/tokens"), "{text:?}: {error}");
    }
    fs::remove_file(kept.fifo()).unwrap();
    fs::write(kept.fifo(), "+++").unwrap();
    assert!(Valve::open(&dir.path().join("valve")).unwrap_err().to_string().contains("jobserver"));
}

#[test]
fn tokens_of_a_killed_client_are_replaced() {
    let dir = util::scratch();
    let mut valve = valve(dir.path(), 4);
    let mut client = Client::open(&valve);
    client.take(3);
    // With so many threads, all of them may be in use.
    for _ in 0..3 {
        valve.audit(4).unwrap();
    }
    assert_eq!(valve.free().unwrap(), 1);
    // One audit alone may have come between taking a token and starting its command.
    valve.audit(1).unwrap();
    assert_eq!(valve.free().unwrap(), 1);
    valve.audit(2).unwrap();
    assert_eq!(valve.free().unwrap(), 3);
    valve.audit(1).unwrap();
    assert_eq!(valve.free().unwrap(), 4);
    // They were not lost after all: what is too many goes as it comes back.
    client.give(3);
    wait_until("the client's tokens are in the pipe", || valve.free().unwrap() == 7);
    valve.audit(1).unwrap();
    assert_eq!(valve.free().unwrap(), 4);
}

#[test]
fn bytes_of_the_user_neither_block_nor_add_width() {
    let dir = util::scratch();
    let mut valve = valve(dir.path(), 2);
    let mut client = Client::open(&valve);
    client.give(60_000);
    valve.set(40_000).unwrap();
    valve.set(3).unwrap();
    valve.audit(1).unwrap();
    valve.audit(1).unwrap();
    assert_eq!((valve.free().unwrap(), valve.debt()), (3, 0));
}

/// Changes the target at random until it is killed: run by the test below in a process of its own.
#[test]
#[ignore = "is a part of the test below"]
fn a_holder() {
    let Some(dir) = std::env::var_os("TENANTD_TEST_VALVE") else { return };
    let mut valve = Valve::open(Path::new(&dir)).unwrap();
    let mut dice = Dice::new(u64::from(std::process::id()));
    loop {
        valve.set(dice.below(8) as u32).unwrap();
        std::io::stdout().write_all(b"x").unwrap();
    }
}

fn holder(dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", "valve::a_holder"]);
    command.env("TENANTD_TEST_VALVE", dir).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn tokens_survive_kills_of_the_holder() {
    let dir = util::scratch();
    let place = dir.path().join("valve");
    let mut client = Client::open(&valve(dir.path(), 6));
    let mut dice = Dice::new(7);
    for round in 0..12 {
        let mut holder = holder(&place);
        let out = holder.stdout.as_mut().unwrap();
        // The client takes and returns while the holder changes its mind, until the kill.
        let mut held = 0;
        for _ in 0..dice.below(300) {
            out.read_exact(&mut [0]).unwrap();
            match dice.below(2) {
                0 => held += client.take_if_free(),
                _ if held > 0 => {
                    client.give(1);
                    held -= 1;
                }
                _ => {}
            }
        }
        holder.kill().unwrap();
        holder.wait().unwrap();
        let mut valve = Valve::open(&place).unwrap();
        let there = valve.free().unwrap() + held;
        assert!(there <= valve.target(), "round {round}: {there} tokens, {} known", valve.target());
        assert!(there + 7 >= valve.target(), "round {round}: {there} tokens of {}", valve.target());
        // One thread for each token that is held, and the first.
        valve.audit(held + 1).unwrap();
        valve.audit(held + 1).unwrap();
        valve.set(6).unwrap();
        assert_eq!(valve.free().unwrap() + held, 6 + valve.debt(), "round {round}");
        client.give(held);
        wait_until("all tokens are back", || valve.free().unwrap() == 6 && valve.debt() == 0);
    }
}
