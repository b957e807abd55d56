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

fn text_of(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_default()
}

/// Names of the mutants, with what their head says.
fn mutants() -> Vec<(String, String)> {
    ["loom-tests/mutants", "test/mutants"]
        .into_iter()
        .flat_map(|folder| sources(folder, ".mutant"))
        .map(|(path, text)| {
            let name = path.file_stem().expect("a name").to_string_lossy();
            let head = text.split("----").next().unwrap_or("").to_owned();
            (name.into_owned(), head)
        })
        .collect()
}

/// Whether a name in the ledger's last column is something that the wall runs; mutants are none by
/// themselves, for they show what a check is worth. What is wrong with the name, otherwise.
fn runs(name: &str) -> Result<bool, &'static str> {
    let wall = text_of("bin/test");
    if name.starts_with("bin/") {
        return if !root().join(name).exists() {
            Err("does not exist")
        } else if wall.contains(name) {
            Ok(true)
        } else {
            Err("is there, but bin/test does not run it")
        };
    }
    let stem = name.trim_start_matches("test/").trim_end_matches(".rb");
    if root().join(format!("test/{stem}.rb")).exists() {
        return if stem.ends_with("_test") {
            Ok(true)
        } else {
            Err("is there, but bin/test runs *_test.rb alone")
        };
    }
    let test = format!("test/rust/{name}.rs");
    if root().join(&test).exists() {
        return if text_of("Cargo.toml").contains(&format!("path = \"{test}\"")) {
            Ok(true)
        } else {
            Err("is there, but cargo does not run it")
        };
    }
    let model = text_of(&format!("loom-tests/tests/{name}.rs"));
    let unit = text_of(&format!("src/capture/{name}.rs"));
    if [&model, &unit].iter().any(|text| text.contains("#[test]")) {
        return if model.is_empty() || text_of("bin/loom").contains(name) {
            Ok(true)
        } else {
            Err("is there, but bin/loom does not run it")
        };
    }
    let known = |mutant: &str| match name.strip_suffix('*') {
        Some(beginning) => mutant.starts_with(beginning),
        None => mutant == name,
    };
    if mutants().iter().any(|(mutant, _)| known(mutant)) {
        return Ok(false);
    }
    Err("does not exist")
}

/// Proofs that the ledger names in words, and what of the wall they are.
const IN_WORDS: [(&str, &str, &str); 5] = [
    ("RealtimeSanitizer", "bin/sanitize", "sanitizer=realtime"),
    ("TSan", "bin/sanitize", "sanitizer=thread"),
    ("ASan", "bin/sanitize", "sanitizer=address"),
    ("clippy", "bin/test", "cargo clippy"),
    ("the compiler", "Cargo.toml", "unsafe_op_in_unsafe_fn"),
];

#[test]
fn every_proof_in_the_ledger_runs() {
    let ledger = text_of("ARCHITECTURE.md");
    let mut rows = 0;
    for row in ledger.lines().filter(|line| line.starts_with("| I")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "a row of four cells: {row}");
        let (number, proofs) = (cells[1], cells[4]);
        let mut proved = false;
        for name in proofs.split('`').skip(1).step_by(2) {
            let name = name.split(' ').next().unwrap_or(name);
            match runs(name) {
                Ok(by_itself) => proved |= by_itself,
                Err(why) => panic!("the proof `{name}` of {number} {why}"),
            }
        }
        for (word, file, command) in IN_WORDS {
            if proofs.contains(word) {
                assert!(
                    text_of(file).contains(command),
                    "{word} proves {number}, but {file} has no «{command}»"
                );
                proved = true;
            }
        }
        assert!(proved, "{number} has no proof that runs");
        rows += 1;
    }
    assert!(rows >= 12, "the ledger was not found");
}

#[test]
fn every_mutant_weakens_a_known_invariant_and_is_in_the_table() {
    let known = cited(&text_of("ARCHITECTURE.md"), "| I");
    let table = text_of("CONTRIBUTING.md");
    let mut weakened = BTreeSet::new();
    for (name, head) in mutants() {
        let invariant = head
            .lines()
            .find_map(|line| line.strip_prefix("invariant: "))
            .unwrap_or_else(|| panic!("{name} has no line «invariant: I<n>»"));
        // Some weaken a promise that is not in the ledger.
        if invariant != "-" {
            let number = invariant.trim_start_matches('I').parse().unwrap_or(0);
            assert!(known.contains(&number), "{name} weakens {invariant}");
            weakened.insert(number);
        }
        let row = format!("| `{name}` | {invariant} |");
        assert!(
            table.contains(&row),
            "CONTRIBUTING.md lacks {name}; the rows are those of bin/mutants --table"
        );
    }
    let spared: Vec<_> = known.difference(&weakened).collect();
    assert!(spared.is_empty(), "no mutant weakens {spared:?}");
}
