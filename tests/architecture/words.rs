//! Plain words: texts avoid the words of [`REFUSED`], and a doc comment starts with a noun or a verb.
//!
//! [`EXCEPTIONS`] lists the files that may have such a word. It may only shrink: an entry that is no longer
//! needed fails the test.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Words and phrases that a reader has to read twice, and their replacements.
const REFUSED: &[(&str, &str)] = &[
    ("anybody", "a tenant, a process"),
    ("nobody", "no tenant, no process"),
    ("somebody", "a tenant, a process"),
    ("whoever", "a tenant, a process"),
    ("shall", "must, will, or the present"),
    ("as far as", "if, within"),
    ("insofar as", "if, within"),
    ("in so far as", "if, within"),
    ("come to that", "the number"),
    ("comes to", "costs, amounts to, or the number"),
    ("what became of", "the result of"),
    ("such a one", "the noun"),
    ("is said of", "the noun"),
    ("it is told", "reports, prints, logs"),
    ("says so", "reports, prints, logs"),
    ("tells what for", "reports, prints, logs"),
    ("for good", "permanently"),
    ("gives back", "releases, restores"),
    ("is had", "is used, is held"),
    ("lets go of", "releases"),
    ("lies beneath", "is below"),
    ("stands above", "is the parent of"),
    ("homeless", "displaced"),
];

/// Words that no doc comment starts with.
const BEGINNINGS: [&str; 7] = ["How", "That", "What", "Where", "Whether", "Who", "Why"];

/// Crates whose comments are still to be rewritten. This list may only shrink.
const NOT_YET: &[&str] = &[];

/// Searched folders: the sources of `src`, all texts of the others. Documents of the root are searched too.
const FOLDERS: [&str; 5] = ["docs", "packaging", "policies", "src", "systemd"];

const HELP: &str = "help text of the command or of the file format, which its manual page repeats";

/// File, word, and the reason why it may stay.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("packaging/deb/copyright", "shall", "a quoted licence"),
    ("policies/login-node.yaml", "nobody", "the name of a user"),
    ("src/agent/src/backend/location.rs", "nobody", "the name of a tenant in a test"),
    ("src/agent/src/recovery/fitted_quota.rs", "somebody", "a message to rewrite with its manual"),
    ("src/agent/src/recovery/leftover.rs", "nobody", "a notifier that notifies no process"),
    ("src/agent/src/recovery/unit_restore.rs", "for good", "a message to rewrite with its manual"),
    (
        "src/control/src/tick/control_loop/yielding.rs",
        "for good",
        "a message to rewrite with its manual",
    ),
    ("src/lab/src/args.rs", "What", HELP),
    ("src/policy/src/keys.rs", "How", HELP),
    ("src/policy/src/keys.rs", "What", HELP),
    ("src/policy/src/keys.rs", "Whether", HELP),
    ("src/policy/src/keys.rs", "Who", HELP),
    ("src/tenantctl/src/args.rs", "How", HELP),
    ("src/tenantctl/src/args.rs", "What", HELP),
];

/// The searched texts, each with its path below the root.
fn texts() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let is_root = folder == root;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_dir() {
                if !is_root || FOLDERS.contains(&name.as_str()) {
                    folders.push(path);
                }
                continue;
            }
            let is_source = name.starts_with("src/");
            let is_searched = match name.rsplit('.').next().unwrap_or_default() {
                // Tests of a crate are searched as little as those of the root.
                "rs" => is_source && name.split('/').nth(2) == Some("src"),
                "md" => true,
                "svg" => false,
                _ => !is_root && !is_source,
            };
            // Pictures are not text.
            if let Some(text) = is_searched.then(|| fs::read_to_string(&path).ok()).flatten() {
                found.push((name, text));
            }
        }
    }
    assert!(found.len() > 100, "only {} texts", found.len());
    found
}

/// A text in lower case and in one line, without the signs of comments: a phrase may go over two lines.
fn in_one_line(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.trim().trim_end_matches('\\');
        line.trim_start_matches(['/', '!', '#']).trim()
    });
    lines.collect::<Vec<_>>().join(" ").to_lowercase()
}

/// True if `line` has `phrase` as whole words.
fn has(line: &str, phrase: &str) -> bool {
    let is_part = |sign: char| sign.is_alphanumeric() || sign == '_';
    line.match_indices(phrase).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + phrase.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// The first word of each doc comment.
fn beginnings(source: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut is_inside = false;
    for line in source.lines().map(str::trim_start) {
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let Some(text) = text.filter(|_| !is_inside).map(str::trim_start) {
            let end = text.find(|sign: char| !sign.is_alphabetic()).unwrap_or(text.len());
            found.insert(&text[..end]);
        }
        is_inside = text.is_some();
    }
    found
}

/// Each refused word of each file.
fn findings() -> BTreeSet<(String, &'static str)> {
    let mut found = BTreeSet::new();
    for (name, text) in texts() {
        let line = in_one_line(&text);
        for (word, _) in REFUSED {
            if has(&line, word) {
                found.insert((name.clone(), *word));
            }
        }
        let first = beginnings(&text);
        for word in BEGINNINGS {
            if name.ends_with(".rs") && first.contains(word) {
                found.insert((name.clone(), word));
            }
        }
    }
    found
}

/// The crate of [`NOT_YET`] that a file belongs to.
fn not_yet(name: &str) -> Option<&'static str> {
    let named = name.strip_prefix("src/")?.split('/').next()?;
    NOT_YET.iter().copied().find(|one| *one == named)
}

/// The replacement of a refused word.
fn instead(word: &str) -> &'static str {
    let row = REFUSED.iter().find(|(refused, _)| *refused == word);
    row.map_or("a noun or a verb at the beginning of a doc comment", |(_, instead)| *instead)
}

#[test]
fn texts_use_plain_words() {
    let found = findings();
    let is_listed = |name: &str, word: &str| {
        EXCEPTIONS.iter().any(|(file, listed, _)| *file == name && *listed == word)
    };
    let faults: Vec<String> = found
        .iter()
        .filter(|(name, word)| not_yet(name).is_none() && !is_listed(name, word))
        .map(|(name, word)| format!("{name} has {word:?}; write {}", instead(word)))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
    let done: Vec<_> = EXCEPTIONS
        .iter()
        .filter(|(file, word, _)| !found.contains(&(file.to_string(), *word)))
        .collect();
    assert!(done.is_empty(), "no longer needed, take them off the list: {done:#?}");
    let open: BTreeSet<&str> = found
        .iter()
        .filter(|(name, word)| !is_listed(name, word))
        .filter_map(|(name, _)| not_yet(name))
        .collect();
    let clean: Vec<_> = NOT_YET.iter().filter(|name| !open.contains(**name)).collect();
    assert!(clean.is_empty(), "have plain words now, take them off the list: {clean:?}");
}

#[test]
fn refused_words_are_found_in_comments_and_over_lines() {
    let line = in_one_line(
        "/// It goes as far\n/// as it can.\n# Nobody waits.\nlet a = \"for \\\n good\";",
    );
    for word in ["as far as", "nobody", "for good"] {
        assert!(has(&line, word), "{word} in {line}");
    }
    for word in ["shall", "body"] {
        assert!(!has(&line, word), "{word} in {line}");
    }
    assert!(!has("shallow marshall", "shall"));
    let source =
        "//! What.\n//! Who.\n\n/// A width.\n/// Why not?\nstruct A;\n    /// Whether it is.\n";
    let found: Vec<_> = beginnings(source).into_iter().collect();
    assert_eq!(found, ["A", "What", "Whether"]);
}
