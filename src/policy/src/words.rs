//! Words of other programs, and the text to write in a policy instead.
//!
//! **Problem.** A new administrator writes the words of systemd, Kubernetes, Docker, Slurm or the kernel; a list of
//! the known keys does not tell which of them is meant. **Answer.** One table: the map in which a word is found,
//! words, and the remedy. Words are compared by their letters and digits, so `CPUWeight`, `cpu.weight` and
//! `cpu_weight` are one. `<…>` in a remedy is a value of that kind: the given one if it is of the kind, else an
//! example.

use super::tree::{Kind, Node};
use tenantd_core::resource::{CPU, MEMORY};

/// Map, words, and remedy; one without a backtick is a text to write.
const WORDS: &[(&str, &str, &str)] = &[
    ("tenant", "cpuweight cpushares cpushare startupcpuweight", "weight: { cpu: <weight> }"),
    (
        "tenant",
        "share shares fairshare priority prio prioritytier nice qos qosclass priorityclass priorityclassname",
        "weight: <weight>",
    ),
    (
        "tenant",
        "cpuquota cpumax cpulimit maxcpu cpucount cpucfsquotaus cpuperiod cpucfsperiodus",
        "limit: { cpu: <cpu> }",
    ),
    (
        "tenant",
        "memorymax memoryhigh memorylimit memorylimitinbytes memlimit mem ram maxmemory mempercpu memory",
        "limit: { memory: <memory> }",
    ),
    (
        "tenant",
        "memorylow memorymin memoryreservation memreservation",
        "guarantee: { memory: <memory> }",
    ),
    (
        "tenant",
        "request requests reservation reserve reserved min minimum guaranteed",
        "guarantee: <map>",
    ),
    ("tenant", "limits max maximum ceiling cap quota grptres grpcpus maxtres", "limit: <map>"),
    (
        "tenant",
        "resources",
        "write `guarantee: <map>` for Kubernetes' requests and `limit: <map>` for its limits",
    ),
    (
        "tenant",
        "tasksmax defaulttasksmax pidslimit pidsmax maxpids nproc limitnproc ulimits processes maxprocesses",
        "limit: { pids: <count> }",
    ),
    ("tenant", "allowedcpus cpuset cpusetcpus cpuaffinity affinity cpulist", "cpus: \"<list>\""),
    ("tenant", "slice service services scope", "match: { unit: <text> }"),
    ("tenant", "user users uid username", "match: { users: <text> }"),
    ("tenant", "group groups gid account accounts", "match: { groups: <text> }"),
    ("tenant", "path", "match: { cgroup: <text> }"),
    ("tenant", "namespace namespaces pod pods", "match: { pod: { namespace: <text> } }"),
    ("tenant", "image container containers containername", CONTAINERS),
    ("tenant", "partition queue", "each tenant has a queue of its own: give the tenant this name"),
    (
        "tenant",
        "cpuspertask ntasks threads nthreads parallelism width cores vcpus",
        "dop: { max: <count> }",
    ),
    (
        "tenant",
        "maxjobs maxrunning maxrunningjobs grpjobs concurrency slots",
        "jobs: { max_running: <count> }",
    ),
    ("tenant", "gres gpu gpus devices", UNITS),
    (
        "tenant",
        "io iodeviceweight iomax ioreadbandwidthmax iowritebandwidthmax ioreadiopsmax iowriteiopsmax blkio disk",
        DISK,
    ),
    ("tenant", "network net", NETWORK),
    ("tenant", "ioweight blkioweight iobfqweight", "weight: { disk: <weight> }"),
    ("tenant", "swap memoryswapmax memswaplimit memswappiness", SWAP),
    ("tenant", "time walltime timelimit maxtime maxwall timeout", TIME),
    ("tenant", "name title", "the name is the key of the tenant's map: `web: { weight: 100 }`"),
    (
        "tenant",
        "description comment note label labels annotations metadata",
        "write it as a comment: `# …`",
    ),
    ("tenant", "owners allowed allowusers allowedusers submitters", "allow: { users: <text> }"),
    ("tenant", "exclusive dedicated pinned", "cpus: exclusive"),
    (
        "tenant",
        "maxsubmitjobs maxsubmit maxqueued",
        "write `admission: { max_waiting: <count> }` at the top",
    ),
    (
        "tenant",
        "default enabled replicas nodes nodeselector tolerations spec kind containers deploy ports volumes environment \
         privileged networks delegate execstart restart cpuaccounting memoryaccounting oomscoreadjust oompolicy",
        NOTHING,
    ),
    ("tenant", "children members subtenants", "tenants: <map>"),
    ("amounts", "cpus cores cpuquota cpumax cpucores vcpu vcpus", "write `cpu: <cpu>`"),
    (
        "amounts",
        "mem ram memorymax memorylimit memorymin memoryhigh memorylow",
        "write `memory: <memory>`",
    ),
    ("amounts", "tasks tasksmax processes threads nproc pid", "write `pids: <count>` in `limit`"),
    ("amounts", "gpu gpus gres nvidiacomgpu amdcomgpu", UNITS),
    ("amounts", "io disk blkio iops bandwidth", DISK),
    ("amounts", "storage ephemeralstorage", STORAGE),
    ("amounts", "network net", NETWORK),
    ("amounts", "swap memoryswapmax", SWAP),
    ("amounts", "time walltime", TIME),
    ("amounts", "jobs maxjobs", "write `jobs: { max_running: <count> }` in the tenant"),
    ("amounts", "max min", "write the resource: `{ cpu: 2, memory: 4GiB }`"),
    ("match", "rest default others other all everything any", REST),
    ("match", "service services slice scope", "write `unit: <text>`"),
    ("match", "image container containers", CONTAINERS),
    ("match", "namespace namespaces pods", "write `pod: { namespace: <text> }`"),
    ("match", "label labels podlabels", "write `pod: { label: \"team=core\" }`"),
    (
        "match",
        "pid pids process processes command cmd comm cmdline exe executable program name args",
        PROCESSES,
    ),
    ("match", "path paths", "write `cgroup: <text>`"),
    (
        "dop",
        "min minimum",
        "a smallest width is a guarantee: write `guarantee: { cpu: <cpu> }` in the tenant",
    ),
    ("dop", "maximum most limit", "write `max: <count>`"),
    ("jobs", "max maximum limit maxjobs running concurrency", "write `max_running: <count>`"),
    (
        "host",
        "cpus cpu cores memory ram",
        "the size is read from the kernel; `tenantctl check --host cpus=64,memory=256GiB` checks for another",
    ),
    ("host", "gpu gpus gres", "write `resources: { gpu: <count> }`"),
    ("policy", "services", "write `tenants:`, and a tenant for each service"),
    ("policy", "admin admins root operators", "write `administrators: { users: <text> }`"),
    (
        "policy",
        "include includes import imports",
        "a policy may be a directory: its `*.yaml` files are merged",
    ),
    (
        "policy",
        "log logging loglevel socket listen statedir",
        "write it as an option of the daemon: see `tenantd --help`",
    ),
    (
        "policy",
        "defaults default templates template common anchors vars variables",
        "begin a key for anchors with `x-`: `x-defaults`",
    ),
];

