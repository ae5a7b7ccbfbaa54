//! Records of the kernel log about processes killed for lack of memory.
//!
//! **Problem.** Users choose the names of processes and cgroups in these records. A cgroup named `x,task_memcg=/other`
//! must not put a kill on the account of another tenant.
//!
//! **Rules.** A record of `/dev/kmsg` is `PREFIX,NUMBER,USEC,FLAGS;TEXT`. Records of user space have a facility in the prefix
//! and are ignored. `oom-kill:` names the victim and the limit; a record in which a key occurs twice is ambiguous and
//! ignored, and the counters of the cgroup alone report that kill. Each `Killed process` counts as one kill of the
//! `oom-kill:` before it: the victim itself, or a process of a group that ends as a whole. The kernel prints at most ten
//! `oom-kill:` in five seconds; a `Killed process` without one belongs to no known kill.
//!
//! **Properties** (tests below, over random bytes): no text panics; a record with any names yields these names or nothing.

use super::proc_files::number;
use super::text_of;

/// A kill, or more processes of the kill before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OomKill {
    /// Cgroup whose limit was reached, from the root of its hierarchy; `None` if the host had no memory left.
    pub limit: Option<String>,
    /// Cgroup of the victim, from the root of its hierarchy.
    pub cgroup: String,
    /// Victim.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its name in the kernel.
    pub program: String,
    /// Kills since the last call of [`OomLog::take`], as the kernel counts them.
    pub nr_kills: u64,
    /// Resident memory of the processes of these kills.
    pub held_bytes: u64,
    /// True if an earlier call has returned the beginning of this kill.
    pub is_more: bool,
}

/// Reader of a kernel log.
#[derive(Clone, Debug, Default)]
pub struct OomLog {
    open: Option<OomKill>,
    /// True if the group of the open kill ends as a whole.
    is_group: bool,
    has_victim: bool,
    done: Vec<OomKill>,
    nr_unknown: u64,
}

impl OomLog {
    /// Reads one record.
    pub fn note(&mut self, record: &[u8]) {
        let Some(text) = text_of_kernel(record) else { return };
        if text.starts_with(b"oom-kill:") {
            self.close();
            self.open = victim(text);
        } else if text.ends_with(b" are going to be killed due to memory.oom.group set") {
            self.is_group = self.has_victim;
        } else if let Some((pid, bytes)) = killed(text) {
            let is_group = self.is_group;
            let is_first = !std::mem::replace(&mut self.has_victim, true);
            match self.open.as_mut().filter(|kill| is_group || is_first && kill.pid == pid) {
                Some(kill) => {
                    kill.nr_kills += 1;
                    // The victim is listed again with its group.
                    let is_new = is_first || kill.pid != pid;
                    kill.held_bytes =
                        kill.held_bytes.saturating_add(if is_new { bytes } else { 0 });
                }
                None => self.nr_unknown += 1,
            }
        }
    }

    /// Returns the kills since the last call, and the number of those whose cgroups are not known.
    pub fn take(&mut self) -> (Vec<OomKill>, u64) {
        let going_on = self.open.as_mut().filter(|kill| kill.nr_kills > 0).map(|kill| {
            let so_far = kill.clone();
            (kill.nr_kills, kill.held_bytes, kill.is_more) = (0, 0, true);
            so_far
        });
        self.done.extend(going_on);
        (std::mem::take(&mut self.done), std::mem::take(&mut self.nr_unknown))
    }

    fn close(&mut self) {
        self.done.extend(self.open.take().filter(|kill| kill.nr_kills > 0));
        (self.is_group, self.has_victim) = (false, false);
    }
}

/// Text of a record by the kernel itself.
fn text_of_kernel(record: &[u8]) -> Option<&[u8]> {
    const FACILITY: u32 = 8;
    let at = record.iter().position(|byte| *byte == b';')?;
    let (head, text) = (&record[..at], &record[at + 1..]);
    let prefix = number(head.split(|byte| *byte == b',').next()?)?;
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    (prefix < FACILITY).then_some(&text[..end])
}

/// Keys whose values follow names, or are names.
const KEYS: [&[u8]; 6] =
    [b",oom_memcg=", b",global_oom,", b",task_memcg=", b",task=", b",pid=", b",uid="];

