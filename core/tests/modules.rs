//! The shape of the crates, from their sources: no modules import each other in a circle, and the core needs
//! no Python.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Graph = BTreeMap<String, BTreeSet<String>>;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The modules of a crate by path: `garble::kernel`, and the empty path for `lib.rs` or `main.rs`.
fn modules(folder: &Path, prefix: &str, result: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let file = entry.expect("an entry").path();
        let stem = file.file_stem().expect("a name").to_string_lossy();
        let inner = match &*stem {
            "lib" | "main" | "mod" => prefix.to_owned(),
            name if prefix.is_empty() => name.to_owned(),
            name => format!("{prefix}::{name}"),
        };
        if file.is_dir() {
            modules(&file, &inner, result);
        } else if file.extension().is_some_and(|kind| kind == "rs") {
            let text = fs::read_to_string(&file).expect("a source file");
            result.insert(inner, text);
        }
    }
}

/// The paths that follow `opening`, with groups such as `{a, b::{c, d}}` written out.
fn paths_after(text: &str, opening: &str) -> Vec<String> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let starts = text.match_indices(opening);
    let alone = starts.filter(|(at, _)| !text[..*at].ends_with(|c| word(c) || c == ':'));
    alone
        .flat_map(|(at, _)| expand(&text[at + opening.len()..]).0)
        .collect()
}

/// The paths at the front of `text`, and what is left of it.
fn expand(text: &str) -> (Vec<String>, &str) {
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut all = Vec::new();
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
            if let Some(after) = rest.strip_prefix('}') {
                return (all, after);
            }
            let (paths, after) = expand(rest);
            all.extend(paths);
            assert!(after.len() < rest.len(), "a group of imports: {rest:.40}");
            rest = after;
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && !"_*".contains(c));
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    match rest.strip_prefix("::") {
        Some(rest) if !name.is_empty() => {
            let (paths, after) = expand(rest);
            let paths = paths.iter().map(|path| format!("{name}::{path}"));
            (paths.collect(), after)
        }
        _ => (vec![name.to_owned()], rest),
    }
}

/// The source without comments and without the tests at its end, whose `super` is the file itself.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {");
    let lines = text[..end.unwrap_or(text.len())].lines();
    let code = lines.map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}

/// Which modules of a crate use which: by `crate::` and `super::`, and a parent by what it exports.
fn uses(sources: &Path) -> Graph {
    let mut result = BTreeMap::new();
    modules(sources, "", &mut result);
    let names: BTreeSet<String> = result.keys().cloned().collect();
    let mut graph = Graph::new();
    for (module, text) in &result {
        let code = code(text);
        let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
        let mut paths = Vec::new();
        let mut add = |base: &str, path: String| {
            paths.push(if base.is_empty() {
                path
            } else {
                format!("{base}::{path}")
            });
        };
        for path in paths_after(&code, "crate::") {
            add("", path);
        }
        for path in paths_after(&code, "super::") {
            add(parent, path);
        }
        for name in &names {
            let child = match module.as_str() {
                "" => Some(name.as_str()),
                _ => name.strip_prefix(&format!("{module}::")),
            };
            let Some(child) = child.filter(|child| !child.is_empty() && !child.contains("::"))
            else {
                continue;
            };
            if !paths_after(&code, &format!("{child}::")).is_empty() {
                add(module, child.to_owned());
            }
        }
        let edges = graph.entry(module.clone()).or_default();
        for path in paths {
            // The longest part that is a module: what is left is an item in it.
            let mut target = path.as_str();
            while !names.contains(target) {
                target = target.rsplit_once("::").map_or("", |(outer, _)| outer);
            }
            if target != module {
                edges.insert(target.to_owned());
            }
        }
    }
    graph
}

/// What is left of a graph when modules that use no other, or that none uses, are taken away again and again.
fn circles(mut graph: Graph) -> Graph {
    loop {
        let used: BTreeSet<String> = graph.values().flatten().cloned().collect();
        let ends = graph
            .iter()
            .filter(|(module, uses)| uses.is_empty() || !used.contains(*module));
        let ends: BTreeSet<String> = ends.map(|(module, _)| module.clone()).collect();
        if ends.is_empty() {
            return graph;
        }
        graph.retain(|module, _| !ends.contains(module));
        for uses in graph.values_mut() {
            uses.retain(|module| !ends.contains(module));
        }
    }
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    for sources in ["core/src", "bindings/src", "timing/src"] {
        let graph = uses(&workspace().join(sources));
        let edges: usize = graph.values().map(BTreeSet::len).sum();
        assert!(edges >= graph.len() - 1, "{sources}: {edges} imports found");
        assert_eq!(circles(graph), Graph::new(), "{sources}");
    }
}

#[test]
fn imports_are_read_as_the_compiler_reads_them() {
    let graph = uses(&workspace().join("core/src"));
    let expect = |module: &str, used: &str| {
        assert!(graph[module].contains(used), "{module} uses {used}");
    };
    expect("garble::kernel", "garble::x86");
    expect("garble::x86", "garble::simd_runs");
    expect("garble::garbler", "garble::tile");
    expect("ot::sender", "ot::pprf");
    expect("ot", "ot::sender");
    expect("proofs::batch", "tuple_hash");
    expect("shamir", "gf128");
    assert_eq!(graph["garble::block"], BTreeSet::new());
    let groups = "super::{a::{b, c::D}, e}; x::super::no; super::f";
    assert_eq!(
        paths_after(groups, "super::"),
        ["a::b", "a::c::D", "e", "f"]
    );
    let edge = |used: &str| BTreeSet::from([used.to_owned()]);
    let circle = Graph::from([("a".into(), edge("b")), ("b".into(), edge("a"))]);
    assert_eq!(circles(circle.clone()), circle);
}

/// The packages that `root` depends on by `Cargo.lock`, itself included.
fn closure(root: &str) -> BTreeSet<String> {
    let lock = fs::read_to_string(workspace().join("Cargo.lock")).expect("Cargo.lock");
    let mut depends: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let name = package
            .lines()
            .find_map(|line| line.strip_prefix("name = "));
        let list = package
            .split_once("dependencies = [")
            .map_or("", |(_, list)| list);
        let each = list
            .lines()
            .filter_map(|line| line.trim().strip_prefix('"'));
        let each = each.filter_map(|line| line.split(['"', ' ']).next());
        depends
            .entry(name.expect("a name").trim_matches('"'))
            .or_default()
            .extend(each);
    }
    let (mut result, mut left) = (BTreeSet::new(), vec![root]);
    while let Some(name) = left.pop() {
        if result.insert(name.to_owned()) {
            left.extend(&depends[name]);
        }
    }
    result
}

#[test]
fn the_core_needs_no_python() {
    let python = |packages: &BTreeSet<String>| {
        packages
            .iter()
            .any(|name| name.starts_with("pyo3") || name == "numpy")
    };
    assert!(python(&closure("smpc-dp-bindings")));
    let core = closure("smpc-core");
    assert!(core.contains("curve25519-dalek"));
    assert!(!python(&core), "{core:?}");
}