const CONTAINERS: &str = "name the containers' units: `match: { unit: \"docker-*.scope\" }`";
const UNITS: &str = "the policy counts GPUs for the host, as in `host.resources: { gpu: 2 }`; jobs ask for them with \
                     `tenantctl run --gpu 1`";
const DISK: &str = "requests to disks are limited by `limit: { disk: { read: 100MiB/s, write_iops: 500 } }`, and weighed by \
                    `weight: { disk: 300 }` and `guarantee: { disk: 20% }` with `host: { disks: weigh }`";
const NETWORK: &str = "a policy bounds no network: leave it out";
const STORAGE: &str = "a policy bounds requests to disks, and no room on them: leave it out, and use quotas of the file \
                       system";
const SWAP: &str = "a policy bounds `memory`, and not swap: leave it out";
const TIME: &str =
    "a policy bounds amounts such as `cpu` and `memory`, and no run time: leave it out";
const NOTHING: &str = "a policy has `weight`, `guarantee` and `limit` for running work, and starts nothing: leave it out";
const REST: &str = "write `match: rest` for all work that no other tenant claims";
const PROCESSES: &str = "processes are found by `unit`, `cgroup`, `users`, `groups` or `pod`; `tenantctl attach` hands running ones \
                         to a tenant";

/// Kinds of values in a remedy: name, example, and the value in the notation of a policy.
type Written = fn(&str) -> Option<String>;
const KINDS: &[(&str, &str, Written)] = &[
    ("<weight>", "100", |text| number(text.trim_end_matches('%'))),
    ("<cpu>", "1.5", cpus),
    ("<memory>", "4GiB", memory),
    ("<count>", "4", |text| number(text).filter(|it| !it.contains('.'))),
    ("<list>", "0-3", |text| {
        Some(text.to_string()).filter(|_| !text.contains(char::is_whitespace))
    }),
    ("<text>", "web", |text| Some(text.to_string())),
    ("<map>", "{ cpu: 2, memory: 4GiB }", |text| {
        Some(text.to_string()).filter(|it| it.starts_with('{'))
    }),
];