fn victim(text: &[u8]) -> Option<OomKill> {
    let places = KEYS.map(|key| places(text, key));
    if places.iter().any(|places| places.1) {
        return None;
    }
    let [limit, host, cgroup, program, pid, uid] = places.map(|places| places.0);
    let (cgroup, program, pid, uid) = (cgroup?, program?, pid?, uid?);
    let value = |key: usize, at: usize, end: usize| text.get(at + KEYS[key].len()..end);
    let limit = match (limit, host) {
        (Some(at), None) => Some(unescaped(value(0, at, cgroup)?)),
        // The comma before the next key is part of this one.
        (None, Some(at)) if at + KEYS[1].len() == cgroup + 1 => None,
        _ => return None,
    };
    Some(OomKill {
        uid: number(text.get(uid + KEYS[5].len()..)?)?,
        limit: limit.map(|limit| text_of(&limit)),
        cgroup: text_of(&unescaped(value(2, cgroup, program)?)),
        program: text_of(&unescaped(value(3, program, pid)?)),
        pid: number(value(4, pid, uid)?)?,
        ..OomKill::default()
    })
}

/// First place of a key, and true if there is another one.
fn places(text: &[u8], key: &[u8]) -> (Option<usize>, bool) {
    let mut all = text.windows(key.len()).enumerate().filter(|(_, at)| *at == key);
    (all.next().map(|(at, _)| at), all.next().is_some())
}

/// Number and resident memory of a killed process.
fn killed(text: &[u8]) -> Option<(u32, u64)> {
    const KILLED: &[u8] = b": Killed process ";
    let is_of_memory = |start: &[u8]| text.starts_with(start);
    if !is_of_memory(b"Memory cgroup out of memory") && !is_of_memory(b"Out of memory") {
        return None;
    }
    let (at, _) = places(text, KILLED);
    let rest = &text[at? + KILLED.len()..];
    let name = rest.iter().position(|byte| *byte == b' ')?;
    let pid = number(&rest[..name])?;
    // The last one is the kernel's: the name before it may contain others.
    let figures = rest.windows(9).rposition(|it| it == b"total-vm:")?;
    let parts = [&b"anon-rss:"[..], b"file-rss:", b"shmem-rss:"];
    let kib = parts.iter().map(|part| {
        let at = rest[figures..].windows(part.len()).position(|it| it == *part)?;
        let value = &rest[figures + at + part.len()..];
        let end = value.iter().position(|byte| !byte.is_ascii_digit())?;
        std::str::from_utf8(&value[..end]).ok()?.parse::<u64>().ok()
    });
    let kib = kib.collect::<Option<Vec<u64>>>()?.into_iter().fold(0, u64::saturating_add);
    Some((pid, kib.saturating_mul(1 << 10)))
}

