//! The arrows between rooms, and the ledger of invariants.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(under: &str, ending: &str) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of the tree") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, ending, found);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(under), ending, &mut found);
    assert!(!found.is_empty(), "nothing under {under}");
    found
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("UTF-8");
            (path, text)
        })
        .collect()
}

/// The code of a file, comments left out.
fn code(text: &str) -> String {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect::<Vec<_>>()
        .join("\n")
}

fn assert_never(under: &str, words: &[&str]) {
    for (path, text) in sources(under, ".rs") {
        for word in words {
            assert!(
                !code(&text).contains(word),
                "{} must not name {word}",
                path.display()
            );
        }
    }
}

#[test]
fn ring_knows_nothing_but_sync() {
    assert_never(
        "src/ring",
        &[
            "crate::capture",
            "crate::drain",
            "crate::sample",
            "libc",
            "crate::session",
        ],
    );
}

#[test]
fn capture_and_drain_do_not_know_each_other() {
    assert_never(
        "src/capture",
        &["crate::drain", "crate::session", "Consumer"],
    );
    assert_never(
        "src/drain",
        &["crate::capture", "crate::ring", "crate::session", "libc"],
    );
}

#[test]
fn the_core_does_not_know_ruby() {
    assert_never("src", &["rb_sys", "rb_gc", "VALUE ="]);
}

/// Numbers `I<n>` in a text, in parentheses as citations are, or at a table row's start.
fn cited(text: &str, opening: &str) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(opening) {
        let rest = &text[at + opening.len()..];
        let inside = rest.split([')', '|']).next().unwrap_or("");
        for number in inside.split(',') {
            let digits = number.trim().trim_start_matches('I').trim();
            if let Ok(number) = digits.parse() {
                found.insert(number);
            }
        }
    }
    found
}

#[test]
fn every_invariant_is_cited_and_every_citation_exists() {
    let ledger = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let known = cited(&ledger, "| I");
    assert!(known.len() >= 10, "the ledger was not found");
    let mut named = BTreeSet::new();
    for folder in ["src", "ext", "loom-tests/src", "test/rust"] {
        for (path, text) in sources(folder, ".rs") {
            let here = cited(&text, "(I");
            let unknown: Vec<_> = here.difference(&known).collect();
            assert!(unknown.is_empty(), "{} cites {unknown:?}", path.display());
            named.extend(here);
        }
    }
    let silent: Vec<_> = known.difference(&named).collect();
    assert!(silent.is_empty(), "nothing cites {silent:?}");
}

#[test]
fn every_proof_in_the_ledger_exists() {
    let ledger = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let rows = ledger.lines().filter(|line| line.starts_with("| I"));
    let mut proofs = 0;
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "a row of four cells: {row}");
        for name in cells[4].split('`').skip(1).step_by(2) {
            let name = name.split(' ').next().unwrap_or(name);
            let stem = name.trim_end_matches(".rb").trim_end_matches('*');
            let mutants = fs::read_dir(root().join("loom-tests/mutants")).expect("mutants");
            let exists = root().join(name).exists()
                || root().join(format!("test/rust/{name}.rs")).exists()
                || root().join(format!("test/{stem}.rb")).exists()
                || root().join(format!("loom-tests/tests/{name}.rs")).exists()
                || root().join(format!("src/capture/{name}.rs")).exists()
                || mutants
                    .filter_map(Result::ok)
                    .any(|file| file.file_name().to_string_lossy().starts_with(stem));
            assert!(exists, "the proof `{name}` of {} does not exist", cells[1]);
            proofs += 1;
        }
    }
    assert!(proofs >= 12);
}