/// Longest value that is repeated.
const VALUE_MAX: usize = 48;

/// The remedy for the key `word` of another program, found with this value in the map `of`.
pub(super) fn instead(of: &str, word: &str, value: Option<&Node>) -> Option<String> {
    let of = match of {
        "each" => "tenant",
        "limit" | "guarantee" | "weight" | "reserve" => "amounts",
        of => of,
    };
    let word = letters(word);
    let find = |of: &str| WORDS.iter().find(|row| row.0 == of && has(row.1, &word));
    let elsewhere = || find("tenant").filter(|row| of == "policy" && !row.2.contains('`'));
    let (.., remedy) = find(of).or_else(elsewhere)?;
    let mut text =
        if remedy.contains('`') { remedy.to_string() } else { format!("write `{remedy}`") };
    if of == "policy" && !remedy.contains('`') {
        text += " in a tenant";
    }
    let value = value.and_then(flow).filter(|text| text.chars().count() <= VALUE_MAX);
    for (kind, example, written) in KINDS {
        let given = value.as_deref().and_then(written);
        text = text.replace(kind, given.as_deref().unwrap_or(example));
    }
    Some(text)
}

fn has(words: &str, word: &str) -> bool {
    words.split(' ').any(|it| it == word)
}

/// The remedy for a match that is one word.
pub(super) fn instead_of_match(text: &str) -> Option<&'static str> {
    let is_rest = matches!(text, "*" | "**" | "/*") || {
        let of_match = WORDS.iter().find(|row| row.2 == REST);
        of_match.is_some_and(|row| has(row.1, &letters(text)))
    };
    is_rest.then_some(REST)
}

fn letters(word: &str) -> String {
    let kept = word.chars().filter(char::is_ascii_alphanumeric);
    kept.take(VALUE_MAX).map(|c| c.to_ascii_lowercase()).collect()
}

fn number(text: &str) -> Option<String> {
    let number: f64 = text.trim().parse().ok()?;
    (number > 0.0 && number < 1e6).then(|| number.to_string())
}

/// CPUs; a percentage is one of a CPU, as in systemd.
fn cpus(text: &str) -> Option<String> {
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent: f64 = percent.trim().parse().ok().filter(|it| (1.0..1e6).contains(it))?;
            Some((percent / 100.0).to_string())
        }
        None => CPU
            .parse(text)
            .ok()
            .filter(|milli| (1..=8_192_000).contains(milli))
            .map(|_| text.to_string()),
    }
}

/// Memory; `4G` and `4g` are powers of two in systemd and Docker.
fn memory(text: &str) -> Option<String> {
    let (digits, suffix) =
        text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let letter = suffix.chars().next().filter(|_| suffix.len() <= 3);
    let binary = letter.map(|letter| format!("{}{}iB", digits.trim(), letter.to_ascii_uppercase()));
    [text.to_string()].into_iter().chain(binary).find(|text| MEMORY.parse(text).is_ok())
}

/// A value in one line of YAML.
pub(super) fn flow(node: &Node) -> Option<String> {
    Some(match &node.kind {
        Kind::Null => return None,
        Kind::Scalar { text, plain: true } => text.to_string(),
        Kind::Scalar { text, plain: false } => format!("{text:?}"),
        Kind::List(items) => {
            let items: Vec<String> = items.iter().filter_map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Kind::Map(entries) => {
            let one = |entry: &super::tree::Entry| {
                Some(format!("{}: {}", entry.key, flow(&entry.value)?))
            };
            let entries: Vec<String> = entries.iter().filter_map(one).collect();
            format!("{{ {} }}", entries.join(", "))
        }
    })
}