/// Bytes behind the escapes of `/dev/kmsg`, in which each backslash begins one.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [first, after @ ..] = rest {
        rest = after;
        let escape = match rest {
            [b'x', high, low, ..] if *first == b'\\' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        bytes.push(escape.map_or(*first, |(high, low)| (high << 4 | low) as u8));
        if escape.is_some() {
            rest = &rest[3..];
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KILLED: &str = "3,8,9,-;Memory cgroup out of memory: Killed process 21142 (tenantctl) total-vm:237708kB, \
                          anon-rss:73088kB, file-rss:10324kB, shmem-rss:4kB, UID:0 pgtables:252kB oom_score_adj:997\n";

    fn read(records: &[&str]) -> (Vec<OomKill>, u64) {
        let mut log = OomLog::default();
        records.iter().for_each(|record| log.note(record.as_bytes()));
        log.take()
    }

    /// A record of `/dev/kmsg` as the kernel writes it.
    fn record(limit: Option<&[u8]>, cgroup: &[u8], program: &[u8]) -> Vec<u8> {
        let mut text =
            b"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0"
                .to_vec();
        match limit {
            Some(limit) => text.extend([b",oom_memcg=", limit].concat()),
            None => text.extend(b",global_oom"),
        }
        text.extend([b",task_memcg=", cgroup, b",task=", program, b",pid=21142,uid=0\n"].concat());
        let escaped = text.into_iter().flat_map(|byte| match byte {
            b'\n' => b"\n".to_vec(),
            b' '..=b'~' if byte != b'\\' => vec![byte],
            byte => format!("\\x{byte:02x}").into_bytes(),
        });
        b"6,7,8,-;".iter().copied().chain(escaped).collect()
    }

    #[test]
    fn a_kill_has_its_victim_and_its_limit() {
        let line = record(Some(b"/t"), b"/t/b", b"tenantctl");
        let (kills, nr_unknown) = read(&[std::str::from_utf8(&line).unwrap(), KILLED]);
        let kill = OomKill {
            limit: Some("/t".into()),
            cgroup: "/t/b".into(),
            pid: 21142,
            uid: 0,
            program: "tenantctl".into(),
            nr_kills: 1,
            held_bytes: (73088 + 10324 + 4) << 10,
            is_more: false,
        };
        assert_eq!((kills, nr_unknown), (vec![kill], 0));
        let host = record(None, b"/t/b", b"tenantctl");
        let (kills, _) = read(&[std::str::from_utf8(&host).unwrap(), KILLED]);
        assert_eq!((kills[0].limit.as_deref(), &*kills[0].cgroup), (None, "/t/b"));
        // A victim that was exiting is not killed, and a kill without its cgroup is of no known one.
        assert_eq!(read(&[std::str::from_utf8(&line).unwrap()]), (vec![], 0));
        assert_eq!(read(&[KILLED]), (vec![], 1));
    }

    #[test]
    fn a_group_is_one_kill_also_when_it_is_read_in_parts() {
        let line = record(Some(b"/t"), b"/t/b", b"tenantctl");
        let group = "6,9,9,-;Tasks in /t/b are going to be killed due to memory.oom.group set\n";
        let other = KILLED.replace("21142", "7");
        let mut log = OomLog::default();
        log.note(&line);
        for record in [KILLED, group, KILLED, &other] {
            log.note(record.as_bytes());
        }
        let (first, _) = log.take();
        assert_eq!((first.len(), first[0].nr_kills, first[0].is_more), (1, 3, false));
        assert_eq!(first[0].held_bytes, (2 * (73088 + 10324 + 4)) << 10);
        log.note(KILLED.replace("21142", "8").as_bytes());
        let (more, nr_unknown) = log.take();
        assert_eq!((more[0].nr_kills, more[0].is_more, nr_unknown), (1, true, 0));
        // Without its group, another process is not part of the kill.
        log.note(&line);
        log.note(KILLED.as_bytes());
        log.note(other.as_bytes());
        assert_eq!((log.take().1, log.take().0), (1, vec![]));
    }

    #[test]
    fn records_of_users_and_others_are_ignored() {
        let line = record(Some(b"/t"), b"/t/b", b"tenantctl");
        let line = std::str::from_utf8(&line).unwrap();
        let of_user = line.replacen("6,", "14,", 1);
        for other in [
            &*of_user,
            "6,1,1,-;usb 1-1: new device\n",
            "6,1,1,-;oom_reaper: reaped process 7 (a), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB\n",
            "6,1,1,-;oom-kill:constraint=CONSTRAINT_NONE\n",
            "",
            ";",
            "6;oom-kill:",
        ] {
            assert_eq!(read(&[other, KILLED]).0, [], "{other}");
        }
    }

    #[test]
    fn a_name_with_a_key_is_ambiguous() {
        for (cgroup, program) in [
            (&b"/a,task_memcg=/b"[..], &b"x"[..]),
            (b"/a,oom_memcg=/b", b"x"),
            (b"/a,global_oom,task_memcg=/b", b"x"),
            (b"/a", b"a,task=b"),
            (b"/a", b"a,pid=1,uid=2"),
        ] {
            let line = record(Some(b"/a"), cgroup, program);
            assert_eq!(victim(text_of_kernel(&line).unwrap()), None);
        }
        // A name that looks like figures changes none.
        let forged = KILLED.replace("(tenantctl)", "(a) total-vm:9kB)");
        assert_eq!(killed(text_of_kernel(forged.as_bytes()).unwrap()), Some((21142, 83416 << 10)));
    }

    proptest! {
        #[test]
        fn no_text_panics(records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8)) {
            let mut log = OomLog::default();
            for record in &records {
                log.note(record);
                log.note(&[b"6,1,1,-;oom-kill:", &record[..]].concat());
                log.note(&[b"6,1,1,-;Out of memory: Killed process ", &record[..]].concat());
                log.note(&[b"6,1,1,-;Out of memory: Killed process 1 (a) total-vm:", &record[..]].concat());
            }
            let (kills, _) = log.take();
            prop_assert!(kills.iter().all(|kill| kill.nr_kills > 0));
        }

        #[test]
        fn names_come_back_or_the_record_is_ignored(
            limit in proptest::option::of(proptest::collection::vec(1_u8.., 0..20)),
            cgroup in proptest::collection::vec(1_u8.., 0..40),
            program in proptest::collection::vec(1_u8.., 0..16),
        ) {
            let is_one_line = |name: &Vec<u8>| !name.contains(&b'\n');
            prop_assume!(is_one_line(&cgroup) && is_one_line(&program) && limit.iter().all(is_one_line));
            let line = record(limit.as_deref(), &cgroup, &program);
            if let Some(found) = victim(text_of_kernel(&line).unwrap()) {
                prop_assert_eq!(found.limit, limit.map(|limit| text_of(&limit)));
                prop_assert_eq!(found.cgroup, text_of(&cgroup));
                prop_assert_eq!((found.program, found.pid), (text_of(&program), 21142));
            }
        }
    }
}
