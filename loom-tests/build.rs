//! Sets `cfg(loom)` for this package alone. With `RINGPROF_MUTANT=name` it also copies the mounted
//! sources, weakens the copy as `mutants/name.mutant` says, and has the copy mounted instead.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The mounted files, relative to the repository's root.
const MOUNTED: [&str; 8] = [
    "src/sync.rs",
    "src/ring/mod.rs",
    "src/ring/index.rs",
    "src/ring/slots.rs",
    "src/ring/producer.rs",
    "src/ring/consumer.rs",
    "src/capture/bell.rs",
    "src/capture/gate.rs",
];

fn main() {
    println!("cargo::rustc-cfg=loom");
    println!("cargo::rustc-check-cfg=cfg(loom, mutant)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RINGPROF_MUTANT");
    let Ok(name) = env::var("RINGPROF_MUTANT") else {
        return;
    };
    println!("cargo::rustc-cfg=mutant");

    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = package
        .parent()
        .expect("the package lies in the repository");
    let copy = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("mutant");

    let description = package.join("mutants").join(format!("{name}.mutant"));
    let mutant = Mutant::parse(&read(&description), &description);
    assert!(
        MOUNTED.contains(&mutant.file.as_str()),
        "{}: {} is not a mounted file",
        description.display(),
        mutant.file
    );
    for file in MOUNTED {
        let mut text = read(&root.join(file));
        if file == mutant.file {
            text = mutant.apply(&text, &description);
        }
        let to = copy.join(file);
        fs::create_dir_all(to.parent().expect("a file lies in a folder"))
            .and_then(|()| fs::write(&to, text))
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", to.display()));
    }
    let mounts = format!(
        "#[path = {:?}] pub mod sync;\n#[path = {:?}] pub mod ring;\n\
         /// The part of capture that is modelled.\n\
         pub mod capture {{ #[path = {:?}] pub mod bell; #[path = {:?}] pub mod gate; }}\n",
        copy.join("src/sync.rs"),
        copy.join("src/ring/mod.rs"),
        copy.join("src/capture/bell.rs"),
        copy.join("src/capture/gate.rs"),
    );
    fs::write(copy.join("mounts.rs"), mounts).expect("the folder has just been made");
}

/// One weakening: a literal text of one file and what replaces it.
struct Mutant {
    file: String,
    from: String,
    to: String,
}

impl Mutant {
    /// Reads a description: `key: value` lines, a line `----`, the text to replace, another such
    /// line, the replacement.
    fn parse(text: &str, path: &Path) -> Self {
        let parts: Vec<_> = text.split("----\n").collect();
        let [head, from, to] = parts[..] else {
            panic!("{}: expected three parts separated by ----", path.display());
        };
        let file = head
            .lines()
            .find_map(|line| line.strip_prefix("file: "))
            .unwrap_or_else(|| panic!("{}: no line «file: …»", path.display()));
        Self {
            file: file.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
        }
    }

    /// The weakened text. Refuses a pattern that is not there exactly once, so that a change of the
    /// source cannot turn the mutant into the original unnoticed.
    fn apply(&self, text: &str, path: &Path) -> String {
        let count = text.matches(&self.from).count();
        assert!(
            count == 1 && self.from != self.to,
            "{}: its text occurs {count} times in {}, expected once; update the mutant to the source",
            path.display(),
            self.file
        );
        text.replace(&self.from, &self.to)
    }
}

fn read(path: &Path) -> String {
    println!("cargo::rerun-if-changed={}", path.display());
    fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}
